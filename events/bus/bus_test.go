package bus_test

import (
	"testing"
	"time"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

func item(t testing.TB, table, request string) events.Event {
	t.Helper()
	e, err := events.New("/delenda/test/ingest", events.TypeErasureRequested, events.RequestsSubject(table), request,
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), events.ErasureRequested{
			Request: request, Table: table, AcceptedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Ciphertext: []byte("ciphertext of " + request),
		})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestSmoke(t *testing.T) {
	t.Parallel()
	start := time.Now()
	b, _ := bustest.Start(t, "customers")
	t.Log("start", time.Since(start))
	if err := b.Publish(t.Context(), item(t, "customers", "r1")); err != nil {
		t.Fatal(err)
	}
	c, err := b.Consumer(t.Context(), events.StreamRequests, bus.DeleterDurable("customers"))
	if err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	list, err := c.Fetch(t.Context(), 1, time.Second)
	t.Log("fetch", time.Since(start))
	if err != nil || len(list) != 1 {
		t.Fatal(len(list), err)
	}
	if err := list[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if list, err = c.Fetch(t.Context(), 1, 0); err != nil || len(list) != 0 {
		t.Fatal(len(list), err)
	}
	t.Log("empty fetch", time.Since(start))
}
