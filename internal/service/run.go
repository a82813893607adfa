package service

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"delenda/events/bus"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/pipeline"
)

// grace bounds each of the two halves of the drain: listeners, then workers.
const grace = 30 * time.Second

// Services selects what a process runs.
type Services struct{ Ingest, Deleter, Publisher bool }

// Options of Run.
type Options struct {
	Name     string // of the process, for logs and NATS' monitoring
	Config   *config.Config
	Services Services
	// Embedded runs a NATS server in the process instead of connecting to one.
	Embedded bool
	Log      *slog.Logger
	Now      func() time.Time
	// Started, when not nil, is called once everything has been opened and
	// runs; it must not block.
	Started func(*Running)
}

// Running is what Started gets of the services.
type Running struct {
	Bus          *bus.Bus
	Store        *pipeline.Store
	NATSURL      string // of the embedded server's listener, if it has one
	IngestURL    string // "" if the process does not run it
	DeleterURL   string
	PublisherURL string // as recipients reach it
	Health       *Health
}

// process is one process while it runs.
type process struct {
	Options
	health  *Health
	metrics *Metrics
	gates   map[string]*gate
	webs    map[string]*web // by service
}

// Run runs services until ctx is done, then drains them. Listeners are open
// first, so that /readyz tells what the start waits for.
func Run(ctx context.Context, o Options) error {
	p := &process{
		Options: o, health: NewHealth(o.Name), metrics: NewMetrics(),
		gates: map[string]*gate{}, webs: map[string]*web{},
	}
	starting := p.gate("start")
	p.health.Check("start", func(context.Context) error { return starting.waits() })

	parts := []daemon.Part{{Name: "services", Run: p.run}}
	for _, s := range []struct {
		on      bool
		name    string
		l       config.Listener
		onlyOps bool
	}{
		{o.Services.Ingest, "ingest", o.Config.Ingest.Listener, false},
		{o.Services.Deleter, "deleter", o.Config.Deleter.Listener, true},
		{o.Services.Publisher, "publisher", o.Config.Publisher.Listener, false},
	} {
		if !s.on {
			continue
		}
		all, err := webs(ctx, s.name, s.l, s.onlyOps, p.health, p.metrics.Handler(), p.gate(s.name), o.Log)
		if err != nil {
			for _, w := range p.webs {
				_ = w.listener.Close()
			}
			return err
		}
		for _, w := range all {
			parts = append(parts, w.part())
			p.webs[w.name] = w
		}
	}
	defer context.AfterFunc(ctx, func() {
		o.Log.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "draining", slog.String("service", o.Name))
	})()
	return daemon.Serve(ctx, o.Log, grace, parts...)
}

// run opens what the services need, runs them, and closes it again.
func (p *process) run(ctx context.Context, stop <-chan struct{}) error {
	asked, cancel := until(ctx, stop)
	defer cancel()
	rt, err := p.open(asked)
	if err != nil {
		if asked.Err() != nil {
			return nil
		}
		return err
	}
	parts := rt.parts // in the order of their start: embedded server, bus, ...
	for _, add := range []struct {
		on   bool
		name string
		make func(context.Context, *runtime) ([]daemon.Part, http.Handler, error)
	}{
		{p.Services.Publisher, "publisher", newPublisher},
		{p.Services.Deleter, "deleter", newDeleter},
		{p.Services.Ingest, "ingest", newIngest},
	} {
		if !add.on {
			continue
		}
		more, handler, err := add.make(asked, rt)
		if err != nil && asked.Err() != nil {
			return rt.abandon(ctx)
		}
		if err != nil {
			return errors.Join(err, rt.abandon(ctx))
		}
		parts = append(parts, more...)
		p.gate(add.name).open(handler)
	}
	p.gate("start").open(nil)
	p.Log.LogAttrs(ctx, slog.LevelInfo, "started", slog.String("service", p.Name))
	if p.Started != nil {
		p.Started(rt.running())
	}
	return daemon.Serve(asked, p.Log, grace, parts...)
}

func (p *process) gate(name string) *gate {
	if p.gates[name] == nil {
		p.gates[name] = &gate{}
		p.gates[name].reason.Store("starting")
	}
	return p.gates[name]
}

// gate answers 503 until it is opened.
type gate struct {
	next   atomic.Pointer[http.Handler]
	reason atomic.Value // string: what the start waits for
}

func (g *gate) open(next http.Handler) {
	if next == nil {
		next = http.NotFoundHandler()
	}
	g.next.Store(&next)
}

// waits returns what the start waits for, nil once it is over.
func (g *gate) waits() error {
	if g.next.Load() != nil {
		return nil
	}
	reason, _ := g.reason.Load().(string)
	return notYet(reason)
}

type notYet string

func (n notYet) Error() string { return string(n) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next := g.next.Load()
	if next == nil {
		w.Header().Set("Retry-After", "2")
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	}
	(*next).ServeHTTP(w, r)
}
