package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"delenda/events"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
)

// feed is a small key-value bucket with a watch, and cables that can be cut.
type feed struct {
	mu       sync.Mutex
	revision uint64
	values   map[string]fed
	watchers map[*cable]chan struct{}
}

type fed struct {
	value    []byte
	revision uint64
}

func newFeed() *feed {
	return &feed{values: map[string]fed{}, watchers: map[*cable]chan struct{}{}}
}

// wipe loses everything, as a bus may.
func (f *feed) wipe() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision, f.values = 0, map[string]fed{}
}

// cable is one replica's connection.
type cable struct {
	feed *feed

	mu   sync.Mutex
	cut  bool // puts fail, watches end
	hung bool // half dead: puts succeed, watches show nothing more
}

var errCut = errors.New("not connected")

func (c *cable) set(cut, hung bool) {
	c.mu.Lock()
	c.cut, c.hung = cut, hung
	c.mu.Unlock()
	c.feed.wake()
}

func (c *cable) state() (cut, hung bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut, c.hung
}

func (f *feed) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ch := range f.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (c *cable) Put(_ context.Context, key string, value []byte) (uint64, error) {
	if cut, _ := c.state(); cut {
		return 0, errCut
	}
	c.feed.mu.Lock()
	c.feed.revision++
	revision := c.feed.revision
	c.feed.values[key] = fed{bytes.Clone(value), revision}
	c.feed.mu.Unlock()
	c.feed.wake()
	return revision, nil
}

