package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"delenda/pipeline/internal/object"
	"delenda/storage"
)

// Parked is why no deleter works on a table at the moment. Requests wait
// meanwhile; other tables go on.
type Parked struct {
	Code   string    `json:"code"`   // lower_snake_case
	Reason string    `json:"reason"` // for people, senders among them: features and columns, never a value or a place
	Since  time.Time `json:"since"`
}

func parkedKey(table string) string { return "parked/" + table }

// Park records that a table cannot be worked on, in place of what was said
// before.
func (s *Store) Park(ctx context.Context, table string, p Parked) error {
	if err := object.Put(ctx, s.bucket, parkedKey(table), p); err != nil {
		return fmt.Errorf("park table: %w", err)
	}
	return nil
}

// Unpark records that a table can be worked on.
func (s *Store) Unpark(ctx context.Context, table string) error {
	if err := s.bucket.Delete(ctx, parkedKey(table)); err != nil {
		return fmt.Errorf("unpark table: %w", err)
	}
	return nil
}

// Parked returns why a table cannot be worked on, nil if it can or if nobody
// has tried.
func (s *Store) Parked(ctx context.Context, table string) (*Parked, error) {
	var p Parked
	err := object.Get(ctx, s.bucket, parkedKey(table), &p)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look whether table is parked: %w", err)
	}
	return &p, nil
}

// explain says of the tables that are still to be done why they wait, if they
// are parked.
func (s *Store) explain(ctx context.Context, tables []TableStatus) error {
	for i := range tables {
		t := &tables[i]
		if t.State != Received {
			continue
		}
		p, err := s.Parked(ctx, t.Table)
		if err != nil {
			return err
		}
		if p != nil {
			t.Parked, t.Code, t.Reason = true, p.Code, p.Reason
		}
	}
	return nil
}
