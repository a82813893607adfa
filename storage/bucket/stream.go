package bucket

import (
	"context"
	"errors"
	"io"
)

// reader hides the causes of a broken stream and ends it with its context.
type reader struct {
	ctx context.Context //nolint:containedctx // a stream belongs to the call that opened it
	key string
	r   io.ReadCloser
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, opError("read", r.key, err)
	}
	n, err := r.r.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, opError("read", r.key, scrub(err))
}

func (r *reader) Close() error {
	if err := r.r.Close(); err != nil {
		return opError("close", r.key, scrub(err))
	}
	return nil
}

// bodyReader remembers why a body could not be read, so that the caller's own
// error comes back to it, and ends with the context.
type bodyReader struct {
	ctx context.Context //nolint:containedctx // lives as long as one Put
	r   io.Reader
	err error
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if err := b.ctx.Err(); err != nil {
		b.err = err
		return 0, err
	}
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}
