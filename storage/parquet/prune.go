package parquet

import (
	"context"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

const (
	// indexFromBytes: of smaller chunks the page index is used only when Open
	// has read it already, for a request costs more than it can save.
	indexFromBytes = 4 << 20
	// maxIndex bounds the length of an index or Bloom filter.
	maxIndex = 64 << 20
	// maxGap is the largest hole between wanted pages that is read along.
	maxGap = 64 << 10
)

// overlaps tells whether a value between two bounds in PLAIN encoding, without
// the length of a BYTE_ARRAY, may equal a key. Bounds that are missing or not
// understood do not bound.
func (p *probe) overlaps(leaf Leaf, min, max []byte) bool {
	switch leaf.column.PhysicalType() {
	case parquet.Types.Int32:
		if len(min) == 4 && len(max) == 4 {
			return p.overlapsInts(int64(leInt32(min)), int64(leInt32(max)))
		}
	case parquet.Types.Int64:
		if len(min) == 8 && len(max) == 8 {
			return p.overlapsInts(leInt64(min), leInt64(max))
		}
	case parquet.Types.ByteArray:
		if unsignedOrder(leaf) && min != nil && max != nil && string(min) <= string(max) {
			return p.keys.OverlapsBytes(min, max)
		}
	}
	return true
}

// unsignedOrder tells whether the column's order is that of unsigned bytes.
func unsignedOrder(leaf Leaf) bool {
	l := leaf.column.LogicalType()
	if isPlain(l) {
		return true
	}
	_, text := l.(schema.StringLogicalType)
	return text
}

func (p *probe) overlapsInts(min, max int64) bool {
	if p.wideInts || min > max {
		return true
	}
	if p.convert != nil { // every conversion ascends
		var ok1, ok2 bool
		min, ok1 = p.convert(min)
		max, ok2 = p.convert(max)
		if !ok1 || !ok2 {
			return true
		}
	}
	return p.keys.OverlapsInts(min, max)
}

// pruneGroup tells from the statistics of the row group that nothing matches.
func (f *File) pruneGroup(rg int, leaf Leaf, p *probe) bool {
	meta := f.meta.RowGroups[rg].Columns[leaf.index].MetaData
	st := meta.GetStatistics()
	if st == nil {
		return false
	}
	if st.NullCount != nil && *st.NullCount == meta.NumValues && *st.NullCount == f.meta.RowGroups[rg].NumRows {
		return true
	}
	min, max := st.MinValue, st.MaxValue
	if leaf.column.PhysicalType() == parquet.Types.ByteArray {
		// The deprecated fields order bytes as signed in some writers, and
		// without column orders the new ones have no order either.
		if !f.meta.IsSetColumnOrders() {
			return false
		}
	} else if min == nil && max == nil {
		min, max = st.Min, st.Max
	}
	return !p.overlaps(leaf, min, max)
}

// pages narrows c to the runs of data pages that may hold a match, from the
// page index. It leaves c alone if the index is absent, of no use, or not to
// be trusted. No sections are left if nothing matches.
func (f *File) pages(ctx context.Context, rg int, c *chunk, st *Stats) error {
	leaf, p := c.leaf, c.probe
	column := f.meta.RowGroups[rg].Columns[leaf.index]
	if !column.IsSetColumnIndexOffset() || !column.IsSetOffsetIndexOffset() {
		return nil
	}
	spans := [2][2]int64{
		{column.GetOffsetIndexOffset(), int64(column.GetOffsetIndexLength())},
		{column.GetColumnIndexOffset(), int64(column.GetColumnIndexLength())},
	}
	var raw [2][]byte
	for i, s := range spans {
		if s[0] <= 0 || s[1] <= 0 || s[1] > maxIndex {
			return nil
		}
		if _, ok := f.cached(s[0], s[1]); !ok && column.MetaData.TotalCompressedSize < indexFromBytes {
			return nil
		}
		var err error
		if raw[i], err = f.span(ctx, s[0], s[1], "page index", st); err != nil {
			return err
		}
	}
	locations, err := parseOffsetIndex(raw[0])
	if err != nil {
		return f.corrupt(spans[0][0], "offset index", "cannot be decoded")
	}
	bounds, err := parseColumnIndex(raw[1])
	if err != nil {
		return f.corrupt(spans[1][0], "column index", "cannot be decoded")
	}
	m := f.chunkMeta(rg, leaf)
	if !soundLocations(locations, len(bounds), f.meta.RowGroups[rg].NumRows, m.start, m.start+m.length) {
		return nil
	}
	sections, skipped := f.wantedPages(locations, bounds, leaf, p, f.meta.RowGroups[rg].NumRows)
	if skipped*4 < len(locations) {
		return nil // one long read is cheaper
	}
	st.PagesSkipped += int64(skipped)
	c.sections = sections
	if first := locations[0].offset; first > m.start {
		c.dictionary = section{offset: m.start, length: first - m.start}
	}
	return nil
}

// soundLocations tells whether pages follow each other in row and offset
// within the chunk.
func soundLocations(l []pageLocation, bounds int, rows, start, end int64) bool {
	if len(l) == 0 || len(l) != bounds || l[0].firstRow != 0 {
		return false
	}
	for i, page := range l {
		if page.size <= 0 || page.offset < start || page.offset > end || int64(page.size) > end-page.offset {
			return false
		}
		if page.firstRow >= rows {
			return false
		}
		if i > 0 && (page.firstRow <= l[i-1].firstRow || page.offset < l[i-1].offset+int64(l[i-1].size)) {
			return false
		}
	}
	return true
}

// wantedPages joins the pages that may match to sections and counts the rest.
func (f *File) wantedPages(l []pageLocation, bounds []pageBounds, leaf Leaf, p *probe, rows int64) (sections []section, skipped int) {
	lastPage := -1
	for i, page := range l {
		if bounds[i].null || !p.overlaps(leaf, bounds[i].min, bounds[i].max) {
			skipped++
			continue
		}
		next := rows
		if i+1 < len(l) {
			next = l[i+1].firstRow
		}
		end := page.offset + int64(page.size)
		if n := len(sections); n > 0 {
			last := &sections[n-1]
			if page.offset-(last.offset+last.length) <= maxGap {
				skipped -= i - lastPage - 1
				last.length, last.rows = end-last.offset, next-last.firstRow
				lastPage = i
				continue
			}
		}
		sections = append(sections, section{page.offset, end - page.offset, page.firstRow, next - page.firstRow})
		lastPage = i
	}
	return sections, skipped
}
