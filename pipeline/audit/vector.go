package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"

	"delenda/storage"
)

const (
	vectorMagic = 1681511377
	maxVector   = 64 << 20
	z85         = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)

var errVector = errors.New("not a deletion vector")

// rows returns the row offsets that a deletion vector hides.
func (d *deletionVector) rows(ctx context.Context, b storage.Bucket) (map[int64]bool, error) {
	if d == nil {
		return nil, nil
	}
	payload, err := d.payload(ctx, b)
	if err != nil {
		return nil, err
	}
	rows, err := decodeVector(payload)
	if err != nil {
		return nil, err
	}
	if int64(len(rows)) != d.Cardinality {
		return nil, fmt.Errorf("%w: %d rows, %d announced", errVector, len(rows), d.Cardinality)
	}
	return rows, nil
}

// payload finds the bytes: inline as Z85, or in a file at offset as
//
//	4 bytes  size, big-endian
//	size     payload
//	4 bytes  CRC-32 of the payload, big-endian
func (d *deletionVector) payload(ctx context.Context, b storage.Bucket) ([]byte, error) {
	switch d.StorageType {
	case "i":
		p, err := decodeZ85(d.PathOrInlineDV)
		if err != nil || len(p) < int(d.SizeInBytes) {
			return nil, fmt.Errorf("%w: bad inline form", errVector)
		}
		return p[:d.SizeInBytes], nil
	case "u":
	default:
		return nil, fmt.Errorf("the auditor cannot read deletion vectors of storage type %q", d.StorageType)
	}
	n := len(d.PathOrInlineDV) - 20
	if n < 0 {
		return nil, fmt.Errorf("%w: bad path", errVector)
	}
	id, err := decodeZ85(d.PathOrInlineDV[n:])
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("deletion_vector_%x-%x-%x-%x-%x.bin", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	if n > 0 {
		key = d.PathOrInlineDV[:n] + "/" + key
	}
	p, err := storage.ReadObject(ctx, b, key, maxVector)
	if err != nil {
		return nil, err
	}
	if len(p) == 0 || p[0] != 1 {
		return nil, fmt.Errorf("%w: file version", errVector)
	}
	at := 1
	if d.Offset != nil {
		at = int(*d.Offset)
	}
	size := int(d.SizeInBytes)
	if at < 1 || size < 0 || at+4+size+4 > len(p) {
		return nil, fmt.Errorf("%w: beyond the file", errVector)
	}
	payload := p[at+4 : at+4+size]
	if int64(binary.BigEndian.Uint32(p[at:])) != int64(size) || binary.BigEndian.Uint32(p[at+4+size:]) != crc32.ChecksumIEEE(payload) {
		return nil, fmt.Errorf("%w: size or checksum", errVector)
	}
	return payload, nil
}

func decodeZ85(s string) ([]byte, error) {
	if len(s)%5 != 0 {
		return nil, fmt.Errorf("%w: Z85 length", errVector)
	}
	var out []byte
	for i := 0; i < len(s); i += 5 {
		var v uint64
		for _, c := range s[i : i+5] {
			d := strings.IndexRune(z85, c)
			if d < 0 {
				return nil, fmt.Errorf("%w: Z85 digit", errVector)
			}
			v = v*85 + uint64(d)
		}
		if v > 1<<32-1 {
			return nil, fmt.Errorf("%w: Z85 group", errVector)
		}
		out = binary.BigEndian.AppendUint32(out, uint32(v))
	}
	return out, nil
}

// decodeVector reads a 64-bit Roaring array, little-endian:
//
//	4 bytes  magic 1681511377
//	8 bytes  number of bitmaps
//	each     4 bytes key, the rows' upper 32 bits; then a 32-bit Roaring bitmap
func decodeVector(p []byte) (map[int64]bool, error) {
	r := &reader{p: p}
	if r.u32() != vectorMagic {
		return nil, fmt.Errorf("%w: magic", errVector)
	}
	rows := map[int64]bool{}
	n := r.u64()
	for i := uint64(0); i < n && !r.bad; i++ {
		key := r.u32()
		if key > math.MaxInt32 {
			r.bad = true
		}
		high := int64(key) << 32
		r.bitmap(func(low uint32) { rows[high|int64(low)] = true })
	}
	if r.bad || len(r.p) != 0 {
		return nil, fmt.Errorf("%w: length", errVector)
	}
	return rows, nil
}

type reader struct {
	p   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.p) {
		r.bad = true
		return make([]byte, min(n, 8192))
	}
	out := r.p[:n]
	r.p = r.p[n:]
	return out
}

func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

const (
	cookieRuns   = 12347
	cookieNoRuns = 12346
	noOffsets    = 4 // with runs, fewer containers than this have no offsets
)

// bitmap reads a 32-bit Roaring bitmap in the portable form.
func (r *reader) bitmap(emit func(uint32)) {
	cookie := r.u32()
	var n int
	var runs []byte
	switch {
	case cookie&0xffff == cookieRuns:
		n = int(cookie>>16) + 1
		runs = r.take((n + 7) / 8)
	case cookie == cookieNoRuns:
		n = int(r.u32())
	default:
		r.bad = true
	}
	if n > 1<<16 {
		r.bad = true
	}
	if r.bad {
		return
	}
	keys, cards := make([]uint32, n), make([]int, n)
	for i := range n {
		keys[i], cards[i] = uint32(r.u16()), int(r.u16())+1
	}
	if runs == nil || n >= noOffsets {
		r.take(4 * n) // the containers follow one another
	}
	for i := range n {
		if r.bad {
			return
		}
		high := keys[i] << 16
		switch {
		case runs != nil && runs[i/8]&(1<<(i%8)) != 0:
			next := uint32(0)
			for range int(r.u16()) {
				start, more := uint32(r.u16()), uint32(r.u16())
				if r.bad || start < next || start+more >= 1<<16 {
					r.bad = true
					return
				}
				for v := start; v <= start+more; v++ {
					emit(high | v)
				}
				next = start + more + 1
			}
		case cards[i] <= 4096:
			for range cards[i] {
				emit(high | uint32(r.u16()))
			}
		default:
			for at, word := range r.take(8192) {
				for bit := range 8 {
					if word&(1<<bit) != 0 {
						emit(high | uint32(at*8+bit))
					}
				}
			}
		}
	}
}