func (c *cable) Watch(ctx context.Context, fn func(string, []byte, uint64)) error {
	wake := make(chan struct{}, 1)
	c.feed.mu.Lock()
	c.feed.watchers[c] = wake
	c.feed.mu.Unlock()
	var seen uint64
	for {
		cut, hung := c.state()
		if cut {
			return errCut
		}
		if !hung {
			c.feed.mu.Lock()
			pending := map[uint64]string{}
			for key, v := range c.feed.values {
				if v.revision > seen {
					pending[v.revision] = key
				}
			}
			for r := seen + 1; r <= c.feed.revision; r++ {
				if key, ok := pending[r]; ok {
					v := c.feed.values[key].value
					c.feed.mu.Unlock()
					fn(key, v, r)
					c.feed.mu.Lock()
				}
			}
			seen = c.feed.revision
			c.feed.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

func advance(t testing.TB, h *Heads, v, hide storage.Version) Head {
	t.Helper()
	head, err := h.Advance(t.Context(), refKey, func(prev Head) (Head, bool, error) {
		return Head{Version: v, HideFloor: hide, PurgeFloor: prev.PurgeFloor, Manifest: fmt.Sprint("m", v), At: time.Now()}, true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func TestAHeadNeverSinks(t *testing.T) {
	t.Parallel()
	h := newHeads(bucket.NewMemory(), []string{refKey}, nil, 0, time.Now, discard)
	advance(t, h, 5, 3)
	for _, next := range []Head{{Version: 4, HideFloor: 3, PurgeFloor: -1}, {Version: 6, HideFloor: 2, PurgeFloor: -1}, {Version: 6, HideFloor: 3, PurgeFloor: -2}} {
		_, err := h.Advance(t.Context(), refKey, func(Head) (Head, bool, error) { return next, true, nil })
		if !errors.Is(err, ErrWentBack) {
			t.Errorf("%+v: got %v", next, err)
		}
	}
	if head, err := h.Current(t.Context(), refKey); err != nil || head.Version != 5 || head.HideFloor != 3 {
		t.Errorf("got %+v, %v", head, err)
	}
}

func TestOfReplicasThatAdvanceAHeadAtOnceNoOneIsOverwritten(t *testing.T) {
	t.Parallel()
	state := bucket.NewMemory()
	var work sync.WaitGroup
	for range 8 {
		h := newHeads(state, []string{refKey}, nil, 0, time.Now, discard)
		work.Go(func() {
			for range 20 {
				_, err := h.Advance(t.Context(), refKey, func(prev Head) (Head, bool, error) {
					prev.Version++
					return prev, true, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	h := newHeads(state, []string{refKey}, nil, 0, time.Now, discard)
	if head, err := h.Current(t.Context(), refKey); err != nil || head.Version != 159 {
		t.Errorf("version %d, %v, want 159", head.Version, err)
	}
}

func TestAHeadIsInForceWhereverItsWriterFails(t *testing.T) {
	t.Parallel()
	for _, mode := range fault.Modes() {
		for n := 1; ; n++ {
			state := bucket.NewMemory()
			f := fault.Wrap(state)
			f.Arm(mode, n)
			h := newHeads(f, []string{refKey}, nil, 0, time.Now, discard)
			_, err := h.Advance(t.Context(), refKey, func(Head) (Head, bool, error) {
				return Head{Version: 3, HideFloor: 2, PurgeFloor: -1}, true, nil
			})
			again := newHeads(state, []string{refKey}, nil, 0, time.Now, discard)
			head, rerr := again.Current(t.Context(), refKey)
			if err == nil && (rerr != nil || head.Version != 3) {
				t.Errorf("%v at %d: told in force, but %+v, %v", mode, n, head, rerr)
			}
			if !f.Struck() {
				break
			}
		}
	}
}

func TestAReplicaThatWasAwayForLongDoesNotWinWithATrimmedNumber(t *testing.T) {
	t.Parallel()
	state := bucket.NewMemory()
	away := newHeads(state, []string{refKey}, nil, 0, time.Now, discard)
	advance(t, away, 1, -1)
	other := newHeads(state, []string{refKey}, nil, 0, time.Now, discard)
	asked := 0
	head, err := away.Advance(t.Context(), refKey, func(prev Head) (Head, bool, error) {
		if asked++; asked == 1 { // in between, others go on and tidy up
			for v := storage.Version(2); v < 10; v++ {
				head := advance(t, other, v, v-1)
				if err := other.tables[refKey].ledger.Trim(t.Context(), head.Sequence, 1, time.Time{}); err != nil {
					t.Error(err)
				}
			}
		}
		if prev.Version >= 9 {
			return prev, false, nil
		}
		return Head{Version: 2, HideFloor: -1, PurgeFloor: -1}, true, nil
	})
	if err != nil || head.Version != 9 || head.HideFloor != 8 {
		t.Errorf("got %+v, %v", head, err)
	}
}

// Two replicas share the state prefix; one of them is cut off from the bus in
// different ways. Whatever is announced, no replica serves anything below it
// from then on: it serves what is announced, or says that it cannot tell.
func TestNoReplicaServesBelowAnAnnouncedFloor(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(f *feed, c *cable, state *fault.Faults){
		"connected":                             func(*feed, *cable, *fault.Faults) {},
		"cut off from the bus":                  func(_ *feed, c *cable, _ *fault.Faults) { c.set(true, false) },
		"behind a connection that is half dead": func(_ *feed, c *cable, _ *fault.Faults) { c.set(false, true) },
		"cut off from bus and state prefix": func(_ *feed, c *cable, state *fault.Faults) {
			c.set(true, false)
			state.ArmMatch(fault.Kill, 1, func(fault.Op) bool { return true })
		},
		"half dead and without a state prefix": func(_ *feed, c *cable, state *fault.Faults) {
			c.set(false, true)
			state.ArmMatch(fault.Kill, 1, func(fault.Op) bool { return true })
		},
		"after the bus lost everything": func(f *feed, c *cable, _ *fault.Faults) {
			c.set(true, false)
			f.wipe()
		},
	} {
		for _, lease := range []time.Duration{0, 2 * time.Second} {
			t.Run(fmt.Sprintf("%s, lease %v", name, lease), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { twoReplicas(t, lease, lose) })
			})
		}
	}
}

func twoReplicas(t *testing.T, lease time.Duration, lose func(*feed, *cable, *fault.Faults)) {
	ctx, cancel := context.WithCancel(t.Context())
	tb := newTable(t, 3)
	state := bucket.NewMemory()
	faults := fault.Wrap(state)
	bus := newFeed()
	lost := &cable{feed: bus}
	var announced atomic.Int64
	announced.Store(int64(storage.NoVersion))
	told := func(_ context.Context, e events.Event) error {
		s, err := events.Payload[events.ShareChanged](e)
		announced.Store(max(announced.Load(), s.HideFloor))
		return err
	}
	one := newTestStore(t, state, tb.source(), func(o *StoreOptions) {
		o.Feed, o.Lease, o.Publish, o.Poll = &cable{feed: bus}, lease, told, time.Hour
	})
	two := newTestStore(t, faults, tb.source(), func(o *StoreOptions) {
		o.Feed, o.Lease, o.Publish, o.Poll = lost, lease, (&published{}).publish, time.Hour
	})
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { one.Run(ctx) })
	work.Go(func() { two.Run(ctx) })
	time.Sleep(5 * time.Second) //nolint:forbidigo // time is the test's own
	synctest.Wait()
	ref := one.o.Catalog.Refs()[0]
	look := func(s *Store) (storage.Version, error) {
		floor := storage.Version(announced.Load()) // announced before the request
		v, err := s.Current(ctx, ref)
		if err == nil && v.Head.Version < floor {
			t.Errorf("serves version %d below the announced floor %d", v.Head.Version, floor)
		}
		return v.Head.Version, err
	}
	for name, s := range map[string]*Store{"one": one, "two": two} {
		if v, err := look(s); err != nil || v != 0 {
			t.Fatalf("%s serves %d, %v before", name, v, err)
		}
	}
	lose(bus, lost, faults)
	tb.erase(t, 1)
	done := make(chan error, 1)
	work.Go(func() { done <- one.Refresh(ctx, "customers") })
	for range 60 {
		_, _ = look(one)
		_, _ = look(two)
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // time is the test's own
		synctest.Wait()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if floor := announced.Load(); floor != 1 {
		t.Errorf("floor %d was announced, want 1", floor)
	}
	if v, err := look(one); err != nil || v != 1 {
		t.Errorf("one serves %d, %v after", v, err)
	}
	v, err := look(two)
	if err == nil && v != 1 || err != nil && !errors.Is(err, ErrStale) {
		t.Errorf("two serves %d, %v after", v, err)
	}
}

func TestALeaseSparesTheStatePrefixWhileTheFeedIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		state := fault.Wrap(bucket.NewMemory())
		h := newHeads(state, []string{refKey}, &cable{feed: newFeed()}, 2*time.Second, time.Now, discard)
		advance(t, h, 1, -1)
		var work sync.WaitGroup
		work.Go(func() { h.run(ctx) })
		synctest.Wait()
		if _, err := h.Current(ctx, refKey); err != nil {
			t.Fatal(err)
		}
		before := state.Count()
		for range 100 {
			time.Sleep(time.Second) //nolint:forbidigo // time is the test's own
			if _, err := h.Current(ctx, refKey); err != nil {
				t.Fatal(err)
			}
		}
		if n := state.Count() - before; n != 0 {
			t.Errorf("%d operations", n)
		}
		cancel()
		work.Wait()
	})
}

func TestRequestsThatWaitForOneAnotherShareAListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		state := fault.Wrap(bucket.NewMemory())
		h := newHeads(state, []string{refKey}, nil, 0, time.Now, discard)
		advance(t, h, 1, -1)
		release := make(chan struct{})
		state.Before(func(context.Context, fault.Op) { <-release })
		before := state.Count()
		var work sync.WaitGroup
		for range 50 {
			work.Go(func() {
				if _, err := h.Current(t.Context(), refKey); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(release)
		work.Wait()
		if n := state.Count() - before; n > 2 {
			t.Errorf("50 requests made %d listings, want at most 2", n)
		}
	})
}

func TestARequestThatGivesUpDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		state := fault.Wrap(bucket.NewMemory())
		h := newHeads(state, []string{refKey}, nil, 0, time.Now, discard)
		advance(t, h, 1, -1)
		release := make(chan struct{})
		state.Before(func(context.Context, fault.Op) { <-release })
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { _, _ = h.Current(ctx, refKey) })
		synctest.Wait()
		work.Go(func() {
			if _, err := h.Current(t.Context(), refKey); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		close(release)
		work.Wait()
	})
}

func TestAHeadOfTheFeedIsNotBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		bus := newFeed()
		h := newHeads(bucket.NewMemory(), []string{refKey}, &cable{feed: bus}, time.Second, time.Now, discard)
		advance(t, h, 1, -1)
		var work sync.WaitGroup
		work.Go(func() { h.run(ctx) })
		forged, err := json.Marshal(Head{Version: 99, Manifest: "manifests/forged"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&cable{feed: bus}).Put(ctx, refKey, forged); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if head, err := h.Current(ctx, refKey); err != nil || head.Version != 1 {
			t.Errorf("got %+v, %v", head, err)
		}
		cancel()
		work.Wait()
	})
}
