package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"delenda/storage"
)

const maxDataFile = 1 << 30

// Row is one row of a table.
type Row struct {
	File   string // key of the data file
	Offset int64  // physical, in that file
	Hidden bool   // by the deletion vector
	// Values are those of the asked columns, nil for null.
	Values []*string
}

// Rows yields every row of the files of the newest version, the hidden ones
// too, in the order of files and offsets. Columns are logical names, or dotted
// paths to struct members.
func Rows(ctx context.Context, b storage.Bucket, columns ...string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		l, err := readLog(ctx, b)
		if err != nil {
			yield(Row{}, err)
			return
		}
		l.rows(ctx, b, columns, yield)
	}
}

func (l *deltaLog) rows(ctx context.Context, b storage.Bucket, columns []string, yield func(Row, error) bool) {
	cols := make([]column, len(columns))
	for i, name := range columns {
		c, err := l.meta.column(name)
		if err != nil {
			yield(Row{}, err)
			return
		}
		cols[i] = c
	}
	ids := make([]string, 0, len(l.files))
	for id := range l.files {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		for r, err := range l.fileRows(ctx, b, l.files[id], cols) {
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// column is where a logical column is found.
type column struct {
	path      []string // physical names
	partition bool
}

type field struct {
	Name     string          `json:"name"`
	Type     json.RawMessage `json:"type"`
	Metadata map[string]any  `json:"metadata"`
}

func (m *metadata) column(name string) (column, error) {
	var c column
	var schema struct {
		Fields []field `json:"fields"`
	}
	raw := json.RawMessage(m.SchemaString)
	mapped := m.Configuration["delta.columnMapping.mode"]
	for part := range strings.SplitSeq(name, ".") {
		if err := json.Unmarshal(raw, &schema); err != nil {
			return c, fmt.Errorf("column %s: not below a struct", name)
		}
		i := slices.IndexFunc(schema.Fields, func(f field) bool { return f.Name == part })
		if i < 0 {
			return c, fmt.Errorf("no column %s", name)
		}
		f := schema.Fields[i]
		physical := f.Name
		if p, ok := f.Metadata["delta.columnMapping.physicalName"].(string); ok && mapped != "" && mapped != "none" {
			physical = p
		}
		c.path = append(c.path, physical)
		raw, schema.Fields = f.Type, nil
	}
	c.partition = slices.Contains(m.PartitionColumns, name)
	return c, nil
}

func (l *deltaLog) fileRows(ctx context.Context, b storage.Bucket, f *file, cols []column) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		fail := func(err error) { yield(Row{}, fmt.Errorf("read a data file: %w", err)) }
		key, err := f.key()
		if err != nil {
			fail(err)
			return
		}
		hidden, err := f.DeletionVector.rows(ctx, b)
		if err != nil {
			fail(err)
			return
		}
		p, err := storage.ReadObject(ctx, b, key, maxDataFile)
		if err != nil {
			fail(err)
			return
		}
		offset := int64(0)
		err = eachRecord(ctx, key, p, func(rec arrow.RecordBatch) error {
			for i := range int(rec.NumRows()) {
				r := Row{File: key, Offset: offset, Hidden: hidden[offset]}
				for _, c := range cols {
					v, err := c.value(f, rec, i)
					if err != nil {
						return err
					}
					r.Values = append(r.Values, v)
				}
				offset++
				if !yield(r, nil) {
					return errStop
				}
			}
			return nil
		})
		switch {
		case err == errStop: //nolint:errorlint // made here, never wrapped
		case err != nil:
			fail(err)
		default:
			for row := range hidden {
				if row >= offset {
					fail(fmt.Errorf("%w: hides row %d of %d", errVector, row, offset))
					return
				}
			}
		}
	}
}

var errStop = fmt.Errorf("stop")

func (c *column) value(f *file, rec arrow.RecordBatch, row int) (*string, error) {
	if c.partition {
		v, ok := f.PartitionValues[c.path[0]]
		if !ok {
			return nil, fmt.Errorf("no partition value")
		}
		if v == nil || *v == "" {
			return nil, nil
		}
		return v, nil
	}
	at := rec.Schema().FieldIndices(c.path[0])
	if len(at) == 0 {
		return nil, nil // the file is older than the column
	}
	a := rec.Column(at[0])
	for _, name := range c.path[1:] {
		s, ok := a.(*array.Struct)
		if !ok {
			return nil, fmt.Errorf("not a struct")
		}
		if s.IsNull(row) {
			return nil, nil
		}
		i, ok := s.DataType().(*arrow.StructType).FieldIdx(name)
		if !ok {
			return nil, nil
		}
		a = s.Field(i)
	}
	if a.IsNull(row) {
		return nil, nil
	}
	v := a.ValueStr(row)
	switch a := a.(type) { // with all digits of the scale
	case *array.Decimal128:
		v = a.Value(row).ToString(a.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Decimal256:
		v = a.Value(row).ToString(a.DataType().(*arrow.Decimal256Type).Scale)
	}
	return &v, nil
}
