package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// Info describes one object of a bucket.
type Info struct {
	Key       string    // relative to the bucket's root, '/' separated, never with a leading '/'
	SizeBytes int64     // exact
	ModTime   time.Time // UTC; as the store reports it, at least to the second
}

// PutOptions modify Bucket.Put. The zero value replaces what is there.
type PutOptions struct {
	// IfAbsent writes only when no object has the key, atomically among all
	// clients of the store; otherwise Put returns ErrExists.
	IfAbsent bool
	// ContentType is stored with the object; empty means application/octet-stream.
	ContentType string
}

// Bucket is a flat space of named objects. Implementations MUST be safe for
// concurrent use. Every MUST below is a subtest of storagetest.Bucket.
//
// Keys MUST reach the store byte for byte: '=', '%', '+', ':', spaces and
// unicode are data. A key that a store cannot carry so is refused by an error,
// never mapped to another name. Errors name the operation and the key and MUST
// NOT carry credentials, signatures or response bodies.
type Bucket interface {
	// Stat returns ErrNotFound for an absent object and ErrDenied when the
	// store refuses; it MUST NOT report a refusal as absence.
	Stat(ctx context.Context, key string) (Info, error)

	// Read streams length bytes from offset; length < 0 reads to the end. An
	// offset at or past the end yields an empty stream on every store. An
	// absent object is ErrNotFound. The caller closes the reader.
	Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)

	// Put stores the whole of body under key. The object appears complete or
	// not at all, and is durable when Put returns nil. If reading body fails
	// nothing appears. With IfAbsent exactly one of any number of racing
	// writers, in any process, gets nil; the others get ErrExists. After any
	// other error the object may or may not be there: read it back.
	Put(ctx context.Context, key string, body io.Reader, opts PutOptions) error

	// List yields every object whose key has the prefix and sorts after
	// `after` (exclusive; "" means from the start), in ascending byte order of
	// keys. It MUST yield each object that existed during the whole call, and
	// never a half-written one. It fetches page by page.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]

	// Delete removes the object. An absent object is not an error, so a
	// repeated Delete is safe.
	Delete(ctx context.Context, key string) error
}

// Presigner issues URLs that let their holder read one object by GET (also
// HEAD and Range where the store's signature allows) without credentials.
type Presigner interface {
	// SignGet returns a URL that expires no later than ttl from now, and no
	// later than the credential that signs it.
	SignGet(ctx context.Context, key string, ttl time.Duration) (SignedURL, error)
}

// ErrTooLarge is returned by ReadObject for an object above the caller's bound.
var ErrTooLarge = errors.New("object larger than allowed")

// ReadObject reads a whole object of at most maxBytes bytes into memory. A
// larger object is ErrTooLarge, an absent one ErrNotFound.
func ReadObject(ctx context.Context, b Bucket, key string, maxBytes int64) ([]byte, error) {
	r, err := b.Read(ctx, key, 0, maxBytes+1)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	if int64(len(p)) > maxBytes {
		return nil, fmt.Errorf("read %q: %w: more than %d bytes", key, ErrTooLarge, maxBytes)
	}
	return p, nil
}
