package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// source yields the physical rows of one row group: the columns that the
// Parquet reader converts, then those of INT96 times, which it would refuse
// outside of the years that nanoseconds reach.
type source struct {
	records pqarrow.RecordReader // nil without a column of its own
	int96   []*int96Column
	schema  *arrow.Schema
	left    int64
	batch   int64
	mem     memory.Allocator
}

func (r *reader) source(ctx context.Context, fr *pqarrow.FileReader, p *plan, group int, rows span) (*source, error) {
	s := &source{left: rows.to - rows.from, batch: r.batch, mem: r.mem}
	var fields []arrow.Field
	if len(p.leaves) > 0 {
		records, err := fr.GetRecordReader(ctx, p.leaves, []int{group})
		if err != nil {
			return nil, err
		}
		s.records = records
		fields = records.Schema().Fields()
	}
	for _, c := range p.int96 {
		chunk, err := fr.ParquetReader().RowGroup(group).Column(c.leaf)
		if err != nil {
			s.Release()
			return nil, err
		}
		typed, ok := chunk.(*file.Int96ColumnChunkReader)
		if !ok {
			s.Release()
			return nil, errors.New("column is not INT96")
		}
		s.int96 = append(s.int96, &int96Column{chunk: typed, optional: chunk.Descriptor().MaxDefinitionLevel() > 0})
		fields = append(fields, arrow.Field{Name: c.name, Type: timestampUTC, Nullable: true})
	}
	s.schema = arrow.NewSchema(fields, nil)
	return s, nil
}

// Release frees what the source holds.
func (s *source) Release() {
	if s.records != nil {
		s.records.Release()
	}
}

// next returns the next batch; the caller releases it.
func (s *source) next() (arrow.RecordBatch, error) {
	n := min(s.batch, s.left)
	var columns []arrow.Array
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	if s.records != nil {
		if !s.records.Next() {
			if err := s.records.Err(); err != nil {
				return nil, err
			}
			return nil, io.ErrUnexpectedEOF
		}
		n = s.records.RecordBatch().NumRows()
		for _, c := range s.records.RecordBatch().Columns() {
			c.Retain()
			columns = append(columns, c)
		}
	}
	for _, c := range s.int96 {
		times, err := c.read(n, s.mem)
		if err != nil {
			return nil, err
		}
		columns = append(columns, times)
	}
	for _, c := range columns {
		if int64(c.Len()) != n {
			return nil, fmt.Errorf("columns of different lengths")
		}
	}
	s.left -= n
	return array.NewRecordBatch(s.schema, columns, n), nil
}

// int96Column reads a column of INT96 times, 8 bytes of nanoseconds in the day
// and 4 of the Julian day, both little-endian, as microseconds of the epoch.
type int96Column struct {
	chunk    *file.Int96ColumnChunkReader
	optional bool
	values   []parquet.Int96
	levels   []int16
}

func (c *int96Column) read(n int64, mem memory.Allocator) (arrow.Array, error) {
	if int64(len(c.values)) < n {
		c.values, c.levels = make([]parquet.Int96, n), make([]int16, n)
	}
	b := array.NewTimestampBuilder(mem, timestampUTC)
	defer b.Release()
	b.Reserve(int(n))
	for left := n; left > 0; {
		levels := c.levels[:left]
		if !c.optional {
			levels = nil
		}
		total, read, err := c.chunk.ReadBatch(left, c.values[:left], levels, nil)
		if err != nil {
			return nil, err
		}
		if total <= 0 {
			return nil, io.ErrUnexpectedEOF
		}
		values := c.values[:read]
		for i := range total {
			if c.optional && levels[i] == 0 {
				b.AppendNull()
				continue
			}
			if len(values) == 0 {
				return nil, errors.New("fewer values than levels")
			}
			b.Append(arrow.Timestamp(values[0].ToTime().UnixMicro()))
			values = values[1:]
		}
		left -= total
	}
	return b.NewArray(), nil
}
