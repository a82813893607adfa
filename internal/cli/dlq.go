package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"delenda/events/bus"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/pipeline"
	"delenda/storage"
)

type dlqCmd struct {
	List   dlqListCmd   `cmd:"" help:"List dead letters."`
	Replay dlqReplayCmd `cmd:"" help:"Have the work of a dead letter tried again."`
	Remove dlqRemoveCmd `cmd:"" help:"Erase a dead letter."`
}

func (*dlqCmd) Help() string {
	return `A dead letter is work that was given up: a reference, a reason code and ciphertext, and nothing that names a person.

Examples:
  delenda dlq list -config delenda.yaml
  delenda dlq replay -config delenda.yaml 17`
}

type dlqListCmd struct {
	configFlag
	jsonFlag
	Max int `name:"max" default:"100" help:"Most dead letters to list."`
}

// letter is one dead letter for machines.
type letter struct {
	Number     uint64    `json:"number"`
	Stage      string    `json:"stage"`
	Code       string    `json:"code"`
	Request    string    `json:"request,omitempty"`
	Table      string    `json:"table,omitempty"`
	Subject    string    `json:"subject"`
	Deliveries int       `json:"deliveries"`
	At         time.Time `json:"at"`
	Unreadable bool      `json:"unreadable,omitempty"`
}

// Run runs the command.
func (c *dlqListCmd) Run(ctx context.Context, w *world) error {
	return withBus(ctx, w, &c.configFlag, func(_ *config.Config, b *bus.Bus) error {
		dead, err := b.DeadLetters(ctx, 0, c.Max)
		if err != nil {
			return err
		}
		letters := []letter{}
		for _, d := range dead {
			letters = append(letters, letter{
				d.Sequence, d.Stage, d.Letter.Code, d.Letter.Request, d.Letter.Table, d.Letter.Subject, d.Letter.Deliveries, d.Letter.At, d.Err != nil,
			})
		}
		if c.JSON {
			return writeJSON(w.Stdout, letters)
		}
		if len(letters) == 0 {
			say(w.Stdout, "No dead letters.")
			return nil
		}
		out := tabwriter.NewWriter(w.Stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(out, "number\tat\tstage\tcode\ttable\trequest")
		for _, l := range letters {
			_, _ = fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%s\n", l.Number, l.At.Format(time.RFC3339), l.Stage, l.Code, l.Table, l.Request)
		}
		return out.Flush()
	})
}

type dlqReplayCmd struct {
	configFlag
	Number  uint64   `arg:"" optional:"" help:"Number of the dead letter."`
	Request string   `name:"request" placeholder:"ID" help:"A failed request instead, whose dead letter is gone."`
	Table   []string `name:"table" short:"t" sep:"none" placeholder:"NAME" help:"With --request: only this table; every one that failed if not given. May be given several times."`
}

func (*dlqReplayCmd) Help() string {
	return `A dead letter is a message, and may be lost with JetStream; that a request failed stands in the state prefix.

Examples:
  delenda dlq replay -config delenda.yaml 17
  delenda dlq replay -config delenda.yaml --request 0b0e9e0a-3a53-8d3c-9c0e-5f0f7f0a7f11 --table orders`
}

// Run runs the command. Work of the deleters is fed from the request's record,
// which decides; a message of the intake is published again as it came.
func (c *dlqReplayCmd) Run(ctx context.Context, w *world) error {
	switch {
	case (c.Number == 0) == (c.Request == ""):
		return daemon.Usage(errors.New("what? give the number of a dead letter, or --request ID"))
	case c.Request != "":
		return c.request(ctx, w)
	case len(c.Table) > 0:
		return daemon.Usage(errors.New("--table goes with --request: a dead letter names its table"))
	}
	return withBus(ctx, w, &c.configFlag, func(conf *config.Config, b *bus.Bus) error {
		d, err := b.DeadLetter(ctx, c.Number)
		if err != nil {
			return notThere(err)
		}
		if d.Err == nil && d.Stage == stageRequests {
			store, closing, err := openState(ctx, w, conf)
			if err != nil {
				return err
			}
			defer func() { _ = closing() }()
			if err := store.Replay(ctx, b.Publish, d.Letter); err != nil {
				return next(err, "delenda status %s", d.Letter.Request)
			}
			if err := b.RemoveDead(ctx, c.Number); err != nil && !errors.Is(err, bus.ErrNotFound) {
				return err
			}
		} else if _, err := b.ReplayDead(ctx, c.Number); err != nil {
			return err
		}
		say(w.Stdout, "replayed: dead letter %d", c.Number)
		return nil
	})
}

// request has a failed request tried again by what the state prefix knows of
// it. NATS is not needed: the sweep finds what is to be done.
func (c *dlqReplayCmd) request(ctx context.Context, w *world) error {
	id, ok := pipeline.ParseRequestID(c.Request)
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
	st, err := store.Status(ctx, id)
	if errors.Is(err, storage.ErrNotFound) {
		return next(fmt.Errorf("no request has the id %s", id), "is this the configuration of the installation that accepted it?")
	}
	if err != nil {
		return err
	}
	tables := c.Table
	if len(tables) == 0 {
		for _, t := range st.Tables {
			if t.State == pipeline.Failed {
				tables = append(tables, t.Table)
			}
		}
		if len(tables) == 0 {
			return next(fmt.Errorf("replay request %s: %w", id, pipeline.ErrNotWaiting), "delenda status %s", id)
		}
	}
	publish, ending, soon := publisher(ctx, w, conf)
	defer ending()
	for _, table := range tables {
		if err := store.Retry(ctx, publish, id, table); err != nil {
			return next(err, "delenda status %s", id)
		}
	}
	say(w.Stdout, "replayed: request %s, on %s. %s", id, strings.Join(tables, ", "), soon)
	return nil
}

type dlqRemoveCmd struct {
	configFlag
	Number uint64 `arg:"" help:"Number of the dead letter."`
}

// Run runs the command.
func (c *dlqRemoveCmd) Run(ctx context.Context, w *world) error {
	return withBus(ctx, w, &c.configFlag, func(_ *config.Config, b *bus.Bus) error {
		if err := b.RemoveDead(ctx, c.Number); err != nil {
			return notThere(err)
		}
		say(w.Stdout, "removed: dead letter %d", c.Number)
		return nil
	})
}

// stageRequests is the stage of dead letters of the deleters' work items.
const stageRequests = "requests"

func notThere(err error) error {
	if errors.Is(err, bus.ErrNotFound) {
		return next(err, "delenda dlq list")
	}
	return err
}

// withBus runs f with a connection to NATS.
func withBus(ctx context.Context, w *world, f *configFlag, do func(*config.Config, *bus.Bus) error) error {
	conf, err := f.read(w, config.RoleOperator)
	if err != nil {
		return err
	}
	b, err := connect(ctx, w, conf)
	if err != nil {
		return err
	}
	defer func() { _ = b.Drain(context.WithoutCancel(ctx)) }()
	return do(conf, b)
}
