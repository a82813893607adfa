package bus_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

// found counts needle in every byte of every file below dir.
func found(t testing.TB, dir, needle string) int {
	t.Helper()
	for {
		n := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			p, err := os.ReadFile(path)
			n += bytes.Count(p, []byte(needle))
			return err
		})
		if err == nil {
			return n
		}
		// The server replaces its files as it goes: look again at all of them.
		if !errors.Is(err, fs.ErrNotExist) || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func feed(t testing.TB, b *bus.Bus, table, marker string, n int) {
	t.Helper()
	for i := range n {
		body := fmt.Appendf(nil, "%s-%06d-%0200d", marker, i, i)
		if _, err := b.PublishRaw(t.Context(), events.RequestsSubject(table), "", body); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADoneMessageLeavesNoByteInTheStreamsFiles(t *testing.T) {
	t.Parallel()
	done := map[string]func(*bus.Message) error{
		"acknowledged": func(m *bus.Message) error { return m.Ack(t.Context()) },
		"terminated":   func(m *bus.Message) error { return m.Term(t.Context(), "poison") },
	}
	for name, end := range done {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := bustest.Start(t, "customers", "orders")
			feed(t, b, "customers", "FIRST", 5)
			feed(t, b, "orders", "OTHER", 3) // stays in the same file
			feed(t, b, "customers", "SECOND", 5)
			if n := found(t, s.Dir(), "FIRST-"); n != 5 {
				t.Fatalf("found %d before", n)
			}
			c := consumer(t, b, "customers")
			list := fetch(t, c, 10)
			for i, m := range list[:5] {
				if err := end(m); err != nil {
					t.Fatal(err)
				}
				if n := found(t, s.Dir(), "FIRST-"); n != 4-i {
					t.Errorf("found %d after %d were done", n, i+1)
				}
			}
			if n := found(t, s.Dir(), "SECOND-"); n != 5 {
				t.Errorf("found %d of the others", n)
			}
			s.Kill(t)
			s.Up(t)
			if n := found(t, s.Dir(), "FIRST-"); n != 0 {
				t.Errorf("found %d after a crash", n)
			}
			fetch(t, consumer(t, b, "orders"), 3)
			for _, m := range list[5:] {
				if err := m.Ack(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			empty(t, c)
		})
	}
}

func TestAnErasedMessageIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	b, s := impatient(t, 100*time.Millisecond, "customers")
	feed(t, b, "customers", "X", 3)
	c := consumer(t, b, "customers")
	for _, m := range fetch(t, c, 3) {
		if err := m.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		list, err := c.Fetch(t.Context(), 1, 300*time.Millisecond)
		if err != nil || len(list) != 0 {
			t.Fatalf("%d messages, %v", len(list), err)
		}
		s.Restart(t)
	}
	feed(t, b, "customers", "Y", 1)
	if m := fetch(t, c, 1)[0]; m.Deliveries != 1 || m.Sequence != 4 {
		t.Errorf("got delivery %d of %d", m.Deliveries, m.Sequence)
	}
}

func TestManyMessagesAreAcknowledgedWithoutRewritingAFileForEach(t *testing.T) {
	t.Parallel()
	b, s := bustest.Start(t, "customers")
	const n = 2 * bus.EraseLimit
	feed(t, b, "customers", "BULK", n)
	c := consumer(t, b, "customers")
	for _, m := range fetch(t, c, n) {
		if err := m.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	empty(t, c)
	// The first half was only removed; none is left in their file, so it is gone.
	if n := found(t, s.Dir(), "BULK-"); n != 0 {
		t.Errorf("found %d", n)
	}
}

func TestAMessageOfALostStreamErasesNothingOfItsSuccessor(t *testing.T) {
	t.Parallel()
	b, s := bustest.Start(t, "customers")
	feed(t, b, "customers", "OLD", 1)
	old := fetch(t, consumer(t, b, "customers"), 1)[0]
	s.Wipe(t)
	if err := old.Ack(t.Context()); err != nil {
		t.Errorf("acknowledged while the stream is missing: %v", err)
	}
	if err := b.Declare(t.Context(), bus.Topology{Tables: []string{"customers"}, PinTTL: -1}); err != nil {
		t.Fatal(err)
	}
	feed(t, b, "customers", "NEW", 1)
	if err := old.Ack(t.Context()); err != nil {
		t.Errorf("acknowledged in the new stream: %v", err)
	}
	m := fetch(t, consumer(t, b, "customers"), 1)[0]
	if m.Sequence != old.Sequence || !bytes.HasPrefix(m.Data, []byte("NEW")) {
		t.Errorf("got message %d", m.Sequence)
	}
}

func letter(t testing.TB, b *bus.Bus, stage string, l events.DeadLetter) {
	t.Helper()
	key := fmt.Sprint(l.Stream, "/", l.Sequence)
	publish(t, b, event(t, events.TypeDeadLetter, events.DeadSubject(stage), key, l))
}

func TestADeadLetterIsReplayedAndErased(t *testing.T) {
	t.Parallel()
	b, s := bustest.Start(t, "customers")
	publish(t, b, item(t, "customers", "r1"))
	c := consumer(t, b, "customers")
	m := fetch(t, c, 1)[0]
	letter(t, b, "requests", events.DeadLetter{
		Subject: m.Subject, Stream: m.Stream, Sequence: m.Sequence, Request: "r1", Table: "customers",
		Code: "poison", Deliveries: m.Deliveries, Payload: m.Data, At: clock,
	})
	if err := m.Term(t.Context(), "poison"); err != nil {
		t.Fatal(err)
	}
	empty(t, c)

	list, err := b.DeadLetters(t.Context(), 0, 10)
	if err != nil || len(list) != 1 || list[0].Err != nil {
		t.Fatalf("got %+v, %v", list, err)
	}
	if list[0].Stage != "requests" || list[0].Letter.Code != "poison" {
		t.Errorf("got %+v", list[0])
	}
	if _, err := b.ReplayDead(t.Context(), list[0].Sequence); err != nil {
		t.Fatal(err)
	}
	again := fetch(t, c, 1)[0]
	if !bytes.Equal(again.Data, m.Data) {
		t.Error("another message was replayed")
	}
	if list, err := b.DeadLetters(t.Context(), 0, 10); err != nil || len(list) != 0 {
		t.Errorf("left are %+v, %v", list, err)
	}
	if err := again.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := found(t, s.Dir(), `"type":"`+string(events.TypeErasureRequested)); n != 0 {
		t.Errorf("found %d", n)
	}
}

func TestWorkThatFailsAgainSoonAfterItsReplayGetsAnotherLetter(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers")
	p, err := item(t, "customers", "r1").Encode()
	if err != nil {
		t.Fatal(err)
	}
	dead := events.DeadLetter{Subject: "delenda.requests.customers", Code: "poison", Payload: p, At: clock}
	for range 2 {
		letter(t, b, "requests", dead)
		letter(t, b, "requests", dead) // and a repeated publication none
		list, err := b.DeadLetters(t.Context(), 0, 10)
		if err != nil || len(list) != 1 {
			t.Fatalf("got %d letters, %v", len(list), err)
		}
		if _, err := b.ReplayDead(t.Context(), list[0].Sequence); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALetterThatCannotBeReplayedStays(t *testing.T) {
	t.Parallel()
	tests := map[string]events.DeadLetter{
		"without a message":              {Subject: "delenda.intake.web"},
		"of a subject of another system": {Subject: "orders.new", Payload: []byte("{}")},
		"of a subject that is announced": {Subject: "delenda.shares.a.b.c", Payload: []byte("{}")},
		"of several subjects":            {Subject: "delenda.requests.*", Payload: []byte("{}")},
		"of a JetStream request":         {Subject: "$JS.API.STREAM.DELETE.DELENDA_DEAD", Payload: []byte("{}")},
	}
	for name, l := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := bustest.Start(t)
			letter(t, b, "tables", l)
			if _, err := b.ReplayDead(t.Context(), 1); !errors.Is(err, bus.ErrNotReplayable) {
				t.Errorf("got %v", err)
			}
			if _, err := b.DeadLetter(t.Context(), 1); err != nil {
				t.Error(err)
			}
			if _, err := b.ReplayDead(t.Context(), 2); !errors.Is(err, bus.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDeadLettersAreListedByPage(t *testing.T) {
	t.Parallel()
	b, _ := bustest.Start(t, "customers")
	for n := range 5 {
		letter(t, b, "intake", events.DeadLetter{Subject: "delenda.intake.web", Sequence: uint64(n), Code: "poison", At: clock})
	}
	if err := b.RemoveDead(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PublishRaw(t.Context(), events.DeadSubject("intake"), "", []byte("not an event")); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	unreadable := 0
	for after := uint64(0); ; {
		page, err := b.DeadLetters(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page {
			got, after = append(got, d.Sequence), d.Sequence
			if d.Err != nil {
				unreadable++
			}
		}
		if len(page) < 2 {
			break
		}
	}
	if want := []uint64{1, 2, 4, 5, 6}; !slices.Equal(got, want) || unreadable != 1 {
		t.Errorf("got %v, %d unreadable", got, unreadable)
	}
}
