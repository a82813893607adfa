package delta

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/storage"
	"delenda/storage/deletion"
	"delenda/storage/delta/internal/arrowfile"
	"delenda/storage/delta/log"
)

// survivors computes the bounds of the clustering columns among the identity
// columns over the rows that stay, by pathKey.
func (t *Table) survivors(ctx context.Context, d *identity, h *hit, hidden *deletion.Set) (map[string]bounds, error) {
	var out map[string]bounds
	for i := range d.columns {
		c := &d.columns[i]
		if !c.clustering {
			continue
		}
		r, err := arrowfile.Open(ctx, t.bucket, storage.Info{Key: h.key, SizeBytes: h.add.SizeBytes})
		if err != nil {
			return nil, err
		}
		var b bounds
		err = arrowfile.Guard(h.key, func() (err error) {
			b, err = columnBounds(ctx, r, d.mode, &c.boundColumn, hidden)
			return err
		})
		if cerr := r.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]bounds{}
		}
		out[pathKey(c.physical)] = b
	}
	return out, nil
}

// columnBounds reads one column and returns the bounds of its rows that are not
// in hidden. A column that the file lacks has none.
func columnBounds(ctx context.Context, r *file.Reader, mode log.MappingMode, c *boundColumn, hidden *deletion.Set) (bounds, error) {
	leaf := leafIndex(r, mode, c)
	if leaf < 0 {
		return bounds{}, nil
	}
	unsupported := storage.Refuse("clustering_statistics", "column %s is an identity and a clustering column of a type whose statistics cannot be computed", c.Name)
	if r.MetaData().Schema.Column(leaf).PhysicalType() == parquet.Types.Int96 {
		return bounds{}, unsupported
	}
	fr, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: 16 << 10}, memory.DefaultAllocator)
	if err != nil {
		return bounds{}, err
	}
	rr, err := fr.GetRecordReader(ctx, []int{leaf}, nil)
	if err != nil {
		return bounds{}, err
	}
	defer rr.Release()
	acc := accumulator{}
	row := int64(0)
	for rr.Next() {
		col := rr.RecordBatch().Column(0)
		for {
			st, ok := col.(*array.Struct)
			if !ok {
				break
			}
			col = st.Field(0)
		}
		for i := range col.Len() {
			if !hidden.Contains(row) && col.IsValid(i) && !acc.add(col, i) {
				return bounds{}, unsupported
			}
			row++
		}
	}
	return acc.bounds(), rr.Err()
}

// leafIndex finds a column in an arrow-go file, or -1.
func leafIndex(r *file.Reader, mode log.MappingMode, c *boundColumn) int {
	sc := r.MetaData().Schema
	for i := range sc.NumColumns() {
		col := sc.Column(i)
		if mode == log.MappingID {
			if c.hasID && col.SchemaNode().FieldID() == c.fieldID {
				return i
			}
			continue
		}
		path := col.ColumnPath()
		same := len(path) == len(c.physical)
		for j := range path {
			same = same && path[j] == c.physical[j]
		}
		if same {
			return i
		}
	}
	return -1
}

// accumulator keeps the smallest and the largest value of one column: numbers,
// or bytes.
type accumulator struct {
	any      bool
	min, max int64
	bmin     []byte
	bmax     []byte
	render   func(n int64) json.RawMessage
	text     bool
}

// add takes a value; false if the type is not one of those that bounds are
// computed for.
func (a *accumulator) add(col arrow.Array, i int) bool {
	number := func(n int64) bool {
		if !a.any || n < a.min {
			a.min = n
		}
		if !a.any || n > a.max {
			a.max = n
		}
		a.any = true
		return true
	}
	plain := func(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }
	switch c := col.(type) {
	case *array.Int8:
		a.render = plain
		return number(int64(c.Value(i)))
	case *array.Int16:
		a.render = plain
		return number(int64(c.Value(i)))
	case *array.Int32:
		a.render = plain
		return number(int64(c.Value(i)))
	case *array.Int64:
		a.render = plain
		return number(c.Value(i))
	case *array.Date32:
		a.render = func(n int64) json.RawMessage {
			return quote(arrow.Date32(n).ToTime().Format("2006-01-02")) //nolint:gosec // it was a Date32
		}
		return number(int64(c.Value(i)))
	case *array.Timestamp:
		t, _ := c.DataType().(*arrow.TimestampType)
		layout := "2006-01-02T15:04:05.000000"
		if t.TimeZone != "" {
			layout += "Z"
		}
		a.render = func(n int64) json.RawMessage {
			return quote(arrow.Timestamp(n).ToTime(t.Unit).UTC().Format(layout))
		}
		return number(int64(c.Value(i)))
	case *array.String:
		a.text = true
		v := []byte(c.Value(i))
		if !a.any || bytes.Compare(v, a.bmin) < 0 {
			a.bmin = v
		}
		if !a.any || bytes.Compare(v, a.bmax) > 0 {
			a.bmax = v
		}
		a.any = true
		return true
	default:
		return false
	}
}

func (a *accumulator) bounds() bounds {
	switch {
	case !a.any:
		return bounds{}
	case a.text:
		return bounds{min: quote(shorten(string(a.bmin), "")), max: quote(shorten(string(a.bmax), "\U0010ffff"))}
	default:
		return bounds{min: a.render(a.min), max: a.render(a.max)}
	}
}

// maxStatRunes is how long the strings of statistics are at most.
const maxStatRunes = 32

// shorten cuts a string bound; the suffix keeps a cut maximum above all that
// it stands for.
func shorten(s, suffix string) string {
	if utf8.RuneCountInString(s) <= maxStatRunes {
		return s
	}
	n := 0
	for i := range s {
		if n == maxStatRunes {
			return s[:i] + suffix
		}
		n++
	}
	return s
}

func quote(s string) json.RawMessage {
	p, _ := json.Marshal(s) // strings always marshal
	return p
}
