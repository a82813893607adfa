package bus_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

// collect returns what a stream holds now, of all subjects or some.
func collect(t testing.TB, b *bus.Bus, stream string, subjects ...string) []*bus.Record {
	t.Helper()
	var list []*bus.Record
	for u, err := range b.Follow(t.Context(), stream, bus.FollowOptions{Subjects: subjects}) {
		if err != nil {
			t.Fatal(err)
		}
		if u.CaughtUp {
			break
		}
		list = append(list, u.Record)
	}
	return list
}

func TestAFollowerBeginsWhereItIsTold(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "a", "b")
	publish(t, b, changed(t, "a", 1), changed(t, "b", 1), changed(t, "a", 2), changed(t, "b", 2), changed(t, "a", 3))
	third := collect(t, b, events.StreamTables)[2]
	tests := map[string]struct {
		o    bus.FollowOptions
		want []string
	}{
		"from the start":        {bus.FollowOptions{}, []string{"1 a", "2 b", "3 a", "4 b", "5 a"}},
		"at a sequence":         {bus.FollowOptions{FromSequence: 4}, []string{"4 b", "5 a"}},
		"behind the end":        {bus.FollowOptions{FromSequence: 6}, nil},
		"at a time":             {bus.FollowOptions{Since: third.Time}, []string{"3 a", "4 b", "5 a"}},
		"at what is new":        {bus.FollowOptions{OnlyNew: true}, nil},
		"on some subjects":      {bus.FollowOptions{Subjects: []string{"delenda.tables.b"}}, []string{"2 b", "4 b"}},
		"at the newest of each": {bus.FollowOptions{LastPerTopic: true}, []string{"4 b", "5 a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for u, err := range b.Follow(t.Context(), events.StreamTables, tt.o) {
				if err != nil {
					t.Fatal(err)
				}
				if u.CaughtUp {
					break
				}
				got = append(got, fmt.Sprint(u.Record.Sequence, " ", u.Record.Subject[len("delenda.tables."):]))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAFollowerHearsWhatComesLater(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "a")
	publish(t, b, changed(t, "a", 1))
	next, stop := iter.Pull2(b.Follow(t.Context(), events.StreamTables, bus.FollowOptions{}))
	defer stop()
	for range 2 { // the record, and that it is caught up
		if _, err, _ := next(); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, changed(t, "a", 2))
	u, err, _ := next()
	if err != nil || u.Record == nil || u.Record.Sequence != 2 {
		t.Fatalf("got %+v, %v", u, err)
	}
}

func TestAFollowerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	for u, err := range b.Follow(ctx, events.StreamTables, bus.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if u.CaughtUp {
			cancel()
		}
	}
	cancel()
}

func TestAFollowerSaysSoonThatItIsStale(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breakIt func(testing.TB, *bustest.Server, *bustest.Link)
		within  time.Duration
	}{
		"when the link is cut":        {func(_ testing.TB, _ *bustest.Server, l *bustest.Link) { l.Cut() }, time.Second},
		"when the server goes down":   {func(t testing.TB, s *bustest.Server, _ *bustest.Link) { s.Down(t) }, time.Second},
		"when the server is wiped":    {func(t testing.TB, s *bustest.Server, _ *bustest.Link) { s.Wipe(t) }, time.Second},
		"when nothing comes any more": {func(_ testing.TB, _ *bustest.Server, l *bustest.Link) { l.Freeze() }, 3 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := bustest.Start(t, "a")
			link := s.Link()
			b := s.Connect(t, bus.Options{InProcess: link})
			var ended error
			var start time.Time
			for u, err := range b.Follow(t.Context(), events.StreamTables, bus.FollowOptions{}) {
				if ended = err; err == nil && u.CaughtUp {
					start = time.Now()
					tt.breakIt(t, s, link)
				}
			}
			if !errors.Is(ended, bus.ErrDisconnected) {
				t.Errorf("ended with %v", ended)
			}
			if took := time.Since(start); took > tt.within {
				t.Errorf("noticed after %v", took)
			}
		})
	}
}

