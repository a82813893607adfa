package client

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	rows "delenda/storage/parquet"
)

// A data file's bytes are the provider's, and the Parquet library panics on
// some that are malformed. Panics in the reader's goroutine are caught there;
// what the library does in goroutines of its own is done here before.

const (
	// maxFooter bounds the footer, which is decoded whole; those of thousands of
	// columns in many row groups take tens of megabytes.
	maxFooter = 64 << 20
	// maxBuffer bounds a buffer of a batch: a few bytes can say that billions
	// of values follow.
	maxBuffer = 256 << 20
)

// errTooLarge is thrown by a bounded allocator.
var errTooLarge = errors.New("a batch is too large")

// bounded is an allocator that refuses what no batch needs.
type bounded struct{ memory.Allocator }

func (b bounded) Allocate(size int) []byte {
	if size > maxBuffer {
		panic(errTooLarge)
	}
	return b.Allocator.Allocate(size)
}

func (b bounded) Reallocate(size int, p []byte) []byte {
	if size > maxBuffer {
		panic(errTooLarge)
	}
	return b.Allocator.Reallocate(size, p)
}

// openParquet checks and decodes the footer.
func openParquet(object *objectReader) (*file.Reader, error) {
	meta, err := rows.ReadFooter(object, object.size, maxFooter)
	if err != nil {
		return nil, err
	}
	// The table's schema says the types, not the Arrow schema of the file's writer.
	meta.FileMetaData.KeyValueMetadata = nil
	// Pages are not all given back by the Parquet reader: Go's memory takes them.
	props := parquet.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled, props.BufferSize = true, chunkBytes // column chunks may be large
	return file.NewParquetReader(object, file.WithMetadata(meta), file.WithReadProps(props))
}

// rehearse makes the column readers of a row group once, over no bytes, in this
// goroutine: the library makes those of struct members in others.
func rehearse(pf *file.Reader, m *pqarrow.SchemaManifest, leaves []int, group int, size int64) error {
	props := parquet.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled = true
	dry, err := file.NewParquetReader(bytes.NewReader(nil), file.WithReadProps(props), file.WithMetadata(pf.MetaData()))
	if err != nil {
		return err
	}
	rows := dry.RowGroup(group)
	for _, leaf := range leaves {
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
		records, err := leafReader(dry, m, leaf, group, memory.DefaultAllocator)
		if err != nil {
			return err
		}
		records.Release()
	}
	return nil
}

// leafReader reads the records of one column chunk.
func leafReader(pf *file.Reader, m *pqarrow.SchemaManifest, leaf, group int, mem memory.Allocator) (file.RecordReader, error) {
	field, err := m.GetColumnField(leaf)
	if err != nil {
		return nil, err
	}
	pages, err := pf.RowGroup(group).GetColumnPageReader(leaf)
	if err != nil {
		return nil, err
	}
	records := file.NewRecordReader(pf.MetaData().Schema.Column(leaf), field.LevelInfo, field.Field.Type, mem, pf.BufferPool())
	records.SetPageReader(pages)
	return records, nil
}
