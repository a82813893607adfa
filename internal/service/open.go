package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"delenda/events/bus"
	"delenda/events/bus/embedded"
	"delenda/internal/cloud"
	"delenda/internal/cloud/keeper"
	"delenda/internal/daemon"
	"delenda/pipeline"
	"delenda/storage/bucket"
)

const (
	connectTimeout = 5 * time.Second
	// startFor is how long a start waits for NATS and the state prefix before
	// it gives up; whoever supervises the process starts it again.
	startFor = 2 * time.Minute
	// tryFor bounds one try of a step of the start.
	tryFor = 30 * time.Second
)

// runtime is what the services of a process share once it is open.
type runtime struct {
	*process
	store    *pipeline.Store
	bus      *bus.Bus
	server   *embedded.Server
	topology *topology
	tables   *tables
	parts    []daemon.Part // that open and close what the services need
	refeed   chan struct{} // holds a token when open requests are to be fed at once
}

// open connects to everything. On an error nothing is left open.
func (p *process) open(ctx context.Context) (rt *runtime, err error) {
	rt = &runtime{process: p, refeed: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, rt.abandon(context.WithoutCancel(ctx)))
		}
	}()
	if err := rt.openState(ctx); err != nil {
		return rt, err
	}
	if err := rt.openBus(ctx); err != nil {
		return rt, err
	}
	rt.tables = newTables(p.Config, p.health, p.Log, p.Now)
	rt.closing("tables", func(context.Context) error { return rt.tables.close() })
	rt.parts = append(rt.parts, rt.tables.part())
	return rt, nil
}

// closing adds something to close at the very end, before what was added
// earlier.
func (rt *runtime) closing(name string, f func(context.Context) error) {
	rt.parts = append(rt.parts, daemon.Close(name, f))
}

// abandon closes what was opened so far, when the start fails.
func (rt *runtime) abandon(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return daemon.Serve(ctx, slog.New(slog.DiscardHandler), grace, rt.parts...)
}

// openState opens keeper, state prefix and installation key.
func (rt *runtime) openState(ctx context.Context) error {
	k, created, err := keeper.Open(ctx, rt.Config.Keeper)
	if err != nil {
		return err
	}
	rt.closing("keeper", func(context.Context) error { return k.Close() })
	if path, _ := rt.Config.KeeperFile(); created {
		rt.Log.LogAttrs(ctx, slog.LevelInfo, "made the installation's key file: keep a copy of it, apart from the state", slog.String("path", path))
	}
	b, err := bucket.Open(ctx, rt.Config.State, &bucket.Options{
		Drivers: cloud.Drivers(), Private: true, Logger: rt.Log, Now: rt.Now,
	})
	if err != nil {
		return fmt.Errorf("open state: %w", err)
	}
	rt.closing("state", func(context.Context) error { return b.Close() })
	return rt.attempt(ctx, "state prefix", func(ctx context.Context) error {
		rt.store, err = pipeline.OpenStore(ctx, b, k, rt.Config.Installation, rt.Now)
		if errors.Is(err, keeper.ErrWrongKey) {
			return backoff.Permanent(err)
		}
		return err
	})
}

