package delta

import (
	"context"
	"io"
	"iter"

	"delenda/storage"
)

// signs is a bucket that tells when it moves: whenever an operation has come
// back, and whenever a read gives bytes or takes them.
type signs struct {
	storage.Bucket
	sign func()
}

func (b *signs) Stat(ctx context.Context, key string) (storage.Info, error) {
	defer b.sign()
	return b.Bucket.Stat(ctx, key)
}

func (b *signs) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	defer b.sign()
	r, err := b.Bucket.Read(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	return &lively{Reader: r, Closer: r, sign: b.sign}, nil
}

func (b *signs) Put(ctx context.Context, key string, body io.Reader, opts storage.PutOptions) error {
	defer b.sign()
	return b.Bucket.Put(ctx, key, &lively{Reader: body, sign: b.sign}, opts)
}

func (b *signs) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		defer b.sign()
		for info, err := range b.Bucket.List(ctx, prefix, after) {
			b.sign()
			if !yield(info, err) {
				return
			}
		}
	}
}

func (b *signs) Delete(ctx context.Context, key string) error {
	defer b.sign()
	return b.Bucket.Delete(ctx, key)
}

// lively is a body that tells when it moves.
type lively struct {
	io.Reader
	io.Closer
	sign func()
}

func (l *lively) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if n > 0 {
		l.sign()
	}
	return n, err
}
