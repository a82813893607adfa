package bus_test

import (
	"errors"
	"testing"
	"time"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

func TestDeclareRunsAgainAndAgain(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers")
	publish(t, b, item(t, "customers", "r1"))
	m := fetch(t, consumer(t, b, "customers"), 1)[0]
	for range 2 {
		if err := b.Declare(t.Context(), bus.Topology{Tables: []string{"customers", "orders"}, PinTTL: -1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	empty(t, consumer(t, b, "orders"))
}

func TestDeclareChangesSettingsInPlace(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers")
	publish(t, b, item(t, "customers", "r1"))
	err := b.Declare(t.Context(), bus.Topology{
		Tables: []string{"customers"}, AckWait: 100 * time.Millisecond, MaxAckPending: 5, Keep: 30 * 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := consumer(t, b, "customers")
	fetch(t, c, 1)
	if m := fetch(t, c, 1)[0]; m.Deliveries != 2 {
		t.Errorf("delivery %d", m.Deliveries)
	}
}

func TestDeclareRefusesToLoseAnything(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers")
	tests := map[string]struct {
		topology bus.Topology
		topo     bool
	}{
		"a shorter age limit":      {bus.Topology{Keep: time.Hour}, true},
		"two replicas":             {bus.Topology{Replicas: 2}, false},
		"a table that is no name":  {bus.Topology{Tables: []string{"a.b"}}, false},
		"a wildcard for a table":   {bus.Topology{Tables: []string{"*"}}, false},
		"more servers than it has": {bus.Topology{Replicas: 3}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := b.Declare(t.Context(), tt.topology)
			if err == nil || errors.Is(err, bus.ErrTopology) != tt.topo {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAWipedJetStreamIsDeclaredAgain(t *testing.T) {
	t.Parallel()
	s := bustest.StartServer(t)
	b := s.Connect(t, bus.Options{})
	if err := b.Declare(t.Context(), bus.Topology{Tables: []string{"customers"}}); err != nil {
		t.Fatal(err)
	}
	publish(t, b, item(t, "customers", "r0"))
	c := consumer(t, b, "customers")
	fetch(t, c, 1) // and so it is pinned
	kv, err := b.KV(t.Context(), events.KVHeads)
	if err != nil {
		t.Fatal(err)
	}
	s.Wipe(t)
	if err := b.Publish(t.Context(), item(t, "customers", "r1")); !errors.Is(err, bus.ErrNotStored) || !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("publish: %v", err)
	}
	if _, err := c.Fetch(t.Context(), 1, time.Second); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("fetch: %v", err)
	}
	if _, err := kv.Put(t.Context(), "k", nil); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("put: %v", err)
	}
	if _, err := kv.Get(t.Context(), "k"); err == nil || errors.Is(err, bus.ErrKeyNotFound) {
		t.Errorf("get: %v", err)
	}
	if _, err := b.DeadLetters(t.Context(), 0, 1); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("dead letters: %v", err)
	}
	if err := b.Declare(t.Context(), bus.Topology{Tables: []string{"customers"}}); err != nil {
		t.Fatal(err)
	}
	publish(t, b, item(t, "customers", "r1"))
	// The handles from before go on, also where the consumer was pinned.
	if err := fetch(t, c, 1)[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
}

func TestATableStaysWithOneReplicaUntilItIsReleasedOrGone(t *testing.T) {
	t.Parallel()
	s := bustest.StartServer(t)
	a, b := s.Connect(t, bus.Options{}), s.Connect(t, bus.Options{})
	const ttl = time.Second
	if err := a.Declare(t.Context(), bus.Topology{Tables: []string{"customers"}, PinTTL: ttl}); err != nil {
		t.Fatal(err)
	}
	first, second := consumer(t, a, "customers"), consumer(t, b, "customers")
	publish(t, a, item(t, "customers", "r1"), item(t, "customers", "r2"), item(t, "customers", "r3"), item(t, "customers", "r4"), item(t, "customers", "r5"))
	fetch(t, first, 1)
	if list, err := second.Fetch(t.Context(), 1, 100*time.Millisecond); err != nil || len(list) != 0 {
		t.Fatalf("the other replica got %d messages, %v", len(list), err)
	}
	fetch(t, first, 1)
	fetch(t, consumer(t, a, "customers"), 1) // the pin is the process's
	if err := a.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	fetch(t, second, 1)
	if took := time.Since(start); took > ttl/2 {
		t.Errorf("took over from a drained replica after %v", took)
	}
	// The second stops fetching; another gets the table without its help.
	start = time.Now()
	fetch(t, consumer(t, s.Connect(t, bus.Options{}), "customers"), 1)
	if took := time.Since(start); took > 5*ttl {
		t.Errorf("took over from a silent replica after %v", took)
	}
}
