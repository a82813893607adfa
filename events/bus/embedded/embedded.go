// Package embedded runs nats-server with JetStream in the process: for
// `delenda up`, the demo and tests. It is the only importer of nats-server.
//
// Guarantees. Streams are files under Dir and survive a restart on the same
// Dir; a publication is acknowledged after fsync. There is no listener unless
// one is asked for. One process uses a Dir at a time. Shutdown returns when
// every file is closed.
//
// Non-guarantees. It is one server without replicas: when Dir is lost so is all
// that it held.
package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// syncInterval is how often the server tidies its files; it syncs at every
// message whatever this says.
const syncInterval = 10 * time.Second

const tlsTimeout = 5 * time.Second

// Options of Start.
type Options struct {
	Dir    string       // of the streams; created if missing
	Listen string       // host:port, port 0 picks one; "" opens no listener
	Token  string       // demanded from every connection, those of this process included
	TLS    *tls.Config  // of the listener; plain text if nil
	Name   string       // shown to clients
	Logger *slog.Logger // the server's warnings and errors; none if nil
}

// Server is a running server.
type Server struct {
	srv  *server.Server
	lock *os.File
	log  *logger
	once sync.Once
	done chan struct{}
}

// Start runs a server and returns when JetStream answers. The caller ends it
// with Shutdown.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("start NATS: no directory")
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	so := &server.Options{
		ServerName: o.Name, DontListen: o.Listen == "", NoSigs: true,
		JetStream: true, StoreDir: o.Dir, SyncAlways: true, SyncInterval: syncInterval,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 50, Authorization: o.Token,
	}
	if o.TLS != nil { // connections of this process are pipes and go without
		so.TLS, so.TLSConfig, so.TLSTimeout = true, o.TLS, tlsTimeout.Seconds()
	}
	if o.Listen != "" {
		host, port, err := net.SplitHostPort(o.Listen)
		if err != nil {
			return nil, fmt.Errorf("start NATS on %q: %w", o.Listen, err)
		}
		so.Host = host
		if so.Port, err = strconv.Atoi(port); err != nil {
			return nil, fmt.Errorf("start NATS on %q: port is not a number", o.Listen)
		}
		if so.Port == 0 {
			so.Port = server.RANDOM_PORT
		}
	}
	lock, err := lockDir(filepath.Join(o.Dir, "delenda.lock"))
	if err != nil {
		return nil, fmt.Errorf("start NATS in %s: %w", o.Dir, err)
	}
	srv, err := server.NewServer(so)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start NATS: %w", err), unlockDir(lock))
	}
	s := &Server{srv: srv, lock: lock, log: newLogger(o.Logger), done: make(chan struct{})}
	srv.SetLoggerV2(s.log, false, false, false)

	started := make(chan struct{})
	go func() {
		defer close(started)
		srv.Start() // returns when clients are accepted, or on a fatal error
	}()
	select {
	case <-started:
	case <-ctx.Done():
		<-started // it reads what is stored; it cannot be cut short
		s.stop()
		return nil, fmt.Errorf("start NATS: %w", ctx.Err())
	}
	err = s.log.fatal()
	if err == nil && !srv.JetStreamEnabled() {
		err = errors.New("JetStream did not start")
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("start NATS in %s: %w", o.Dir, err)
	}
	return s, nil
}

// InProcessConn opens a connection without a network; see bus.Options.InProcess.
func (s *Server) InProcessConn() (net.Conn, error) { return s.srv.InProcessConn() }

// ClientURL returns the listener's URL, or "" without one.
func (s *Server) ClientURL() string {
	if s.srv.Addr() == nil {
		return ""
	}
	return "nats://" + s.srv.Addr().String()
}

// Shutdown stops the server, writes its state and closes every file. When ctx
// ends first it returns its error and the rest happens in the background.
func (s *Server) Shutdown(ctx context.Context) error {
	go s.stop()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop NATS: %w", ctx.Err())
	}
}

func (s *Server) stop() {
	s.once.Do(func() {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
		_ = unlockDir(s.lock) // nothing was written to it
		close(s.done)
	})
}
