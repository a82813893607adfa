package deletion

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"delenda/storage"

	"github.com/RoaringBitmap/roaring/v2"
)

// Payload of a Delta deletion vector ("Deletion Vector Format"):
//
//	0   i32 LE  magic 1681511377
//	4   i64 LE  number of buckets
//	12  per bucket, ascending: i32 LE key (high 32 bits of the rows, not
//	    negative), then a portable 32-bit Roaring bitmap (low 32 bits)
const (
	magicPortable = 1681511377
	magicNative   = 1681511376

	payloadHeader = 12
	// minBucket is the smallest bucket: key, cookie and container count.
	minBucket = 12
)

// EncodeDelta returns the payload of s. Ranges of rows become run containers,
// so it depends on the rows alone, not on how the set came to hold them.
func EncodeDelta(s *Set) []byte { return encodeDelta(s, true) }

func encodeDelta(s *Set, optimize bool) []byte {
	buckets := make([]bucket, 0, 1)
	if s != nil {
		if low := s.low(); !low.IsEmpty() {
			buckets = append(buckets, bucket{0, low})
		}
		buckets = append(buckets, s.high...)
	}
	var b bytes.Buffer
	b.Write(binary.LittleEndian.AppendUint32(nil, magicPortable))
	b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(buckets))))
	for _, bk := range buckets {
		rows := bk.rows
		if optimize {
			rows = rows.Clone()
			rows.RunOptimize()
		}
		b.Write(binary.LittleEndian.AppendUint32(nil, bk.key))
		if _, err := rows.WriteTo(&b); err != nil { // bytes.Buffer does not fail
			panic("deletion: internal error: write bitmap: " + err.Error())
		}
	}
	return b.Bytes()
}

// DecodeDelta returns the rows of a payload. cardinality is the descriptor's;
// physicalRows is the number of rows in the data file, or -1 if it is unknown:
// every row must be below it. Any disagreement is a *storage.CorruptError.
func DecodeDelta(payload []byte, cardinality, physicalRows int64) (*Set, error) {
	s, f := decodeDelta(payload, cardinality, physicalRows)
	if f != nil {
		return nil, f.corrupt("", 0)
	}
	return s, nil
}

func decodeDelta(p []byte, cardinality, physicalRows int64) (*Set, *fault) {
	if len(p) < 4 {
		return nil, &fault{0, "magic", "truncated"}
	}
	switch binary.LittleEndian.Uint32(p) {
	case magicPortable:
	case magicNative:
		return nil, &fault{0, "magic", "1681511376 is the native layout, which the protocol does not define"}
	default:
		return nil, &fault{0, "magic", "is not 1681511377"}
	}
	if len(p) < payloadHeader {
		return nil, &fault{4, "bucket count", "truncated"}
	}
	count := binary.LittleEndian.Uint64(p[4:])
	if count > uint64(len(p)-payloadHeader)/minBucket { //nolint:gosec // a length is not negative
		return nil, &fault{4, "bucket count", "more than the payload can hold"}
	}
	s := &Set{}
	pos, previous, total := payloadHeader, int64(-1), int64(0)
	for range count {
		if len(p)-pos < 4 {
			return nil, &fault{int64(pos), "bucket key", "truncated"}
		}
		key := binary.LittleEndian.Uint32(p[pos:])
		if int64(key) <= previous || key > math.MaxInt32 {
			return nil, &fault{int64(pos), "bucket key", "not ascending or negative"}
		}
		previous = int64(key)
		pos += 4
		size, n, f := roaringSize(p[pos:])
		if f != nil {
			f.offset += int64(pos)
			return nil, f
		}
		rows := roaring.New()
		if _, err := rows.ReadFrom(bytes.NewReader(p[pos : pos+size])); err != nil {
			return nil, &fault{int64(pos), "bucket", "not a portable bitmap"}
		}
		pos += size
		total += n
		if key == 0 {
			s.bitmap = rows
		} else {
			s.high = append(s.high, bucket{key, rows})
		}
	}
	if pos != len(p) {
		return nil, &fault{int64(pos), "payload", "bytes after the last bucket"}
	}
	if total != cardinality {
		return nil, &fault{0, "cardinality", "differs from the descriptor"}
	}
	s.settle()
	if physicalRows >= 0 && s.Max() >= physicalRows {
		return nil, &fault{0, "row", "not below the number of rows in the data file"}
	}
	return s, nil
}

func (f *fault) corrupt(key string, base int64) error {
	return fmt.Errorf("decode deletion vector: %w",
		&storage.CorruptError{Key: key, Offset: base + f.offset, Field: f.field, Reason: f.reason})
}
