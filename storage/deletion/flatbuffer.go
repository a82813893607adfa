package deletion

import "encoding/binary"

// FlatBuffers, as much of it as Arrow's file metadata needs. All little-endian:
//
//	table   i32: distance back to its vtable; fields inline
//	vtable  u16 its size, u16 table size, then per field u16: offset of the
//	        field in the table, 0 if absent
//	offsets u32, forwards from where they stand; to tables, vectors, strings
//	vector  u32 count, elements;  string: vector of bytes
//
// table is a table at pos of buf. Reads outside of buf, and of the nil table,
// yield absence.
type table struct {
	buf []byte
	pos int
}

// rootTable returns the table that the offset at the front of buf points at.
func rootTable(buf []byte) table { return table{buf, 0}.at(0) }

func (t table) u32(pos int) (int, bool) {
	if pos < 0 || pos > len(t.buf)-4 {
		return 0, false
	}
	return int(binary.LittleEndian.Uint32(t.buf[pos:])), true
}

// at follows the offset at pos to a table.
func (t table) at(pos int) table {
	d, ok := t.u32(pos)
	if !ok || d > len(t.buf)-pos-4 {
		return table{}
	}
	return table{t.buf, pos + d}
}

// field returns where field i stands, and whether there is one of that size.
func (t table) field(i, size int) (int, bool) {
	if t.pos > len(t.buf)-4 {
		return 0, false
	}
	vtable := t.pos - int(leInt32(t.buf[t.pos:]))
	if vtable < 0 || vtable > len(t.buf)-4 {
		return 0, false
	}
	length := int(binary.LittleEndian.Uint16(t.buf[vtable:]))
	entry := 4 + 2*i
	if entry+2 > length || vtable+entry+2 > len(t.buf) {
		return 0, false
	}
	offset := int(binary.LittleEndian.Uint16(t.buf[vtable+entry:]))
	if offset == 0 || t.pos+offset > len(t.buf)-size {
		return 0, false
	}
	return t.pos + offset, true
}

// u8 returns a one-byte field, 0 if absent.
func (t table) u8(i int) byte {
	pos, ok := t.field(i, 1)
	if !ok {
		return 0
	}
	return t.buf[pos]
}

// i32 and i64 return integer fields, 0 if absent.
func (t table) i32(i int) int32 {
	pos, ok := t.field(i, 4)
	if !ok {
		return 0
	}
	return leInt32(t.buf[pos:])
}

func (t table) i64(i int) int64 {
	pos, ok := t.field(i, 8)
	if !ok {
		return 0
	}
	return leInt64(t.buf[pos:])
}

// child returns the table that field i points at, nil if absent.
func (t table) child(i int) table {
	pos, ok := t.field(i, 4)
	if !ok {
		return table{}
	}
	return t.at(pos)
}

func (t table) absent() bool { return t.buf == nil }

// vector returns the elements of the vector that field i points at, of the
// given size each, and their count.
func (t table) vector(i, size int) (elements []byte, n int) {
	v := t.child(i)
	count, ok := v.u32(v.pos)
	if !ok || count > (len(v.buf)-v.pos-4)/size {
		return nil, 0
	}
	return v.buf[v.pos+4:][:count*size], count
}

// element returns table n of the vector that field i points at.
func (t table) element(i, n int) table {
	v := t.child(i)
	count, ok := v.u32(v.pos)
	if !ok || n >= count {
		return table{}
	}
	return v.at(v.pos + 4 + 4*n)
}

func leInt32(p []byte) int32 { return int32(binary.LittleEndian.Uint32(p)) } //nolint:gosec // the sign is in the bits

func leInt64(p []byte) int64 { return int64(binary.LittleEndian.Uint64(p)) } //nolint:gosec // the sign is in the bits
