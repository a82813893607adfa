package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"delenda/events"
	"delenda/sharing/ledger"
	"delenda/storage"
)

const headPrefix = "heads/"

var (
	// ErrStale tells that it is not known whether the head is in force. Try later, or at
	// another replica; serving what was known might serve erased rows.
	ErrStale = errors.New("head not confirmed")
	// ErrNoHead tells that the table has not been prepared yet.
	ErrNoHead = errors.New("table has no head yet")
	// ErrFenced ends an answer from a version below a hide floor that rose while
	// it was given.
	ErrFenced = errors.New("an erasure came in between")
	// ErrUnread tells that a manifest could not be read to its end. Try later, or at
	// another replica.
	ErrUnread = errors.New("manifest not read")
	// ErrWentBack tells that the table's newest version is below one that was served. It
	// was restored or replaced: an operator has to decide.
	ErrWentBack = errors.New("table went back")
)

// Head is what a shared table serves. Version and floors never sink from one
// head to the next.
type Head struct {
	Sequence int64           `json:"-"`               // its number in the ledger; 0: none yet
	Entry    string          `json:"entry,omitempty"` // its id in the ledger, in the feed only
	TableID  string          `json:"table_id"`
	Version  storage.Version `json:"version"`
	// HideFloor is the version of the newest erasure's delete commit: nothing
	// below is served. storage.NoVersion when there was none.
	HideFloor storage.Version `json:"hide_floor"`
	// PurgeFloor is the version of the newest purge, or storage.NoVersion.
	PurgeFloor storage.Version   `json:"purge_floor"`
	Manifest   string            `json:"manifest"` // key of the manifest's info object
	Reason     events.ChangeKind `json:"reason"`   // what made it different from the one before
	At         time.Time         `json:"at"`
}

var noHead = Head{Version: storage.NoVersion, HideFloor: storage.NoVersion, PurgeFloor: storage.NoVersion}

// announces tells whether recipients need to hear of h after prev.
func (h Head) announces(prev Head) bool {
	return h.Version != prev.Version || h.HideFloor != prev.HideFloor || h.PurgeFloor != prev.PurgeFloor || h.TableID != prev.TableID
}

func decodeHead(key string, e ledger.Entry) (Head, error) {
	if e.Number == 0 {
		return noHead, nil
	}
	var h Head
	if err := json.Unmarshal(e.Body, &h); err != nil {
		return Head{}, &storage.CorruptError{Key: ledger.Key(headPrefix+key+"/", e.Number), Offset: -1, Field: "head", Reason: "not the JSON of a head"}
	}
	h.Sequence, h.Entry = e.Number, e.ID
	return h, nil
}

// read returns the head in force of a shared table.
func (h *Heads) read(ctx context.Context, t *tableHead) (Head, error) {
	known := t.known()
	entry, err := t.ledger.Newest(ctx, ledger.Entry{Number: known.Sequence, ID: known.Entry})
	if err != nil {
		return Head{}, err
	}
	if entry.Number == known.Sequence {
		return known, nil
	}
	return decodeHead(t.key, entry)
}

// Advance puts in force the head that next makes of the one before, unless
// next says that it stays. Another replica's head is never overwritten: next is
// asked again with it.
func (h *Heads) Advance(ctx context.Context, key string, next func(prev Head) (Head, bool, error)) (Head, error) {
	t := h.tables[key]
	if t == nil {
		return Head{}, fmt.Errorf("advance head: %q is not shared", key)
	}
	for {
		started := h.now()
		prev, err := h.read(ctx, t)
		if err != nil {
			return Head{}, fmt.Errorf("advance head of %s: %w", key, err)
		}
		h.adopt(t, prev, started, 0)
		head, move, err := next(prev)
		if err != nil {
			return Head{}, err
		}
		if !move {
			return prev, nil
		}
		if head.Version < prev.Version || head.HideFloor < prev.HideFloor || head.PurgeFloor < prev.PurgeFloor {
			return Head{}, fmt.Errorf("advance head of %s from version %d to %d: %w", key, prev.Version, head.Version, ErrWentBack)
		}
		head.Entry = ""
		body, err := json.Marshal(head)
		if err != nil {
			return Head{}, fmt.Errorf("advance head of %s: %w", key, err)
		}
		started = h.now()
		entry, err := t.ledger.Append(ctx, ledger.Entry{Number: prev.Sequence, ID: prev.Entry}, body)
		if errors.Is(err, ledger.ErrLost) {
			continue
		}
		if err != nil {
			return Head{}, fmt.Errorf("advance head of %s: %w", key, err)
		}
		head.Sequence, head.Entry = entry.Number, entry.ID
		h.adopt(t, head, started, 0)
		return head, nil
	}
}