func TestAFollowerOfALostStreamSaysThatItIsMissing(t *testing.T) {
	t.Parallel()
	b, s := bustest.Start(t, "a")
	s.Wipe(t)
	for _, err := range b.Follow(t.Context(), events.StreamTables, bus.FollowOptions{}) {
		if !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("got %v", err)
		}
	}
}

func TestAKeyIsChangedByCompareAndSet(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t)
	kv, err := b.KV(t.Context(), events.KVHeads)
	if err != nil {
		t.Fatal(err)
	}
	const key = "share.schema.table"
	if _, err := kv.Get(t.Context(), key); !errors.Is(err, bus.ErrKeyNotFound) {
		t.Errorf("read an absent key: %v", err)
	}
	first, err := kv.Create(t.Context(), key, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), key, []byte("x")); !errors.Is(err, bus.ErrRevision) {
		t.Errorf("created twice: %v", err)
	}
	second, err := kv.Update(t.Context(), key, []byte("2"), first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(t.Context(), key, []byte("x"), first); !errors.Is(err, bus.ErrRevision) {
		t.Errorf("updated an old revision: %v", err)
	}
	e, err := kv.Get(t.Context(), key)
	if err != nil || string(e.Value) != "2" || e.Revision != second {
		t.Errorf("got %+v, %v", e, err)
	}
	if err := kv.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), key); err != nil {
		t.Errorf("deleted twice: %v", err)
	}
	if _, err := kv.Get(t.Context(), key); !errors.Is(err, bus.ErrKeyNotFound) {
		t.Errorf("read a deleted key: %v", err)
	}
	if _, err := kv.Create(t.Context(), key, []byte("3")); err != nil {
		t.Errorf("created after a delete: %v", err)
	}
}

func TestOneOfManyWritersSetsAKey(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t)
	kv, err := b.KV(t.Context(), events.KVHeads)
	if err != nil {
		t.Fatal(err)
	}
	const writers = 16
	results := make(chan error, writers)
	for n := range writers {
		go func() {
			_, err := kv.Create(t.Context(), "k", fmt.Append(nil, n))
			results <- err
		}()
	}
	won := 0
	for range writers {
		switch err := <-results; {
		case err == nil:
			won++
		case !errors.Is(err, bus.ErrRevision):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d writers won", won)
	}
}

func TestAWatchIsCompleteThenFollowsAndStartsAgainAfterAReconnect(t *testing.T) {
	t.Parallel()
	other, s := bustest.Start(t)
	link := s.Link()
	b := s.Connect(t, bus.Options{InProcess: link})
	kv, err := b.KV(t.Context(), events.KVHeads)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := other.KV(t.Context(), events.KVHeads)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) {
		t.Helper()
		if _, err := writer.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("s.a", "1")
	put("s.a", "2")
	put("s.b", "1")
	put("other", "1")

	var log []string
	var last error
	for e, err := range kv.Watch(t.Context(), "s.>") {
		last = err
		switch {
		case err != nil:
			log = append(log, "ended")
		case e == nil:
			log = append(log, "complete")
			put("s.a", "3")
		case e.Deleted:
			log = append(log, e.Key+" deleted")
			link.Cut()
		default:
			log = append(log, e.Key+"="+string(e.Value))
			if string(e.Value) == "3" {
				if err := writer.Delete(t.Context(), "s.b"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if !errors.Is(last, bus.ErrDisconnected) {
		t.Errorf("ended with %v", last)
	}
	put("s.a", "4") // not heard
	link.Heal()
	if err := b.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	for e, err := range kv.Watch(t.Context(), "s.>") {
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			log = append(log, "complete")
			break
		}
		log = append(log, fmt.Sprint(e.Key, "=", string(e.Value), " ", e.Deleted))
	}
	want := []string{
		"s.a=2", "s.b=1", "complete", "s.a=3", "s.b deleted", "ended",
		"s.b= true", "s.a=4 false", "complete",
	}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Error(diff)
	}
}
