package client

import (
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"delenda/storage"
	"delenda/storage/delta/log"
)

var (
	timestampUTC = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	timestampNTZ = &arrow.TimestampType{Unit: arrow.Microsecond}
)

// primitives maps Delta's types to Arrow's; decimals are apart.
var primitives = map[string]arrow.DataType{
	"string":        arrow.BinaryTypes.String,
	"long":          arrow.PrimitiveTypes.Int64,
	"integer":       arrow.PrimitiveTypes.Int32,
	"short":         arrow.PrimitiveTypes.Int16,
	"byte":          arrow.PrimitiveTypes.Int8,
	"float":         arrow.PrimitiveTypes.Float32,
	"double":        arrow.PrimitiveTypes.Float64,
	"boolean":       arrow.FixedWidthTypes.Boolean,
	"binary":        arrow.BinaryTypes.Binary,
	"date":          arrow.FixedWidthTypes.Date32,
	"timestamp":     timestampUTC,
	"timestamp_ntz": timestampNTZ,
	"void":          arrow.Null,
}

func arrowSchema(s *log.Schema) (*arrow.Schema, error) {
	fields, err := arrowFields(s.Fields)
	if err != nil {
		return nil, err
	}
	return arrow.NewSchema(fields, nil), nil
}

func arrowFields(fields []log.Field) ([]arrow.Field, error) {
	out := make([]arrow.Field, len(fields))
	for i := range fields {
		t, err := arrowType(&fields[i].Type)
		if err != nil {
			return nil, err
		}
		out[i] = arrow.Field{Name: fields[i].Name, Type: t, Nullable: fields[i].Nullable}
	}
	return out, nil
}

// arrowType maps a type. Elements of arrays and values of maps may be null.
func arrowType(t *log.Type) (arrow.DataType, error) {
	if known, ok := primitives[t.Name]; ok {
		return known, nil
	}
	switch t.Name {
	case "struct":
		fields, err := arrowFields(t.Fields)
		if err != nil {
			return nil, err
		}
		return arrow.StructOf(fields...), nil
	case "array":
		element, err := arrowType(t.Element)
		if err != nil {
			return nil, err
		}
		return arrow.ListOfField(arrow.Field{Name: "element", Type: element, Nullable: true}), nil
	case "map":
		key, err := arrowType(t.Key)
		if err != nil {
			return nil, err
		}
		value, err := arrowType(t.Value)
		if err != nil {
			return nil, err
		}
		return arrow.MapOf(key, value), nil
	}
	if d, ok := decimal(t.Name); ok {
		return d, nil
	}
	return nil, storage.Refuse("unsupported_type", "the table has a column of type %s", printable(t.Name))
}

// decimal reads "decimal(p,s)", or "decimal" for decimal(10,0).
func decimal(name string) (*arrow.Decimal128Type, bool) {
	if name == "decimal" {
		return &arrow.Decimal128Type{Precision: 10}, true
	}
	inner, opened := strings.CutPrefix(name, "decimal(")
	inner, closed := strings.CutSuffix(inner, ")")
	p, s, two := strings.Cut(inner, ",")
	precision, perr := strconv.ParseInt(strings.TrimSpace(p), 10, 32)
	scale, serr := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
	ok := opened && closed && two && perr == nil && serr == nil && 1 <= precision && precision <= 38 && 0 <= scale && scale <= precision
	return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}, ok
}
