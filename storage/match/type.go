package match

import (
	"fmt"
	"strconv"
	"strings"

	"delenda/storage"
)

// Kind is how the values of a type are compared.
type Kind uint8

// The kinds.
const (
	// KindInt: int64. Integers as they are, boolean as 0 and 1, date as days
	// and timestamps as microseconds since 1970-01-01, decimals of up to 18
	// digits as their unscaled value.
	KindInt Kind = iota + 1
	// KindBytes: string and binary, byte for byte.
	KindBytes
	// KindWide: decimals of more than 18 digits, as their unscaled value in 16
	// bytes, two's complement, big-endian.
	KindWide
)

// Base names a type without its parameters.
type Base string

// The types that can be compared.
const (
	Byte         Base = "byte"
	Short        Base = "short"
	Integer      Base = "integer"
	Long         Base = "long"
	Decimal      Base = "decimal"
	Boolean      Base = "boolean"
	Date         Base = "date"
	Timestamp    Base = "timestamp"
	TimestampNTZ Base = "timestamp_ntz"
	String       Base = "string"
	Binary       Base = "binary"
)

// maxIntDigits is the largest precision whose unscaled values fit an int64.
const maxIntDigits = 18

// Type is the type of a column that can be compared.
type Type struct {
	Base      Base
	Precision int // of a decimal
	Scale     int // of a decimal
}

// ParseType reads the type text of a Delta schema. Types that cannot be
// compared are a *storage.Refusal.
func ParseType(text string) (Type, error) {
	switch Base(text) {
	case Byte, Short, Integer, Long, Boolean, Date, Timestamp, TimestampNTZ, String, Binary:
		return Type{Base: Base(text)}, nil
	case Decimal:
		return Type{Base: Decimal, Precision: 10}, nil
	}
	if t, ok := parseDecimalType(text); ok {
		return t, nil
	}
	switch text {
	case "float", "double":
		return Type{}, storage.Refuse("float_key", "type %s has no exact text form to compare by", text)
	}
	name, _, _ := strings.Cut(text, "(")
	return Type{}, storage.Refuse("unsupported_key_type", "type %q cannot be compared", name)
}

func parseDecimalType(text string) (Type, bool) {
	rest, ok := strings.CutPrefix(text, "decimal(")
	if !ok {
		return Type{}, false
	}
	rest, ok = strings.CutSuffix(rest, ")")
	if !ok {
		return Type{}, false
	}
	p, s, ok := strings.Cut(rest, ",")
	if !ok {
		return Type{}, false
	}
	precision, err := strconv.Atoi(strings.TrimSpace(p))
	if err != nil || precision < 1 || precision > 38 {
		return Type{}, false
	}
	scale, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || scale < 0 || scale > precision {
		return Type{}, false
	}
	return Type{Base: Decimal, Precision: precision, Scale: scale}, true
}

// Kind returns how values of the type are compared.
func (t Type) Kind() Kind {
	switch {
	case t.Base == String || t.Base == Binary:
		return KindBytes
	case t.Base == Decimal && t.Precision > maxIntDigits:
		return KindWide
	default:
		return KindInt
	}
}

// String returns the type as a Delta schema spells it.
func (t Type) String() string {
	if t.Base == Decimal {
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	}
	return string(t.Base)
}

// bits returns the width of an integer type.
func (t Type) bits() int {
	switch t.Base {
	case Byte:
		return 8
	case Short:
		return 16
	case Integer:
		return 32
	default:
		return 64
	}
}
