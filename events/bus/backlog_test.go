package bus_test

import (
	"errors"
	"testing"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

func TestTheBacklogCountsATablesItemsOnly(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers", "orders")
	if n, err := b.Backlog(t.Context(), "customers"); err != nil || n != 0 {
		t.Fatalf("got %d, %v", n, err)
	}
	for _, table := range []string{"customers", "orders", "customers"} {
		if _, err := b.PublishRaw(t.Context(), events.RequestsSubject(table), "", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := b.Backlog(t.Context(), "customers"); err != nil || n != 2 {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestTheBacklogOfAStreamThatIsLostIsAnError(t *testing.T) {
	t.Parallel()
	b := bustest.StartServer(t).Connect(t, bus.Options{})
	if _, err := b.Backlog(t.Context(), "customers"); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("got %v", err)
	}
}
