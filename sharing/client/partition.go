package client

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// constant returns an array of n equal values, from their text in
// partitionValues ("Partition Value Serialization" of the Delta protocol). An
// absent text and an empty one are null.
func constant(mem memory.Allocator, t arrow.DataType, text *string, n int) (arrow.Array, error) {
	if text == nil || *text == "" {
		return array.MakeArrayOfNull(mem, t, n), nil
	}
	b := array.NewBuilder(mem, t)
	defer b.Release()
	b.Reserve(n)
	add, err := appender(b, *text)
	if err != nil {
		return nil, fmt.Errorf("%w: partitionValues: a value is no %s", ErrProtocol, t)
	}
	for range n {
		add()
	}
	return b.NewArray(), nil
}

// appender parses the text once and returns what appends its value.
func appender(b array.Builder, text string) (func(), error) {
	switch b := b.(type) {
	case *array.StringBuilder:
		return func() { b.Append(text) }, nil
	case *array.BinaryBuilder:
		raw := []byte(text)
		return func() { b.Append(raw) }, nil
	case *array.Int64Builder:
		return integer(text, 64, b.Append)
	case *array.Int32Builder:
		return integer(text, 32, b.Append)
	case *array.Int16Builder:
		return integer(text, 16, b.Append)
	case *array.Int8Builder:
		return integer(text, 8, b.Append)
	case *array.Float64Builder:
		v, err := float(text, 64)
		return func() { b.Append(v) }, err
	case *array.Float32Builder:
		v, err := float(text, 32)
		return func() { b.Append(float32(v)) }, err
	case *array.BooleanBuilder:
		v, err := strconv.ParseBool(text)
		return func() { b.Append(v) }, err
	case *array.Date32Builder:
		t, err := time.Parse(time.DateOnly, text)
		return func() { b.Append(arrow.Date32FromTime(t)) }, err
	case *array.TimestampBuilder:
		t, err := timestamp(text)
		return func() { b.Append(arrow.Timestamp(t.UnixMicro())) }, err
	case *array.Decimal128Builder:
		t := b.Type().(*arrow.Decimal128Type) //nolint:forcetypeassert // the builder's own type
		if !plainDecimal(text) {
			return nil, errPhysicalType
		}
		v, err := decimal128.FromString(text, t.Precision, t.Scale)
		return func() { b.Append(v) }, err
	}
	return nil, errPhysicalType
}

// plainDecimal bounds what is parsed as a decimal: an exponent could ask for a
// number of any size.
func plainDecimal(text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return len(text) <= 80
}

func integer[T int8 | int16 | int32 | int64](text string, bits int, add func(T)) (func(), error) {
	v, err := strconv.ParseInt(text, 10, bits)
	return func() { add(T(v)) }, err
}

func float(text string, bits int) (float64, error) {
	switch text {
	case "Infinity":
		return math.Inf(1), nil
	case "-Infinity":
		return math.Inf(-1), nil
	}
	return strconv.ParseFloat(text, bits)
}

// timestamp reads both forms of the protocol; without a zone it is UTC.
func timestamp(text string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02 15:04:05.999999999", time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errPhysicalType
}
