package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"delenda/events"
	"delenda/storage"
	"delenda/storage/delta/log"
)

const (
	spareManifests   = 32 // in memory, beside those that are served
	keepHeads        = 3  // numbers that stay behind the head
	keepHeadsFor     = 5 * time.Minute
	keepManifests    = 90 * time.Minute // after they were replaced: longer than a refresh token lives
	refreshAtOnce    = 4                // tables
	refreshesTimeout = 30 * time.Minute
)

// StoreOptions configure a Store; all but Feed and Lease are required.
type StoreOptions struct {
	Installation string
	State        storage.Bucket
	Keys         Keys
	Catalog      *Catalog
	Sources      map[string]Source // by configured name
	Publish      func(context.Context, events.Event) error
	Feed         Feed
	Lease        time.Duration
	Poll         time.Duration
	URLTTL       time.Duration
	Now          func() time.Time
	Logger       *slog.Logger
}

// Store keeps heads and manifests of all shared tables current.
type Store struct {
	o         StoreOptions
	heads     *Heads
	manifests *Manifests
	sources   map[string]*sourceState // of shared tables; does not change
	names     []string                // of sources, sorted
	announced map[string]*announcement
	asked     asked
}

// sourceState is what is known of one table that is shared.
type sourceState struct {
	name string
	Source
	refs []Ref
	turn chan struct{} // holds one token: who has it refreshes

	mu       sync.Mutex
	prepared *Manifest
	err      error // of the last refresh
}

// announcement is the head that this replica announced last.
type announcement struct {
	turn chan struct{} // holds one token: who has it announces, and owns head
	head Head
}

// View is what a request is answered from.
type View struct {
	Ref      Ref
	Head     Head
	Manifest *Manifest
}

// errNoSource: what is shared could not be opened, or is not configured.
var errNoSource = errors.New("the table behind it could not be opened")

// NewStore returns a store that serves nothing yet. A shared table whose source
// is missing is not served, and its status says so; the others are.
func NewStore(o StoreOptions) *Store {
	s := &Store{
		o: o, manifests: NewManifests(o.State, o.Keys, 2*len(o.Catalog.Refs())+spareManifests),
		sources: map[string]*sourceState{}, announced: map[string]*announcement{},
		asked: asked{at: map[string]time.Time{}},
	}
	var keys []string
	for _, ref := range o.Catalog.Refs() {
		source := o.Sources[ref.Source]
		st := s.sources[ref.Source]
		if st == nil {
			st = &sourceState{name: ref.Source, Source: source, turn: make(chan struct{}, 1), err: ErrNoHead}
			st.turn <- struct{}{}
			s.sources[ref.Source] = st
			s.names = append(s.names, ref.Source)
		}
		st.refs = append(st.refs, ref)
		a := &announcement{turn: make(chan struct{}, 1), head: noHead}
		a.turn <- struct{}{}
		s.announced[ref.Key()] = a
		keys = append(keys, ref.Key())
	}
	slices.Sort(s.names)
	s.heads = newHeads(o.State, keys, o.Feed, o.Lease, o.Now, o.Logger)
	return s
}

// Source returns the configured table behind a shared one.
func (s *Store) Source(ref Ref) (Source, bool) {
	st, ok := s.sources[ref.Source]
	if !ok || st.Bucket == nil {
		return Source{}, false
	}
	return st.Source, true
}

// Current returns what the shared table serves now, see Heads.Current.
func (s *Store) Current(ctx context.Context, ref Ref) (View, error) {
	if _, ok := s.Source(ref); !ok {
		return View{}, fmt.Errorf("%s: %w: %w", ref.Key(), ErrNoHead, errNoSource)
	}
	for attempt := 0; ; attempt++ {
		head, err := s.heads.Current(ctx, ref.Key())
		if err != nil {
			return View{}, err
		}
		manifest, err := s.Manifest(ctx, ref, head.Manifest)
		if errors.Is(err, ErrNoHead) {
			return View{}, err
		}
		if errors.Is(err, storage.ErrNotFound) && attempt == 0 {
			// Only a manifest below the head is ever removed.
			if err := s.heads.confirm(ctx, s.heads.tables[ref.Key()]); err != nil {
				return View{}, fmt.Errorf("%s: %w: %w", ref.Key(), ErrStale, err)
			}
			continue
		}
		if err != nil {
			return View{}, fmt.Errorf("%s: %w: load manifest: %w", ref.Key(), ErrStale, err)
		}
		return View{ref, head, manifest}, nil
	}
}

