package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"delenda/internal/service"
	"delenda/storage"
)

type inspectCmd struct {
	jsonFlag
	URL string `arg:"" name:"url" help:"Root of the table: a path or bucket URL."`
}

func (*inspectCmd) Help() string {
	return `Examples:
  delenda inspect /lake/orders
  delenda inspect --json 's3://lake/orders?region=eu-central-1'`
}

// Run runs the command.
func (c *inspectCmd) Run(ctx context.Context, w *world) error {
	d, err := service.Inspect(ctx, c.URL, w.quiet(), now)
	if errors.Is(err, storage.ErrNoTable) {
		return next(err, "give the root of a Delta table, the directory that holds _delta_log")
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(w.Stdout, d)
	}
	say(w.Stdout, "format        %s", d.Format)
	say(w.Stdout, "version       %d", d.Version)
	say(w.Stdout, "fragments     %d", d.Fragments)
	say(w.Stdout, "live rows     %d", d.LiveRows)
	say(w.Stdout, "deleted rows  %d (hidden by deletion vectors)", d.DeletedRows)
	say(w.Stdout, "features      %s", orNone(strings.Join(d.Features, ", ")))
	if len(d.Refused) == 0 {
		say(w.Stdout, "delenda may   read it, delete rows from it")
		return nil
	}
	for _, r := range d.Refused {
		say(w.Stdout, "refused       %s", fmt.Sprintf("%s: %s (%s)", r.Operation, r.Reason, r.Code))
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
