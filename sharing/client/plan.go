package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// plan says where each column of the table is found in one data file.
type plan struct {
	leaves  []int        // Parquet columns to read
	int96   []int96Leaf  // and those read apart
	from    []int        // per column of the table: index in a physical batch, or -1
	partial []*partition // per column of the table: its partition value, or nil
}

type int96Leaf struct {
	name string
	leaf int
}

// all returns every Parquet column that is read.
func (p *plan) all() []int {
	leaves := slices.Clone(p.leaves)
	for _, c := range p.int96 {
		leaves = append(leaves, c.leaf)
	}
	return leaves
}

// partition is the one value of a column in a file; nil text is null.
type partition struct{ text *string }

// plan matches the columns to read with the fields of a data file.
func (r *reader) plan(f *File, fr *pqarrow.FileReader) (*plan, error) {
	m := fr.Manifest
	p := &plan{from: make([]int, len(r.columns)), partial: make([]*partition, len(r.columns))}
	mode := r.s.schema.Mode
	if mode == log.MappingID && !hasIDs(m) {
		return nil, &storage.CorruptError{Key: f.Add.Path, Offset: -1, Field: "schema", Reason: "has no field ids, which the table maps by"}
	}
	// The record reader yields the top-level fields in the file's order.
	wanted := make(map[int][]int) // field of the file -> columns of the table
	for i, c := range r.columns {
		p.from[i] = -1
		if c.partition {
			text, ok := f.Add.PartitionValues[c.field.PhysicalName(mode)]
			if !ok {
				return nil, fmt.Errorf("%w: partitionValues lacks a column", ErrProtocol)
			}
			p.partial[i] = &partition{text}
			continue
		}
		for at := range m.Fields {
			if matches(m.Fields[at].Field, c.field, mode) {
				wanted[at] = append(wanted[at], i)
				break
			}
		}
	}
	next := 0
	for _, late := range []bool{false, true} { // INT96 columns come last
		for at := range m.Fields {
			field := &m.Fields[at]
			if len(wanted[at]) == 0 || isINT96(field, fr) != late {
				continue
			}
			if late {
				p.int96 = append(p.int96, int96Leaf{field.Field.Name, field.ColIndex})
			} else {
				p.leaves = appendLeaves(p.leaves, field)
			}
			for _, i := range wanted[at] {
				p.from[i] = next
			}
			next++
		}
	}
	return p, nil
}

// isINT96 tells a top-level column of INT96 times.
func isINT96(f *pqarrow.SchemaField, fr *pqarrow.FileReader) bool {
	if !f.IsLeaf() || f.LevelInfo.RepLevel != 0 {
		return false
	}
	return fr.ParquetReader().MetaData().Schema.Column(f.ColIndex).PhysicalType() == parquet.Types.Int96
}

func appendLeaves(leaves []int, f *pqarrow.SchemaField) []int {
	if f.IsLeaf() {
		return append(leaves, f.ColIndex)
	}
	for i := range f.Children {
		leaves = appendLeaves(leaves, &f.Children[i])
	}
	return leaves
}

// matches tells whether a field of a file is the table's field.
func matches(have *arrow.Field, want *log.Field, mode log.MappingMode) bool {
	if mode == log.MappingID {
		id, ok := want.ID()
		got, known := fieldID(have)
		return ok && known && id == got
	}
	return have.Name == want.PhysicalName(mode)
}

const fieldIDKey = "PARQUET:field_id"

func fieldID(f *arrow.Field) (int32, bool) {
	text, ok := f.Metadata.GetValue(fieldIDKey)
	id, err := strconv.ParseInt(text, 10, 32)
	return int32(id), ok && err == nil && id >= 0
}

func hasIDs(m *pqarrow.SchemaManifest) bool {
	for i := range m.Fields {
		if _, ok := fieldID(m.Fields[i].Field); ok {
			return true
		}
	}
	return len(m.Fields) == 0
}

// conform gives physical rows the table's columns, names and types.
func (p *plan) conform(ctx context.Context, r *reader, batch arrow.RecordBatch) (arrow.RecordBatch, error) {
	n := int(batch.NumRows())
	columns := make([]arrow.Array, 0, len(r.columns))
	defer func() { releaseArrays(columns) }()
	for i, c := range r.columns {
		var out arrow.Array
		var err error
		switch {
		case p.partial[i] != nil:
			out, err = constant(r.mem, c.want.Type, p.partial[i].text, n)
		case p.from[i] >= 0:
			out, err = conformer{r.mem, r.s.schema.Mode}.array(ctx, batch.Column(p.from[i]), c.want.Type, &c.field.Type)
		case !c.want.Nullable:
			err = &storage.CorruptError{Offset: -1, Field: "schema", Reason: "lacks a column that is never null"}
		default:
			out = array.MakeArrayOfNull(r.mem, c.want.Type, n)
		}
		if err != nil {
			return nil, err
		}
		columns = append(columns, out)
	}
	return array.NewRecordBatch(r.schema, columns, int64(n)), nil
}
