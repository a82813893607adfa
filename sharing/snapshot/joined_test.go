package snapshot

import (
	"context"
	"io"
	"iter"
	"strings"

	"delenda/storage"
	"delenda/storage/bucket/fault"
)

// joined is the state prefix and a table as one bucket, so that one counter
// sweeps over all operations; part gives each back. Any other key is an
// operation of the bus.
type joined struct{ state, table storage.Bucket }

func (j *joined) of(key string) (storage.Bucket, string) {
	if rest, ok := strings.CutPrefix(key, "state/"); ok {
		return j.state, rest
	}
	return j.table, strings.TrimPrefix(key, "table/")
}

func (j *joined) Stat(ctx context.Context, key string) (storage.Info, error) {
	if !strings.Contains(key, "/") {
		return storage.Info{Key: key}, nil
	}
	b, k := j.of(key)
	return b.Stat(ctx, k)
}

func (j *joined) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	b, k := j.of(key)
	return b.Read(ctx, k, offset, length)
}

func (j *joined) Put(ctx context.Context, key string, body io.Reader, o storage.PutOptions) error {
	b, k := j.of(key)
	return b.Put(ctx, k, body, o)
}

func (j *joined) Delete(ctx context.Context, key string) error {
	b, k := j.of(key)
	return b.Delete(ctx, k)
}

func (j *joined) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	b, k := j.of(prefix)
	_, a := j.of(after)
	return b.List(ctx, k, a)
}

type part struct {
	*fault.Faults
	prefix string
}

func (p *part) Stat(ctx context.Context, key string) (storage.Info, error) {
	return p.Faults.Stat(ctx, p.prefix+key)
}

func (p *part) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	return p.Faults.Read(ctx, p.prefix+key, offset, length)
}

func (p *part) Put(ctx context.Context, key string, body io.Reader, o storage.PutOptions) error {
	return p.Faults.Put(ctx, p.prefix+key, body, o)
}

func (p *part) Delete(ctx context.Context, key string) error {
	return p.Faults.Delete(ctx, p.prefix+key)
}

func (p *part) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	if after != "" {
		after = p.prefix + after
	}
	return p.Faults.List(ctx, p.prefix+prefix, after)
}

// faultyFeed takes puts and shows nothing.
type faultyFeed struct{ faults *fault.Faults }

func (f *faultyFeed) Put(ctx context.Context, _ string, _ []byte) (uint64, error) {
	_, err := f.faults.Stat(ctx, "feed")
	return 1, err
}

func (f *faultyFeed) Watch(ctx context.Context, _ func(string, []byte, uint64)) error {
	<-ctx.Done()
	return ctx.Err()
}
