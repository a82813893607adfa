// Package ledger keeps a small value that changes by compare-and-set on any
// bucket: entries are objects "{prefix}{%020d}", each written once and only if
// absent, and the highest number decides. Readers need one listing, writers one
// put-if-absent and one listing; no lock and no conditional replace is needed.
//
// Guarantees: of all writers that append after the same entry at most one wins;
// a writer whose answer got lost learns by reading back whether it won; a value
// that a writer was told is in force is seen by every listing that starts after.
// Not guaranteed: that every number is used, or that old entries stay: Trim
// removes them.
//
// A Ledger holds no state and is safe for concurrent use.
package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"delenda/storage"
)

// MaxEntryBytes bounds one entry.
const MaxEntryBytes = 4 << 20

// ErrLost is returned by Append when another entry is in force: read it and
// decide again.
var ErrLost = errors.New("another entry is in force")

// Ledger is one value's entries in a bucket.
type Ledger struct {
	bucket storage.Bucket
	prefix string
}

// Entry is one value of the ledger. The zero Entry stands before the first.
type Entry struct {
	Number int64 // > 0
	Body   []byte
}

// New returns the ledger whose entries lie under prefix, which ends in '/'.
func New(bucket storage.Bucket, prefix string) *Ledger {
	return &Ledger{bucket: bucket, prefix: prefix}
}

// Key names the entry with a number.
func Key(prefix string, number int64) string { return fmt.Sprintf("%s%020d", prefix, number) }

// Number returns the number of the entry that key names under prefix.
func Number(prefix, key string) (int64, bool) {
	digits, ok := strings.CutPrefix(key, prefix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n > 0
}

// Newest returns the entry in force if it is newer than known, and otherwise
// known itself. Body is read only for an entry that is newer.
func (l *Ledger) Newest(ctx context.Context, known Entry) (Entry, error) {
	for {
		number, err := l.highest(ctx, known.Number)
		if err != nil {
			return Entry{}, err
		}
		if number <= known.Number {
			return known, nil
		}
		body, err := storage.ReadObject(ctx, l.bucket, Key(l.prefix, number), MaxEntryBytes)
		if errors.Is(err, storage.ErrNotFound) {
			continue // trimmed in between: a newer one is in force
		}
		if err != nil {
			return Entry{}, err
		}
		return Entry{number, body}, nil
	}
}

// Append puts body in force after the entry with number `after`. ErrLost tells
// that another entry is. Bodies of different writers MUST differ, since an
// entry with the same bytes counts as the writer's own. After any other error
// the entry may or may not be in force: appending the same body after the same
// number again finds out.
func (l *Ledger) Append(ctx context.Context, after int64, body []byte) (Entry, error) {
	if len(body) > MaxEntryBytes {
		return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, storage.ErrTooLarge)
	}
	number := after + 1
	key := Key(l.prefix, number)
	err := l.bucket.Put(ctx, key, bytes.NewReader(body), storage.PutOptions{IfAbsent: true, ContentType: "application/json"})
	if err != nil {
		won, rerr := storage.ReadObject(ctx, l.bucket, key, MaxEntryBytes)
		switch {
		case rerr == nil && bytes.Equal(won, body):
		case rerr == nil:
			return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, ErrLost)
		case errors.Is(err, storage.ErrExists):
			return Entry{}, fmt.Errorf("append to %q: read what won: %w", l.prefix, rerr)
		default:
			return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, err)
		}
	}
	// A writer that was away for long may fill a number that was trimmed.
	highest, err := l.highest(ctx, number)
	if err != nil {
		return Entry{}, err
	}
	if highest > number {
		return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, ErrLost)
	}
	return Entry{number, body}, nil
}

// Trim removes the entries that are keep or more behind the one in force.
func (l *Ledger) Trim(ctx context.Context, newest, keep int64) error {
	for info, err := range l.bucket.List(ctx, l.prefix, "") {
		if err != nil {
			return err
		}
		n, ok := Number(l.prefix, info.Key)
		if !ok {
			continue
		}
		if n > newest-keep {
			return nil
		}
		if err := l.bucket.Delete(ctx, info.Key); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) highest(ctx context.Context, after int64) (int64, error) {
	start := ""
	if after > 0 {
		start = Key(l.prefix, after)
	}
	var number int64
	for info, err := range l.bucket.List(ctx, l.prefix, start) {
		if err != nil {
			return 0, fmt.Errorf("find the newest of %q: %w", l.prefix, err)
		}
		if n, ok := Number(l.prefix, info.Key); ok {
			number = n
		}
	}
	return number, nil
}
