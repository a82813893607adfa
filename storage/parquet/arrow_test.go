package parquet

import (
	"context"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// fallbackBatch is the number of rows read at a time.
const fallbackBatch = 8 << 10

// fallback scans one column of one row group with Arrow's column reader: the
// oracle of the page walk.
func (f *File) fallback(ctx context.Context, rg int, leaf Leaf, p *probe, from int64, st *Stats, hit func(id int32, row int64)) (err error) {
	var ioErr error
	defer func() {
		if ioErr != nil {
			err = ioErr
			return
		}
		if r := recover(); r != nil {
			err = f.corrupt(-1, "column chunk", "cannot be decoded")
		}
	}()
	src := &source{size: f.size, readAt: func(p []byte, off int64) error {
		b, err := f.span(ctx, off, int64(len(p)), "column chunk", st)
		if err != nil {
			ioErr = err
			return err
		}
		copy(p, b)
		return nil
	}}
	reader, err := file.NewParquetReader(src, file.WithMetadata(f.meta))
	if err != nil {
		return f.corrupt(-1, "footer", "cannot be decoded")
	}
	column, err := reader.RowGroup(rg).Column(leaf.index)
	if err != nil {
		return f.corrupt(-1, "column chunk", "cannot be decoded")
	}
	rows := f.meta.RowGroups[rg].NumRows
	b := &batch{file: f, p: p, base: f.firstRow[rg], from: from, rows: rows, maxDef: leaf.column.MaxDefinitionLevel(), hit: hit}
	read, err := b.read(ctx, column)
	st.RowsScanned += max(read-from, 0)
	switch {
	case ioErr != nil:
		return ioErr
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || read != rows:
		return f.corrupt(-1, "column chunk", "does not hold the rows of its row group")
	}
	return nil
}

// batch reads the values of one column chunk batch by batch.
type batch struct {
	file   *File
	p      *probe
	base   int64 // first row of the row group
	from   int64 // rows of the row group to pass over
	rows   int64 // rows of the row group
	maxDef int16
	hit    func(id int32, row int64)

	done   int64
	levels []int16
}

// typedReader is the batch method of Arrow's column readers.
type typedReader[T any] interface {
	ReadBatch(batchSize int64, values []T, defLvls, repLvls []int16) (total int64, valuesRead int, err error)
}

func (b *batch) read(ctx context.Context, column file.ColumnChunkReader) (int64, error) {
	p := b.p
	switch r := column.(type) {
	case *file.BooleanColumnChunkReader:
		return readAll(ctx, b, r, func(v bool) int32 {
			if v {
				return p.findInt(1)
			}
			return p.findInt(0)
		})
	case *file.Int32ColumnChunkReader:
		return readAll(ctx, b, r, func(v int32) int32 { return p.findInt(int64(v)) })
	case *file.Int64ColumnChunkReader:
		return readAll(ctx, b, r, p.findInt)
	case *file.Int96ColumnChunkReader:
		return readAll(ctx, b, r, func(v parquet.Int96) int32 { return p.findInt(int96Micros(v[:])) })
	case *file.ByteArrayColumnChunkReader:
		return readAll(ctx, b, r, func(v parquet.ByteArray) int32 { return p.findBytes(v) })
	case *file.FixedLenByteArrayColumnChunkReader:
		return readAll(ctx, b, r, func(v parquet.FixedLenByteArray) int32 { return p.findBytes(v) })
	default:
		return 0, errors.New("no reader for the physical type")
	}
}

func readAll[T any](ctx context.Context, b *batch, r typedReader[T], find func(T) int32) (int64, error) {
	values := make([]T, fallbackBatch)
	b.levels = make([]int16, fallbackBatch)
	for b.done < b.rows {
		if err := ctx.Err(); err != nil {
			return b.done, err
		}
		total, n, err := r.ReadBatch(min(fallbackBatch, b.rows-b.done), values, b.levels, nil)
		if err != nil {
			return b.done, err
		}
		if total <= 0 || total > min(fallbackBatch, b.rows-b.done) || n < 0 || n > len(values) {
			return b.done, io.ErrUnexpectedEOF
		}
		b.probe(total, n, func(i int) int32 { return find(values[i]) })
		b.done += total
	}
	return b.done, nil
}

// probe looks up n values that are spread over total rows.
func (b *batch) probe(total int64, n int, find func(i int) int32) {
	next := 0
	for i := range total {
		if b.maxDef > 0 && b.levels[i] != b.maxDef {
			continue
		}
		if next >= n {
			return
		}
		if id := find(next); id != noKey && b.done+i >= b.from {
			b.hit(id, b.base+b.done+i)
		}
		next++
	}
}

// source is a file as Arrow's reader wants it.
type source struct {
	readAt func(p []byte, off int64) error
	size   int64
	pos    int64
}

// ReadAt reads len(p) bytes, or what is left of the file.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), max(s.size-off, 0))
	if n > 0 {
		if err := s.readAt(p[:n], off); err != nil {
			return 0, err
		}
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// Read reads from the current position.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadAt(p, s.pos)
	s.pos += int64(n)
	return n, err
}

// Seek moves the current position.
func (s *source) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += s.pos
	case io.SeekEnd:
		offset += s.size
	}
	s.pos = offset
	return offset, nil
}
