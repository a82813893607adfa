package client

import (
	"context"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
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
		records, err := leafReader(fr.ParquetReader(), fr.Manifest, c.leaf, group, bounded{r.mem})
		if err != nil {
			s.Release()
			return nil, err
		}
		s.int96 = append(s.int96, &int96Column{records})
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
	for _, c := range s.int96 {
		c.records.Release()
	}
}

// next returns the next batch; the caller releases it.
func (s *source) next() (arrow.RecordBatch, error) {
	n := min(s.batch, s.left)
	var columns []arrow.Array
	defer func() { releaseArrays(columns) }()
	if s.records != nil {
		if !s.records.Next() {
			if err := s.records.Err(); err != nil {
				return nil, err
			}
			return nil, io.ErrUnexpectedEOF
		}
		n = s.records.RecordBatch().NumRows()
		for _, c := range s.records.RecordBatch().Columns() {
			if err := array.Validate(c); err != nil {
				return nil, err
			}
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
type int96Column struct{ records file.RecordReader }

func (c *int96Column) read(n int64, mem memory.Allocator) (arrow.Array, error) {
	c.records.Reset()
	if err := c.records.Reserve(n); err != nil {
		return nil, err
	}
	read, err := c.records.ReadRecords(n)
	if err != nil {
		return nil, err
	}
	if read != n || int64(c.records.ValuesWritten()) != n {
		return nil, io.ErrUnexpectedEOF
	}
	valid := c.records.ReleaseValidBits() // nil if the column is never null
	if valid != nil {
		defer valid.Release()
	}
	b := array.NewTimestampBuilder(mem, timestampUTC)
	defer b.Release()
	b.Reserve(int(n))
	for i, v := range parquet.Int96Traits.CastFromBytes(c.records.Values())[:n] {
		if valid != nil && !bitutil.BitIsSet(valid.Bytes(), i) {
			b.AppendNull()
			continue
		}
		b.Append(arrow.Timestamp(v.ToTime().UnixMicro()))
	}
	return b.NewArray(), nil
}
