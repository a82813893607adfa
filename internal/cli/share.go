package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"delenda/internal/cloud"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/internal/service"
	"delenda/sharing"
	"delenda/sharing/recipients"
	"delenda/storage/bucket"
)

type shareCmd struct {
	configFlag
	Recipient string   `arg:"" name:"recipient" help:"Name of the recipient."`
	Shares    []string `arg:"" optional:"" name:"share" help:"Shares to grant; all of the configuration if none is named."`
	Out       string   `name:"out" short:"o" placeholder:"FILE" help:"Profile file to write, mode 0600; RECIPIENT.share if not given."`
	Days      int      `name:"days" placeholder:"N" help:"Days until the token expires; never if not given."`
}

func (*shareCmd) Help() string {
	return `Adds a recipient, or a token to one, and writes the profile file that any Delta Sharing client takes. The file is a
credential: hand it over as one. Only a hash of its token is kept here.

Examples:
  delenda share -config delenda.yaml partner
  delenda share -config delenda.yaml partner sales --out partner.share --days 90`
}

// Run runs the command.
func (c *shareCmd) Run(ctx context.Context, w *world) error {
	conf, err := c.read(w, config.RoleOperator)
	if err != nil {
		return err
	}
	shares, err := c.shares(conf)
	if err != nil {
		return err
	}
	endpoint, err := endpoint(conf)
	if err != nil {
		return err
	}
	path := c.Out
	if path == "" {
		path = c.Recipient + ".share"
	}
	// The file first: a token that nobody has would be granted otherwise.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names the file
	if errors.Is(err, fs.ErrExist) {
		return next(err, "name another file with --out")
	}
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	if err := c.issue(ctx, w, conf, shares, endpoint, file); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	say(w.Stdout, "%s may read %s. The profile is in %s: it is a credential.", c.Recipient, strings.Join(shares, ", "), path)
	return nil
}

func (c *shareCmd) issue(ctx context.Context, w *world, conf *config.Config, shares []string, endpoint string, file *os.File) error {
	defer func() { _ = file.Close() }()
	b, err := bucket.Open(ctx, conf.State, &bucket.Options{Drivers: cloud.Drivers(), Private: true, Logger: w.quiet(), Now: now})
	if err != nil {
		return fmt.Errorf("open state: %w", err)
	}
	defer func() { _ = b.Close() }()
	expires := time.Time{}
	if c.Days > 0 {
		expires = now().AddDate(0, 0, c.Days)
	}
	token, err := recipients.NewDirectory(b).Issue(ctx, c.Recipient, shares, expires, now())
	if err != nil {
		return err
	}
	text, err := sharing.FormatProfile(sharing.Profile{Endpoint: endpoint, BearerToken: token, ExpiresAt: expires})
	if err != nil {
		return err
	}
	if _, err := file.Write(text); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return file.Sync()
}

func (c *shareCmd) shares(conf *config.Config) ([]string, error) {
	var known []string
	for _, s := range conf.Publisher.Shares {
		known = append(known, s.Name)
	}
	if len(known) == 0 {
		return nil, next(errors.New("the configuration has no share"), "add one to publisher.shares; an example: delenda config")
	}
	if len(c.Shares) == 0 {
		return known, nil
	}
	for _, s := range c.Shares {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, s) }) {
			return nil, daemon.Usage(fmt.Errorf("the configuration has no share %s; it has %s", s, strings.Join(known, ", ")))
		}
	}
	return c.Shares, nil
}

// endpoint is what recipients reach the publisher at.
func endpoint(conf *config.Config) (string, error) {
	url := conf.Publisher.PublicURL
	if url == "" {
		if strings.HasSuffix(conf.Publisher.Listen, ":0") {
			return "", next(errors.New("the publisher's port is not known before it starts"), "set publisher.public_url, or a port in publisher.listen")
		}
		url = "http://" + conf.Publisher.Listen
		if conf.Publisher.TLS.Cert != "" {
			url = "https://" + conf.Publisher.Listen
		}
	}
	return service.Endpoint(url), nil
}
