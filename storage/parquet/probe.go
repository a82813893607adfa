package parquet

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"strings"

	"delenda/storage/match"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// probe compares the values of one leaf with a key set. Physical values come
// as int64 (BOOLEAN, INT32, INT64, and INT96 as microseconds) or as bytes.
type probe struct {
	keys   *match.ColumnKeys
	filter match.Filter

	// convert, when not nil, promotes a physical integer to the table's type;
	// false means that the result is out of range and so equals no key.
	convert func(int64) (int64, bool)
	// wideInts: physical integers become decimals of more than 18 digits.
	wideInts bool
	// decimalBytes: physical bytes are decimals, big-endian two's complement.
	decimalBytes bool
	// scale is the power of ten from the file's decimals to the table's.
	scale int
}

// direct tells whether physical values are the keys' values as they are.
func (p *probe) direct() bool { return p.convert == nil && !p.wideInts && !p.decimalBytes }

const noKey = -1

// findInt returns the number of the key that equals a physical integer, or noKey.
func (p *probe) findInt(v int64) int32 {
	if p.wideInts {
		w := match.WideInt(v)
		return p.findDecimal(w[:])
	}
	if p.convert != nil {
		var ok bool
		if v, ok = p.convert(v); !ok {
			return noKey
		}
	}
	return p.findKeyInt(v)
}

func (p *probe) findKeyInt(v int64) int32 {
	h := match.HashInt(v)
	if !p.filter.Has(h) {
		return noKey
	}
	return number(p.keys.FindIntHash(h, v))
}

// findBytes returns the number of the key that equals physical bytes, or noKey.
func (p *probe) findBytes(v []byte) int32 {
	if p.decimalBytes {
		return p.findDecimal(v)
	}
	h := match.HashBytes(v)
	if !p.filter.Has(h) {
		return noKey
	}
	return number(p.keys.FindBytesHash(h, v))
}

func number(id int, ok bool) int32 {
	if !ok {
		return noKey
	}
	return int32(id) //nolint:gosec // a batch has fewer keys
}

// findDecimal looks up an unscaled decimal, big-endian two's complement of any
// width.
func (p *probe) findDecimal(v []byte) int32 {
	if len(v) == 0 {
		return noKey
	}
	var sign byte
	if v[0]&0x80 != 0 {
		sign = 0xFF
	}
	for len(v) > 16 { // longer than 128 bits only by sign
		if v[0] != sign {
			return noKey
		}
		v = v[1:]
	}
	if v[0]&0x80 != sign&0x80 {
		return noKey
	}
	var w [16]byte
	n := copy(w[16-len(v):], v)
	for i := range 16 - n {
		w[i] = sign
	}
	if p.keys.Type.Kind() == match.KindInt {
		high, low := int64(binary.BigEndian.Uint64(w[:])), int64(binary.BigEndian.Uint64(w[8:])) //nolint:gosec // bits as they are
		if high != low>>63 {
			return noKey
		}
		if low, ok := scaleUp(low, p.scale); ok {
			return p.findKeyInt(low)
		}
		return noKey
	}
	if p.scale > 0 && !scaleWide(&w, p.scale) {
		return noKey
	}
	h := match.HashBytes(w[:])
	if !p.filter.Has(h) {
		return noKey
	}
	return number(p.keys.FindBytesHash(h, w[:]))
}

// scaleUp returns v times 10^scale if it fits.
func scaleUp(v int64, scale int) (int64, bool) {
	for range scale {
		if v > math.MaxInt64/10 || v < math.MinInt64/10 {
			return 0, false
		}
		v *= 10
	}
	return v, true
}

// scaleWide multiplies w by 10^scale if the result has at most 38 digits.
func scaleWide(w *[16]byte, scale int) bool {
	n := new(big.Int).SetBytes(w[:])
	if w[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil))
	if n.BitLen() > 127 {
		return false
	}
	if n.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	n.FillBytes(w[:])
	return true
}