// Stream writes the files of a view's manifest to w, and notes that the table
// was asked for. o.Sign is used for what is not presigned.
func (s *Store) Stream(ctx context.Context, w io.Writer, view View, o StreamOptions) (Streamed, error) {
	if source, ok := s.Source(view.Ref); ok && source.Presigner != nil {
		o.Presigned, o.MinLife, o.Now = view.Ref.Key(), s.o.URLTTL/2-s.o.URLTTL/8, s.o.Now()
		s.asked.note(view.Ref.Key(), o.Now)
	}
	o.Check = func() error {
		if view.Manifest.Version < s.heads.Known(view.Ref.Key()).HideFloor {
			return ErrFenced
		}
		return nil
	}
	return s.manifests.Stream(ctx, w, view.Manifest, o)
}

// Manifest returns a manifest of the table behind a shared one, unless it was
// made by other rules than are in force now: ErrNoHead until there is a new
// one. An absent one is storage.ErrNotFound.
func (s *Store) Manifest(ctx context.Context, ref Ref, key string) (*Manifest, error) {
	m, err := s.manifests.Load(ctx, key)
	if err != nil {
		return nil, err
	}
	source, _ := s.Source(ref)
	for _, column := range source.IdentityColumns {
		if !slices.Contains(m.Redacted, column) {
			return nil, fmt.Errorf("%s: %w: its manifest shows an identity column", ref.Key(), ErrNoHead)
		}
	}
	if m.Format != manifestFormat {
		return nil, fmt.Errorf("%s: %w: its manifest has another format", ref.Key(), ErrNoHead)
	}
	return m, nil
}

// HideFloor returns the hide floor in force, see Heads.Current.
func (s *Store) HideFloor(ctx context.Context, ref Ref) (storage.Version, error) {
	head, err := s.heads.Current(ctx, ref.Key())
	return head.HideFloor, err
}

// Fenced tells whether this replica knows that a version may no longer be
// served. It looks at nothing but memory: for answers that are under way.
func (s *Store) Fenced(ref Ref, v storage.Version) bool {
	return v < s.heads.Known(ref.Key()).HideFloor
}

// Refresh brings every share of a table to its newest version and announces
// it. It is safe to call again, and beside other replicas.
func (s *Store) Refresh(ctx context.Context, name string) error {
	return s.refresh(ctx, name, false)
}

func (s *Store) refresh(ctx context.Context, name string, polled bool) error {
	st, ok := s.sources[name]
	if !ok {
		return nil // not shared
	}
	select {
	case <-st.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { st.turn <- struct{}{} }()
	err := s.prepare(ctx, st, polled)
	if err == nil {
		err = s.announceAll(ctx, st)
	}
	if ctx.Err() == nil {
		st.mu.Lock()
		st.err = err
		st.mu.Unlock()
	}
	return err
}

// prepare moves the heads of a source's shares; it holds the source's turn.
func (s *Store) prepare(ctx context.Context, st *sourceState, polled bool) error {
	if st.Bucket == nil {
		return errNoSource
	}
	moved, err := s.outdated(ctx, st)
	if err != nil || !moved {
		return err
	}
	manifest, snap, err := s.manifests.Prepare(ctx, st.name, st.Source, storage.NoVersion)
	if err != nil {
		return err
	}
	kind := events.ChangeForeign
	for _, ref := range st.refs {
		head, err := s.heads.Advance(ctx, ref.Key(), func(prev Head) (Head, bool, error) {
			return s.next(ctx, st, manifest, snap, prev)
		})
		if err != nil {
			return err
		}
		if head.Version == manifest.Version {
			kind = head.Reason
		}
		s.tidy(ctx, ref, head)
	}
	st.mu.Lock()
	before := st.prepared
	st.prepared = manifest
	st.mu.Unlock()
	if polled && before != nil && before.Version < manifest.Version && kind == events.ChangeForeign {
		if err := s.publishForeign(ctx, st.name, manifest); err != nil {
			st.mu.Lock()
			st.prepared = before // so that the next poll finds it again
			st.mu.Unlock()
			return err
		}
	}
	return nil
}

// outdated tells whether the table may have another version than its shares
// serve, or another manifest.
func (s *Store) outdated(ctx context.Context, st *sourceState) (bool, error) {
	st.mu.Lock()
	prepared := st.prepared
	st.mu.Unlock()
	if prepared == nil {
		return true, nil
	}
	latest, err := log.LatestVersion(ctx, st.Bucket, prepared.Version)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", st.name, err)
	}
	if latest != prepared.Version {
		return true, nil
	}
	for _, ref := range st.refs {
		if s.heads.Known(ref.Key()).Manifest != prepared.Key {
			return true, nil
		}
	}
	return false, nil
}

