package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	parquetfile "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/storage"
)

// maxBuffer bounds a buffer of a batch: a few bytes can say that billions of
// values follow.
const maxBuffer = 256 << 20

// bounded is an allocator that refuses what no batch needs.
type bounded struct{ memory.Allocator }

func (b bounded) Allocate(size int) []byte {
	if size > maxBuffer {
		panic("buffer too large")
	}
	return b.Allocator.Allocate(size)
}

func (b bounded) Reallocate(size int, p []byte) []byte {
	if size > maxBuffer {
		panic("buffer too large")
	}
	return b.Allocator.Reallocate(size, p)
}

// guard runs a call into the Parquet library. Its errors, whose text may quote
// content, and its panics mean malformed bytes.
func guard(key string, f func() error) (err error) {
	defer func() {
		if recover() != nil || err != nil {
			err = &storage.CorruptError{Key: key, Offset: -1, Field: "parquet", Reason: "cannot be decoded"}
		}
	}()
	return f()
}

// open decodes the footer.
func open(p []byte) (*parquetfile.Reader, error) {
	if err := checkFooter(p); err != nil {
		return nil, err
	}
	props := parquet.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled = true // p is in memory
	pf, err := parquetfile.NewParquetReader(bytes.NewReader(p), parquetfile.WithReadProps(props))
	if err != nil {
		return nil, err
	}
	pf.MetaData().FileMetaData.KeyValueMetadata = nil // its Arrow schema would change types
	return pf, nil
}

// eachRecord reads a Parquet file in order, in the caller's goroutine.
func eachRecord(ctx context.Context, key string, p []byte, do func(arrow.RecordBatch) error) error {
	var rr pqarrow.RecordReader
	left := int64(0) // rows to come
	err := guard(key, func() error {
		pf, err := open(p)
		if err != nil {
			return err
		}
		fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: 4096}, bounded{memory.DefaultAllocator})
		if err != nil {
			return err
		}
		left = pf.NumRows()
		if err := rehearse(pf, fr.Manifest, int64(len(p))); err != nil {
			return err
		}
		rr, err = fr.GetRecordReader(ctx, nil, nil)
		return err
	})
	if err != nil {
		return err
	}
	defer rr.Release()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		more := false
		err := guard(key, func() error {
			if more = rr.Next(); !more {
				if err := rr.Err(); err != nil || left == 0 {
					return err
				}
				return io.ErrUnexpectedEOF
			}
			left -= rr.RecordBatch().NumRows()
			for _, c := range rr.RecordBatch().Columns() {
				if err := array.Validate(c); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || !more {
			return err
		}
		if err := do(rr.RecordBatch()); err != nil {
			return err
		}
	}
}

// rehearse makes every column reader once: the library makes those of struct
// members in goroutines of its own, whose panics nobody can recover.
func rehearse(pf *parquetfile.Reader, m *pqarrow.SchemaManifest, size int64) error {
	for group := range pf.NumRowGroups() {
		rows := pf.RowGroup(group)
		for leaf := range pf.MetaData().Schema.NumColumns() {
			chunk, err := rows.MetaData().ColumnChunk(leaf)
			if err != nil {
				return err
			}
			start := chunk.DataPageOffset()
			if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
				start = min(start, chunk.DictionaryPageOffset())
			}
			if n := chunk.TotalCompressedSize(); start < 0 || n < 0 || start > size || n > size-start {
				return fmt.Errorf("column chunk %d lies outside of the file", leaf)
			}
			field, err := m.GetColumnField(leaf)
			if err != nil {
				return err
			}
			pages, err := rows.GetColumnPageReader(leaf)
			if err != nil {
				return err
			}
			r := parquetfile.NewRecordReader(pf.MetaData().Schema.Column(leaf), field.LevelInfo, field.Field.Type, memory.DefaultAllocator, pf.BufferPool())
			r.SetPageReader(pages)
			r.Release()
		}
	}
	return nil
}

// eachRow reads a Parquet file and gives each row as JSON.
func eachRow(ctx context.Context, key string, p []byte, do func(row []byte) error) error {
	return eachRecord(ctx, key, p, func(rec arrow.RecordBatch) error {
		var b bytes.Buffer
		if err := guard(key, func() error { return array.RecordToJSON(rec, &b) }); err != nil {
			return err
		}
		for line := range bytes.Lines(b.Bytes()) {
			if err := do(line); err != nil {
				return err
			}
		}
		return nil
	})
}
