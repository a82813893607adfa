// Package ledger keeps a small value that changes by compare-and-set on any
// bucket: entries are objects "{prefix}{%020d}", each written once and only if
// absent, and the highest number decides. Readers need one listing, writers one
// put-if-absent and one listing; no lock and no conditional replace is needed.
//
//	{"id": random, "after": id of the entry before, "value": the value, JSON}
//
// Guarantees: of all writers that append after the same entry at most one wins;
// a writer whose answer got lost learns by reading back whether it won; a value
// that a writer was told is in force is seen, or one that came after it, by
// every listing that starts later. Not guaranteed: that a writer that was away
// for longer than entries are kept learns that it won.
//
// A Ledger holds no state and is safe for concurrent use.
package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"delenda/storage"
)

// MaxEntryBytes bounds one entry.
const MaxEntryBytes = 4 << 20

// maxObjectBytes leaves room for what stands around a value.
const maxObjectBytes = MaxEntryBytes + 4<<10

// ErrLost is returned by Append when another entry is in force: read it and
// decide again.
var ErrLost = errors.New("another entry is in force")

// ErrGone is returned when the bucket no longer shows an entry that was in
// force. What it shows then is not to be believed.
var ErrGone = errors.New("the entry in force is gone")

// Ledger is one value's entries in a bucket.
type Ledger struct {
	bucket storage.Bucket
	prefix string
}

// Entry is one value of the ledger. The zero Entry stands before the first.
type Entry struct {
	Number int64  // > 0
	ID     string // random
	Body   []byte // JSON
}

type envelope struct {
	ID    string          `json:"id"`
	After string          `json:"after"`
	Value json.RawMessage `json:"value"`
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
// known itself. Body is read only for an entry that is newer. A bucket that
// shows neither, as a directory that is no longer mounted does, confirms
// nothing: that is ErrGone.
func (l *Ledger) Newest(ctx context.Context, known Entry) (Entry, error) {
	for {
		number, err := l.highest(ctx, known.Number)
		if err != nil {
			return Entry{}, err
		}
		if number <= known.Number {
			return known, nil
		}
		e, err := l.read(ctx, number)
		if errors.Is(err, storage.ErrNotFound) {
			continue // trimmed in between: a newer one is in force
		}
		if err != nil {
			return Entry{}, err
		}
		return Entry{number, e.ID, e.Value}, nil
	}
}

func (l *Ledger) read(ctx context.Context, number int64) (envelope, error) {
	key := Key(l.prefix, number)
	body, err := storage.ReadObject(ctx, l.bucket, key, maxObjectBytes)
	if err != nil {
		return envelope{}, err
	}
	var e envelope
	if json.Unmarshal(body, &e) != nil || e.ID == "" || len(e.Value) == 0 {
		return envelope{}, &storage.CorruptError{Key: key, Offset: -1, Field: "entry", Reason: "not the JSON of an entry"}
	}
	return e, nil
}

// Append puts body, which is JSON, in force after the entry `after`. ErrLost
// tells that another entry came after that one. After any other error the entry
// may or may not be in force: read the newest.
func (l *Ledger) Append(ctx context.Context, after Entry, body []byte) (Entry, error) {
	if len(body) > MaxEntryBytes {
		return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, storage.ErrTooLarge)
	}
	number, id := after.Number+1, rand.Text()
	object, err := json.Marshal(envelope{id, after.ID, body})
	if err != nil {
		return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, err)
	}
	err = l.bucket.Put(ctx, Key(l.prefix, number), bytes.NewReader(object), storage.PutOptions{IfAbsent: true, ContentType: "application/json"})
	if err != nil { // what won tells whose answer was lost
		won, rerr := l.read(ctx, number)
		switch {
		case rerr == nil && won.ID == id:
		case rerr == nil, errors.Is(err, storage.ErrExists) && errors.Is(rerr, storage.ErrNotFound): // the latter was trimmed
			return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, ErrLost)
		case errors.Is(err, storage.ErrExists):
			return Entry{}, fmt.Errorf("append to %q: read what won: %w", l.prefix, rerr)
		default:
			return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, err)
		}
	}
	if err := l.inForce(ctx, number, id); err != nil {
		return Entry{}, fmt.Errorf("append to %q: %w", l.prefix, err)
	}
	return Entry{number, id, body}, nil
}

// inForce returns ErrLost if an entry that was just written never was in force:
// a writer that was away for long may fill a number that was trimmed. Of an
// entry that was in force, the next one says so.
func (l *Ledger) inForce(ctx context.Context, number int64, id string) error {
	highest, err := l.highest(ctx, number)
	if err != nil || highest <= number {
		return err
	}
	next, err := l.read(ctx, number+1)
	if errors.Is(err, storage.ErrNotFound) || err == nil && next.After != id {
		return ErrLost
	}
	return err
}

// Trim removes the entries that are keep or more behind the one in force and,
// unless it is zero, older than the given time.
func (l *Ledger) Trim(ctx context.Context, newest, keep int64, before time.Time) error {
	for info, err := range l.bucket.List(ctx, l.prefix, "") {
		if err != nil {
			return err
		}
		n, ok := Number(l.prefix, info.Key)
		if !ok {
			continue
		}
		if n > newest-keep || !before.IsZero() && !info.ModTime.Before(before) {
			return nil
		}
		if err := l.bucket.Delete(ctx, info.Key); err != nil {
			return err
		}
	}
	return nil
}

// highest returns the highest number, which is at least known, or ErrGone.
func (l *Ledger) highest(ctx context.Context, known int64) (int64, error) {
	start := ""
	if known > 1 {
		start = Key(l.prefix, known-1) // exclusive: the known one is listed
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
	if number < known {
		return 0, fmt.Errorf("find the newest of %q: %w", l.prefix, ErrGone)
	}
	return number, nil
}
