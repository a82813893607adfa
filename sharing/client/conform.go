package client

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"delenda/storage/delta/log"
)

var errPhysicalType = errors.New("a column's physical type does not fit the table's")

// conformer turns arrays as they lie in a data file into those of the table.
type conformer struct {
	mem  memory.Allocator
	mode log.MappingMode
}

// array returns have as the wanted type; the caller releases it. Members of
// structs are matched by physical name or id, missing ones are null.
func (c conformer) array(ctx context.Context, have arrow.Array, want arrow.DataType, t *log.Type) (arrow.Array, error) {
	data, err := c.data(ctx, have.Data(), want, t)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return array.MakeFromData(data), nil
}

func (c conformer) data(ctx context.Context, have arrow.ArrayData, want arrow.DataType, t *log.Type) (arrow.ArrayData, error) {
	switch t.Name {
	case "struct":
		return c.structs(ctx, have, want, t.Fields)
	case "array":
		return c.lists(ctx, have, want, t)
	case "map":
		return c.maps(ctx, have, want, t)
	default:
		return c.leaf(ctx, have, want)
	}
}

// structs rebuilds a struct: the same validity, the wanted members. Members lie
// beside the whole of the parent's buffers, before its offset is applied.
func (c conformer) structs(ctx context.Context, have arrow.ArrayData, want arrow.DataType, fields []log.Field) (arrow.ArrayData, error) {
	from, ok := have.DataType().(*arrow.StructType)
	to, ok2 := want.(*arrow.StructType)
	if !ok || !ok2 {
		return nil, errPhysicalType
	}
	children := make([]arrow.ArrayData, 0, len(fields))
	defer func() { release(children) }()
	for i := range fields {
		at := -1
		for j := range from.NumFields() {
			if f := from.Field(j); matches(&f, &fields[i], c.mode) {
				at = j
				break
			}
		}
		if at < 0 {
			nulls := array.MakeArrayOfNull(c.mem, to.Field(i).Type, have.Offset()+have.Len())
			nulls.Data().Retain()
			children = append(children, nulls.Data())
			nulls.Release()
			continue
		}
		child, err := c.data(ctx, have.Children()[at], to.Field(i).Type, &fields[i].Type)
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return array.NewData(want, have.Len(), have.Buffers(), children, have.NullN(), have.Offset()), nil
}

func (c conformer) lists(ctx context.Context, have arrow.ArrayData, want arrow.DataType, t *log.Type) (arrow.ArrayData, error) {
	to, ok := want.(*arrow.ListType)
	if !ok || have.DataType().ID() != arrow.LIST {
		return nil, errPhysicalType
	}
	child, err := c.data(ctx, have.Children()[0], to.Elem(), t.Element)
	if err != nil {
		return nil, err
	}
	defer child.Release()
	return array.NewData(want, have.Len(), have.Buffers(), []arrow.ArrayData{child}, have.NullN(), have.Offset()), nil
}

func (c conformer) maps(ctx context.Context, have arrow.ArrayData, want arrow.DataType, t *log.Type) (arrow.ArrayData, error) {
	to, ok := want.(*arrow.MapType)
	if !ok || have.DataType().ID() != arrow.MAP {
		return nil, errPhysicalType
	}
	entries := have.Children()[0]
	if len(entries.Children()) != 2 {
		return nil, errPhysicalType
	}
	key, err := c.data(ctx, entries.Children()[0], to.KeyType(), t.Key)
	if err != nil {
		return nil, err
	}
	defer key.Release()
	value, err := c.data(ctx, entries.Children()[1], to.ItemType(), t.Value)
	if err != nil {
		return nil, err
	}
	defer value.Release()
	pairs := array.NewData(to.Elem(), entries.Len(), entries.Buffers(), []arrow.ArrayData{key, value}, entries.NullN(), entries.Offset())
	defer pairs.Release()
	return array.NewData(want, have.Len(), have.Buffers(), []arrow.ArrayData{pairs}, have.NullN(), have.Offset()), nil
}

// leaf casts a primitive without loss; times are cut to microseconds.
func (c conformer) leaf(ctx context.Context, have arrow.ArrayData, want arrow.DataType) (arrow.ArrayData, error) {
	if arrow.TypeEqual(have.DataType(), want) {
		have.Retain()
		return have, nil
	}
	if from, ok := have.DataType().(*arrow.TimestampType); ok {
		if to, ok := want.(*arrow.TimestampType); ok {
			return c.times(ctx, have, from, to)
		}
	}
	return c.cast(ctx, have, compute.SafeCastOptions(want))
}

// times changes the unit if it must. The zone is a label: both of Delta's
// types count from the epoch.
func (c conformer) times(ctx context.Context, have arrow.ArrayData, from, to *arrow.TimestampType) (arrow.ArrayData, error) {
	if from.Unit != to.Unit {
		unit := &arrow.TimestampType{Unit: to.Unit, TimeZone: from.TimeZone}
		options := compute.SafeCastOptions(unit)
		options.AllowTimeTruncate = true
		cast, err := c.cast(ctx, have, options)
		if err != nil {
			return nil, err
		}
		defer cast.Release()
		have = cast
	}
	return array.NewData(to, have.Len(), have.Buffers(), nil, have.NullN(), have.Offset()), nil
}

func (c conformer) cast(ctx context.Context, have arrow.ArrayData, o *compute.CastOptions) (arrow.ArrayData, error) {
	if !castable(have.DataType(), o.ToType) {
		return nil, errPhysicalType
	}
	in := array.MakeFromData(have)
	defer in.Release()
	out, err := compute.CastArray(compute.WithAllocator(ctx, c.mem), in, o)
	if err != nil {
		return nil, errPhysicalType
	}
	defer out.Release()
	out.Data().Retain()
	return out.Data(), nil
}

// castable tells the casts that widening needs, whose code cannot panic: it runs
// in a goroutine of the library.
func castable(from, to arrow.DataType) bool {
	number := func(t arrow.DataType) bool {
		return arrow.IsInteger(t.ID()) || t.ID() == arrow.FLOAT32 || t.ID() == arrow.FLOAT64
	}
	text := func(t arrow.DataType) bool { return t.ID() == arrow.STRING || t.ID() == arrow.BINARY }
	switch from.ID() {
	case arrow.DECIMAL128:
		d, ok := from.(*arrow.Decimal128Type)
		return ok && to.ID() == arrow.DECIMAL128 && d.Precision <= 38 && 0 <= d.Scale && d.Scale <= d.Precision
	case arrow.DATE32, arrow.TIMESTAMP:
		return to.ID() == arrow.TIMESTAMP
	case arrow.FIXED_SIZE_BINARY:
		return text(to)
	default:
		return number(from) && number(to) || arrow.IsInteger(from.ID()) && to.ID() == arrow.DECIMAL128 || text(from) && text(to)
	}
}

func release(all []arrow.ArrayData) {
	for _, d := range all {
		d.Release()
	}
}
