package service

import (
	"context"
	"net/http"

	"delenda/events"
	"delenda/events/bus"
	"delenda/internal/daemon"
	"delenda/pipeline"
	"delenda/pipeline/erase"
)

// newDeleter makes the service that hides rows. Its listener serves the
// operator only.
func newDeleter(_ context.Context, rt *runtime) ([]daemon.Part, http.Handler, error) {
	window := rt.Config.Batch.Window
	if window == 0 {
		window = -1 // take what is there
	}
	d := erase.New(rt.store, rt.tables.pipeline(rt.Config.Limits),
		func(ctx context.Context, table string) (pipeline.Fetch, error) {
			return consume(ctx, rt.bus, events.StreamRequests, bus.DeleterDurable(table))
		},
		rt.bus.Publish,
		&erase.Options{Window: window, Max: rt.Config.Batch.Max, Metrics: rt.metrics.pipeline(), Logger: rt.Log})
	part := daemon.Part{Name: "deleter", Run: func(ctx context.Context, stop <-chan struct{}) error {
		ctx, cancel := until(ctx, stop)
		defer cancel()
		return d.Run(ctx)
	}}
	return []daemon.Part{part}, http.NotFoundHandler(), nil
}
