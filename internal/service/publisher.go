package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"delenda/events"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/sharing/server"
	"delenda/sharing/snapshot"
)

// newPublisher makes the service that shares tables.
func newPublisher(rt *runtime) ([]daemon.Part, http.Handler, error) {
	key, err := rt.store.DeriveKey("publisher")
	if err != nil {
		return nil, nil, fmt.Errorf("publisher: %w", err)
	}
	sources := map[string]snapshot.Source{}
	for _, t := range rt.tables.list {
		b, err := t.objects(context.Background())
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
		Installation: rt.Config.Installation, State: rt.store.Bucket(), Tables: sources, Shares: Shares(rt.Config),
		BaseURL: Endpoint(rt.running().PublisherURL), Key: key, Publish: rt.bus.Publish, Feed: feed{rt.bus},
		Now: rt.Now, Logger: rt.Log, Poll: rt.Config.Publisher.Poll, URLTTL: rt.Config.Publisher.URLTTL,
		Observe: rt.metrics.observe,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("publisher: %w", err)
	}
	rt.health.Check("shares", func(context.Context) error { return p.Ready() })
	return []daemon.Part{
		background("shares", func(ctx context.Context) {
			if err := p.Run(ctx); err != nil && ctx.Err() == nil {
				rt.Log.LogAttrs(ctx, slog.LevelError, "shares are not kept current", slog.Any("error", err))
			}
		}),
		background("table changes", func(ctx context.Context) {
			follow(ctx, rt.bus, rt.Log, events.StreamTables, func(ctx context.Context, e events.Event) error {
				change, err := events.Payload[events.TableChanged](e)
				if err != nil {
					rt.Log.LogAttrs(ctx, slog.LevelWarn, "event not understood", slog.Any("error", err))
					return nil
				}
				return p.HandleTableChanged(ctx, change)
			})
		}),
	}, p.Handler(), nil
}

// Shares returns the configured shares as the publisher takes them.
func Shares(c *config.Config) []snapshot.Share {
	var shares []snapshot.Share
	for _, s := range c.Publisher.Shares {
		share := snapshot.Share{Name: s.Name}
		for _, sc := range s.Schemas {
			schema := snapshot.Schema{Name: sc.Name}
			for _, t := range sc.Tables {
				schema.Tables = append(schema.Tables, snapshot.SharedTable{Name: t.Name, Table: t.Table})
			}
			share.Schemas = append(share.Schemas, schema)
		}
		shares = append(shares, share)
	}
	return shares
}

// Endpoint is the endpoint for profiles of a publisher that is reached at url.
func Endpoint(url string) string { return strings.TrimSuffix(url, "/") + server.DefaultPrefix }
