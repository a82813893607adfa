package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"delenda/internal/cloud"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/internal/demo"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
)

type prepareCmd struct {
	configFlag
	Sample    string `placeholder:"TABLE" help:"Write the demo's orders where the configuration has this table, unless a table is there."`
	Recipient string `placeholder:"NAME" help:"Add a recipient of all shares, unless --out is there already."`
	Out       string `placeholder:"FILE" help:"The recipient's profile file."`
}

func (*prepareCmd) Help() string {
	return `Makes the buckets that the configuration names by s3:// URLs with an endpoint, unless they are there. It may run any number of
times. Buckets of the clouds themselves are made with the cloud's tools.

Examples:
  delenda prepare -config delenda.yaml
  delenda prepare -config delenda.yaml --sample orders --recipient partner --out partner.share`
}

// Run runs the command.
func (c *prepareCmd) Run(ctx context.Context, w *world) error {
	if c.Recipient != "" && c.Out == "" {
		return daemon.Usage(errors.New("--recipient needs --out"))
	}
	conf, err := c.read(w, config.RoleOperator)
	if err != nil {
		return err
	}
	urls := []string{conf.State}
	for _, t := range conf.Tables {
		urls = append(urls, t.URL)
	}
	for _, url := range urls {
		created, err := cloud.CreateBucket(ctx, url)
		if err != nil {
			return next(err, "is the store running, and do the credentials in the environment belong to it?")
		}
		if created {
			normal, _ := bucket.Normalize(url)
			say(w.Stdout, "made the bucket of %s", normal)
		}
	}
	if c.Sample != "" {
		if err := c.sample(ctx, w, conf); err != nil {
			return err
		}
	}
	if c.Recipient == "" {
		return nil
	}
	share := shareCmd{configFlag: c.configFlag, Recipient: c.Recipient, Out: c.Out}
	if _, err := os.Stat(c.Out); err == nil {
		say(w.Stdout, "%s is there: no recipient is added", c.Out)
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for profile: %w", err)
	}
	return share.Run(ctx, w)
}

// sample writes the demo's table.
func (c *prepareCmd) sample(ctx context.Context, w *world, conf *config.Config) error {
	t, ok := conf.Table(c.Sample)
	if !ok {
		return daemon.Usage(fmt.Errorf("the configuration has no table %s", c.Sample))
	}
	b, err := bucket.Open(ctx, t.URL, &bucket.Options{Drivers: cloud.Drivers(), Logger: w.quiet(), Now: now})
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	_, err = delta.Open(ctx, b, &delta.Options{Now: now})
	switch {
	case err == nil:
		say(w.Stdout, "table %s is there", c.Sample)
		return nil
	case !errors.Is(err, storage.ErrNoTable):
		return fmt.Errorf("table %s: %w", c.Sample, err)
	}
	if _, err := demo.WriteTable(ctx, b, now, nil); err != nil {
		return err
	}
	say(w.Stdout, "wrote table %s: %d rows", c.Sample, demo.Rows())
	return nil
}
