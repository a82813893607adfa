package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"delenda/events"
	"delenda/events/bus"
	"delenda/internal/daemon"
	"delenda/pipeline"
	"delenda/pipeline/intake"
)

// sweepEvery is how often the state prefix is looked through for requests that
// no stream knows.
const sweepEvery = 30 * time.Second

// newIngest makes the service that takes requests, and that feeds open ones
// which no stream knows.
func newIngest(ctx context.Context, rt *runtime) ([]daemon.Part, http.Handler, error) {
	tables := rt.tables.pipeline(rt.Config.Limits)
	in := intake.New(rt.store, tables, rt.bus.Publish, &intake.Options{Metrics: rt.metrics.pipeline(), Logger: rt.Log})
	keys, err := rt.intakeKeys(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("ingest: %w", err)
	}
	consumer := &intake.Consumer{
		Intake: in, Keys: keys, Publish: rt.bus.Publish, Plain: rt.Config.Ingest.PlainIntake, Logger: rt.Log,
		Fetch: lazily(func(ctx context.Context) (pipeline.Fetch, error) {
			return consume(ctx, rt.bus, events.StreamIntake, bus.IntakeDurable)
		}),
	}
	var sources []intake.Source
	for _, s := range rt.Config.Ingest.Sources {
		source := intake.Source{Name: s.Name}
		for _, text := range s.TokensSHA256 {
			var sum [sha256.Size]byte
			if n, err := hex.Decode(sum[:], []byte(text)); err != nil || n != len(sum) {
				return nil, nil, fmt.Errorf("ingest: source %s: a token hash is not a SHA-256", s.Name)
			}
			source.TokensSHA256 = append(source.TokensSHA256, sum)
		}
		sources = append(sources, source)
		consumer.Sources = append(consumer.Sources, s.Name)
	}
	return []daemon.Part{
		rt.sweeper(),
		background("intake", func(ctx context.Context) { _ = consumer.Run(ctx) }),
	}, intake.Handler(in, sources, keys), nil
}

// intakeKeys loads the keys that requests are encrypted with, or makes them.
func (rt *runtime) intakeKeys(ctx context.Context) (keys *intake.Keys, err error) {
	err = rt.attempt(ctx, "intake keys", func(ctx context.Context) error {
		keys, err = intake.LoadKeys(ctx, rt.store)
		return err
	})
	return keys, err
}

// sweeper feeds back what no stream knows: at the start, now and then, and at
// once after streams were lost.
func (rt *runtime) sweeper() daemon.Part {
	return background("sweep", func(ctx context.Context) {
		w := &pipeline.Sweeper{
			Store: rt.store, Publish: rt.bus.Publish, Logger: rt.Log,
			Backlog: rt.bus.Backlog,
		}
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			n, err := w.Sweep(ctx)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				rt.Log.LogAttrs(ctx, slog.LevelWarn, "sweep failed", slog.Any("error", err))
			case n.Fed > 0 || n.Closed > 0 || n.Orphans > 0:
				rt.Log.LogAttrs(ctx, slog.LevelInfo, "swept", slog.Int("open", n.Open), slog.Int("fed", n.Fed),
					slog.Int("closed", n.Closed), slog.Int("orphans", n.Orphans))
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			case <-rt.refeed:
			}
		}
	})
}

// lazily opens a queue when it is first fetched from, and again after an error.
func lazily(open func(ctx context.Context) (pipeline.Fetch, error)) pipeline.Fetch {
	var mu sync.Mutex
	var fetch pipeline.Fetch
	return func(ctx context.Context, limit int, wait time.Duration) ([]pipeline.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		if fetch == nil {
			f, err := open(ctx)
			if err != nil {
				return nil, err
			}
			fetch = f
		}
		list, err := fetch(ctx, limit, wait)
		if err != nil {
			fetch = nil
		}
		return list, err
	}
}