// next makes the head after prev for a prepared version.
func (s *Store) next(ctx context.Context, st *sourceState, manifest *Manifest, snap *log.Snapshot, prev Head) (Head, bool, error) {
	if prev.Sequence > 0 && prev.Version == manifest.Version && prev.Manifest == manifest.Key {
		return prev, false, nil
	}
	if manifest.Version < prev.Version {
		// Behind another replica is not behind the table: only its log tells.
		latest, err := log.LatestVersion(ctx, st.Bucket, manifest.Version)
		if err != nil {
			return Head{}, false, err
		}
		if latest >= prev.Version {
			return prev, false, nil
		}
		return Head{}, false, fmt.Errorf("%s is at version %d, version %d was served: %w", st.name, latest, prev.Version, ErrWentBack)
	}
	f, err := findFloors(ctx, st.Bucket, snap, prev.Version, s.o.Installation)
	if err != nil {
		return Head{}, false, err
	}
	head := Head{
		TableID: manifest.TableID, Version: manifest.Version, Manifest: manifest.Key,
		HideFloor: max(prev.HideFloor, f.hide), PurgeFloor: max(prev.PurgeFloor, f.purge),
		Reason: events.ChangeForeign, At: s.o.Now().UTC(),
	}
	switch {
	case head.HideFloor > prev.HideFloor:
		head.Reason = events.ChangeDelete
	case head.PurgeFloor > prev.PurgeFloor:
		head.Reason = events.ChangePurge
	}
	return head, true, nil
}

// tidy removes what no one needs any more; what it cannot remove stays until
// the next time.
func (s *Store) tidy(ctx context.Context, ref Ref, head Head) {
	if err := s.heads.tables[ref.Key()].ledger.Trim(ctx, head.Sequence, keepHeads, s.o.Now().Add(-keepHeadsFor)); err != nil && ctx.Err() == nil {
		s.o.Logger.WarnContext(ctx, "old heads not removed", slog.String("table", ref.Key()), slog.Any("error", err))
	}
	newest, floor := head.Version, head.HideFloor
	for _, other := range s.sources[ref.Source].refs {
		known := s.heads.Known(other.Key())
		newest, floor = min(newest, known.Version), min(floor, known.HideFloor)
	}
	if err := s.o.State.Delete(ctx, presignedPrefix+ref.Key()); err != nil && ctx.Err() == nil { // URLs of another version
		s.o.Logger.WarnContext(ctx, "old presigned manifest not removed", slog.String("table", ref.Key()), slog.Any("error", err))
	}
	if err := s.manifests.trim(ctx, ref.Source, newest, floor, s.o.Now().Add(-keepManifests)); err != nil && ctx.Err() == nil {
		s.o.Logger.WarnContext(ctx, "old manifests not removed", slog.String("table", ref.Key()), slog.Any("error", err))
	}
}

// Run follows the feed, and looks at every table at once and then every poll
// interval, until ctx ends.
func (s *Store) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { s.heads.run(ctx) })
	work.Go(func() {
		for ctx.Err() == nil {
			s.presignAll(ctx)
			pause(ctx, min(s.o.Poll, s.o.URLTTL/8))
		}
	})
	for ctx.Err() == nil {
		if err := s.heads.readAll(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "heads not read", slog.Any("error", err))
		}
		var g errgroup.Group
		g.SetLimit(refreshAtOnce)
		for _, name := range s.names {
			g.Go(func() error {
				bounded, cancel := context.WithTimeout(ctx, refreshesTimeout)
				defer cancel()
				if err := s.refresh(bounded, name, true); err != nil && ctx.Err() == nil {
					s.o.Logger.WarnContext(ctx, "table not refreshed", slog.String("table", name), slog.Any("error", err))
				}
				return nil
			})
		}
		_ = g.Wait() // every error is logged and kept in the status
		pause(ctx, s.o.Poll)
	}
}
