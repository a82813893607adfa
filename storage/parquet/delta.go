package parquet

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/apache/arrow-go/v18/parquet"
)

// DELTA_BINARY_PACKED (format document "Encodings"):
//
//	header      varint block size, varint miniblocks per block, varint count,
//	            zigzag varint first value
//	block       zigzag varint minimum delta, u8 bit width per miniblock, then
//	            the miniblocks: (block size / miniblocks) deltas less the
//	            minimum, bit-packed; those behind the last value are not stored
//
// DELTA_LENGTH_BYTE_ARRAY: lengths as above, then the bytes of all values.
// DELTA_BYTE_ARRAY: lengths of the prefix shared with the value before as
// above, then the suffixes as DELTA_LENGTH_BYTE_ARRAY.
// BYTE_STREAM_SPLIT: byte 0 of every value, then byte 1 of every value, ...
const (
	encodingDeltaBinaryPacked = 5
	encodingDeltaLength       = 6
	encodingDeltaByteArray    = 7
	encodingByteStreamSplit   = 9
)

var errDelta = errors.New("not delta encoded")

// deltaReader yields the values of a DELTA_BINARY_PACKED stream.
type deltaReader struct {
	p     []byte // from the current block or miniblock on; slack behind it
	left  int    // values not yet yielded
	first bool   // the next value is the one of the header
	last  int64

	perMini  int // values of a miniblock
	minis    int // miniblocks of a block
	widths   []byte
	minDelta int64

	mini  []byte // the current miniblock
	width int
	index int // of the next value in mini
	count int // values in mini
}

// newDeltaReader starts reading at the front of p.
func newDeltaReader(p []byte) (deltaReader, error) {
	var header [4]uint64
	for i := range header {
		v, n := binary.Uvarint(p)
		if n <= 0 {
			return deltaReader{}, errDelta
		}
		header[i], p = v, p[n:]
	}
	size, minis, count := header[0], header[1], header[2]
	r := deltaReader{p: p, left: int(min(count, math.MaxInt32)), first: true, last: zigzag(header[3])}
	if count > math.MaxInt32 {
		return deltaReader{}, errDelta
	}
	if count <= 1 && size == 0 {
		return r, nil // no block follows, and some writers leave its size out
	}
	if minis == 0 || minis > 1<<16 || size > 1<<24 || size == 0 || size%minis != 0 {
		return deltaReader{}, errDelta
	}
	r.perMini, r.minis = int(size/minis), int(minis) //nolint:gosec // bounded above
	return r, nil
}

func zigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// next returns the next value. The caller asks for no more than left.
func (r *deltaReader) next() (int64, error) {
	if r.left <= 0 {
		return 0, errDelta
	}
	r.left--
	if r.first {
		r.first = false
		return r.last, nil
	}
	if r.index == r.count {
		if err := r.miniblock(r.left + 1); err != nil {
			return 0, err
		}
	}
	r.last += r.minDelta + int64(unpack64(r.mini, r.index, r.width)) //nolint:gosec // deltas wrap around
	r.index++
	return r.last, nil
}

// miniblock goes to the next miniblock, of which `left` values matter.
func (r *deltaReader) miniblock(left int) error {
	if r.perMini == 0 {
		return errDelta
	}
	if len(r.widths) == 0 {
		v, n := binary.Uvarint(r.p)
		if n <= 0 || len(r.p)-n < r.minis {
			return errDelta
		}
		r.minDelta = zigzag(v)
		r.widths = r.p[n : n+r.minis]
		r.p = r.p[n+r.minis:]
	}
	r.width = int(r.widths[0])
	r.widths = r.widths[1:]
	// The last miniblock is padded in full, but not every writer does so.
	size := min((r.perMini*r.width+7)/8, len(r.p))
	r.count, r.index = min(r.perMini, left), 0
	if r.width > 64 || (r.count*r.width+7)/8 > size {
		return errDelta
	}
	r.mini, r.p = r.p[:size], r.p[size:]
	return nil
}

