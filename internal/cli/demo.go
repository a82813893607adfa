package cli

import (
	"context"
	"errors"
	"fmt"

	"delenda/internal/daemon"
	"delenda/internal/demo"
	"delenda/storage"
)

type demoCmd struct {
	Table  string `placeholder:"URL" help:"Use a copy of this Delta table: a path or bucket URL. Yours is only read."`
	Column string `placeholder:"NAME" help:"With --table: the column that identifies the person."`
	ID     string `placeholder:"VALUE" help:"With --table: the person's value in that column."`
	Keep   string `placeholder:"DIR" help:"Keep everything in this directory, to look at afterwards."`
}

func (*demoCmd) Help() string {
	return `Writes a Delta table of customers and their orders, runs all of Delenda in this process, and lets one
customer be forgotten while a recipient of the shared table watches.

Examples:
  delenda demo
  delenda demo --keep /tmp/delenda-demo
  delenda demo --table /lake/orders --column customer_id --id 4711`
}

// Run runs the command.
func (c *demoCmd) Run(ctx context.Context, w *world) error {
	if c.Table != "" && (c.Column == "" || c.ID == "") || c.Table == "" && (c.Column != "" || c.ID != "") {
		return daemon.Usage(errors.New("--table, --column and --id go together\nExample: delenda demo --table /lake/orders --column customer_id --id 4711"))
	}
	err := demo.Run(ctx, demo.Options{
		Table: c.Table, Column: c.Column, Value: storage.NewSecret(c.ID), Dir: c.Keep,
		Out: w.Stdout, Progress: w.progress(), Log: w.errors(), Now: now,
	})
	switch {
	case errors.Is(err, demo.ErrFailed):
		say(w.Stdout, "\n%v", err)
		return failed()
	case cancelled(ctx, err):
		return err
	case errors.Is(err, storage.ErrNoTable):
		return next(err, "give the root of a Delta table, the directory that holds _delta_log")
	case err != nil:
		return err
	}
	if c.Keep != "" {
		say(w.Stdout, "\nEverything is kept in %s. Go on with:\n  delenda up -config %s\n  delenda status -config %s",
			c.Keep, fmt.Sprintf("%s/delenda.yaml", c.Keep), fmt.Sprintf("%s/delenda.yaml", c.Keep))
	}
	return nil
}