// openBus starts the embedded server if there is one, connects, and declares
// the streams.
func (rt *runtime) openBus(ctx context.Context) error {
	rt.topology = &topology{
		want: bus.Topology{Replicas: rt.Config.NATS.Replicas, MaxAckPending: max(bus.DefaultMaxAckPending, 2*rt.Config.Batch.Max)},
		log:  rt.Log, missed: make(chan struct{}, 1),
		onLost: rt.feedAgain,
	}
	for _, t := range rt.Config.Tables {
		rt.topology.want.Tables = append(rt.topology.want.Tables, t.Name)
	}
	nats := rt.Config.NATS
	o := bus.Options{
		URL: nats.URL, CredentialsFile: nats.Credentials, NKeyFile: nats.NKey, CAFile: nats.TLS.CA, CertFile: nats.TLS.Cert, KeyFile: nats.TLS.Key,
		Name: "delenda " + rt.Name, Logger: rt.Log,
		Intercept: func(ctx context.Context, op bus.Op, do func(context.Context) error) error {
			return rt.topology.intercept(ctx, op, func(ctx context.Context) error { return rt.metrics.intercept(ctx, op, do) })
		},
	}
	if rt.Embedded {
		if err := rt.embed(ctx, &o); err != nil {
			return err
		}
	}
	err := rt.attempt(ctx, "NATS", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		rt.bus, err = bus.Connect(ctx, o)
		return err
	})
	if err != nil {
		return err
	}
	rt.topology.bus = rt.bus
	rt.closing("bus", rt.bus.Drain)
	rt.health.Check("nats", func(context.Context) error {
		if !rt.bus.Connected() {
			return errors.New("not connected to " + bus.Redact(nats.URL))
		}
		return nil
	})
	err = rt.attempt(ctx, "streams", func(ctx context.Context) error {
		err := rt.bus.Declare(ctx, rt.topology.want)
		if errors.Is(err, bus.ErrTopology) {
			return backoff.Permanent(err)
		}
		return err
	})
	if err != nil {
		return err
	}
	rt.parts = append(rt.parts, rt.topology.part())
	return nil
}

func (rt *runtime) embed(ctx context.Context, o *bus.Options) error {
	conf := rt.Config.NATS.Embedded
	token := ""
	if conf.Listen != "" {
		var err error
		if token, err = EmbeddedToken(conf.Dir); err != nil {
			return err
		}
	}
	server, err := embedded.Start(ctx, embedded.Options{
		Dir: conf.Dir, Listen: conf.Listen, Token: token, Name: "delenda", Logger: rt.Log,
	})
	if err != nil {
		return err
	}
	rt.server = server
	rt.closing("embedded NATS", server.Shutdown)
	o.URL, o.InProcess, o.Token = "", server, token
	return nil
}

// attempt calls f with growing pauses until it succeeds, for startFor at most,
// and tryFor at most each time; meanwhile readiness tells what it waits for and why.
func (rt *runtime) attempt(ctx context.Context, what string, f func(ctx context.Context) error) error {
	gate := rt.gate("start")
	gate.reason.Store("opening " + what)
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(startFor))
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, tryFor)
		defer cancel()
		return f(ctx)
	}
	return backoff.RetryNotify(try, backoff.WithContext(b, ctx),
		func(err error, again time.Duration) {
			gate.reason.Store("waiting for " + what + ": " + strings.TrimSpace(err.Error()))
			rt.Log.LogAttrs(ctx, slog.LevelWarn, "start waits", slog.String("for", what), slog.Any("error", err), slog.Duration("again_in", again))
		})
}

// feedAgain asks for open requests to be fed from the state prefix at once.
func (rt *runtime) feedAgain() {
	select {
	case rt.refeed <- struct{}{}:
	default:
	}
}

// running is what the outside may see.
func (rt *runtime) running() *Running {
	r := &Running{Bus: rt.bus, Store: rt.store, Health: rt.health}
	if rt.server != nil {
		r.NATSURL = rt.server.ClientURL()
	}
	url := func(name, cert string) string {
		w := rt.webs[name+" listener"]
		switch {
		case w == nil:
			return ""
		case cert != "":
			return "https://" + w.addr()
		}
		return "http://" + w.addr()
	}
	r.IngestURL = url("ingest", rt.Config.Ingest.TLS.Cert)
	r.DeleterURL = url("deleter", rt.Config.Deleter.TLS.Cert)
	if r.PublisherURL = rt.Config.Publisher.PublicURL; r.PublisherURL == "" {
		r.PublisherURL = url("publisher", rt.Config.Publisher.TLS.Cert)
	}
	return r
}
