package deletion

import (
	"encoding/binary"
	"math/bits"
)

// 32-bit portable Roaring (Roaring format specification). All little-endian.
//
//	cookie       u32: 12346, then u32 container count
//	             or 12347 in the low 16 bits and count-1 in the high 16 bits,
//	             then ceil(count/8) bytes: bit i set = container i is runs
//	descriptors  per container: u16 key (ascending), u16 cardinality-1
//	offsets      per container: u32; always with 12346, with 12347 from 4
//	             containers on
//	containers   runs: u16 n, then n times (u16 start, u16 length-1)
//	             array (cardinality <= 4096): u16 values, ascending
//	             bitmap: 8192 bytes
const (
	cookieNoRuns      = 12346
	cookieRuns        = 12347
	noOffsetThreshold = 4
	arrayMaxSize      = 4096
	bitmapBytes       = 8192
)

// roaringSize walks the portable 32-bit bitmap at the start of p and returns
// its length in bytes and its cardinality. It checks everything that a reader
// may trust afterwards: counts, bounds, ascending keys, values and runs, and
// cardinalities. On failure it returns what is wrong and at which offset.
func roaringSize(p []byte) (size int, cardinality int64, failure *fault) {
	if len(p) < 4 {
		return 0, 0, &fault{0, "cookie", "truncated"}
	}
	var count int
	var runs []byte
	pos := 4
	cookie := binary.LittleEndian.Uint32(p)
	switch {
	case cookie == cookieNoRuns:
		if len(p) < 8 {
			return 0, 0, &fault{4, "container count", "truncated"}
		}
		n := binary.LittleEndian.Uint32(p[4:])
		if n > 1<<16 {
			return 0, 0, &fault{4, "container count", "more than 65536"}
		}
		count, pos = int(n), 8
	case cookie&0xFFFF == cookieRuns:
		count = int(cookie>>16) + 1
		n := (count + 7) / 8
		if len(p) < pos+n {
			return 0, 0, &fault{4, "run flags", "truncated"}
		}
		runs = p[pos : pos+n]
		pos += n
	default:
		return 0, 0, &fault{0, "cookie", "unknown"}
	}
	if len(p)-pos < 4*count {
		return 0, 0, &fault{int64(pos), "container descriptors", "truncated"}
	}
	descriptors := p[pos : pos+4*count]
	pos += 4 * count
	var offsets []byte
	if runs == nil || count >= noOffsetThreshold {
		if len(p)-pos < 4*count {
			return 0, 0, &fault{int64(pos), "container offsets", "truncated"}
		}
		offsets = p[pos : pos+4*count]
		pos += 4 * count
	}
	previous := -1
	for i := range count {
		key := int(binary.LittleEndian.Uint16(descriptors[4*i:]))
		if key <= previous {
			return 0, 0, &fault{int64(pos), "container key", "not ascending"}
		}
		previous = key
		if offsets != nil && int64(binary.LittleEndian.Uint32(offsets[4*i:])) != int64(pos) {
			return 0, 0, &fault{int64(pos), "container offset", "does not point at the container"}
		}
		want := int(binary.LittleEndian.Uint16(descriptors[4*i+2:])) + 1
		var n int
		var f *fault
		switch {
		case runs != nil && runs[i/8]>>(i%8)&1 == 1:
			n, f = checkRuns(p[pos:], want)
		case want <= arrayMaxSize:
			n, f = checkArray(p[pos:], want)
		default:
			n, f = checkBitmap(p[pos:], want)
		}
		if f != nil {
			f.offset += int64(pos)
			return 0, 0, f
		}
		pos += n
		cardinality += int64(want)
	}
	return pos, cardinality, nil
}

func checkRuns(p []byte, want int) (int, *fault) {
	if len(p) < 2 {
		return 0, &fault{0, "run count", "truncated"}
	}
	n := int(binary.LittleEndian.Uint16(p))
	if len(p)-2 < 4*n {
		return 0, &fault{2, "runs", "truncated"}
	}
	next, got := 0, 0
	for i := range n {
		start := int(binary.LittleEndian.Uint16(p[2+4*i:]))
		length := int(binary.LittleEndian.Uint16(p[4+4*i:])) + 1
		if start < next || start+length > 1<<16 {
			return 0, &fault{int64(2 + 4*i), "run", "out of order or past the container"}
		}
		next, got = start+length, got+length
	}
	if got != want {
		return 0, &fault{0, "container cardinality", "differs from the runs"}
	}
	return 2 + 4*n, nil
}

func checkArray(p []byte, want int) (int, *fault) {
	if len(p) < 2*want {
		return 0, &fault{0, "array", "truncated"}
	}
	previous := -1
	for i := range want {
		v := int(binary.LittleEndian.Uint16(p[2*i:]))
		if v <= previous {
			return 0, &fault{int64(2 * i), "array value", "not ascending"}
		}
		previous = v
	}
	return 2 * want, nil
}

func checkBitmap(p []byte, want int) (int, *fault) {
	if len(p) < bitmapBytes {
		return 0, &fault{0, "bitmap", "truncated"}
	}
	got := 0
	for i := 0; i < bitmapBytes; i += 8 {
		got += bits.OnesCount64(binary.LittleEndian.Uint64(p[i:]))
	}
	if got != want {
		return 0, &fault{0, "container cardinality", "differs from the bitmap"}
	}
	return bitmapBytes, nil
}

// fault is a CorruptError in the making: an offset into the bytes at hand.
type fault struct {
	offset int64
	field  string
	reason string
}
