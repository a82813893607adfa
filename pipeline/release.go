package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"delenda/events"
	"delenda/pipeline/internal/object"
	"delenda/storage"
)

// ErrNotWaiting says that nothing of the request waits for this decision.
var ErrNotWaiting = errors.New("not waiting for that")

// Released records that a person let a held request go.
type Released struct {
	At time.Time `json:"at"`
}

func releaseKey(id RequestID) string { return "releases/" + string(id) }

func retryKey(id RequestID, table string, batch int64) string {
	return fmt.Sprintf("retries/%s/%s/%020d", id, table, batch)
}

// IsReleased reports whether the request may exceed the limits.
func (s *Store) IsReleased(ctx context.Context, id RequestID) (bool, error) {
	return s.exists(ctx, releaseKey(id))
}

// Release lets a held request go: it is not held again, on any table. It
// returns the tables whose items it published. ErrNotWaiting if no table is
// held; storage.ErrNotFound if there is no such request.
func (s *Store) Release(ctx context.Context, publish Publish, id RequestID) ([]string, error) {
	r, err := s.Record(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	var tables []string
	for _, table := range r.Tables {
		i, err := s.Item(ctx, id, table)
		if err != nil {
			return nil, fmt.Errorf("release: %w", err)
		}
		if i != nil && i.State == Held {
			tables = append(tables, table)
		}
	}
	if len(tables) == 0 {
		return nil, fmt.Errorf("release request %s: %w", id, ErrNotWaiting)
	}
	if _, err := object.PutOnce(ctx, s.bucket, releaseKey(id), Released{At: s.Now()}); err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	for _, table := range tables {
		if err := s.feed(ctx, publish, r, table, "released"); err != nil {
			return nil, fmt.Errorf("release: %w", err)
		}
	}
	return tables, nil
}

// Retry has a failed table of a request tried again. ErrNotWaiting if it has
// not failed.
func (s *Store) Retry(ctx context.Context, publish Publish, id RequestID, table string) error {
	r, err := s.Record(ctx, id)
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	i, err := s.Item(ctx, id, table)
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	if i == nil || i.State != Failed {
		return fmt.Errorf("retry request %s on table %s: %w", id, table, ErrNotWaiting)
	}
	if err := object.Put(ctx, s.bucket, retryKey(id, table, i.Batch), struct{}{}); err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	if err := s.feed(ctx, publish, r, table, fmt.Sprintf("retry/%d", i.Batch)); err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	return nil
}

// Replay has a dead letter of the requests stage tried again. It goes by the
// record, not by the letter's payload. A dead letter of the intake has no
// record; publishing its payload on its subject again is its replay.
func (s *Store) Replay(ctx context.Context, publish Publish, d events.DeadLetter) error {
	id, ok := ParseRequestID(d.Request)
	if !ok || !events.ValidName(d.Table) {
		return fmt.Errorf("replay: %w: no request and table in it", ErrNotWaiting)
	}
	return s.Retry(ctx, publish, id, d.Table)
}

func (s *Store) feed(ctx context.Context, publish Publish, r *Record, table, cause string) error {
	e, err := s.ItemEvent(r, table, cause)
	if err != nil {
		return err
	}
	return publish(ctx, e)
}

// Feed publishes the item of every table that is still to be done. It returns
// how many.
func (s *Store) Feed(ctx context.Context, publish Publish, r *Record) (int, error) {
	fed := 0
	for _, table := range r.Tables {
		run, err := s.Runnable(ctx, r.ID, table)
		if err != nil {
			return fed, fmt.Errorf("feed request: %w", err)
		}
		if !run {
			continue
		}
		if err := s.feed(ctx, publish, r, table, ""); err != nil {
			return fed, fmt.Errorf("feed request: %w", err)
		}
		fed++
	}
	return fed, nil
}

// removeOrphan removes marker and key of a request that has no record. If the
// record appears meanwhile, both are put back.
func (s *Store) removeOrphan(ctx context.Context, id RequestID) error {
	var key []byte
	wrapped, err := storage.ReadObject(ctx, s.bucket, requestKey(id), maxWrapped)
	switch {
	case err == nil:
		if key, err = s.keeper.Decrypt(ctx, wrapped); err != nil {
			return fmt.Errorf("unwrap %s: %w", requestKey(id), err)
		}
	case !errors.Is(err, storage.ErrNotFound):
		return err
	}
	if err := s.bucket.Delete(ctx, requestKey(id)); err != nil {
		return err
	}
	if err := s.bucket.Delete(ctx, openKey(id)); err != nil {
		return err
	}
	_, err = s.Record(ctx, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	case key == nil:
		return object.Put(ctx, s.bucket, openKey(id), struct{}{})
	}
	return s.restore(ctx, id, key)
}
