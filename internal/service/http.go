package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"delenda/internal/config"
	"delenda/internal/daemon"
)

const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// web is one HTTP listener, open but not yet serving.
type web struct {
	name     string
	listener net.Listener
	server   *http.Server
	silent   silent
}

// silent are the connections on which nothing was asked yet, as clients open
// ahead of need: Shutdown would wait for their first request.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func (s *silent) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.conns, c)
		return
	}
	if s.conns == nil {
		s.conns = map[net.Conn]bool{}
	}
	s.conns[c] = true
}

func (s *silent) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// listen opens a listener, so that a taken port stops the start.
func listen(ctx context.Context, name, addr string, cert config.TLS, h http.Handler, log *slog.Logger) (*web, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: listen on %s: %w", name, addr, err)
	}
	if cert.Cert != "" {
		pair, err := tls.LoadX509KeyPair(cert.Cert, cert.Key)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: read certificate: %w", name, err), l.Close())
		}
		l = tls.NewListener(l, &tls.Config{
			Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		})
	}
	w := &web{name: name, listener: l}
	w.server = &http.Server{
		Handler: h, ConnState: w.silent.track, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return w, nil
}

// addr is where the listener really is, port included.
func (w *web) addr() string { return w.listener.Addr().String() }

// part serves until it is stopped, then finishes the requests in flight.
func (w *web) part() daemon.Part {
	return daemon.Part{Name: w.name, Run: func(ctx context.Context, stop <-chan struct{}) error {
		served := make(chan error, 1)
		go func() { served <- w.server.Serve(w.listener) }()
		select {
		case err := <-served:
			return err
		case <-stop:
		}
		w.silent.close()
		if err := w.server.Shutdown(ctx); err != nil {
			return errors.Join(err, w.server.Close())
		}
		return nil
	}}
}

// routes puts the operator's endpoints in front of a handler. It compares paths
// as they come: a mux would redirect "//", which clients of the sharing
// protocol send.
func routes(health, metrics, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/healthz":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte("ok\n"))
		case r.URL.Path == "/readyz" && health != nil:
			health.ServeHTTP(w, r)
		case r.URL.Path == "/metrics" && metrics != nil:
			metrics.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// webs opens the listeners of a service: the one that its clients use, and
// another for the operator if configured. A listener that other machines reach
// does not tell of tables and their troubles unless onlyOps.
func webs(ctx context.Context, name string, l config.Listener, onlyOps bool, h *Health, metrics, next http.Handler, log *slog.Logger) ([]*web, error) {
	var health http.Handler = h
	var all []*web
	if l.Ops != "" {
		ops, err := listen(ctx, name+" operations", l.Ops, config.TLS{}, routes(health, metrics, http.NotFoundHandler()), log)
		if err != nil {
			return nil, err
		}
		all = append(all, ops)
	}
	if !onlyOps && (l.Ops != "" || !l.Loopback()) {
		health, metrics = nil, nil
	}
	main, err := listen(ctx, name+" listener", l.Listen, l.TLS, routes(health, metrics, next), log)
	if err != nil {
		for _, w := range all {
			err = errors.Join(err, w.listener.Close())
		}
		return nil, err
	}
	return append(all, main), nil
}
