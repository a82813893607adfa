package arrowfile

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"delenda/storage"
)

const (
	batchEntries  = 4096
	maxRowEntries = 10_000_000 // members of one map or list
)

// Column is one leaf column of a file, standing on one row. A column that is
// not repeated has exactly one entry per row.
type Column struct {
	Index int
	Path  []string
	Desc  *schema.Column

	maxDef, maxRep int16
	chunk          file.ColumnChunkReader
	def, rep       []int16
	text           []string // by entry: of the kind's slices one is used
	ints           []int64
	floats         []float64
	bools          []bool
	values         any // the library's form of the entries at hand, reused
	from, to       int // entries of the current row
}

// Len returns the number of entries of the row; of an absent or empty list it
// is one, whose Def is lower than that of a member.
func (c *Column) Len() int { return c.to - c.from }

// Def returns the definition level of entry i: how much of the path is there.
func (c *Column) Def(i int) int16 { return c.def[c.from+i] }

// Valid reports whether entry i has a value.
func (c *Column) Valid(i int) bool { return c.Def(i) == c.maxDef }

// Text returns the bytes of entry i of a byte array column.
func (c *Column) Text(i int) string { return c.text[c.from+i] }

// Int returns entry i of an INT32 or INT64 column.
func (c *Column) Int(i int) int64 { return c.ints[c.from+i] }

// Float returns entry i of a FLOAT or DOUBLE column.
func (c *Column) Float(i int) float64 { return c.floats[c.from+i] }

// Bool returns entry i of a BOOLEAN column.
func (c *Column) Bool(i int) bool { return c.bools[c.from+i] }

// Is reports whether values have one of the physical types.
func (c *Column) Is(types ...parquet.Type) bool { return slices.Contains(types, c.Desc.PhysicalType()) }

// Level returns the definition level at which the node at depth n of the path
// is there (depth 1 is the top-level field).
func (c *Column) Level(n int) int16 {
	level := int16(0)
	for i, node := len(c.Path), c.Desc.SchemaNode(); i > 0 && node != nil; i, node = i-1, node.Parent() {
		if i <= n && node.RepetitionType() != parquet.Repetitions.Required {
			level++
		}
	}
	return level
}

// EachRow calls f for every row with all the given leaf columns standing on it.
// Columns are decoded a few thousand entries at a time, in the caller's
// goroutine: Arrow's record readers start goroutines, whose panics on malformed
// bytes nobody could recover. INT96 columns cannot be read.
func (r *File) EachRow(ctx context.Context, leaves []int, f func(row int64, cols []*Column) error) error {
	key := r.key
	cols := make([]*Column, len(leaves))
	sc := r.MetaData().Schema
	for i, leaf := range leaves {
		d := sc.Column(leaf)
		cols[i] = &Column{Index: leaf, Path: d.ColumnPath(), Desc: d, maxDef: d.MaxDefinitionLevel(), maxRep: d.MaxRepetitionLevel()}
		if d.PhysicalType() == parquet.Types.Int96 {
			return corrupt(key)
		}
	}
	row := int64(0)
	for g := range r.NumRowGroups() {
		if err := r.openChunks(g, cols); err != nil {
			return err
		}
		for range r.MetaData().RowGroup(g).NumRows() {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := Guard(key, func() error { return advance(key, cols) }); err != nil {
				return err
			}
			if err := f(row, cols); err != nil {
				return err
			}
			row++
		}
	}
	return nil
}

func corrupt(key string) error {
	return &storage.CorruptError{Key: key, Offset: -1, Field: "parquet", Reason: "cannot be decoded"}
}

// openChunks opens a row group's column chunks, after checking that they lie
// inside the object.
func (r *File) openChunks(g int, cols []*Column) error {
	return Guard(r.key, func() error {
		meta, rg := r.MetaData().RowGroup(g), r.RowGroup(g)
		for _, c := range cols {
			cc, err := meta.ColumnChunk(c.Index)
			if err != nil {
				return err
			}
			start := cc.DataPageOffset()
			if cc.HasDictionaryPage() && cc.DictionaryPageOffset() > 0 {
				start = min(start, cc.DictionaryPageOffset())
			}
			if n := cc.TotalCompressedSize(); start < 0 || n < 0 || start > r.size || n > r.size-start {
				return corrupt(r.key)
			}
			if c.chunk, err = rg.Column(c.Index); err != nil {
				return err
			}
			c.reset()
		}
		return nil
	})
}

