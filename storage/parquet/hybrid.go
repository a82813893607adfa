package parquet

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// RLE / bit-packed hybrid (format document "Encodings"):
//
//	run         varint: lowest bit 0: count<<1, then one value in ceil(width/8)
//	            bytes, little-endian; lowest bit 1: groups<<1|1, then groups*8
//	            values of width bits, least significant bit first
var errHybrid = errors.New("not a run of the RLE/bit-packed hybrid")

// run is one run of the hybrid, cut to the values that are wanted.
type run struct {
	count  int    // values
	value  uint32 // of a repeated run
	packed []byte // not nil for a bit-packed run; slack is readable behind it
}

// nextRun takes a run of at most limit values of the given bit width off p. A
// run may be empty; it shortens p all the same.
func nextRun(p []byte, width, limit int) (run, []byte, error) {
	header, n := binary.Uvarint(p)
	if n <= 0 || header > 1<<32 {
		return run{}, nil, errHybrid
	}
	p = p[n:]
	length := int(header >> 1)
	if header&1 == 1 {
		count := min(length*8, limit)
		size := min(length*width, len(p)) // a last run may be cut behind the values that exist
		if (count*width+7)/8 > size {
			return run{}, nil, errHybrid
		}
		return run{count: count, packed: p[:size]}, p[size:], nil
	}
	size := (width + 7) / 8
	if len(p) < size {
		return run{}, nil, errHybrid
	}
	var value uint32
	for i := range size {
		value |= uint32(p[i]) << (8 * i)
	}
	return run{count: min(length, limit), value: value}, p[size:], nil
}

// levels are the definition levels of a page, reduced to whether the row has a
// value.
type levels struct {
	bits    []byte // bit per row; unused when all is set
	rows    int
	present int
	all     bool // every row has a value
}

// decode reads n definition levels of which maxDef means a value. p has
// slack behind it.
func (l *levels) decode(p []byte, n, maxDef int) error {
	l.setAll(n)
	width := bits.Len(uint(maxDef))
	for done := 0; done < n; {
		r, rest, err := nextRun(p, width, n-done)
		if err != nil {
			return err
		}
		p = rest
		if l.all && r.packed == nil && r.value == uint32(maxDef) { //nolint:gosec // a level is not negative
			done += r.count
			continue
		}
		if l.all {
			l.start(done)
		}
		if err := l.append(r, done, width, uint32(maxDef)); err != nil { //nolint:gosec // a level is not negative
			return err
		}
		done += r.count
	}
	if !l.all {
		l.present = 0
		for _, b := range l.bits {
			l.present += bits.OnesCount8(b)
		}
	}
	return nil
}

// setAll says that every one of n rows has a value.
func (l *levels) setAll(n int) { l.rows, l.present, l.all = n, n, true }

// start turns from "all set" to a bitmap whose first done bits are set.
func (l *levels) start(done int) {
	l.all = false
	size := (l.rows + 7) / 8
	if cap(l.bits) < size {
		l.bits = make([]byte, size)
	}
	l.bits = l.bits[:size]
	clear(l.bits)
	setBits(l.bits, 0, done)
}

func (l *levels) append(r run, at, width int, maxDef uint32) error {
	if r.packed == nil {
		if r.value > maxDef {
			return errHybrid
		}
		if r.value == maxDef {
			setBits(l.bits, at, r.count)
		}
		return nil
	}
	if width == 1 {
		orBits(l.bits, at, r.packed, r.count)
		return nil
	}
	for i := range r.count {
		v := unpack(r.packed, i, width)
		if v > maxDef {
			return errHybrid
		}
		if v == maxDef {
			l.bits[(at+i)>>3] |= 1 << ((at + i) & 7)
		}
	}
	return nil
}

// row returns the row of the value number rank, given that value number
// fromRank lies at fromRow or behind it.
func (l *levels) row(rank, fromRank, fromRow int) int {
	if l.all {
		return rank
	}
	todo := rank - fromRank
	for i := fromRow; ; {
		if i&7 == 0 {
			if n := bits.OnesCount8(l.bits[i>>3]); n <= todo {
				todo -= n
				i += 8
				continue
			}
		}
		if l.bits[i>>3]>>(i&7)&1 == 1 {
			if todo == 0 {
				return i
			}
			todo--
		}
		i++
	}
}

// unpack returns value i of bit-packed values of at most 32 bits. Eight bytes
// from the one it starts in must be readable within cap(p).
func unpack(p []byte, i, width int) uint32 {
	bit := i * width
	word := leUint64(p[bit>>3:][:8:8])
	return uint32(word >> (bit & 7) & (1<<width - 1)) //nolint:gosec // masked to the width
}

// setBits sets n bits from bit at.
func setBits(p []byte, at, n int) {
	for ; n > 0 && at&7 != 0; at, n = at+1, n-1 {
		p[at>>3] |= 1 << (at & 7)
	}
	for ; n >= 8; at, n = at+8, n-8 {
		p[at>>3] = 0xFF
	}
	for ; n > 0; at, n = at+1, n-1 {
		p[at>>3] |= 1 << (at & 7)
	}
}

// orBits copies n bits of src to dst from bit at.
func orBits(dst []byte, at int, src []byte, n int) {
	shift := at & 7
	for i := 0; n > 0; i, n = i+1, n-8 {
		b := src[i]
		if n < 8 {
			b &= 1<<n - 1
		}
		dst[at>>3+i] |= b << shift
		if shift > 0 && b>>(8-shift) != 0 {
			dst[at>>3+i+1] |= b >> (8 - shift)
		}
	}
}
