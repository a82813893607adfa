package delta

import (
	"context"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"delenda/storage"
	"delenda/storage/deletion"
	"delenda/storage/delta/internal/arrowfile"
	"delenda/storage/delta/log"
)

// survivors computes the bounds of the clustering columns among the identity
// columns over the rows that stay, by pathKey.
func (t *Table) survivors(ctx context.Context, d *identity, h *hit, hidden *deletion.Set) (out map[string]bounds, err error) {
	defer func() { err = storage.Discreet(err, h.key) }()
	for i := range d.columns {
		c := &d.columns[i]
		if !c.clustering {
			continue
		}
		r, err := arrowfile.Open(ctx, t.bucket, storage.Info{Key: h.key, SizeBytes: h.add.SizeBytes})
		if err != nil {
			return nil, err
		}
		b, err := columnBounds(ctx, r, d.mode, &c.boundColumn, hidden)
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
func columnBounds(ctx context.Context, r *arrowfile.File, mode log.MappingMode, c *boundColumn, hidden *deletion.Set) (bounds, error) {
	leaf := leafIndex(r.Reader, mode, c)
	if leaf < 0 {
		return bounds{}, nil
	}
	acc := accumulator{}
	if d := r.MetaData().Schema.Column(leaf); d.MaxRepetitionLevel() > 0 || !acc.supports(d) {
		return bounds{}, storage.Refuse("clustering_statistics",
			"column %s is an identity and a clustering column of a type whose statistics cannot be computed", c.Name)
	}
	err := r.EachRow(ctx, []int{leaf}, func(row int64, cols []*arrowfile.Column) error {
		if v := cols[0]; v.Valid(0) && !hidden.Contains(row) {
			if acc.text {
				acc.addText(v.Text(0), v.Text(0))
			} else {
				acc.addInt(v.Int(0), v.Int(0))
			}
		}
		return nil
	})
	return acc.bounds(), err
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
// or text.
type accumulator struct {
	any        bool
	text       bool
	min, max   int64
	tmin, tmax string
	render     func(n int64) json.RawMessage
}

// supports prepares for a column; false if its type is not one of those that
// bounds are computed for.
func (a *accumulator) supports(d *schema.Column) bool {
	switch d.PhysicalType() {
	case parquet.Types.ByteArray:
		_, a.text = d.LogicalType().(schema.StringLogicalType)
		return a.text
	case parquet.Types.Int32, parquet.Types.Int64:
	default:
		return false
	}
	switch l := d.LogicalType().(type) {
	case schema.NoLogicalType, schema.IntLogicalType:
		a.render = func(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }
	case schema.DateLogicalType:
		a.render = func(n int64) json.RawMessage {
			return quote(time.Unix(0, 0).UTC().AddDate(0, 0, int(n)).Format(time.DateOnly))
		}
	case schema.TimestampLogicalType:
		if l.TimeUnit() != schema.TimeUnitMicros {
			return false
		}
		layout := "2006-01-02T15:04:05.000000"
		if l.IsAdjustedToUTC() {
			layout += "Z"
		}
		a.render = func(n int64) json.RawMessage { return quote(time.UnixMicro(n).UTC().Format(layout)) }
	default:
		return false
	}
	return true
}

func (a *accumulator) addInt(low, high int64) {
	if !a.any || low < a.min {
		a.min = low
	}
	if !a.any || high > a.max {
		a.max = high
	}
	a.any = true
}

func (a *accumulator) addText(low, high string) {
	if !a.any || low < a.tmin {
		a.tmin = low
	}
	if !a.any || high > a.tmax {
		a.tmax = high
	}
	a.any = true
}

func (a *accumulator) bounds() bounds {
	switch {
	case !a.any:
		return bounds{}
	case a.text:
		return bounds{min: quote(shorten(a.tmin, "")), max: quote(shorten(a.tmax, "\U0010ffff"))}
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
