package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

var clock = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// item is a work item; its ciphertext is recognisable in files.
func item(t testing.TB, table, request string) events.Event {
	t.Helper()
	return event(t, events.TypeErasureRequested, events.RequestsSubject(table), request, events.ErasureRequested{
		Request: request, Table: table, AcceptedAt: clock, Ciphertext: []byte("ciphertext of " + request),
	})
}

func changed(t testing.TB, table string, version int64) events.Event {
	t.Helper()
	return event(t, events.TypeTableChanged, events.TableSubject(table), fmt.Sprint(version), events.TableChanged{
		Table: table, Version: version, Kind: events.ChangeDelete, Batch: version, At: clock,
	})
}

func event(t testing.TB, typ events.Type, subject, key string, payload any) events.Event {
	t.Helper()
	e, err := events.New("/delenda/test/unit", typ, subject, key, clock, payload)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func publish(t testing.TB, b *bus.Bus, list ...events.Event) {
	t.Helper()
	for _, e := range list {
		if err := b.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func consumer(t testing.TB, b *bus.Bus, table string) *bus.Consumer {
	t.Helper()
	c, err := b.Consumer(t.Context(), events.StreamRequests, bus.DeleterDurable(table))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fetch returns exactly n messages, or fails.
func fetch(t testing.TB, c *bus.Consumer, n int) []*bus.Message {
	t.Helper()
	var list []*bus.Message
	for len(list) < n {
		more, err := c.Fetch(t.Context(), n-len(list), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(more) == 0 {
			t.Fatalf("fetched %d messages, want %d", len(list), n)
		}
		list = append(list, more...)
	}
	return list
}

// empty fails if a message is there to be fetched now.
func empty(t testing.TB, c *bus.Consumer) {
	t.Helper()
	list, err := c.Fetch(t.Context(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 0 {
		t.Fatalf("message %d is delivered, delivery %d", list[0].Sequence, list[0].Deliveries)
	}
}

// impatient declares with an AckWait that a test can wait for.
func impatient(t testing.TB, wait time.Duration, tables ...string) (*bus.Bus, *bustest.Server) {
	t.Helper()
	s := bustest.StartServer(t)
	b := s.Connect(t, bus.Options{})
	err := b.Declare(t.Context(), bus.Topology{Tables: tables, PinTTL: -1, AckWait: wait})
	if err != nil {
		t.Fatal(err)
	}
	return b, s
}

func TestAnEventComesBackAsItWasPublished(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers", "orders")
	want := item(t, "customers", "r1")
	publish(t, b, want, item(t, "orders", "r1"))

	c := consumer(t, b, "customers")
	m := fetch(t, c, 1)[0]
	got, err := m.Event()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if m.Deliveries != 1 || m.Subject != "delenda.requests.customers" || m.Stream != events.StreamRequests {
		t.Errorf("got delivery %d of %s in %s", m.Deliveries, m.Subject, m.Stream)
	}
	if err := m.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Ack(t.Context()); err != nil {
		t.Errorf("acknowledged again: %v", err)
	}
	empty(t, c)
	fetch(t, consumer(t, b, "orders"), 1)
}

func TestAMessageWithoutAnAnswerIsDeliveredAgainWithAHigherCount(t *testing.T) {
	t.Parallel()
	b, s := impatient(t, 100*time.Millisecond, "customers")
	publish(t, b, item(t, "customers", "r1"))
	c := consumer(t, b, "customers")
	for want := 1; want <= 3; want++ {
		if got := fetch(t, c, 1)[0].Deliveries; got != want {
			t.Fatalf("delivery %d, want %d", got, want)
		}
		if want == 2 {
			s.Restart(t) // the count survives
		}
	}
}

func TestANakDelaysTheNextDelivery(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers")
	publish(t, b, item(t, "customers", "r1"))
	c := consumer(t, b, "customers")
	m := fetch(t, c, 1)[0]
	start := time.Now()
	const delay = 300 * time.Millisecond
	if err := m.Nak(t.Context(), delay); err != nil {
		t.Fatal(err)
	}
	empty(t, c)
	m = fetch(t, c, 1)[0]
	if waited := time.Since(start); waited < delay {
		t.Errorf("delivered after %v", waited)
	}
	if m.Deliveries != 2 {
		t.Errorf("delivery %d, want 2", m.Deliveries)
	}
	if err := m.Nak(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	fetch(t, c, 1)
}

func TestInProgressKeepsAMessage(t *testing.T) {
	t.Parallel()
	const wait = time.Second
	b, _ := impatient(t, wait, "customers")
	publish(t, b, item(t, "customers", "r1"))
	c := consumer(t, b, "customers")
	m := fetch(t, c, 1)[0]
	for start := time.Now(); time.Since(start) < 2*wait; {
		if err := m.InProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := c.Fetch(t.Context(), 1, wait/10)
		if err != nil || len(list) != 0 {
			t.Fatalf("%d messages, %v", len(list), err)
		}
	}
	fetch(t, c, 1)
}

func TestATerminatedMessageIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	b, s := impatient(t, 100*time.Millisecond, "customers")
	publish(t, b, item(t, "customers", "r1"))
	c := consumer(t, b, "customers")
	if err := fetch(t, c, 1)[0].Term(t.Context(), "poison"); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	list, err := c.Fetch(t.Context(), 1, 300*time.Millisecond)
	if err != nil || len(list) != 0 {
		t.Fatalf("%d messages, %v", len(list), err)
	}
}

func TestAStreamKeepsOneOfSeveralPublications(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers")
	publish(t, b, changed(t, "customers", 7), changed(t, "customers", 7), changed(t, "customers", 8))
	p, err := changed(t, "customers", 7).Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.PublishRaw(t.Context(), events.TableSubject("customers"), changed(t, "customers", 7).ID, p)
	if err != nil {
		t.Fatal(err)
	}
	if want := (bus.Stored{Stream: events.StreamTables, Sequence: 1, Duplicate: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := collect(t, b, events.StreamTables); len(got) != 2 {
		t.Errorf("the stream holds %d messages, want 2", len(got))
	}
}

func TestAWorkItemCanBeFedAgainAtOnce(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers")
	c := consumer(t, b, "customers")
	for range 3 {
		publish(t, b, item(t, "customers", "r1"))
		if err := fetch(t, c, 1)[0].Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPublicationThatCannotBeStoredSaysSo(t *testing.T) {
	t.Parallel()
	b, s := bustest.Start(t, "customers")
	tests := map[string]struct {
		subject string
		size    int
	}{
		"on a subject of no stream":         {"delenda.nowhere.at_all", 1},
		"above the stream's message size":   {events.RequestsSubject("customers"), bus.MaxItemBytes + 1},
		"above the server's message size":   {events.TableSubject("customers"), 2 << 20},
		"on a subject with a space":         {"delenda.tables.a b", 1},
		"on a subject with an empty member": {"delenda.tables.", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := b.PublishRaw(t.Context(), tt.subject, "", make([]byte, tt.size))
			if !errors.Is(err, bus.ErrNotStored) || errors.Is(err, bus.ErrUnclear) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("after its context has ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := b.Publish(ctx, item(t, "customers", "r1"))
		if !errors.Is(err, bus.ErrNotStored) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("while disconnected", func(t *testing.T) {
		s.Down(t)
		err := b.Publish(t.Context(), item(t, "customers", "r1"))
		if !errors.Is(err, bus.ErrNotStored) || !errors.Is(err, bus.ErrDisconnected) {
			t.Errorf("got %v", err)
		}
		s.Up(t)
		empty(t, consumer(t, b, "customers"))
	})
}

func TestAPublicationWithoutAnAnswerIsUnclear(t *testing.T) {
	t.Parallel()
	_, s := bustest.Start(t, "customers")
	for name, then := range map[string]func(*bustest.Link){
		"within the deadline":             func(*bustest.Link) {},
		"because the connection has gone": (*bustest.Link).Cut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := s.Link()
			begun := make(chan struct{})
			timeout := 200 * time.Millisecond
			if name != "within the deadline" {
				timeout = time.Minute
			}
			b := s.Connect(t, bus.Options{
				InProcess: link, Timeout: timeout,
				Intercept: func(ctx context.Context, _ bus.Op, do func(context.Context) error) error {
					close(begun)
					return do(ctx)
				},
			})
			link.Freeze()
			go func() {
				<-begun
				then(link)
			}()
			start := time.Now()
			err := b.Publish(t.Context(), item(t, "customers", "r1"))
			if !errors.Is(err, bus.ErrDisconnected) || errors.Is(err, bus.ErrUnclear) == errors.Is(err, bus.ErrNotStored) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("after %v", took)
			}
		})
	}
}

func TestAStoredMessageSurvives(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*bustest.Server, testing.TB){
		"a restart of the server": (*bustest.Server).Restart,
		"a crash of the server": func(s *bustest.Server, t testing.TB) {
			s.Kill(t)
			s.Up(t)
		},
	}
	for name, interrupt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := bustest.Start(t, "customers")
			for n := range 50 {
				publish(t, b, item(t, "customers", fmt.Sprint(n)))
			}
			interrupt(s, t)
			c := consumer(t, b, "customers")
			for n, m := range fetch(t, c, 50) {
				if want := item(t, "customers", fmt.Sprint(n)); mustEvent(t, m).ID != want.ID {
					t.Errorf("message %d is another one", n)
				}
			}
		})
	}
}

func mustEvent(t testing.TB, m *bus.Message) events.Event {
	t.Helper()
	e, err := m.Event()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAFetchEnds(t *testing.T) {
	t.Parallel()
	b, s := bustest.Start(t, "customers")
	c := consumer(t, b, "customers")
	t.Run("when its context does, and what comes later goes to the next", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := c.Fetch(ctx, 10, time.Minute)
			done <- err
		}()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		publish(t, b, item(t, "customers", "r1"))
		m := fetch(t, consumer(t, b, "customers"), 1)[0]
		if err := m.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("when the server goes away", func(t *testing.T) {
		done := make(chan error)
		go func() {
			_, err := c.Fetch(t.Context(), 10, time.Minute)
			done <- err
		}()
		s.Down(t)
		// A fetch that reaches a server on its way down hears that no stream answers.
		if err := <-done; !errors.Is(err, bus.ErrDisconnected) && !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDrainEndsTheConnection(t *testing.T) {
	t.Parallel()
	b, s := bustest.Start(t, "customers")
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), item(t, "customers", "r1")); !errors.Is(err, bus.ErrNotStored) {
		t.Errorf("published after a drain: %v", err)
	}
	if err := b.WaitConnected(t.Context()); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("got %v", err)
	}
	cut := s.Connect(t, bus.Options{})
	s.Down(t)
	if err := cut.Drain(t.Context()); err != nil {
		t.Errorf("drained while disconnected: %v", err)
	}
}

func TestTheBacklogCountsWhatIsNotDone(t *testing.T) {
	t.Parallel()
	b, s := bustest.Start(t, "customers", "orders")
	backlog := func(want int64) {
		t.Helper()
		if n, err := b.Backlog(t.Context(), "customers"); err != nil || n != want {
			t.Errorf("got %d, %v, want %d", n, err, want)
		}
	}
	backlog(0)
	publish(t, b, item(t, "customers", "r1"), item(t, "customers", "r2"), item(t, "orders", "r1"))
	backlog(2)
	list := fetch(t, consumer(t, b, "customers"), 2)
	backlog(2)
	if err := list[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	backlog(1)
	s.Wipe(t)
	if _, err := b.Backlog(t.Context(), "customers"); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("got %v", err)
	}
}
