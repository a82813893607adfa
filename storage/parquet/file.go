package parquet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"delenda/storage"

	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// tailSize is read from the end of a file at once: most footers, and the page
// indexes in front of them, fit.
const tailSize = 128 << 10

// File is the footer of one Parquet file.
type File struct {
	bucket storage.Bucket
	key    string
	size   int64

	meta     *metadata.FileMetaData
	firstRow []int64 // per row group, and the total at the end
	tail     []byte  // the last bytes of the file
	opening  int64   // bytes read by Open
}

// Open reads the footer of the file at key, which is sizeBytes long: one
// ranged read, or two when the footer is large.
func Open(ctx context.Context, b storage.Bucket, key string, sizeBytes int64) (*File, error) {
	f := &File{bucket: b, key: key, size: sizeBytes}
	if sizeBytes < int64(len(magic)+trailerSize) {
		return nil, f.corrupt(0, "file", "shorter than a footer")
	}
	tail, err := f.read(ctx, max(sizeBytes-tailSize, 0), min(sizeBytes, tailSize))
	if err != nil {
		return nil, err
	}
	length, err := footerLength(tail[len(tail)-trailerSize:], sizeBytes, MaxFooter)
	if err != nil {
		return nil, f.located(err)
	}
	start := sizeBytes - trailerSize - length
	if missing := sizeBytes - int64(len(tail)) - start; missing > 0 {
		head, err := f.read(ctx, start, missing)
		if err != nil {
			return nil, err
		}
		tail = append(head, tail...)
	}
	f.tail, f.opening = tail, int64(len(tail))
	footer := tail[int64(len(tail))-trailerSize-length:]
	if err := f.parse(footer[:length]); err != nil {
		return nil, err
	}
	return f, nil
}

// parse decodes and checks the footer.
func (f *File) parse(footer []byte) error {
	meta, err := decodeFooter(bytes.Clone(footer), f.size)
	if err != nil {
		return f.located(err)
	}
	f.meta = meta
	rows := int64(0)
	f.firstRow = append(f.firstRow, 0)
	for _, rg := range f.meta.RowGroups {
		if rg.NumRows < 0 || rg.NumRows > 1<<62-rows {
			return f.corrupt(-1, "num_rows", "out of range")
		}
		if len(rg.Columns) != f.meta.Schema.NumColumns() {
			return f.corrupt(-1, "columns", "row group differs from the schema")
		}
		rows += rg.NumRows
		f.firstRow = append(f.firstRow, rows)
	}
	if rows != f.meta.NumRows {
		return f.corrupt(-1, "num_rows", "differs from the row groups")
	}
	return nil
}

// NumRows returns the physical number of rows.
func (f *File) NumRows() int64 { return f.firstRow[len(f.firstRow)-1] }

// read returns exactly length bytes from offset.
func (f *File) read(ctx context.Context, offset, length int64) ([]byte, error) {
	r, err := f.bucket.Read(ctx, f.key, offset, length)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.key, err)
	}
	p := make([]byte, length)
	_, err = io.ReadFull(r, p)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // io.ReadFull returns them bare
		return nil, f.corrupt(offset, "file", "truncated")
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.key, err)
	}
	return p, nil
}

// cached returns length bytes from offset if Open has read them already.
func (f *File) cached(offset, length int64) ([]byte, bool) {
	start := offset - (f.size - int64(len(f.tail)))
	if start < 0 || length < 0 || start > int64(len(f.tail)) || length > int64(len(f.tail))-start {
		return nil, false
	}
	return f.tail[start : start+length], true
}

// span returns the bytes at offset, from memory or by one ranged read, after
// checking that they lie in the file.
func (f *File) span(ctx context.Context, offset, length int64, field string, st *Stats) ([]byte, error) {
	if offset < 0 || length < 0 || offset > f.size || length > f.size-offset {
		return nil, f.corrupt(offset, field, "outside the file")
	}
	if p, ok := f.cached(offset, length); ok {
		return p, nil
	}
	p, err := f.read(ctx, offset, length)
	st.BytesRead += int64(len(p))
	return p, err
}

// located names the file in an error of its footer.
func (f *File) located(err error) error {
	var corrupt *storage.CorruptError
	if errors.As(err, &corrupt) {
		corrupt.Key = f.key
		return err
	}
	return fmt.Errorf("read %q: %w", f.key, err)
}

func (f *File) corrupt(offset int64, field, reason string) error {
	return &storage.CorruptError{Key: f.key, Offset: offset, Field: field, Reason: reason}
}

func (f *File) refuse(code, format string, args ...any) error {
	return fmt.Errorf("read %q: %w", f.key, storage.Refuse(code, format, args...))
}
