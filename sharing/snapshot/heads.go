package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"delenda/sharing/ledger"
	"delenda/storage"
)

const (
	beatKey        = "beat" // a head's key has two dots, this has none
	confirmTimeout = 10 * time.Second
	watchPause     = time.Second
)

// Heads is a replica's view of the heads of all shared tables, which knows at
// any moment whether it may be trusted.
//
// A head is in force when its ledger says so, and it is announced after that.
// Without a lease each request asks the ledger: a listing that starts after the
// request came in (shared by all that wait for one) shows every head that was
// announced before. With a lease, a head may be used for that long after the
// moment at which it was known to be in force, and an announcement waits that
// long after the head was put in force and into the feed: no replica still
// serves what was before. That moment is the start of a listing, or the moment
// at which a beat was put into the feed that the feed's watch has shown since:
// the feed is in order, so whatever was put before the beat has been seen. A
// connection that is half dead shows no beats.
//
// The feed only ever alarms: what is in it is read from the ledger.
type Heads struct {
	feed  Feed // may be nil
	lease time.Duration
	now   func() time.Time
	log   *slog.Logger

	state  storage.Bucket
	tables map[string]*tableHead // does not change

	mu       sync.Mutex
	fedAt    time.Time // what the feed told up to here is known
	beatAt   time.Time // of the beat that is waited for
	beatRev  uint64    // its revision, 0 until it is known
	beatSeen uint64    // highest revision seen since it was put
}

type tableHead struct {
	key    string
	ledger *ledger.Ledger

	mu          sync.Mutex
	head        Head
	seenAt      time.Time // when this replica first knew of head
	confirmedAt time.Time // head was in force at this moment
	alarms      uint64    // changes that the feed told of
	cleared     uint64    // how many of them the ledger was read after
	fed         string    // entry of the head that the feed showed last
	next        *confirmation

	turn chan struct{} // holds one token: who has it reads the ledger
}

// confirmation is a listing that has not started yet.
type confirmation struct {
	done chan struct{}
	err  error
}

func newHeads(state storage.Bucket, keys []string, feed Feed, lease time.Duration, now func() time.Time, log *slog.Logger) *Heads {
	h := &Heads{state: state, feed: feed, lease: lease, now: now, log: log, tables: map[string]*tableHead{}}
	for _, key := range keys {
		t := &tableHead{key: key, ledger: ledger.New(state, headPrefix+key+"/"), head: noHead, turn: make(chan struct{}, 1)}
		t.turn <- struct{}{}
		h.tables[key] = t
	}
	return h
}

func (t *tableHead) known() Head {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head
}

// Known returns the newest head that this replica knows of, in force or not.
func (h *Heads) Known(key string) Head {
	if t := h.tables[key]; t != nil {
		return t.known()
	}
	return noHead
}

// Current returns the head in force. ErrStale when that cannot be known now,
// ErrNoHead when there is none.
func (h *Heads) Current(ctx context.Context, key string) (Head, error) {
	t := h.tables[key]
	if t == nil {
		return Head{}, fmt.Errorf("%s: %w", key, ErrNoHead)
	}
	if head, fresh := h.fresh(t); fresh {
		return head, nil
	}
	if err := h.confirm(ctx, t); err != nil {
		return Head{}, fmt.Errorf("%s: %w: %w", key, ErrStale, err)
	}
	head := t.known()
	if head.Sequence == 0 {
		return Head{}, fmt.Errorf("%s: %w", key, ErrNoHead)
	}
	return head, nil
}

// fresh returns the known head and whether the lease covers it.
func (h *Heads) fresh(t *tableHead) (Head, bool) {
	if h.lease <= 0 {
		return Head{}, false
	}
	h.mu.Lock()
	fedAt := h.fedAt
	h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head.Sequence == 0 || t.alarms != t.cleared {
		return Head{}, false
	}
	at := t.confirmedAt
	if !at.IsZero() && fedAt.After(at) {
		at = fedAt
	}
	return t.head, !at.IsZero() && h.now().Sub(at) < h.lease
}

