package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheExitCodeTellsHowTheRunEnded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err         error
		interrupted bool
		code        int
		stderr      string
	}{
		"a run without error is a success":                {nil, false, ExitOK, ""},
		"an error is printed and is a failure":            {errors.New("open state: denied"), false, ExitFailure, "x: open state: denied\n"},
		"a wrong call has a code of its own":              {Usage(errors.New("no such flag")), false, ExitUsage, "x: no such flag\n"},
		"a command that has said everything says no more": {&ExitError{Code: 1}, false, ExitFailure, ""},
		"a wrapped exit error keeps its code":             {fmt.Errorf("check: %w", &ExitError{Code: 3}), false, 3, ""},
		"cancelled by a signal is a clean end":            {fmt.Errorf("fetch: %w", context.Canceled), true, ExitOK, ""},
		"cancelled without a signal is a failure":         {context.Canceled, false, ExitFailure, "x: context canceled\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			if got := exitCode("x", test.err, test.interrupted, &stderr); got != test.code {
				t.Errorf("code %d, want %d", got, test.code)
			}
			if d := cmp.Diff(test.stderr, stderr.String()); d != "" {
				t.Errorf("stderr (-want +got):\n%s", d)
			}
		})
	}
}

func TestPartsStopLastToFirstOnceTheContextIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		part := func(name string) Part {
			return Part{name, func(_ context.Context, stop <-chan struct{}) error {
				<-stop
				order = append(order, name) // each is waited for before the next is stopped
				return nil
			}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if err := Serve(ctx, slog.New(slog.DiscardHandler), time.Second, part("server"), part("worker"), part("listener")); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"listener", "worker", "server"}, order); d != "" {
			t.Errorf("order (-want +got):\n%s", d)
		}
	})
}

func TestAPartThatFailsStopsTheRestAndItsErrorIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		closed := false
		err := Serve(t.Context(), slog.New(slog.DiscardHandler), time.Second,
			Close("bus", func(context.Context) error { closed = true; return nil }),
			Part{"worker", func(context.Context, <-chan struct{}) error { return boom }},
		)
		if !errors.Is(err, boom) || !closed {
			t.Errorf("got %v, closed %t", err, closed)
		}
	})
}

func TestAPartThatDoesNotDrainIsCutAfterItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := Serve(ctx, slog.New(slog.DiscardHandler), 30*time.Second, Part{"worker", func(ctx context.Context, _ <-chan struct{}) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}})
		if !errors.Is(err, ErrCut) || time.Since(start) != 30*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestWorkInFlightOutlivesTheContextThatAskedForTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := Serve(ctx, slog.New(slog.DiscardHandler), time.Second, Part{"worker", func(ctx context.Context, stop <-chan struct{}) error {
			<-stop
			return ctx.Err()
		}})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsNotATerminalGetsJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	NewLogger(&out, slog.LevelInfo).LogAttrs(t.Context(), slog.LevelInfo, "ready")
	if !bytes.HasPrefix(out.Bytes(), []byte("{")) {
		t.Errorf("got %q", out.String())
	}
}
