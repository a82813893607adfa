package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"delenda/events/bus"
	"delenda/internal/cloud"
	"delenda/internal/cloud/keeper"
	"delenda/internal/config"
	"delenda/internal/service"
	"delenda/pipeline"
	"delenda/storage/bucket"
)

const connectTimeout = 5 * time.Second

// jsonFlag is for commands that machines read.
type jsonFlag struct {
	JSON bool `name:"json" help:"Print JSON, for machines."`
}

// writeJSON prints one value.
func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// openState opens the state prefix of a configuration that has been started
// before: an operator's command makes nothing.
func openState(ctx context.Context, w *world, c *config.Config) (*pipeline.Store, func() error, error) {
	k, err := keeper.OpenExisting(ctx, c.Keeper)
	if err != nil {
		return nil, nil, next(err, "the keeper is made by the first start of the services; is this the right configuration?")
	}
	b, err := bucket.Open(ctx, c.State, &bucket.Options{Drivers: cloud.Drivers(), Private: true, Logger: w.quiet(), Now: now})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open state: %w", err), k.Close())
	}
	closing := func() error { return errors.Join(b.Close(), k.Close()) }
	store, err := pipeline.OpenStore(ctx, b, k, c.Installation, now)
	if err != nil {
		return nil, nil, errors.Join(err, closing())
	}
	return store, closing, nil
}

// errNoNATS: the configuration names no server that a command can reach.
var errNoNATS = errors.New("NATS cannot be reached from here")

// connect reaches NATS as an operator: nats.url, or the listener of the server
// that delenda up has embedded.
func connect(ctx context.Context, w *world, c *config.Config) (*bus.Bus, error) {
	o := bus.Options{
		URL: c.NATS.URL, CredentialsFile: c.NATS.Credentials, NKeyFile: c.NATS.NKey, CAFile: c.NATS.TLS.CA, CertFile: c.NATS.TLS.Cert, KeyFile: c.NATS.TLS.Key,
		Name: "delenda operator", Logger: w.quiet(),
	}
	if o.URL == "" {
		if c.NATS.Embedded.Listen == "" {
			return nil, next(errNoNATS, "delenda up keeps NATS to itself unless it listens: set nats.embedded.listen, for example to 127.0.0.1:4222, and start it again")
		}
		token, err := service.EmbeddedToken(c.NATS.Embedded.Dir)
		if err != nil {
			return nil, err
		}
		o.URL, o.Token = "nats://"+c.NATS.Embedded.Listen, token
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	b, err := bus.Connect(ctx, o)
	if err != nil {
		return nil, next(err, "is the server running, and is its address right in nats.url or nats.embedded.listen?")
	}
	return b, nil
}