// confirm reads the ledger, starting after the call. One of those that wait
// for the same reading does it for all.
func (h *Heads) confirm(ctx context.Context, t *tableHead) error {
	t.mu.Lock()
	if t.next == nil {
		t.next = &confirmation{done: make(chan struct{})}
	}
	c := t.next
	t.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	case <-t.turn:
	}
	defer func() { t.turn <- struct{}{} }()
	t.mu.Lock()
	if t.next != c { // read by the one before
		t.mu.Unlock()
		<-c.done
		return c.err
	}
	t.next = nil
	alarms := t.alarms
	t.mu.Unlock()

	// Others wait for this too: it ends with no one's request.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	started := h.now()
	head, err := h.read(reading, t)
	if err == nil {
		h.adopt(t, head, started, alarms)
	}
	c.err = err
	close(c.done)
	return err
}

// readAll confirms every head with one listing for all.
func (h *Heads) readAll(ctx context.Context) error {
	started := h.now()
	alarms := make(map[string]uint64, len(h.tables))
	for key, t := range h.tables {
		t.mu.Lock()
		alarms[key] = t.alarms
		t.mu.Unlock()
	}
	highest := map[string]int64{}
	for info, err := range h.state.List(ctx, headPrefix, "") {
		if err != nil {
			return fmt.Errorf("read heads: %w", err)
		}
		key, _, _ := strings.Cut(strings.TrimPrefix(info.Key, headPrefix), "/")
		if n, ok := ledger.Number(headPrefix+key+"/", info.Key); ok {
			highest[key] = max(highest[key], n)
		}
	}
	for key, t := range h.tables {
		known := t.known()
		if highest[key] <= known.Sequence {
			h.adopt(t, known, started, alarms[key])
			continue
		}
		if err := h.confirm(ctx, t); err != nil {
			return fmt.Errorf("read heads: %w", err)
		}
	}
	return nil
}

// adopt takes in a head that was in force at the moment at.
func (h *Heads) adopt(t *tableHead, head Head, at time.Time, alarms uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if head.Sequence < t.head.Sequence {
		return
	}
	if head.Sequence > t.head.Sequence {
		t.head, t.seenAt = head, h.now()
	}
	if at.After(t.confirmedAt) {
		t.confirmedAt = at
	}
	t.cleared = max(t.cleared, alarms)
}

// run follows the feed until ctx ends.
func (h *Heads) run(ctx context.Context) {
	if h.feed == nil {
		<-ctx.Done()
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	if h.lease > 0 {
		work.Go(func() { h.beat(ctx) })
	}
	for ctx.Err() == nil {
		for _, t := range h.tables { // what the feed lost in between, only the ledgers tell
			t.mu.Lock()
			t.alarms++
			t.mu.Unlock()
		}
		err := h.feed.Watch(ctx, func(key string, value []byte, revision uint64) {
			if t := h.alarm(key, value); t != nil {
				work.Go(func() { // the ledger says what is in force
					if err := h.confirm(ctx, t); err != nil && ctx.Err() == nil {
						h.log.WarnContext(ctx, "head not read", slog.String("table", key), slog.Any("error", err))
					}
				})
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.beatSeen = max(h.beatSeen, revision)
			h.settleBeat()
		})
		if ctx.Err() != nil {
			return
		}
		h.log.WarnContext(ctx, "feed of heads ended", slog.Any("error", err))
		pause(ctx, watchPause)
	}
}

// alarm notes that the feed shows a head of a table.
func (h *Heads) alarm(key string, value []byte) *tableHead {
	t := h.tables[key]
	if t == nil {
		return nil
	}
	var head Head
	err := json.Unmarshal(value, &head) // what is no head alarms too
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alarms++
	if err == nil {
		t.fed = head.Entry
	}
	return t
}

// beat puts beats into the feed, a few per lease.
func (h *Heads) beat(ctx context.Context) {
	for ctx.Err() == nil {
		started := h.now()
		h.mu.Lock()
		h.beatAt, h.beatRev, h.beatSeen = started, 0, 0
		h.mu.Unlock()
		putting, cancel := context.WithTimeout(ctx, h.lease)
		revision, err := h.feed.Put(putting, beatKey, []byte(started.UTC().Format(time.RFC3339Nano)))
		cancel()
		if err == nil {
			h.mu.Lock()
			h.beatRev = revision
			h.settleBeat()
			h.mu.Unlock()
		}
		pause(ctx, h.lease/4)
	}
}

// settleBeat notes that the beat, or something put after it, was seen.
func (h *Heads) settleBeat() {
	if h.beatRev > 0 && h.beatSeen >= h.beatRev && h.beatAt.After(h.fedAt) {
		h.fedAt = h.beatAt
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
