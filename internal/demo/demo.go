// Package demo shows one erasure end to end: a real Delta table, all services
// embedded in a temporary directory, a real recipient over HTTP before and
// after, and an independent check that the person's rows are gone and no other
// row is.
//
// Nothing outside the temporary directory is written, and only loopback ports
// that are free are used.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"delenda/internal/config"
	"delenda/internal/service"
	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/storage"
)

// ErrFailed tells that the demo ran, and what it showed is wrong.
var ErrFailed = errors.New("demo: FAILED")

// Options of Run. The zero value makes a table of its own.
type Options struct {
	Table  string         // URL of the user's table, of which a copy is used; "" for the demo's own
	Column string         // that identifies the person; with Table
	Value  storage.Secret // of the person, in the canonical form of the column's type; with Table
	Dir    string         // kept afterwards; "" is a temporary directory, removed at the end
	Out    io.Writer
	// Progress returns what is told of long work: how many steps were done.
	Progress func(what string, total int64) (advance func(n int64), done func())
	Log      *slog.Logger
	Now      func() time.Time
}

// Timings are how long a request took from being sent until each point.
type Timings struct {
	Accepted  time.Duration // the answer to the request
	Hidden    time.Duration // the table's newest version shows none of the rows
	Announced time.Duration // recipients were told
	Visible   time.Duration // the recipient's query was answered without the rows
}

// demo is one run.
type demo struct {
	Options
	lake, state string
	conf        *config.Config
	token       string // of the demo's source of requests
	table       sharing.Table
	recipient   sharing.Token
	client      *client.Client
	identity    string // type in requests
	person      string // whose rows, for the text
}

// Run runs the demo. ErrFailed means that a row is visible that must not be,
// or missing that must not be.
func Run(ctx context.Context, o Options) (err error) {
	d := &demo{Options: o, identity: "customer_id", person: subjectName + "'s"}
	if o.Table == "" {
		d.Column, d.Value = "customer_id", storage.NewSecret(fmt.Sprint(subjectID))
	} else {
		d.identity, d.person = "subject", "the person's"
	}
	if d.Progress == nil {
		d.Progress = func(string, int64) (func(int64), func()) { return func(int64) {}, func() {} }
	}
	if d.Dir == "" {
		dir, err := os.MkdirTemp("", "delenda-demo-")
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		d.Dir = dir
	} else if err := newDir(d.Dir); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.lake, d.state = filepath.Join(d.Dir, "lake", "orders"), filepath.Join(d.Dir, "state")

	if err := d.prepare(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := d.configure(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return d.serve(ctx)
}

// newDir makes a directory that is to be kept; one with something in it is
// refused.
func newDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty", dir)
	}
	return err
}

// serve runs the services, and the story while they run.
func (d *demo) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan *service.Running, 1)
	ended := make(chan error, 1)
	begin := d.Now()
	go func() {
		ended <- service.Run(ctx, service.Options{
			Name: "up", Config: d.conf, Services: service.Services{Ingest: true, Deleter: true, Publisher: true},
			Embedded: true, Log: d.Log, Now: d.Now,
			Started: func(r *service.Running) { started <- r },
		})
	}()
	var err error
	select {
	case err = <-ended:
		return fmt.Errorf("demo: start: %w", orEnded(err))
	case r := <-started:
		d.printf("started: NATS JetStream (embedded), ingest %s, deleter, publisher %s in %s\n\n",
			r.IngestURL, r.PublisherURL, took(d.Now().Sub(begin)))
		err = d.story(ctx, r)
	}
	cancel()
	return errors.Join(err, <-ended)
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("the services ended")
	}
	return err
}

func (d *demo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.Out, format, args...)
}

// took rounds a duration for people.
func took(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
