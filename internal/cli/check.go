package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"delenda/internal/cloud"
	"delenda/internal/config"
	"delenda/internal/service"
	"delenda/storage"
	"delenda/storage/bucket"
)

type checkCmd struct {
	configFlag
	jsonFlag
}

func (*checkCmd) Help() string {
	return `Reads the configuration as delenda up or the services would, looks at the state prefix, and opens every table.
Nothing is written. Exit code 0: everything would be served. 1: something is refused, by name and with the reason.

Example:
  delenda check -config delenda.yaml`
}

// verdict is what check finds of one thing.
type verdict struct {
	Name   string               `json:"name"`
	URL    string               `json:"url,omitempty"`
	OK     bool                 `json:"ok"`
	Code   string               `json:"code,omitempty"`
	Reason string               `json:"reason,omitempty"`
	Table  *storage.Description `json:"table,omitempty"`
	// Parked is since when its deleter has not been able to work on a table.
	Parked *time.Time `json:"parked,omitempty"`
	// Unreached: a table that cannot be looked at from here, by Reason, and that
	// no deleter complains about.
	Unreached bool `json:"unreached,omitempty"`
	columns   string
}

// Run runs the command.
func (c *checkCmd) Run(ctx context.Context, w *world) error {
	role := config.RoleUp
	conf, err := c.read(w, role)
	if err != nil && strings.Contains(err.Error(), "nats.url: delenda up") { // a file for the three services
		conf, err = c.read(w, config.RoleIngest)
	}
	if err != nil {
		return err
	}
	all := []verdict{checkKeeper(conf), checkState(ctx, w, conf)}
	for _, t := range conf.Tables {
		v := checkTable(ctx, w, t)
		if v.OK {
			v = describe(ctx, w, t, v)
		}
		all = append(all, v)
	}
	ok := true
	for _, v := range all {
		ok = ok && v.OK
	}
	if c.JSON {
		if err := writeJSON(w.Stdout, struct {
			OK     bool      `json:"ok"`
			Checks []verdict `json:"checks"`
		}{ok, all}); err != nil {
			return err
		}
	} else {
		printVerdicts(w, all)
	}
	if !ok {
		return failed()
	}
	return nil
}

func printVerdicts(w *world, all []verdict) {
	for _, v := range all {
		switch {
		case v.Unreached:
			say(w.Stdout, "unknown  %s: cannot be looked at from here, and no deleter complains: %s", v.Name, v.Reason)
		case v.Parked != nil:
			say(w.Stdout, "PARKED   %s: %s (%s), since %s", v.Name, v.Reason, v.Code, v.Parked.Format(time.RFC3339))
		case !v.OK && v.Code != "":
			say(w.Stdout, "REFUSED  %s: %s (%s)", v.Name, v.Reason, v.Code)
		case !v.OK:
			say(w.Stdout, "REFUSED  %s: %s", v.Name, v.Reason)
		case v.Table != nil:
			say(w.Stdout, "ok       %s: %s, version %d, %d fragments, %d rows; compared: %s",
				v.Name, v.Table.Format, v.Table.Version, v.Table.Fragments, v.Table.LiveRows, v.columns)
		default:
			say(w.Stdout, "ok       %s: %s", v.Name, v.Reason)
		}
	}
}

// describe adds what a table is, which takes a look at all its fragments.
func describe(ctx context.Context, w *world, t config.Table, v verdict) verdict {
	d, err := service.Inspect(ctx, t.URL, w.quiet(), now)
	if err != nil {
		v.OK, v.Reason = false, err.Error()
		return v
	}
	v.Table = &d
	return v
}

func checkKeeper(c *config.Config) verdict {
	v := verdict{Name: "keeper", OK: true, Reason: "a key service"}
	if path, local := c.KeeperFile(); local {
		_, err := os.Stat(path)
		switch {
		case err == nil:
			v.Reason = path
		case errors.Is(err, fs.ErrNotExist):
			v.Reason = path + " (will be made at the first start)"
		default:
			v.OK, v.Reason = false, err.Error()
		}
	}
	return v
}

func checkState(ctx context.Context, w *world, c *config.Config) verdict {
	v := verdict{Name: "state"}
	b, err := bucket.Open(ctx, c.State, &bucket.Options{Drivers: cloud.Drivers(), Private: true, Logger: w.quiet(), Now: now})
	if err != nil {
		v.Reason = err.Error()
		return v
	}
	defer func() { _ = b.Close() }()
	v.URL = b.URL()
	_, err = b.Stat(ctx, "keys/installation")
	switch {
	case err == nil:
		v.OK, v.Reason = true, b.URL()
	case errors.Is(err, storage.ErrNotFound):
		v.OK, v.Reason = true, b.URL()+" (empty)"
	default:
		v.Reason = err.Error()
	}
	return v
}

func checkTable(ctx context.Context, w *world, t config.Table) verdict {
	v := verdict{Name: "table " + t.Name, URL: t.URL}
	var columns []string
	for typ, column := range t.Identities {
		columns = append(columns, fmt.Sprintf("%s by %s", column, typ))
	}
	v.columns = strings.Join(columns, ", ")
	err := service.CheckTable(ctx, t, w.quiet(), now)
	var refusal *storage.Refusal
	switch {
	case err == nil:
		v.OK, v.Reason = true, "compared: "+v.columns
	case errors.As(err, &refusal):
		v.Code, v.Reason = refusal.Code, refusal.Reason
	case errors.Is(err, storage.ErrCorrupt):
		v.Code, v.Reason = "corrupt", err.Error()
	default:
		v.Reason = err.Error()
	}
	return v
}
