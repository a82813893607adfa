package parquet

import (
	"encoding/binary"
	"errors"
)

// Thrift compact protocol, as much of it as page headers, page indexes and
// Bloom filter headers need:
//
//	struct  fields until a zero byte
//	field   u8: id delta in the high 4 bits, type in the low 4; a delta of zero
//	        is followed by the id as zigzag varint
//	list    u8: size in the high 4 bits (15: a varint follows), element type in
//	        the low 4
//	i16/i32/i64  zigzag varint;  binary: varint length, bytes;  bool: in the
//	        type of the field (1 true, 2 false), one byte in lists
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13

	// maxThriftDepth bounds how deep unknown fields may nest.
	maxThriftDepth = 16
)

var (
	errThriftShort = errors.New("thrift: more bytes are needed")
	errThriftBad   = errors.New("thrift: not a value of the compact protocol")
)

// thriftReader reads values from the front of p. Its first error stays, and
// every read after it returns zero values.
type thriftReader struct {
	p   []byte
	pos int
	err error
}

func (r *thriftReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *thriftReader) byte() byte {
	if r.err != nil {
		return 0
	}
	if r.pos >= len(r.p) {
		r.fail(errThriftShort)
		return 0
	}
	r.pos++
	return r.p[r.pos-1]
}

func (r *thriftReader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.p[r.pos:])
	switch {
	case n == 0:
		r.fail(errThriftShort)
	case n < 0:
		r.fail(errThriftBad)
	default:
		r.pos += n
	}
	return v
}

func (r *thriftReader) int(bits int) int64 {
	u := r.uvarint()
	v := int64(u>>1) ^ -int64(u&1)
	if limit := int64(1) << (bits - 1); bits < 64 && (v < -limit || v >= limit) {
		r.fail(errThriftBad)
		return 0
	}
	return v
}

func (r *thriftReader) binary() []byte {
	n := r.uvarint()
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.p)-r.pos) { //nolint:gosec // a length is not negative
		r.fail(errThriftShort)
		return nil
	}
	r.pos += int(n)                  //nolint:gosec // bounded by a length
	return r.p[r.pos-int(n) : r.pos] //nolint:gosec // bounded by a length
}

// list returns the element type and count of a list. Every element takes at
// least a byte, so the count never exceeds what is left.
func (r *thriftReader) list() (elem byte, n int) {
	h := r.byte()
	size := uint64(h >> 4)
	if size == 15 {
		size = r.uvarint()
	}
	if r.err == nil && size > uint64(len(r.p)-r.pos) { //nolint:gosec // a length is not negative
		r.fail(errThriftShort)
	}
	if r.err != nil {
		return 0, 0
	}
	return h & 15, int(size)
}

// fields calls field for each field of a struct, which must consume the value.
func (r *thriftReader) fields(field func(id int16, typ byte)) {
	id := int16(0)
	for r.err == nil {
		h := r.byte()
		if h == 0 || r.err != nil {
			return
		}
		if delta := int16(h >> 4); delta != 0 {
			id += delta
		} else {
			id = int16(r.int(16)) //nolint:gosec // int checks the width
		}
		field(id, h&15)
	}
}

// skip passes over a value of a field.
func (r *thriftReader) skip(typ byte, depth int) {
	if depth > maxThriftDepth {
		r.fail(errThriftBad)
		return
	}
	switch typ {
	case thriftTrue, thriftFalse:
	case thriftByte:
		r.byte()
	case thriftI16, thriftI32, thriftI64:
		r.uvarint()
	case thriftDouble:
		r.advance(8)
	case thriftUUID:
		r.advance(16)
	case thriftBinary:
		r.binary()
	case thriftList, thriftSet:
		elem, n := r.list()
		for range n {
			r.skipElement(elem, depth+1)
		}
	case thriftMap:
		r.skipMap(depth)
	case thriftStruct:
		r.fields(func(_ int16, typ byte) { r.skip(typ, depth+1) })
	default:
		r.fail(errThriftBad)
	}
}

func (r *thriftReader) skipMap(depth int) {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return
	}
	if n > uint64(len(r.p)-r.pos) { //nolint:gosec // a length is not negative
		r.fail(errThriftShort)
		return
	}
	types := r.byte()
	for range n {
		r.skipElement(types>>4, depth+1)
		r.skipElement(types&15, depth+1)
		if r.err != nil {
			return
		}
	}
}

// skipElement passes over an element of a container, where a bool is a byte.
func (r *thriftReader) skipElement(typ byte, depth int) {
	if r.err != nil {
		return
	}
	if typ == thriftTrue || typ == thriftFalse {
		r.byte()
		return
	}
	r.skip(typ, depth)
}

func (r *thriftReader) advance(n int) {
	if r.err == nil && n > len(r.p)-r.pos {
		r.fail(errThriftShort)
	}
	if r.err == nil {
		r.pos += n
	}
}

// i32 reads a field that must be an i32, and i64 one that must be an i64.
func (r *thriftReader) i32(typ byte) int32 { return int32(r.typed(typ, thriftI32, 32)) } //nolint:gosec // typed checks the width

func (r *thriftReader) i64(typ byte) int64 { return r.typed(typ, thriftI64, 64) }

func (r *thriftReader) typed(typ, want byte, bits int) int64 {
	if typ != want {
		r.fail(errThriftBad)
		return 0
	}
	return r.int(bits)
}

func (r *thriftReader) want(typ, want byte) bool {
	if typ != want {
		r.fail(errThriftBad)
	}
	return r.err == nil
}

func leUint32(p []byte) uint32 { return binary.LittleEndian.Uint32(p) }

func leUint64(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }

func leInt32(p []byte) int32 { return int32(leUint32(p)) } //nolint:gosec // the sign is in the bits

func leInt64(p []byte) int64 { return int64(leUint64(p)) } //nolint:gosec // the sign is in the bits
