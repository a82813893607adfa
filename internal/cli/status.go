package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/pipeline"
	"delenda/storage"
)

type statusCmd struct {
	configFlag
	jsonFlag
	ID  string `arg:"" optional:"" name:"id" help:"Id of a request. Without it: tables, and the requests that are open."`
	Max int    `name:"max" default:"50" help:"Most open requests to list."`
}

func (*statusCmd) Help() string {
	return `Examples:
  delenda status -config delenda.yaml
  delenda status -config delenda.yaml 0b0e9e0a-3a53-8d3c-9c0e-5f0f7f0a7f11`
}

// overview is what status prints without an id.
type overview struct {
	Tables []verdict          `json:"tables"`
	Open   []*pipeline.Status `json:"open"`
	More   bool               `json:"more"`
}

// Run runs the command.
func (c *statusCmd) Run(ctx context.Context, w *world) error {
	conf, err := c.read(w, config.RoleOperator)
	if err != nil {
		return err
	}
	store, closing, err := openState(ctx, w, conf)
	if err != nil {
		return err
	}
	defer func() { _ = closing() }()
	if c.ID != "" {
		return c.one(ctx, w, conf, store)
	}
	o := overview{Open: []*pipeline.Status{}}
	for _, t := range conf.Tables {
		v, err := served(ctx, w, store, t)
		if err != nil {
			return err
		}
		o.Tables = append(o.Tables, v)
	}
	for m, err := range store.Open(ctx) {
		if err != nil {
			return err
		}
		if o.More = len(o.Open) >= c.Max; o.More {
			break
		}
		st, err := store.Status(ctx, m.ID)
		if errors.Is(err, storage.ErrNotFound) {
			continue // being accepted just now
		}
		if err != nil {
			return err
		}
		o.Open = append(o.Open, st)
	}
	if c.JSON {
		return writeJSON(w.Stdout, o)
	}
	printVerdicts(w, o.Tables)
	switch {
	case len(o.Open) == 0:
		say(w.Stdout, "\nNo request is open.")
	case o.More:
		say(w.Stdout, "\nOpen requests (the first %d):", len(o.Open))
	default:
		say(w.Stdout, "\nOpen requests:")
	}
	for _, st := range o.Open {
		printStatus(w, st)
	}
	return nil
}

func (c *statusCmd) one(ctx context.Context, w *world, conf *config.Config, store *pipeline.Store) error {
	id, ok := pipeline.ParseRequestID(c.ID)
	if !ok {
		return daemon.Usage(errors.New("the id of a request is a UUID in lower case"))
	}
	st, err := store.Status(ctx, id)
	if errors.Is(err, storage.ErrNotFound) {
		return next(fmt.Errorf("no request has the id %s", id), "is this the configuration of the installation that accepted it?")
	}
	if err != nil {
		return err
	}
	var refused []verdict
	for i := range st.Tables {
		t, ok := conf.Table(st.Tables[i].Table)
		if st.Tables[i].State != pipeline.Received || !ok {
			continue
		}
		v, err := served(ctx, w, store, t)
		if err != nil {
			return err
		}
		if !v.OK {
			refused = append(refused, v)
			st.Tables[i].Code, st.Tables[i].Reason = v.Code, v.Reason
		}
	}
	if c.JSON {
		return writeJSON(w.Stdout, st)
	}
	printStatus(w, st)
	printVerdicts(w, refused)
	return nil
}

// served tells how a table is served: as its deleter says, which may be the only
// one that can reach it, and otherwise as it looks from here.
func served(ctx context.Context, w *world, store *pipeline.Store, t config.Table) (verdict, error) {
	p, err := store.Parked(ctx, t.Name)
	if err != nil {
		return verdict{}, err
	}
	v := checkTable(ctx, w, t)
	switch {
	case p != nil:
		v.OK, v.Parked, v.Code, v.Reason = false, &p.Since, p.Code, p.Reason
	case !v.OK && v.Code == "":
		v.OK, v.Unreached = true, true
	}
	return v, nil
}

// printStatus shows a request to people, with what a held one waits for.
func printStatus(w *world, st *pipeline.Status) {
	say(w.Stdout, "request %s from %s: %s", st.ID, st.Source, st.State)
	out := tabwriter.NewWriter(w.Stdout, 0, 0, 2, ' ', 0)
	for _, t := range st.Tables {
		line := fmt.Sprintf("  %s\t%s\t", t.Table, t.State)
		switch t.State {
		case pipeline.Hidden:
			line += fmt.Sprintf("%d rows, in version %d", t.Rows, t.Version)
		case pipeline.Held:
			line += fmt.Sprintf("%d rows match, more than the limits allow", t.Rows)
		default:
			line += t.Reason
		}
		_, _ = fmt.Fprintln(out, line)
	}
	_ = out.Flush()
	for _, name := range st.NotApplicable {
		say(w.Stdout, "  %s: maps none of the identity types", name)
	}
	switch st.State { //nolint:exhaustive // the others go on by themselves
	case pipeline.Held:
		say(w.Stdout, "  next: delenda release %s", st.ID)
	case pipeline.Partial:
		say(w.Stdout, "  next: mend what failed, then delenda dlq replay --request %s", st.ID)
	}
}
