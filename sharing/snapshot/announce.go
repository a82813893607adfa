package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"delenda/events"
)

// announceAll announces the heads of a source's shares.
func (s *Store) announceAll(ctx context.Context, st *sourceState) error {
	var errs []error
	for _, ref := range st.refs {
		if err := s.announce(ctx, ref); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// announce tells replicas, and then recipients, of the head of a shared table,
// once for each replica that runs: a head whose writer died is announced by
// another, or by the next start. The event's id is the same each time.
func (s *Store) announce(ctx context.Context, ref Ref) error {
	a := s.announced[ref.Key()]
	select {
	case <-a.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { a.turn <- struct{}{} }()
	t := s.heads.tables[ref.Key()]
	t.mu.Lock()
	head, since, fed := t.head, t.seenAt, t.fed
	t.mu.Unlock()
	if head.Sequence <= a.head.Sequence {
		return nil
	}
	if s.o.Feed != nil && fed != head.Entry {
		value, err := json.Marshal(head)
		if err != nil {
			return fmt.Errorf("announce %s: %w", ref.Key(), err)
		}
		if _, err := s.o.Feed.Put(ctx, ref.Key(), value); err != nil {
			return fmt.Errorf("announce %s: tell replicas: %w", ref.Key(), err)
		}
		since = s.o.Now()
	}
	if head.announces(a.head) {
		pause(ctx, since.Add(s.o.Lease).Sub(s.o.Now()))
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.publishHead(ctx, ref, head); err != nil {
			return fmt.Errorf("announce %s: %w", ref.Key(), err)
		}
	}
	a.head = head
	return nil
}

func (s *Store) publishHead(ctx context.Context, ref Ref, head Head) error {
	event, err := events.New(s.eventSource(), events.TypeShareChanged,
		events.ShareSubject(strings.ToLower(ref.Share), strings.ToLower(ref.Schema), strings.ToLower(ref.Name)),
		fmt.Sprintf("%s@%d/%d/%d", head.TableID, head.Version, head.HideFloor, head.PurgeFloor), head.At,
		events.ShareChanged{
			Share: ref.Share, Schema: ref.Schema, Table: ref.Name,
			Version: int64(head.Version), HideFloor: int64(head.HideFloor), PurgeFloor: int64(head.PurgeFloor),
			Reason: head.Reason, At: head.At,
		})
	if err != nil {
		return err
	}
	return s.o.Publish(ctx, event)
}

// publishForeign tells of a commit by another writer.
func (s *Store) publishForeign(ctx context.Context, name string, manifest *Manifest) error {
	event, err := events.New(s.eventSource(), events.TypeTableChanged, events.TableSubject(name),
		fmt.Sprintf("%s@%d", manifest.TableID, manifest.Version), manifest.Timestamp,
		events.TableChanged{Table: name, Version: int64(manifest.Version), Kind: events.ChangeForeign, At: manifest.Timestamp})
	if err != nil {
		return err
	}
	if err := s.o.Publish(ctx, event); err != nil {
		return fmt.Errorf("announce a commit to %s: %w", name, err)
	}
	return nil
}

func (s *Store) eventSource() string { return "/delenda/" + s.o.Installation + "/publisher" }

// Status tells how one shared table is served.
type Status struct {
	Ref  Ref
	Head Head  // noHead's versions are storage.NoVersion
	Err  error // nil if it is served and was brought up to date the last time
}

// Status tells of every shared table.
func (s *Store) Status() []Status {
	var all []Status
	for _, ref := range s.o.Catalog.Refs() {
		st := s.sources[ref.Source]
		st.mu.Lock()
		err := st.err
		st.mu.Unlock()
		all = append(all, Status{ref, s.heads.Known(ref.Key()), err})
	}
	return all
}
