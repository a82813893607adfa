package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/alecthomas/kong"

	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/internal/service"
)

// configFlag is the configuration file of a command.
type configFlag struct {
	File string `name:"config" short:"c" placeholder:"FILE" help:"Configuration file; also the environment's DELENDA_CONFIG."`
}

// read reads the configuration for a role.
func (f *configFlag) read(w *world, role config.Role) (*config.Config, error) {
	path := f.File
	if path == "" {
		path, _ = w.Env("DELENDA_CONFIG")
	}
	if path == "" {
		return nil, daemon.Usage(errors.New("no configuration file: add -config FILE, or print an example with: delenda config"))
	}
	c, err := config.Read(path, role, w.Env)
	var problems *config.Error
	if errors.As(err, &problems) {
		return nil, fmt.Errorf("the configuration has %d problem(s):\n%w", len(problems.Problems), err)
	}
	return c, err
}

type upCmd struct {
	configFlag
}

func (*upCmd) Help() string {
	return `Everything in one process: enough for one machine, and to begin with. To grow, run ingest, deleter and
publisher with a NATS server of their own; the configuration file stays the same but for nats.url.

Example:
  delenda up -config delenda.yaml`
}

// Run runs the command.
func (c *upCmd) Run(ctx context.Context, w *world) error {
	conf, err := c.read(w, config.RoleUp)
	if err != nil {
		return err
	}
	log := w.log()
	return service.Run(ctx, service.Options{
		Name: "up", Config: conf, Services: service.Services{Ingest: true, Deleter: true, Publisher: true}, Embedded: true,
		Log: log, Now: now,
		Started: func(r *service.Running) {
			log.LogAttrs(ctx, slog.LevelInfo, "listening", slog.String("ingest", r.IngestURL),
				slog.String("deleter", r.DeleterURL), slog.String("publisher", r.PublisherURL), slog.String("nats", r.NATSURL))
		},
	})
}

// binary is the command line of a service of its own.
type binary struct {
	Run    serviceCmd       `cmd:"" default:"withargs" help:"Run the service; this is what happens without a command."`
	Health serviceHealthCmd `cmd:"" help:"Ask the running service whether it is ready. Exit code 1 if not."`

	LogLevel slog.Level       `default:"info" placeholder:"LEVEL" help:"Least severe log lines to write: debug, info, warn or error."`
	Version  kong.VersionFlag `help:"Print the version."`
}

type serviceHealthCmd struct {
	healthCmd
	role config.Role
}

// Run runs the command.
func (c *serviceHealthCmd) Run(ctx context.Context, w *world) error { return c.run(ctx, w, c.role) }

type serviceCmd struct {
	configFlag

	role     config.Role
	services service.Services
}

// Run runs the service.
func (c *serviceCmd) Run(ctx context.Context, w *world) error {
	conf, err := c.read(w, c.role)
	if err != nil {
		return err
	}
	log := w.log()
	return service.Run(ctx, service.Options{
		Name: string(c.role), Config: conf, Services: c.services, Log: log, Now: now,
		Started: func(r *service.Running) {
			log.LogAttrs(ctx, slog.LevelInfo, "listening", slog.String("url", r.IngestURL+r.DeleterURL+r.PublisherURL))
		},
	})
}

// Service returns the run function of a binary that runs one service.
func Service(role config.Role, about string, services service.Services) func(context.Context, daemon.Process) error {
	return func(ctx context.Context, p daemon.Process) error {
		c := binary{Run: serviceCmd{role: role, services: services}, Health: serviceHealthCmd{role: role}}
		return parse(ctx, string(role), about, &c, &c.LogLevel, p)
	}
}
