package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"delenda/storage"
)

// Options modify Open. A nil *Options and the zero value work for files and
// memory; clouds need their drivers.
type Options struct {
	// Drivers open the clouds, by URL scheme.
	Drivers map[string]Driver
	// PublicEndpoint is the base of pre-signed URLs, for recipients that reach
	// the store under another address. The URL's public_endpoint wins.
	PublicEndpoint string
	// Private makes new files and directories readable by their owner only.
	Private bool
	// Logger is told when a store guarantees less than usual.
	Logger *slog.Logger
	// Now is the clock of expiry and temporary files; nil means time.Now.
	Now func() time.Time
}

// Bucket is an open bucket, or a prefix of one.
type Bucket struct {
	url    string
	prefix string // "" or ends with '/'
	store  storage.Bucket
	check  func(key string) error // the store's own refusals; may be nil
	shared func(ctx context.Context) (bool, error)
	signer storage.Presigner
	close  func() error
}

var _ storage.Bucket = (*Bucket)(nil)

// Open opens the bucket that rawURL names. It does not create a directory
// before the first Put, nor check that a cloud bucket exists.
func Open(ctx context.Context, rawURL string, o *Options) (*Bucket, error) {
	if o == nil {
		o = &Options{}
	}
	now := o.Now
	if now == nil {
		now = time.Now
	}
	l, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	switch l.scheme {
	case schemeFile:
		f := newFile(l.path, o.Private, o.Logger, now)
		return &Bucket{url: l.String(), store: f, shared: f.linksWork}, nil
	case schemeMemory:
		return &Bucket{url: l.String(), prefix: l.path, store: sharedMemory(l.host, now)}, nil
	}
	driver, ok := o.Drivers[l.scheme]
	if !ok {
		return nil, fmt.Errorf("open bucket: no driver for %s:// (have %s)", l.scheme, strings.Join(slices.Sorted(maps.Keys(o.Drivers)), ", "))
	}
	return openCloud(ctx, l, driver, o.PublicEndpoint, now)
}

// NewMemory returns an empty bucket in memory that nothing else shares.
func NewMemory() *Bucket {
	return &Bucket{url: "mem://", store: newMemory(time.Now)}
}

// URL returns where the bucket is: scheme, host and path, without query.
func (b *Bucket) URL() string { return b.url }

// Close releases the store's connections. Readers that are open may fail.
func (b *Bucket) Close() error {
	if b.close == nil {
		return nil
	}
	return b.close()
}

// Presigner returns what signs URLs of this bucket's keys, and false for files,
// memory, and clouds whose credentials cannot sign.
func (b *Bucket) Presigner() (storage.Presigner, bool) { return b.signer, b.signer != nil }

// AtomicAcrossProcesses reports whether put-if-absent has one winner among all
// processes that use the store. It is false for memory, and for a directory
// whose file system has no hard links; finding out writes to the directory.
func (b *Bucket) AtomicAcrossProcesses(ctx context.Context) (bool, error) {
	if b.shared == nil {
		return false, nil
	}
	return b.shared(ctx)
}

// Stat implements storage.Bucket.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Info, error) {
	full, err := b.key(ctx, key)
	if err != nil {
		return storage.Info{}, opError("stat", key, err)
	}
	info, err := b.store.Stat(ctx, full)
	if err != nil {
		return storage.Info{}, opError("stat", key, err)
	}
	info.Key = key
	info.ModTime = info.ModTime.UTC()
	return info, nil
}

// Read implements storage.Bucket.
func (b *Bucket) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	full, err := b.key(ctx, key)
	if err == nil && offset < 0 {
		err = errors.New("negative offset")
	}
	if err != nil {
		return nil, opError("read", key, err)
	}
	r, err := b.store.Read(ctx, full, offset, length)
	if err != nil {
		return nil, opError("read", key, err)
	}
	return &reader{ctx: ctx, key: key, r: r}, nil
}

// Put implements storage.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body io.Reader, opts storage.PutOptions) error {
	full, err := b.key(ctx, key)
	if err != nil {
		return opError("put", key, err)
	}
	watched := &bodyReader{ctx: ctx, r: body}
	err = b.store.Put(ctx, full, watched, opts)
	if watched.err != nil {
		err = fmt.Errorf("read body: %w", watched.err)
	}
	if err != nil {
		return opError("put", key, err)
	}
	return nil
}

// Delete implements storage.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	full, err := b.key(ctx, key)
	if err == nil {
		err = b.store.Delete(ctx, full)
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return opError("delete", key, err)
	}
	return nil
}

// List implements storage.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		err := ctx.Err()
		if err == nil {
			err = checkPrefix(prefix)
		}
		if err != nil {
			yield(storage.Info{}, opError("list", prefix, err))
			return
		}
		from := ""
		if after != "" {
			from = b.prefix + after
		}
		last := from
		for info, err := range b.store.List(ctx, b.prefix+prefix, from) {
			if err == nil && info.Key <= last && last != "" {
				err = errors.New("the store lists keys out of order")
			}
			if err != nil {
				yield(storage.Info{}, opError("list", prefix, err))
				return
			}
			last = info.Key
			info.Key = strings.TrimPrefix(info.Key, b.prefix)
			info.ModTime = info.ModTime.UTC()
			if info.Key != "" && !yield(info, nil) {
				return
			}
		}
	}
}

// key checks a caller's key and returns the store's.
func (b *Bucket) key(ctx context.Context, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := CheckKey(key); err != nil {
		return "", err
	}
	full := b.prefix + key
	if len(full) > MaxKeyBytes {
		return "", RefuseKey("and the bucket's prefix are longer than %d bytes", MaxKeyBytes)
	}
	if b.check != nil {
		if err := b.check(full); err != nil {
			return "", err
		}
	}
	return full, nil
}

func opError(op, key string, err error) error {
	return fmt.Errorf("%s %q: %w", op, key, err)
}
