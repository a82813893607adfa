package bustest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

var clock = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// pass is a tiny process: it publishes, fetches, puts and acknowledges.
func pass(t testing.TB, b *bus.Bus) error {
	t.Helper()
	e, err := events.New("/delenda/test/unit", events.TypeErasureRequested, events.RequestsSubject("a"), "k", clock,
		events.ErasureRequested{Request: "r", Table: "a", AcceptedAt: clock})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), e); err != nil {
		return fmt.Errorf("published: %w", err)
	}
	c, err := b.Consumer(t.Context(), events.StreamRequests, bus.DeleterDurable("a"))
	if err != nil {
		return err
	}
	list, err := c.Fetch(t.Context(), 1, 5*time.Second)
	if err != nil || len(list) == 0 {
		return fmt.Errorf("fetched %d: %w", len(list), err)
	}
	kv, err := b.KV(t.Context(), events.KVHeads)
	if err != nil {
		return err
	}
	if _, err := kv.Put(t.Context(), "k", nil); err != nil {
		return err
	}
	return list[0].Ack(t.Context())
}

func TestASweepStrikesEveryOperationAndLosesNoItem(t *testing.T) {
	t.Parallel()
	for _, mode := range bustest.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				s := bustest.StartServer(t)
				declare(t, s)
				f := &bustest.Faults{}
				f.Arm(mode, n)
				killed := false
				f.OnKill(func() { killed = true })
				err := pass(t, s.Connect(t, bus.Options{Intercept: f.Intercept}))
				if !f.Struck() {
					if err != nil || n < 6 {
						t.Errorf("after %d operations: %v", n-1, err)
					}
					return
				}
				if wantKill := mode == bustest.Kill || mode == bustest.KillAfter; killed != wantKill {
					t.Errorf("killed: %v", killed)
				}
				if want := map[bool]error{true: bustest.ErrKilled, false: bustest.ErrInjected}[killed]; !errors.Is(err, want) {
					t.Errorf("operation %d: got %v, want %v", n, err, want)
				}
				// The process starts again and gets through.
				if err := pass(t, s.Connect(t, bus.Options{})); err != nil {
					t.Errorf("after operation %v: %v", f.Trace()[n-1], err)
				}
			}
		})
	}
}

func declare(t testing.TB, s *bustest.Server) {
	t.Helper()
	err := s.Connect(t, bus.Options{}).Declare(t.Context(), bus.Topology{
		Tables: []string{"a"}, PinTTL: -1, AckWait: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestATornPublicationIsStoredAndAFailedOneIsNot(t *testing.T) {
	t.Parallel()
	for mode, want := range map[bustest.Mode]int{bustest.Fail: 0, bustest.Tear: 1, bustest.Kill: 0, bustest.KillAfter: 1} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := bustest.StartServer(t)
			declare(t, s)
			f := &bustest.Faults{}
			f.ArmMatch(mode, 2, func(o bustest.Op) bool { return o.Kind == "publish" })
			b := s.Connect(t, bus.Options{Intercept: f.Intercept})
			for n := range 2 {
				_, err := b.PublishRaw(t.Context(), events.TableSubject("a"), fmt.Sprint(n), []byte("{}"))
				if wantErr := n == 1; errors.Is(err, bus.ErrUnclear) != wantErr {
					t.Errorf("publication %d: %v", n, err)
				}
			}
			got := -1 // the first
			for u, err := range s.Connect(t, bus.Options{}).Follow(t.Context(), events.StreamTables, bus.FollowOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				if u.CaughtUp {
					break
				}
				got++
			}
			if got != want {
				t.Errorf("%d were stored, want %d", got, want)
			}
		})
	}
}

func TestACutLinkLeavesOthersConnected(t *testing.T) {
	t.Parallel()
	direct, s := bustest.Start(t, "a")
	link := s.Link()
	b := s.Connect(t, bus.Options{InProcess: link})
	changed := b.Changed()
	link.Cut()
	<-changed
	if b.Connected() || !direct.Connected() {
		t.Errorf("connected: %v, %v", b.Connected(), direct.Connected())
	}
	link.Heal()
	if err := b.WaitConnected(t.Context()); err != nil {
		t.Error(err)
	}
}
