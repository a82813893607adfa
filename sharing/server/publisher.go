package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"delenda/events"
	"delenda/sharing/snapshot"
	"delenda/storage"
)

// DefaultPrefix is the path of the endpoint.
const DefaultPrefix = "/delta-sharing"

// Options configure a Publisher. What is not marked optional is required.
type Options struct {
	Installation string                     // name token
	State        storage.Bucket             // the private state prefix
	Tables       map[string]snapshot.Source // by configured name
	Shares       []snapshot.Share
	// BaseURL is how recipients reach the endpoint, with the prefix. Optional:
	// without it URLs of files are built from the request's Host.
	BaseURL string
	Prefix  string // optional: DefaultPrefix
	// Key is the installation key, at least 32 bytes; purposes get keys of
	// their own derived from it.
	Key     []byte
	Publish func(context.Context, events.Event) error
	// Feed tells replicas of new heads at once. Optional: without it they read
	// the state prefix.
	Feed   snapshot.Feed
	Now    func() time.Time // optional: time.Now
	Logger *slog.Logger     // optional: none
	// Poll is how often tables are looked at for commits of other writers.
	// Optional: snapshot.DefaultPoll.
	Poll   time.Duration
	URLTTL time.Duration // optional: snapshot.DefaultURLTTL
	// Lease is for how long a replica may serve a head after it learned that
	// the head is in force; an announcement waits as long. All replicas need
	// the same. Zero: every request makes sure with the state prefix, and
	// announcements do not wait.
	Lease time.Duration
	// Observe is called after each answered request. Optional.
	Observe func(Observation)
}

// Observation is one answered request, for metrics: no names of recipients,
// no URLs, no predicates.
type Observation struct {
	Operation string // lists, version, metadata, query, file, other
	Status    int
	Duration  time.Duration
	Bytes     int64
	Files     int64 // in the answer of a query
}

// TableStatus tells how one shared table is served.
type TableStatus struct {
	Share, Schema, Table string
	Version              int64 // -1: none yet
	HideFloor            int64 // -1: none
	PurgeFloor           int64 // -1: none
	Err                  error // nil if it is served
}

// Publisher keeps what shares serve current and serves it.
type Publisher struct {
	opts Options
}

// New checks the options and returns a Publisher that serves nothing yet: Run
// fills it.
func New(o Options) (*Publisher, error) {
	return &Publisher{opts: o}, nil
}

// Handler serves the endpoint.
func (p *Publisher) Handler() http.Handler {
	return http.NotFoundHandler()
}

// Run keeps heads, manifests and recipients current until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Ready returns nil when every shared table is served, and otherwise says
// which are not and why.
func (p *Publisher) Ready() error { return errors.New("no head has been read yet") }

// Status tells of every shared table, in order of their names.
func (p *Publisher) Status() []TableStatus { return nil }

// HandleTableChanged brings every share of the table to the announced version,
// or to a later one, and announces it. It is safe to call again.
func (p *Publisher) HandleTableChanged(ctx context.Context, change events.TableChanged) error {
	return nil
}
