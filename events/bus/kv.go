package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// KV is a key-value bucket: a cache with compare-and-set and a watch. A key is
// tokens of letters, digits, '-', '_', '=' and '/', separated by dots.
type KV struct {
	bus    *Bus
	bucket string
	kv     jetstream.KeyValue
}

// Entry is a value of a bucket.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64    // ascending over the whole bucket
	Time     time.Time // when it was stored; UTC
	Deleted  bool      // in a watch only: the key has no value any more
}

// KV opens a bucket that Declare has made. ErrNoStream when it does not exist.
func (b *Bus) KV(ctx context.Context, bucket string) (*KV, error) {
	k := &KV{bus: b, bucket: bucket}
	err := k.run(ctx, "kv.open", "", func(ctx context.Context) (err error) {
		k.kv, err = b.js.KeyValue(ctx, bucket)
		return err
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Get returns the key's value or ErrKeyNotFound. With replicas the answer may
// lag behind the newest Put by a moment; a Create or Update does not.
func (k *KV) Get(ctx context.Context, key string) (Entry, error) {
	var e Entry
	err := k.run(ctx, "kv.get", key, func(ctx context.Context) error {
		v, err := k.kv.Get(ctx, key)
		if err != nil {
			return err
		}
		e = Entry{Key: key, Value: v.Value(), Revision: v.Revision(), Time: v.Created().UTC()}
		return nil
	})
	return e, err
}

// Put stores a value whatever is there and returns its revision.
func (k *KV) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.write(ctx, "kv.put", key, func(ctx context.Context) (uint64, error) { return k.kv.Put(ctx, key, value) })
}

// Create stores a value if the key has none; otherwise ErrRevision. After any
// other error it may or may not be stored.
func (k *KV) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.write(ctx, "kv.create", key, func(ctx context.Context) (uint64, error) { return k.kv.Create(ctx, key, value) })
}

// Update stores a value if the key's revision is the given one; otherwise
// ErrRevision. After any other error it may or may not be stored.
func (k *KV) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return k.write(ctx, "kv.update", key, func(ctx context.Context) (uint64, error) {
		return k.kv.Update(ctx, key, value, revision)
	})
}

// Delete removes the key's value. A key without one is no error.
func (k *KV) Delete(ctx context.Context, key string) error {
	return k.run(ctx, "kv.delete", key, func(ctx context.Context) error { return k.kv.Purge(ctx, key) })
}

func (k *KV) write(ctx context.Context, kind, key string, do func(context.Context) (uint64, error)) (revision uint64, err error) {
	err = k.run(ctx, kind, key, func(ctx context.Context) (err error) {
		revision, err = do(ctx)
		return err
	})
	return revision, err
}

func (k *KV) run(ctx context.Context, kind, key string, do func(context.Context) error) error {
	target := k.bucket + "/" + key
	err := k.bus.run(ctx, kind, target, do)
	if errors.Is(err, jetstream.ErrInvalidKey) {
		return fmt.Errorf("%s %q: %w", kind, target, jetstream.ErrInvalidKey)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, target, err)
	}
	return nil
}
