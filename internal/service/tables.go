package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"delenda/internal/cloud"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/pipeline"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
	deltalog "delenda/storage/delta/log"
	"delenda/storage/match"
)

// reopenEvery is how often a table that is served is looked at again.
const reopenEvery = time.Minute

// tables are the configured tables of one process: opened once, shared by its
// services.
type tables struct {
	list   []*table
	health *Health
	log    *slog.Logger
}

// table is one configured table.
type table struct {
	conf     config.Table
	parallel int
	log      *slog.Logger
	now      func() time.Time

	types atomic.Pointer[[]match.Column] // of the columns that identities name; nil before the first bind

	mu     sync.Mutex // held while the table is opened and read
	bucket *bucket.Bucket
	open   *delta.Table
}

func newTables(c *config.Config, health *Health, log *slog.Logger, now func() time.Time) *tables {
	ts := &tables{health: health, log: log}
	for _, conf := range c.Tables {
		ts.list = append(ts.list, &table{conf: conf, parallel: c.Deleter.Parallel, log: log, now: now})
		health.Table(conf.Name, errors.New("not opened yet"))
	}
	return ts
}

// columns returns the columns that identities are compared with, each once.
func (t *table) columns() []string {
	var list []string
	for _, c := range t.conf.Identities {
		list = append(list, c)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// objects returns the table's bucket.
func (t *table) objects(ctx context.Context) (*bucket.Bucket, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bucket == nil {
		b, err := bucket.Open(ctx, t.conf.URL, &bucket.Options{Drivers: cloud.Drivers(), Logger: t.log, Now: t.now})
		if err != nil {
			return nil, err
		}
		t.bucket = b
	}
	return t.bucket, nil
}

// bind opens the table if it is not open, and checks that it can be erased
// from.
func (t *table) bind(ctx context.Context) (*delta.Table, error) {
	b, err := t.objects(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		opened, err := delta.Open(ctx, b, &delta.Options{
			IdentityColumns: t.columns(), Workers: t.parallel, Now: t.now, Logger: t.log.With(slog.String("table", t.conf.Name)),
		})
		if err != nil {
			return nil, err
		}
		t.open = opened
	}
	if err := t.open.Bind(ctx, t.columns()); err != nil {
		return nil, err
	}
	types, err := columnTypes(ctx, b, t.columns())
	if err != nil {
		return nil, err
	}
	t.types.Store(&types)
	return t.open, nil
}

// columnTypes reads the types of columns that Bind has found comparable.
func columnTypes(ctx context.Context, b storage.Bucket, columns []string) ([]match.Column, error) {
	s, err := deltalog.Load(ctx, b, storage.NoVersion)
	if err != nil {
		return nil, err
	}
	schema, err := s.Metadata.Schema()
	if err != nil {
		return nil, err
	}
	list := make([]match.Column, len(columns))
	for i, name := range columns {
		c, err := schema.Resolve(name)
		if err != nil {
			return nil, err
		}
		list[i] = match.Column{Name: name, Type: c.Leaf().Type.Name}
	}
	return list, nil
}

// check implements pipeline.Table.Check from what the last bind has seen: it
// does no I/O and does not wait for any, so a table that does not answer does not
// hold up senders.
func (t *table) check(key storage.Key) error {
	types := t.types.Load()
	if types == nil {
		return nil
	}
	for _, c := range *types {
		if c.Name != key.Column {
			continue
		}
		_, results, err := match.Compile([]storage.Subject{{Keys: []storage.Key{key}}}, []match.Column{c})
		if err != nil {
			return err
		}
		if results[0].State == storage.SubjectInvalid {
			return storage.Refuse(pipeline.CodeInvalidValue, "%s", results[0].Reason)
		}
	}
	return nil
}

func (t *table) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bucket == nil {
		return nil
	}
	return t.bucket.Close()
}

// bind opens and checks a table, and says in the health how that went.
func (ts *tables) bind(ctx context.Context, t *table) (*delta.Table, error) {
	opened, err := t.bind(ctx)
	if ctx.Err() == nil {
		ts.health.Table(t.conf.Name, err)
	}
	return opened, err
}

// pipeline returns the tables as the pipeline takes them.
func (ts *tables) pipeline(limits config.Limits) []pipeline.Table {
	var list []pipeline.Table
	for _, t := range ts.list {
		list = append(list, pipeline.Table{
			Name: t.conf.Name, Identities: t.conf.Identities,
			Limits: pipeline.Limits{Rows: limits.Rows, Share: limits.Share},
			Open: func(ctx context.Context) (storage.Table, error) {
				opened, err := ts.bind(ctx, t)
				if err != nil {
					return nil, err // not a nil *delta.Table in an interface
				}
				return opened, nil
			},
			Check: func(_ context.Context, key storage.Key) error { return t.check(key) },
		})
	}
	return list
}

// part looks at every table: with growing pauses until it is served, and now
// and then after.
func (ts *tables) part() daemon.Part {
	return background("tables", func(ctx context.Context) {
		var all sync.WaitGroup
		for _, t := range ts.list {
			all.Go(func() {
				pause := pauses()
				for ctx.Err() == nil {
					next := reopenEvery
					if _, err := ts.bind(ctx, t); err != nil && ctx.Err() == nil {
						next = pause.NextBackOff()
						ts.log.LogAttrs(ctx, slog.LevelWarn, "table not served",
							slog.String("table", t.conf.Name), slog.Any("error", err), slog.Duration("again_in", next))
					} else {
						pause.Reset()
					}
					wait(ctx, next)
				}
			})
		}
		all.Wait()
	})
}

func (ts *tables) close() error {
	var errs []error
	for _, t := range ts.list {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}
