package delta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// Options modify Open. The zero value works.
type Options struct {
	// Root is the table's URL or absolute path, to recognise absolute paths of
	// the log that lie inside the table. Empty: the bucket's URL, if it has one.
	Root string
	// IdentityColumns are columns, beside those of a batch's keys, of which our
	// commits give no minimum or maximum.
	IdentityColumns []string
	// Threshold is the number of rows up to which a fragment's outcome is
	// storage.Set; 0 means the row set's default.
	Threshold int
	// Workers is how many files are scanned at once; 0 means a few.
	Workers int
	// Attempts bounds the commits that are tried before ErrConflict; 0 means 20.
	Attempts int
	// Now is the clock where a call has none of its own; nil means time.Now.
	Now func() time.Time
	// Logger is told when a checkpoint could not be written, which costs
	// readers time and nothing else. Nil: nobody is.
	Logger *slog.Logger
}

// Table is a Delta table in a bucket rooted at the table.
type Table struct {
	bucket storage.Bucket
	o      Options
}

var _ storage.Table = (*Table)(nil)

// Open opens the table at the bucket's root. A location without a log is
// storage.ErrNoTable; a table that may not be read opens, and says so in
// Describe and in every other call.
func Open(ctx context.Context, b storage.Bucket, o *Options) (*Table, error) {
	t := newTable(b, o)
	if _, _, err := log.Peek(ctx, b); err != nil {
		return nil, fmt.Errorf("open table: %w", err)
	}
	return t, nil
}

func newTable(b storage.Bucket, o *Options) *Table {
	t := &Table{bucket: b}
	if o != nil {
		t.o = *o
	}
	if t.o.Root == "" {
		if u, ok := b.(interface{ URL() string }); ok {
			t.o.Root = u.URL()
		}
	}
	if t.o.Workers < 1 {
		t.o.Workers = 2 * runtime.GOMAXPROCS(0)
	}
	if t.o.Attempts < 1 {
		t.o.Attempts = 20
	}
	if t.o.Now == nil {
		t.o.Now = time.Now
	}
	if t.o.Logger == nil {
		t.o.Logger = slog.New(slog.DiscardHandler)
	}
	return t
}

// Describe implements storage.Table.
func (t *Table) Describe(ctx context.Context) (storage.Description, error) {
	d := storage.Description{Format: storage.Delta, Features: []string{}, Refused: []storage.RefusedOperation{}}
	refuse := func(operation string, r *storage.Refusal) {
		d.Refused = append(d.Refused, storage.RefusedOperation{Operation: operation, Code: r.Code, Reason: r.Reason})
	}
	var refusal *storage.Refusal
	s, err := log.Load(ctx, t.bucket, storage.NoVersion)
	if errors.As(err, &refusal) {
		version, protocol, perr := log.Peek(ctx, t.bucket)
		if perr != nil {
			return storage.Description{}, fmt.Errorf("describe table: %w", perr)
		}
		d.Version, d.Features = version, append(d.Features, protocol.Features()...)
		for _, operation := range []string{"read", "delete"} {
			refuse(operation, refusal)
		}
		return d, nil
	}
	if err != nil {
		return storage.Description{}, fmt.Errorf("describe table: %w", err)
	}
	d.Version, d.Features = s.Version, append(d.Features, s.Protocol.Features()...)
	err = t.eachFragment(ctx, s, func(f Fragment) {
		d.Fragments++
		d.LiveRows += f.PhysicalRows - f.DeletedRows
		d.DeletedRows += f.DeletedRows
	})
	switch {
	case errors.As(err, &refusal):
		refuse("read", refusal)
	case err != nil:
		return storage.Description{}, fmt.Errorf("describe table: %w", err)
	}
	if err := mayDelete(s); errors.As(err, &refusal) {
		refuse("delete", refusal)
	} else if err != nil {
		return storage.Description{}, fmt.Errorf("describe table: %w", err)
	}
	return d, nil
}

// Bind implements storage.Table.
func (t *Table) Bind(ctx context.Context, columns []string) error {
	s, err := log.Load(ctx, t.bucket, storage.NoVersion)
	if err != nil {
		return fmt.Errorf("bind columns: %w", err)
	}
	if err := mayDelete(s); err != nil {
		return fmt.Errorf("bind columns: %w", err)
	}
	if _, err := bind(s, columns); err != nil {
		return fmt.Errorf("bind columns: %w", err)
	}
	if _, err := identityColumns(s, t.o.IdentityColumns); err != nil {
		return fmt.Errorf("bind columns: %w", err)
	}
	return nil
}

// LastBatch implements storage.Table.
func (t *Table) LastBatch(ctx context.Context, app string) (int64, error) {
	s, err := log.Load(ctx, t.bucket, storage.NoVersion)
	if err != nil {
		return 0, fmt.Errorf("read last batch: %w", err)
	}
	return max(s.Txns[app].Version, 0), nil
}
