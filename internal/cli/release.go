package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"delenda/events"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/pipeline"
	"delenda/storage"
)

type releaseCmd struct {
	configFlag
	ID string `arg:"" name:"id" help:"Id of the held request."`
}

func (*releaseCmd) Help() string {
	return `A request that matches more rows of a table than limits.rows, or a larger share than limits.share, changes nothing until
it is released. Look at it first:
  delenda status -config delenda.yaml ID

Example:
  delenda release -config delenda.yaml 0b0e9e0a-3a53-8d3c-9c0e-5f0f7f0a7f11`
}

// Run runs the command.
func (c *releaseCmd) Run(ctx context.Context, w *world) error {
	id, ok := pipeline.ParseRequestID(c.ID)
	if !ok {
		return daemon.Usage(errors.New("the id of a request is a UUID in lower case"))
	}
	conf, err := c.read(w, config.RoleOperator)
	if err != nil {
		return err
	}
	store, closing, err := openState(ctx, w, conf)
	if err != nil {
		return err
	}
	defer func() { _ = closing() }()
	publish, ending, soon := publisher(ctx, w, conf)
	defer ending()
	tables, err := store.Release(ctx, publish, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return fmt.Errorf("no request has the id %s", id)
	case errors.Is(err, pipeline.ErrNotWaiting):
		return next(err, "delenda status %s", id)
	case err != nil:
		return err
	}
	say(w.Stdout, "released: request %s, on %s. %s", id, strings.Join(tables, ", "), soon)
	return nil
}

// publisher returns how work is handed to the deleters: over NATS, or, where
// that cannot be reached, by the sweep of a running ingest, which finds it in
// the state prefix.
func publisher(ctx context.Context, w *world, conf *config.Config) (publish pipeline.Publish, ending func(), soon string) {
	b, err := connect(ctx, w, conf)
	if err != nil {
		return func(context.Context, events.Event) error { return nil }, func() {},
			"NATS is not reached from here: the next sweep takes it up, within half a minute."
	}
	return b.Publish, func() { _ = b.Drain(context.WithoutCancel(ctx)) }, "The deleters have it."
}
