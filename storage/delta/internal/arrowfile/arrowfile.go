// Package arrowfile opens Parquet objects of a bucket with arrow-go, for what
// needs whole values: checkpoints of the log and statistics. What the library
// cannot read, or panics on, becomes storage.ErrCorrupt without its text, which
// may quote content; failures of the store stay what they are, and refusals, as
// of encrypted files, too.
package arrowfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"delenda/storage"
	rows "delenda/storage/parquet"
)

// wholeObjectBytes is the size up to which an object is fetched in one request.
const wholeObjectBytes = 32 << 20

// File is an open Parquet object.
type File struct {
	*file.Reader
	key  string
	size int64
}

// Open opens the object that info names. Objects of moderate size are fetched
// whole; of larger ones each column chunk is, when it is read.
func Open(ctx context.Context, b storage.Bucket, info storage.Info) (*File, error) {
	f := &File{key: info.Key, size: info.SizeBytes}
	var src parquet.ReaderAtSeeker
	if info.SizeBytes <= wholeObjectBytes {
		p, err := storage.ReadObject(ctx, b, info.Key, wholeObjectBytes)
		if err != nil {
			return nil, err
		}
		f.size, src = int64(len(p)), bytes.NewReader(p)
	} else {
		src = &ranged{ctx: ctx, bucket: b, key: info.Key, size: info.SizeBytes}
	}
	err := Guard(info.Key, func() error {
		meta, err := rows.ReadFooter(src, f.size, rows.MaxFooter)
		if err != nil {
			return err
		}
		f.Reader, err = file.NewParquetReader(src, file.WithMetadata(meta), file.WithReadProps(parquet.NewReaderProperties(memory.DefaultAllocator)))
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Guard runs a call into the Parquet library. Its errors and panics mean
// malformed bytes, unless the store or the context failed.
func Guard(key string, f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = corrupt(key)
		}
	}()
	err = f()
	var io IOError
	var malformed *storage.CorruptError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &io):
		return io.Err
	case errors.As(err, &malformed) && malformed.Key == "":
		malformed.Key = key
		return err
	case errors.Is(err, storage.ErrRefused):
		return fmt.Errorf("read %q: %w", key, err)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrCorrupt):
		return err
	default:
		return corrupt(key) // the library's text may quote content
	}
}

// IOError marks a failure of the store among those of the library; Guard
// returns what is in it.
type IOError struct{ Err error }

// Error returns the text of the failure.
func (e IOError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e IOError) Unwrap() error { return e.Err }

// ranged is an object as the Parquet library wants it: each ReadAt is one
// ranged read.
type ranged struct {
	ctx    context.Context //nolint:containedctx // ReaderAt has no parameter for it; the value lives for one call
	bucket storage.Bucket
	key    string
	size   int64
	pos    int64
}

func (r *ranged) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= r.size {
		return 0, io.EOF
	}
	n := min(int64(len(p)), r.size-off)
	rc, err := r.bucket.Read(r.ctx, r.key, off, n)
	if err != nil {
		return 0, IOError{Err: err}
	}
	got, err := io.ReadFull(rc, p[:n])
	if cerr := rc.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return got, IOError{Err: fmt.Errorf("read %q: %w", r.key, err)}
	}
	if got < len(p) {
		return got, io.EOF
	}
	return got, nil
}

func (r *ranged) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		r.pos = offset
	case io.SeekCurrent:
		r.pos += offset
	case io.SeekEnd:
		r.pos = r.size + offset
	}
	return r.pos, nil
}

func (r *ranged) Read(p []byte) (int, error) {
	n, err := r.ReadAt(p, r.pos)
	r.pos += int64(n)
	return n, err
}