// newProbe decides how the values of leaf are read as the type of keys.
func (f *File) newProbe(leaf Leaf, keys *match.ColumnKeys) (*probe, error) {
	p := &probe{keys: keys, filter: keys.Filter()}
	physical, logical := leaf.column.PhysicalType(), leaf.column.LogicalType()
	ok := false
	switch keys.Type.Base {
	case match.Byte, match.Short, match.Integer, match.Long:
		ok = isInt(physical) && isSignedInt(logical)
	case match.Boolean:
		ok = physical == parquet.Types.Boolean
	case match.Date:
		ok = physical == parquet.Types.Int32 && (isDate(logical) || isPlain(logical))
	case match.Timestamp, match.TimestampNTZ:
		p.convert, ok = timestampConversion(physical, logical)
		if keys.Type.Base == match.Timestamp && isDate(logical) {
			ok = false // a date has no zone
		}
	case match.Decimal:
		ok = p.decimal(physical, logical)
	case match.String, match.Binary:
		ok = isBytes(physical) && !isDecimal(logical)
	}
	if !ok {
		return nil, f.refuse("file_type_mismatch", "column %q is stored as %s %s, which cannot be read as %s",
			strings.Join(leaf.Path(), "."), physical, logical, keys.Type)
	}
	if err := f.checkCalendar(leaf, keys); err != nil {
		return nil, err
	}
	return p, nil
}

// decimal decides how a decimal column is read.
func (p *probe) decimal(physical parquet.Type, logical schema.LogicalType) bool {
	scale := 0
	if d, ok := logical.(schema.DecimalLogicalType); ok {
		scale = int(d.Scale())
	} else if !isInt(physical) || !isSignedInt(logical) {
		return false
	}
	p.scale = p.keys.Type.Scale - scale
	if p.scale < 0 {
		return false
	}
	switch {
	case isBytes(physical):
		p.decimalBytes = true
	case !isInt(physical):
		return false
	case p.keys.Type.Kind() == match.KindWide:
		p.wideInts = true
	case p.scale > 0:
		p.convert = func(v int64) (int64, bool) { return scaleUp(v, p.scale) }
	}
	return true
}

func timestampConversion(physical parquet.Type, logical schema.LogicalType) (func(int64) (int64, bool), bool) {
	if physical == parquet.Types.Int96 {
		return nil, true // comes as microseconds
	}
	if physical == parquet.Types.Int32 && isDate(logical) {
		return func(v int64) (int64, bool) { return v * 86400_000_000, true }, true
	}
	t, ok := logical.(schema.TimestampLogicalType)
	if !ok || physical != parquet.Types.Int64 {
		return nil, false
	}
	switch t.TimeUnit() {
	case schema.TimeUnitMicros:
		return nil, true
	case schema.TimeUnitMillis:
		return func(v int64) (int64, bool) {
			hi, _ := bits.Mul64(uint64(max(v, -v)), 1000) //nolint:gosec // not negative
			return v * 1000, hi == 0 && v != math.MinInt64 && (v*1000 < 0) == (v < 0)
		}, true
	case schema.TimeUnitNanos:
		return func(v int64) (int64, bool) { return floorDiv(v, 1000), true }, true
	default:
		return nil, false
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func isInt(t parquet.Type) bool { return t == parquet.Types.Int32 || t == parquet.Types.Int64 }

func isBytes(t parquet.Type) bool {
	return t == parquet.Types.ByteArray || t == parquet.Types.FixedLenByteArray
}

func isPlain(l schema.LogicalType) bool { return l == nil || !l.IsValid() || l.IsNone() }

func isDate(l schema.LogicalType) bool { _, ok := l.(schema.DateLogicalType); return ok }

func isDecimal(l schema.LogicalType) bool { _, ok := l.(schema.DecimalLogicalType); return ok }

func isSignedInt(l schema.LogicalType) bool {
	if i, ok := l.(schema.IntLogicalType); ok {
		return i.IsSigned()
	}
	return isPlain(l)
}

// checkCalendar refuses keys that Spark's legacy calendars may have stored as
// another day or instant.
func (f *File) checkCalendar(leaf Leaf, keys *match.ColumnKeys) error {
	const days1900, micros1900 = -25567, -25567 * 86400_000_000
	var before int64
	switch keys.Type.Base {
	case match.Date:
		before = days1900
	case match.Timestamp, match.TimestampNTZ:
		before = micros1900
	default:
		return nil
	}
	kv := f.meta.KeyValueMetadata()
	legacy := kv.FindValue("org.apache.spark.legacyDateTime") != nil ||
		(leaf.column.PhysicalType() == parquet.Types.Int96 && kv.FindValue("org.apache.spark.legacyINT96") != nil)
	if legacy && keys.OverlapsInts(math.MinInt64, before-1) {
		return f.refuse("legacy_calendar", "column %q: the file is in the legacy calendar of Spark and a key lies before 1900",
			strings.Join(leaf.Path(), "."))
	}
	return nil
}
