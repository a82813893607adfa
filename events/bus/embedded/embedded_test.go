package embedded_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"delenda/events/bus/embedded"
)

func start(t testing.TB, o embedded.Options) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestNoListenerUnlessAsked(t *testing.T) {
	t.Parallel()
	if url := start(t, embedded.Options{Dir: t.TempDir()}).ClientURL(); url != "" {
		t.Errorf("it listens on %s", url)
	}
	if url := start(t, embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}).ClientURL(); !strings.HasPrefix(url, "nats://127.0.0.1:") {
		t.Errorf("it listens on %q", url)
	}
}

func TestStartSaysWhyNot(t *testing.T) {
	t.Parallel()
	used := t.TempDir()
	start(t, embedded.Options{Dir: used})
	busy := start(t, embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		o    embedded.Options
		want string
	}{
		"without a directory":         {embedded.Options{}, "no directory"},
		"in a directory in use":       {embedded.Options{Dir: used}, "another server uses it"},
		"in a file":                   {embedded.Options{Dir: file}, "not a directory"},
		"on half an address":          {embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1"}, "missing port"},
		"on a port that is no number": {embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:nats"}, "not a number"},
		"on a port in use": {embedded.Options{
			Dir: t.TempDir(), Listen: strings.TrimPrefix(busy.ClientURL(), "nats://"),
		}, "address already in use"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := embedded.Start(t.Context(), tt.o)
			if err == nil {
				_ = s.Shutdown(t.Context())
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestShutdownLeavesNothingBehind(t *testing.T) { // alone: it counts goroutines
	dir := t.TempDir()
	before := runtime.NumGoroutine()
	for range 3 { // and the directory can be used again
		s, err := embedded.Start(t.Context(), embedded.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.InProcessConn(); err == nil {
			t.Error("connected to a stopped server")
		}
	}
	for n := 0; runtime.NumGoroutine() > before; n++ {
		if n == 1_000_000 {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines are left\n%s", runtime.NumGoroutine()-before, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}
