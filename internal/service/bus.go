package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"delenda/events"
	"delenda/events/bus"
	"delenda/internal/daemon"
	"delenda/pipeline"
)

// declareEvery is how often streams are declared although nobody missed one.
const declareEvery = time.Minute

// consume opens a work queue for the pipeline.
func consume(ctx context.Context, b *bus.Bus, stream, durable string) (pipeline.Fetch, error) {
	c, err := b.Consumer(ctx, stream, durable)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, limit int, wait time.Duration) ([]pipeline.Message, error) {
		list, err := c.Fetch(ctx, limit, wait)
		if err != nil {
			return nil, err
		}
		messages := make([]pipeline.Message, len(list))
		for i, m := range list {
			messages[i] = pipeline.Message{
				Delivery: m, Subject: m.Subject, Stream: m.Stream, Sequence: m.Sequence,
				Deliveries: m.Deliveries, ID: m.MsgID, Data: m.Data,
			}
		}
		return messages, nil
	}, nil
}

// topology keeps the streams declared: at once when an operation misses one,
// as after a loss of JetStream, when the connection comes back, and now and
// then.
type topology struct {
	bus    *bus.Bus
	want   bus.Topology
	log    *slog.Logger
	missed chan struct{} // holds a token when an operation missed a stream
	onLost func()        // called after streams were missed and are there again
}

// intercept notices operations that miss a stream.
func (t *topology) intercept(ctx context.Context, _ bus.Op, do func(context.Context) error) error {
	err := do(ctx)
	if errors.Is(err, bus.ErrNoStream) {
		select {
		case t.missed <- struct{}{}:
		default:
		}
	}
	return err
}

func (t *topology) part() daemon.Part {
	return background("streams", func(ctx context.Context) {
		tick := time.NewTicker(declareEvery)
		defer tick.Stop()
		for {
			missed := false
			changed := t.bus.Changed()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-changed:
			case <-t.missed:
				missed = true
			}
			if !t.bus.Connected() {
				continue
			}
			err := retry(ctx, func() error { return t.bus.Declare(ctx, t.want) })
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				t.log.LogAttrs(ctx, slog.LevelWarn, "streams not declared", slog.Any("error", err))
			case missed:
				t.log.LogAttrs(ctx, slog.LevelWarn, "streams were missing and are declared again: open requests are fed from the state prefix")
				if t.onLost != nil {
					t.onLost()
				}
			}
		}
	})
}

// feed carries heads of shared tables over a key-value bucket.
type feed struct{ bus *bus.Bus }

// Put implements snapshot.Feed.
func (f feed) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	kv, err := f.bus.KV(ctx, events.KVHeads)
	if err != nil {
		return 0, err
	}
	return kv.Put(ctx, key, value)
}

// Watch implements snapshot.Feed.
func (f feed) Watch(ctx context.Context, fn func(key string, value []byte, revision uint64)) error {
	kv, err := f.bus.KV(ctx, events.KVHeads)
	if err != nil {
		return err
	}
	for e, err := range kv.Watch(ctx, ">") {
		if err != nil {
			return err
		}
		if e != nil && !e.Deleted {
			fn(e.Key, e.Value, e.Revision)
		}
	}
	return ctx.Err()
}

// follow calls fn for the newest of each subject of a stream and then for
// every message that comes, and begins again whenever the stream was lost
// sight of, until ctx is done.
func follow(ctx context.Context, b *bus.Bus, log *slog.Logger, stream string, fn func(ctx context.Context, e events.Event) error) {
	pause := pauses()
	for ctx.Err() == nil {
		var err error
		for u, ferr := range b.Follow(ctx, stream, bus.FollowOptions{LastPerTopic: true}) {
			if err = ferr; err != nil {
				break
			}
			if u.Record == nil {
				pause.Reset()
				continue
			}
			e, derr := u.Record.Event()
			if derr != nil {
				log.LogAttrs(ctx, slog.LevelWarn, "event not understood", slog.String("stream", stream), slog.Any("error", derr))
				continue
			}
			if err = fn(ctx, e); err != nil {
				break
			}
		}
		if ctx.Err() != nil {
			return
		}
		log.LogAttrs(ctx, slog.LevelWarn, "events lost sight of, following again", slog.String("stream", stream), slog.Any("error", err))
		wait(ctx, pause.NextBackOff())
	}
}