func (c *Column) reset() {
	c.def, c.rep, c.text, c.ints, c.floats, c.bools = c.def[:0], c.rep[:0], c.text[:0], c.ints[:0], c.floats[:0], c.bools[:0]
	c.from, c.to = 0, 0
}

// advance moves all columns to their next row.
func advance(key string, cols []*Column) error {
	for _, c := range cols {
		c.from = c.to
		if c.from == len(c.def) {
			c.reset()
			more, err := c.fill()
			if err != nil {
				return err
			}
			if !more {
				return corrupt(key) // fewer rows than the footer says
			}
		}
		c.to = c.from + 1
		for c.maxRep > 0 {
			for c.to < len(c.def) && c.rep[c.to] > 0 {
				c.to++
			}
			if c.to < len(c.def) {
				break
			}
			if c.to-c.from > maxRowEntries {
				return corrupt(key)
			}
			more, err := c.fill()
			if err != nil {
				return err
			}
			if !more {
				break
			}
		}
	}
	return nil
}

// fill decodes the next entries behind those that are buffered.
func (c *Column) fill() (bool, error) {
	base := len(c.def)
	c.def = slices.Grow(c.def, batchEntries)[:base+batchEntries]
	c.rep = slices.Grow(c.rep, batchEntries)[:base+batchEntries]
	def, rep := c.def[base:], c.rep[base:]
	if c.maxDef == 0 {
		clear(def)
		def = nil
	}
	if c.maxRep == 0 {
		clear(rep)
		rep = nil
	}
	total, err := c.read(base, def, rep)
	if err != nil {
		return false, err
	}
	c.def, c.rep = c.def[:base+total], c.rep[:base+total]
	return total > 0, nil
}

// read reads entries of the page at hand, at most batchEntries, and spreads
// their values over them. Between pages the library's own loop has no end where
// a page holds fewer values than it says.
func (c *Column) read(base int, def, rep []int16) (int, error) {
	if !c.chunk.HasNext() {
		return 0, c.chunk.Err()
	}
	switch r := c.chunk.(type) {
	case *file.ByteArrayColumnChunkReader:
		return spread(c, base, def, rep, r.ReadBatchInPage, &c.text, func(v parquet.ByteArray) string { return string(v) })
	case *file.FixedLenByteArrayColumnChunkReader:
		return spread(c, base, def, rep, r.ReadBatchInPage, &c.text, func(v parquet.FixedLenByteArray) string { return string(v) })
	case *file.Int64ColumnChunkReader:
		return spread(c, base, def, rep, r.ReadBatchInPage, &c.ints, func(v int64) int64 { return v })
	case *file.Int32ColumnChunkReader:
		return spread(c, base, def, rep, r.ReadBatchInPage, &c.ints, func(v int32) int64 { return int64(v) })
	case *file.Float64ColumnChunkReader:
		return spread(c, base, def, rep, r.ReadBatchInPage, &c.floats, func(v float64) float64 { return v })
	case *file.Float32ColumnChunkReader:
		return spread(c, base, def, rep, r.ReadBatchInPage, &c.floats, func(v float32) float64 { return float64(v) })
	case *file.BooleanColumnChunkReader:
		return spread(c, base, def, rep, r.ReadBatchInPage, &c.bools, func(v bool) bool { return v })
	default:
		return 0, corrupt("")
	}
}

func spread[P, V any](c *Column, base int, def, rep []int16,
	read func(n int64, values []P, def, rep []int16) (int64, int, error), into *[]V, convert func(P) V,
) (int, error) {
	values, ok := c.values.([]P)
	if !ok {
		values = make([]P, batchEntries)
		c.values = values
	}
	total, got, err := read(batchEntries, values, def, rep)
	if err != nil {
		return 0, err
	}
	n := int(total)
	if n <= 0 || n > batchEntries || got < 0 || got > n { // there is a next one
		return 0, corrupt("")
	}
	out := append((*into)[:base], make([]V, n)...)
	next := 0
	for i := range n {
		if def != nil && def[i] < c.maxDef {
			continue
		}
		if next >= got {
			return 0, corrupt("")
		}
		out[base+i] = convert(values[next])
		next++
	}
	*into = out
	return n, nil
}
