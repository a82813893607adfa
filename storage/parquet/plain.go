package parquet

import (
	"errors"

	"delenda/storage/match"

	"github.com/apache/arrow-go/v18/parquet"
)

var errValues = errors.New("fewer values than the page says")

// plain finds hits among n PLAIN values:
//
//	BOOLEAN     a bit each, least significant first
//	INT32/INT64 4 or 8 bytes LE
//	INT96       u64 LE nanoseconds of the day, u32 LE Julian day
//	FIXED_LEN_BYTE_ARRAY  the bytes
//	BYTE_ARRAY  u32 LE length, the bytes
func (w *walker) plain(p []byte, n int) error {
	var ok bool
	switch w.leaf.column.PhysicalType() {
	case parquet.Types.Boolean:
		if ok = len(p) >= (n+7)/8; ok {
			w.booleans(p, n)
		}
	case parquet.Types.Int32:
		if ok = len(p)/4 >= n; ok {
			w.plainInt32(p, n)
		}
	case parquet.Types.Int64:
		if ok = len(p)/8 >= n; ok {
			w.plainInt64(p, n)
		}
	case parquet.Types.Int96:
		if ok = len(p)/12 >= n; ok {
			for i := range n {
				w.hit(i, w.probe.findInt(int96Micros(p[12*i:])))
			}
		}
	case parquet.Types.FixedLenByteArray:
		width := w.leaf.column.TypeLength()
		if ok = width > 0 && len(p)/width >= n; ok {
			w.plainFixed(p, n, width)
		}
	case parquet.Types.ByteArray:
		ok = w.plainBytes(p, n)
	default:
		return errUnsupported
	}
	if !ok {
		return errValues
	}
	return nil
}

func (w *walker) plainInt64(p []byte, n int) {
	if !w.probe.direct() {
		for i := range n {
			w.hit(i, w.probe.findInt(leInt64(p[8*i:])))
		}
		return
	}
	filter := w.probe.filter
	for i := range n {
		v := leInt64(p[8*i:])
		if h := match.HashInt(v); filter.Has(h) {
			w.hit(i, number(w.probe.keys.FindIntHash(h, v)))
		}
	}
}

func (w *walker) plainInt32(p []byte, n int) {
	if !w.probe.direct() {
		for i := range n {
			w.hit(i, w.probe.findInt(int64(leInt32(p[4*i:]))))
		}
		return
	}
	filter := w.probe.filter
	for i := range n {
		v := int64(leInt32(p[4*i:]))
		if h := match.HashInt(v); filter.Has(h) {
			w.hit(i, number(w.probe.keys.FindIntHash(h, v)))
		}
	}
}

func (w *walker) plainFixed(p []byte, n, width int) {
	if w.probe.decimalBytes && width <= 8 && w.probe.scale == 0 && w.probe.keys.Type.Kind() == match.KindInt {
		w.plainFixedDecimal(p, n, width)
		return
	}
	if !w.probe.decimalBytes && w.probe.keys.Lengths()>>(width&63)&1 == 0 {
		return
	}
	for i := range n {
		w.hit(i, w.probe.findBytes(p[i*width:(i+1)*width]))
	}
}

// plainFixedDecimal is plainFixed for decimals of at most 8 bytes.
func (w *walker) plainFixedDecimal(p []byte, n, width int) {
	filter, shift := w.probe.filter, 64-8*width
	for i := range n {
		u := uint64(0)
		for _, b := range p[i*width : (i+1)*width] {
			u = u<<8 | uint64(b)
		}
		v := int64(u<<shift) >> shift //nolint:gosec // the shift extends the sign
		if h := match.HashInt(v); filter.Has(h) {
			w.hit(i, number(w.probe.keys.FindIntHash(h, v)))
		}
	}
}

func (w *walker) plainBytes(p []byte, n int) bool {
	lengths := w.probe.keys.Lengths()
	if w.probe.decimalBytes {
		lengths = ^uint64(0)
	}
	for i := range n {
		if len(p) < 4 {
			return false
		}
		size := int(leUint32(p))
		if size > len(p)-4 {
			return false
		}
		if lengths>>(size&63)&1 == 1 {
			w.hit(i, w.probe.findBytes(p[4:4+size]))
		}
		p = p[4+size:]
	}
	return true
}

func (w *walker) booleans(p []byte, n int) {
	ids := [2]int32{w.probe.findInt(0), w.probe.findInt(1)}
	for i := range n {
		w.hit(i, ids[p[i>>3]>>(i&7)&1])
	}
}

// booleanRLE finds hits among n booleans of the hybrid, with its length in
// four bytes LE in front.
func (w *walker) booleanRLE(p []byte, n int) error {
	if len(p) < 4 || int64(leUint32(p)) > int64(len(p)-4) {
		return errValues
	}
	p = p[4 : 4+leUint32(p)]
	ids := [2]int32{w.probe.findInt(0), w.probe.findInt(1)}
	for done := 0; done < n; {
		r, rest, err := nextRun(p, 1, n-done)
		if err != nil {
			return err
		}
		for i := range r.count {
			bit := r.value & 1
			if r.packed != nil {
				bit = uint32(r.packed[i>>3]>>(i&7)) & 1
			}
			w.hit(done+i, ids[bit])
		}
		done += r.count
		p = rest
	}
	return nil
}

// int96Micros converts nanoseconds of a Julian day to microseconds since 1970.
func int96Micros(p []byte) int64 {
	const julianEpoch = 2440588
	nanos := leInt64(p)
	days := int64(leUint32(p[8:])) - julianEpoch
	return days*86400_000_000 + floorDiv(nanos, 1000)
}
