package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"delenda/events"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/sharing/recipients"
	"delenda/sharing/server"
	"delenda/sharing/snapshot"
)

// newPublisher makes the service that shares tables.
func newPublisher(ctx context.Context, rt *runtime) ([]daemon.Part, http.Handler, error) {
	key, err := rt.store.DeriveKey("publisher")
	if err != nil {
		return nil, nil, fmt.Errorf("publisher: %w", err)
	}
	sources := map[string]snapshot.Source{}
	for _, t := range rt.tables.list {
		b, err := t.objects(context.WithoutCancel(ctx)) // it outlives the start
		if err != nil {
			rt.health.Table(t.conf.Name, err)
			continue
		}
		source := snapshot.Source{Bucket: b, IdentityColumns: t.columns()}
		if signer, ok := b.Presigner(); ok {
			source.Presigner = signer
		}
		sources[t.conf.Name] = source
	}
	p, err := server.New(server.Options{
		Installation: rt.Config.Installation, State: rt.store.Bucket(), Tables: sources, Shares: shares(rt.Config, sources),
		BaseURL: Endpoint(rt.running().PublisherURL), Key: key, Publish: rt.bus.Publish, Feed: feed{rt.bus},
		Now: rt.Now, Logger: rt.Log, Poll: rt.Config.Publisher.Poll, URLTTL: rt.Config.Publisher.URLTTL,
		Observe: rt.metrics.observe,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("publisher: %w", err)
	}
	rt.health.Check("recipients", func(context.Context) error {
		if err := p.Ready(); errors.Is(err, recipients.ErrStale) {
			return recipients.ErrStale
		}
		return nil
	})
	rt.health.Check("shares", func(context.Context) error { return sharesServed(p.Status()) })
	rt.health.Shares(func() []ShareHealth { return shareHealth(p.Status()) })
	return []daemon.Part{
		background("shares", func(ctx context.Context) {
			if err := p.Run(ctx); err != nil && ctx.Err() == nil {
				rt.Log.LogAttrs(ctx, slog.LevelError, "shares are not kept current", slog.Any("error", err))
			}
		}),
		background("table changes", func(ctx context.Context) { rt.heedChanges(ctx, p) }),
	}, p.Handler(), nil
}

// heedChanges brings shares up to every announced change of their tables, each
// table on its own: one that fails is tried again and holds up no other.
func (rt *runtime) heedChanges(ctx context.Context, p *server.Publisher) {
	var workers sync.WaitGroup
	defer workers.Wait()
	newest := map[string]chan events.TableChanged{}
	for _, t := range rt.Config.Tables {
		changes := make(chan events.TableChanged, 1)
		newest[t.Name] = changes
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case change := <-changes:
					pause := pauses()
					for err := p.HandleTableChanged(ctx, change); err != nil && ctx.Err() == nil; err = p.HandleTableChanged(ctx, change) {
						next := pause.NextBackOff()
						rt.Log.LogAttrs(ctx, slog.LevelWarn, "share not brought up to a change",
							slog.String("table", change.Table), slog.Any("error", err), slog.Duration("again_in", next))
						wait(ctx, next)
					}
				}
			}
		})
	}
	follow(ctx, rt.bus, rt.Log, events.StreamTables, func(ctx context.Context, e events.Event) error {
		change, err := events.Payload[events.TableChanged](e)
		if err != nil {
			rt.Log.LogAttrs(ctx, slog.LevelWarn, "event not understood", slog.Any("error", err))
		}
		changes, known := newest[change.Table]
		if !known {
			return nil // of a table that is not configured here
		}
		select {
		case <-changes: // the older one that waits: the newer covers it
		default:
		}
		select {
		case changes <- change:
		case <-ctx.Done():
		}
		return nil
	})
}

// shareHealth tells of every shared table.
func shareHealth(all []server.TableStatus) []ShareHealth {
	list := []ShareHealth{}
	for _, s := range all {
		h := ShareHealth{Share: s.Share, Schema: s.Schema, Table: s.Table, Served: s.Err == nil, Version: s.Version}
		if s.Err != nil {
			h.Reason = s.Err.Error()
		}
		list = append(list, h)
	}
	return list
}

// sharesServed is an error when nothing that is shared is served.
func sharesServed(all []server.TableStatus) error {
	var why error
	for _, s := range all {
		if s.Err == nil {
			return nil
		}
		why = fmt.Errorf("no shared table is served: %s.%s.%s: %w", s.Share, s.Schema, s.Table, s.Err)
	}
	return why
}

// shares returns the configured shares as the publisher takes them, without
// tables that have no source: those are refused by name.
func shares(c *config.Config, sources map[string]snapshot.Source) []snapshot.Share {
	var list []snapshot.Share
	for _, s := range c.Publisher.Shares {
		share := snapshot.Share{Name: s.Name}
		for _, sc := range s.Schemas {
			schema := snapshot.Schema{Name: sc.Name}
			for _, t := range sc.Tables {
				if _, ok := sources[t.Table]; ok {
					schema.Tables = append(schema.Tables, snapshot.SharedTable{Name: t.Name, Table: t.Table})
				}
			}
			share.Schemas = append(share.Schemas, schema)
		}
		list = append(list, share)
	}
	return list
}

// Endpoint is the endpoint for profiles of a publisher that is reached at url.
func Endpoint(url string) string { return strings.TrimSuffix(url, "/") + server.DefaultPrefix }
