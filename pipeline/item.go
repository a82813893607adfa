package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"delenda/pipeline/internal/object"
	"delenda/storage"
)

// State is how far a request, or one table of it, has come.
type State string

// The states. Received is the state of a table without an item.
const (
	Received State = "received" // stored, not done yet
	Held     State = "held"     // matches more than the limits allow: nothing changed until released
	Failed   State = "failed"   // of a table: given up with a reason until retried
	Partial  State = "partial"  // of a request: some table failed
	Hidden   State = "hidden"   // the table's newest version shows none of the rows
)

// Codes of failed items.
const (
	CodeInvalidValue = "invalid_value" // a value is not in the canonical form of its column's type
	CodeNotMapped    = "not_mapped"    // the table maps none of the request's identity types any more
	CodeKeyShredded  = "key_shredded"  // the request's key is gone
	CodeUnreadable   = "unreadable"    // the ciphertext does not open
	CodePanicked     = "panicked"      // deleting it broke an invariant
	CodeKilledWorker = "killed_worker" // every worker that tried it died
	CodeDeleteFailed = "delete_failed" // deleting it fails though the table is well
)

// Item is what one batch did for one request on one table.
type Item struct {
	Request RequestID       `json:"request"`
	Table   string          `json:"table"`
	Batch   int64           `json:"batch"`
	State   State           `json:"state"`   // hidden, held, failed
	Rows    int64           `json:"rows"`    // hidden by the batch, or counted while held
	Version storage.Version `json:"version"` // hidden: the version that shows none of the rows
	Code    string          `json:"code,omitempty"`
	Reason  string          `json:"reason,omitempty"` // for people; column and type, never a value
	At      time.Time       `json:"at"`
	// Late are batches whose commits were found only once they had been closed
	// without one; Rows counts what they hid too.
	Late    []int64 `json:"late,omitempty"`
	Amended bool    `json:"amended,omitempty"` // after it had been recorded; see Store.Amend
}

func itemPrefix(id RequestID, table string) string {
	return "items/" + string(id) + "/" + table + "/"
}

// PutItem records what a batch did. Recording it again changes nothing.
func (s *Store) PutItem(ctx context.Context, i Item) error {
	won, err := object.PutOnce(ctx, s.bucket, fmt.Sprintf("%s%020d", itemPrefix(i.Request, i.Table), i.Batch), i)
	if err != nil {
		return fmt.Errorf("record item: %w", err)
	}
	if !won {
		return fmt.Errorf("record item: request %s, table %s, batch %d: another result is there", i.Request, i.Table, i.Batch)
	}
	return nil
}

// Amend counts, in the newest item of a request and table, rows that a batch
// hid although it had been closed without a commit, and returns the item that
// now stands; nil if there is none of that batch or a later one. seen is up to
// which version a batch knew the table: an item that is not hidden becomes so if
// the late commit is newer than what it saw. Amending it again changes nothing.
func (s *Store) Amend(ctx context.Context, id RequestID, table string, late, rows int64, version storage.Version,
	seen func(ctx context.Context, batch int64) (storage.Version, error),
) (*Item, error) {
	for lost := ""; ; {
		i, err := s.Item(ctx, id, table)
		switch {
		case err != nil:
			return nil, fmt.Errorf("amend item: %w", err)
		case i == nil || i.Batch < late:
			return nil, nil
		case slices.Contains(i.Late, late):
			return i, nil
		}
		if i.State == Hidden {
			i.Rows += rows
		} else {
			known, err := seen(ctx, i.Batch)
			if err != nil {
				return nil, fmt.Errorf("amend item: %w", err)
			}
			if version <= known {
				return i, nil
			}
			i.State, i.Rows, i.Code, i.Reason, i.At = Hidden, rows, "", "", s.Now()
		}
		i.Version = max(i.Version, version)
		i.Late, i.Amended = append(i.Late, late), true
		key := fmt.Sprintf("%s%020d-%04d", itemPrefix(id, table), i.Batch, len(i.Late))
		if key == lost {
			return nil, fmt.Errorf("amend item: %s is there and is not listed", key)
		}
		won, err := object.PutOnce(ctx, s.bucket, key, i)
		if err != nil {
			return nil, fmt.Errorf("amend item: %w", err)
		}
		if won {
			return i, nil
		}
		lost = key
	}
}

// Item returns the newest item of a request and table, nil if there is none.
func (s *Store) Item(ctx context.Context, id RequestID, table string) (*Item, error) {
	var last string
	for info, err := range s.bucket.List(ctx, itemPrefix(id, table), "") {
		if err != nil {
			return nil, fmt.Errorf("list items: %w", err)
		}
		last = info.Key
	}
	if last == "" {
		return nil, nil
	}
	var i Item
	if err := object.Get(ctx, s.bucket, last, &i); err != nil {
		return nil, fmt.Errorf("read item: %w", err)
	}
	return &i, nil
}

// Runnable reports whether the request is to be deleted from the table: it was
// not tried yet, or it was held and is released, or it failed and a person
// wants it retried. A request that is hidden never is again.
func (s *Store) Runnable(ctx context.Context, id RequestID, table string) (bool, error) {
	i, err := s.Item(ctx, id, table)
	if err != nil {
		return false, err
	}
	return s.runnable(ctx, id, table, i)
}

func (s *Store) runnable(ctx context.Context, id RequestID, table string, i *Item) (bool, error) {
	switch {
	case i == nil:
		return true, nil
	case i.State == Held:
		return s.exists(ctx, releaseKey(id))
	case i.State == Failed:
		return s.exists(ctx, retryKey(id, table, i.Batch))
	}
	return false, nil
}

func (s *Store) exists(ctx context.Context, key string) (bool, error) {
	_, err := s.bucket.Stat(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