// rest passes over the remaining values and returns what lies behind them.
func (r *deltaReader) rest() ([]byte, error) {
	if r.first && r.left > 0 {
		r.first = false
		r.left--
	}
	r.left -= r.count - r.index
	for r.left > 0 {
		if err := r.miniblock(r.left); err != nil {
			return nil, err
		}
		r.left -= r.count
	}
	return r.p, nil
}

// unpack64 returns value i of bit-packed values of at most 64 bits. Nine bytes
// from the one it starts in may be read, as far as cap(p) goes.
func unpack64(p []byte, i, width int) uint64 {
	if width == 0 {
		return 0
	}
	bit := i * width
	at, shift := bit>>3, bit&7
	v := leUint64(p[at:][:8:8]) >> shift
	if shift+width > 64 {
		v |= uint64(p[at+8]) << (64 - shift)
	}
	return v & (math.MaxUint64 >> (64 - width))
}

// deltaInts finds hits among n DELTA_BINARY_PACKED integers.
func (w *walker) deltaInts(p []byte, n int) error {
	r, err := newDeltaReader(p)
	if err != nil {
		return err
	}
	narrow := w.leaf.column.PhysicalType() == parquet.Types.Int32
	for i := range n {
		v, err := r.next()
		if err != nil {
			return err
		}
		if narrow {
			v = int64(int32(v)) //nolint:gosec // deltas wrap around in the physical type
		}
		w.hit(i, w.probe.findInt(v))
	}
	return nil
}

// deltaLength finds hits among n DELTA_LENGTH_BYTE_ARRAY values.
func (w *walker) deltaLength(p []byte, n int) error {
	lengths, data, err := splitLengths(p)
	if err != nil {
		return err
	}
	for i := range n {
		var v []byte
		if v, data, err = takeLength(&lengths, data); err != nil {
			return err
		}
		w.hit(i, w.probe.findBytes(v))
	}
	return nil
}

// deltaBytes finds hits among n DELTA_BYTE_ARRAY values.
func (w *walker) deltaBytes(p []byte, n int) error {
	prefixes, p, err := splitLengths(p)
	if err != nil {
		return err
	}
	lengths, data, err := splitLengths(p)
	if err != nil {
		return err
	}
	value := w.value[:0]
	for i := range n {
		prefix, err := prefixes.next()
		if err != nil || prefix < 0 || prefix > int64(len(value)) {
			return errDelta
		}
		var suffix []byte
		if suffix, data, err = takeLength(&lengths, data); err != nil {
			return err
		}
		if value = append(value[:prefix], suffix...); len(value) > maxPage {
			return errDelta
		}
		w.hit(i, w.probe.findBytes(value))
	}
	w.value = value
	return nil
}

// splitLengths returns a reader of the delta stream at the front of p and what
// lies behind it.
func splitLengths(p []byte) (deltaReader, []byte, error) {
	r, err := newDeltaReader(p)
	if err != nil {
		return deltaReader{}, nil, err
	}
	end := r
	data, err := end.rest()
	return r, data, err
}

func takeLength(lengths *deltaReader, data []byte) (value, rest []byte, err error) {
	n, err := lengths.next()
	if err != nil || n < 0 || n > int64(len(data)) {
		return nil, nil, errDelta
	}
	return data[:n], data[n:], nil
}

// streamSplit finds hits among n BYTE_STREAM_SPLIT values.
func (w *walker) streamSplit(p []byte, n int) error {
	var width int
	switch w.leaf.column.PhysicalType() {
	case parquet.Types.Int32:
		width = 4
	case parquet.Types.Int64:
		width = 8
	case parquet.Types.FixedLenByteArray:
		width = w.leaf.column.TypeLength()
	default:
		return errUnsupported
	}
	if width <= 0 || len(p)/width < n {
		return errValues
	}
	stride := len(p) / width
	value := append(w.value[:0], make([]byte, width)...)
	w.value = value
	for i := range n {
		for j := range value {
			value[j] = p[j*stride+i]
		}
		switch w.leaf.column.PhysicalType() {
		case parquet.Types.Int32:
			w.hit(i, w.probe.findInt(int64(leInt32(value))))
		case parquet.Types.Int64:
			w.hit(i, w.probe.findInt(leInt64(value)))
		default:
			w.hit(i, w.probe.findBytes(value))
		}
	}
	return nil
}
