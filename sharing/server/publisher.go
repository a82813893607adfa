package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"delenda/events"
	"delenda/sharing/recipients"
	"delenda/sharing/snapshot"
	"delenda/storage"
)

// DefaultPrefix is the path of the endpoint.
const DefaultPrefix = "/delta-sharing"

const (
	recipientsEvery  = 2 * time.Second
	recipientsMaxAge = 30 * time.Second
)

// Options configure a Publisher. What is not marked optional is required.
type Options struct {
	Installation string                     // name token
	State        storage.Bucket             // the private state prefix
	Tables       map[string]snapshot.Source // by configured name; a shared table that is missing is not served, and said so
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
	Status    int    // 0: nothing was sent
	Duration  time.Duration
	Bytes     int64
	Files     int64 // in the answer of a query
}

// TableStatus tells how one shared table is served.
type TableStatus struct {
	Share, Schema, Table string
	Source               string // configured name of the table behind it
	Version              int64  // -1: none yet
	HideFloor            int64  // -1: none
	PurgeFloor           int64  // -1: none
	Err                  error  // nil if it is served and up to date
}

// Publisher keeps what shares serve current and serves it.
type Publisher struct {
	o        Options
	keys     snapshot.Keys
	catalog  *snapshot.Catalog
	store    *snapshot.Store
	registry *recipients.Registry
}

// New checks the options and returns a Publisher that serves nothing yet: Run
// fills it.
func New(o Options) (*Publisher, error) {
	o.defaults()
	if o.State == nil || o.Publish == nil {
		return nil, errors.New("publisher: state prefix and publish are required")
	}
	if !events.ValidName(o.Installation) {
		return nil, errors.New("publisher: installation is not a name token")
	}
	keys, err := snapshot.NewKeys(o.Key)
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	o.Key = nil
	catalog, err := snapshot.NewCatalog(o.Shares)
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	store := snapshot.NewStore(snapshot.StoreOptions{
		Installation: o.Installation, State: o.State, Keys: keys, Catalog: catalog, Sources: o.Tables,
		Publish: o.Publish, Feed: o.Feed, Lease: o.Lease, Poll: o.Poll, URLTTL: o.URLTTL, Now: o.Now, Logger: o.Logger,
	})
	registry := recipients.NewRegistry(recipients.NewDirectory(o.State), recipientsMaxAge, o.Now)
	return &Publisher{o: o, keys: keys, catalog: catalog, store: store, registry: registry}, nil
}

func (o *Options) defaults() {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Poll <= 0 {
		o.Poll = snapshot.DefaultPoll
	}
	if o.URLTTL <= 0 {
		o.URLTTL = snapshot.DefaultURLTTL
	}
}

// Run keeps heads, manifests and recipients current until ctx ends, and
// returns nil then. It must run once per Publisher.
func (p *Publisher) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { p.registry.Run(ctx, recipientsEvery, p.o.Logger) })
	p.store.Run(ctx)
	return nil
}

// Ready returns nil when recipients are known and every shared table is
// served, and otherwise says what is not and why. A table that is refused does
// not keep the others from being served.
func (p *Publisher) Ready() error {
	errs := []error{p.registry.Ready()}
	for _, s := range p.Status() {
		if s.Err != nil {
			errs = append(errs, fmt.Errorf("%s.%s.%s: %w", s.Share, s.Schema, s.Table, s.Err))
		}
	}
	return errors.Join(errs...)
}

// Status tells of every shared table, in order of their names.
func (p *Publisher) Status() []TableStatus {
	var all []TableStatus
	for _, s := range p.store.Status() {
		all = append(all, TableStatus{
			Share: s.Ref.Share, Schema: s.Ref.Schema, Table: s.Ref.Name, Source: s.Ref.Source,
			Version: int64(s.Head.Version), HideFloor: int64(s.Head.HideFloor), PurgeFloor: int64(s.Head.PurgeFloor), Err: s.Err,
		})
	}
	return all
}

// HandleTableChanged brings every share of the table to its newest version,
// announces it, and returns then. It is safe to call again; a table that is
// not shared is no error.
func (p *Publisher) HandleTableChanged(ctx context.Context, change events.TableChanged) error {
	return p.store.Refresh(ctx, change.Table)
}

// NudgeRecipients makes a change of recipients known at once.
func (p *Publisher) NudgeRecipients() { p.registry.Nudge() }
