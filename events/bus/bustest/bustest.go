// Package bustest gives tests a real JetStream in their own process, links to it
// that can be cut, and faults at chosen bus operations. Imported by tests only.
//
// A server starts in some ten milliseconds, opens no listener, keeps its streams
// in a temporary directory and syncs at every message, as in production.
package bustest

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"delenda/events/bus"
	"delenda/events/bus/embedded"
)

// heartbeat makes cut links show soon; the server allows no less.
const heartbeat = 500 * time.Millisecond

// Server is a running server whose links find it again after a restart.
type Server struct {
	dir string

	mu      sync.Mutex
	current *embedded.Server // nil while stopped
	direct  []*bus.Bus       // connected without a Link
}

// Start runs a server, connects to it, and declares the topology of the given
// tables, not pinned to one replica, so that a test need not wait until a replica
// that it has killed is forgotten. All of it ends with the test.
func Start(t testing.TB, tables ...string) (*bus.Bus, *Server) {
	t.Helper()
	s := StartServer(t)
	b := s.Connect(t, bus.Options{})
	if err := b.Declare(t.Context(), bus.Topology{Tables: tables, PinTTL: -1}); err != nil {
		t.Fatal(err)
	}
	return b, s
}

// StartServer runs a server in a temporary directory until the test ends.
func StartServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{dir: filepath.Join(t.TempDir(), "jetstream")}
	s.Up(t)
	t.Cleanup(func() { s.Down(t) })
	return s
}

// Dir is where the server keeps its files.
func (s *Server) Dir() string { return s.dir }

// Up starts the server again on what its directory holds, and waits until the
// connections made by Connect are back; those over a Link are left alone.
func (s *Server) Up(t testing.TB) {
	t.Helper()
	srv, err := embedded.Start(context.WithoutCancel(t.Context()), embedded.Options{Dir: s.dir})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.current = srv
	direct := s.direct
	s.mu.Unlock()
	for _, b := range direct {
		_ = b.WaitConnected(t.Context()) // an error: the test has closed it
	}
}

// Down stops the server in order, and waits until the connections made by
// Connect have noticed; they come back with Up.
func (s *Server) Down(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	srv, direct := s.current, s.direct
	s.current = nil
	s.mu.Unlock()
	if srv == nil {
		return
	}
	if err := srv.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	for _, b := range direct {
		for changed := b.Changed(); b.Connected(); changed = b.Changed() {
			<-changed
		}
	}
}

// Restart is Down and Up.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Down(t)
	s.Up(t)
}

// Kill stops the server as a crash would: what it writes while it stops is
// undone. Up starts it on the files of the moment of Kill.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := copyDir(s.dir, image); err != nil {
		t.Fatal(err)
	}
	s.Down(t)
	if err := errors.Join(os.RemoveAll(s.dir), os.Rename(image, s.dir)); err != nil {
		t.Fatal(err)
	}
}

// Wipe loses everything that JetStream held and starts an empty server.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	s.Down(t)
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	s.Up(t)
}

// Connect opens a connection of its own, as another process would. Unset
// options get what suits a test; the connection is closed when the test ends.
func (s *Server) Connect(t testing.TB, o bus.Options) *bus.Bus {
	t.Helper()
	if o.InProcess == nil {
		o.InProcess = s
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = heartbeat
	}
	if o.Name == "" {
		o.Name = t.Name()
	}
	b, err := bus.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if o.InProcess == s {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.direct = append(s.direct, b)
	}
	return b
}

// InProcessConn connects to the server that runs at the moment.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	srv := s.current
	s.mu.Unlock()
	if srv == nil {
		return nil, errors.New("the server is down")
	}
	return srv.InProcessConn()
}

// copyDir copies regular files; one that vanishes meanwhile is left out.
func copyDir(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		p, err := os.ReadFile(path) //nolint:gosec // the test's own directory
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(target, p, 0o600) //nolint:gosec // the test's own directory
	})
}
