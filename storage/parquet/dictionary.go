package parquet

import "errors"

var (
	errIndex = errors.New("index outside the dictionary")
	errWidth = errors.New("bit width above 32")
)

// maxFlagWidth is the largest index width for which a bitmap over all indexes
// of that width is kept.
const maxFlagWidth = 20

// dictionary holds which key, if any, each entry of a dictionary equals.
type dictionary struct {
	loaded bool
	any    bool    // an entry equals a key
	ids    []int32 // per entry: key number or noKey
	// flags has a bit for each index of the width it was built for: set for
	// entries that equal a key and for indexes that no entry has.
	flags []uint64
	width int
}

func (d *dictionary) reset() {
	d.loaded, d.any, d.width = false, false, -1
	d.ids = d.ids[:0]
}

func (d *dictionary) load(n int, hits []hit) {
	d.loaded, d.any = true, len(hits) > 0
	if cap(d.ids) < n {
		d.ids = make([]int32, n)
	}
	d.ids = d.ids[:n]
	for i := range d.ids {
		d.ids[i] = noKey
	}
	for _, h := range hits {
		d.ids[h.rank] = h.id
	}
}

// find reports the hits among n dictionary indexes: a byte of bit width, then
// the RLE/bit-packed hybrid. p has slack behind it.
func (d *dictionary) find(p []byte, n int, found func(rank int, id int32)) error {
	if len(p) == 0 {
		return errHybrid
	}
	width := int(p[0])
	if width > 32 {
		return errWidth
	}
	p = p[1:]
	if width <= maxFlagWidth && width != d.width {
		d.flag(width)
	}
	for done := 0; done < n; {
		r, rest, err := nextRun(p, width, n-done)
		if err != nil {
			return err
		}
		p = rest
		if err := d.findRun(r, width, done, found); err != nil {
			return err
		}
		done += r.count
	}
	return nil
}

func (d *dictionary) findRun(r run, width, at int, found func(rank int, id int32)) error {
	if r.count == 0 {
		return nil
	}
	if r.packed == nil || width == 0 {
		if int64(r.value) >= int64(len(d.ids)) {
			return errIndex
		}
		if id := d.ids[r.value]; id != noKey {
			for i := range r.count {
				found(at+i, id)
			}
		}
		return nil
	}
	if width > maxFlagWidth {
		for i := range r.count {
			if err := d.findIndex(unpack(r.packed, i, width), at+i, found); err != nil {
				return err
			}
		}
		return nil
	}
	flags, mask := d.flags, uint64(1)<<width-1
	bit := 0
	for i := range r.count {
		v := leUint64(r.packed[bit>>3:][:8:8]) >> (bit & 7) & mask
		if flags[v>>6]>>(v&63)&1 == 1 {
			if err := d.findIndex(uint32(v), at+i, found); err != nil { //nolint:gosec // masked to the width
				return err
			}
		}
		bit += width
	}
	return nil
}

func (d *dictionary) findIndex(index uint32, at int, found func(rank int, id int32)) error {
	if int64(index) >= int64(len(d.ids)) {
		return errIndex
	}
	if id := d.ids[index]; id != noKey {
		found(at, id)
	}
	return nil
}

// flag builds flags for indexes of the given width.
func (d *dictionary) flag(width int) {
	d.width = width
	size := max(1<<width>>6, 1)
	if cap(d.flags) < size {
		d.flags = make([]uint64, size)
	}
	d.flags = d.flags[:size]
	clear(d.flags)
	for i, id := range d.ids[:min(len(d.ids), size*64)] {
		if id != noKey {
			d.flags[i>>6] |= 1 << (i & 63)
		}
	}
	for i := len(d.ids); i < size*64; i++ {
		if i&63 == 0 {
			d.flags[i>>6] = ^uint64(0)
			i += 63
			continue
		}
		d.flags[i>>6] |= 1 << (i & 63)
	}
}
