package parquet

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"delenda/storage"

	"github.com/apache/arrow-go/v18/parquet"
)

var errUnsupported = errors.New("unsupported encoding")

// maxPageHeader bounds a page header, statistics included.
const maxPageHeader = 1 << 20

// hit is a value that equals a key: its number among the values of a page.
type hit struct{ rank, id int32 }

// walker walks the pages of column chunks and keeps its buffers between them.
type walker struct {
	stream stream
	codec  decompressor
	page   []byte // an uncompressed page, slack behind it
	value  []byte // a value that does not lie in the page in one piece
	levels levels
	dict   dictionary
	hits   []hit

	// Of the data page at hand: its first row, and up to where its hits are
	// emitted: the last value's number, and its row in the page.
	row      int64
	rank, at int
	// collect: hits are kept, for they are entries of a dictionary.
	collect bool

	// Of the chunk at hand.
	file   *File
	leaf   Leaf
	probe  *probe
	st     *Stats
	codecN int32
	emit   func(id int32, row int64)
}

// walkers keeps idle walkers: their buffers outlive a file.
var walkers = sync.Pool{New: func() any { return new(walker) }}

// release makes w idle, without holding on to what it scanned.
func (w *walker) release() {
	w.file, w.leaf, w.probe, w.st, w.emit = nil, Leaf{}, nil, nil, nil
	w.stream.st = nil
	walkers.Put(w)
}

// section is a run of consecutive pages of a column chunk.
type section struct {
	offset, length int64
	firstRow       int64 // within the row group
	rows           int64
}

// chunk is what the walk needs to know of a column chunk.
type chunk struct {
	leaf     Leaf
	probe    *probe
	codec    int32
	base     int64 // first row of the row group
	sections []section
	// dictionary, when it has a length, is a section in front that holds the
	// dictionary page alone.
	dictionary section
	// onlyDictionary: all data pages are dictionary encoded.
	onlyDictionary bool
}

// walk scans a chunk.
func (w *walker) walk(ctx context.Context, f *File, c *chunk, st *Stats, emit func(id int32, row int64)) error {
	w.file, w.leaf, w.probe, w.codecN, w.st, w.emit = f, c.leaf, c.probe, c.codec, st, emit
	w.dict.reset()
	defer w.stream.close()
	if c.dictionary.length > 0 {
		if err := w.section(ctx, c, c.dictionary); err != nil {
			return err
		}
	}
	for _, s := range c.sections {
		if c.onlyDictionary && w.dict.loaded && !w.dict.any {
			return nil
		}
		if err := w.section(ctx, c, s); err != nil {
			return err
		}
	}
	return nil
}

// section scans the pages of one section.
func (w *walker) section(ctx context.Context, c *chunk, s section) error {
	if err := w.stream.open(ctx, w.file, s.offset, s.length, w.st); err != nil {
		return err
	}
	row, end := s.firstRow, s.firstRow+s.rows
	for row < end || (s.rows == 0 && w.stream.rest() > 0) {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := w.header()
		if err != nil {
			return err
		}
		switch h.typ {
		case pageDictionary:
			if err := w.dictionaryPage(h); err != nil {
				return err
			}
			if c.onlyDictionary && !w.dict.any {
				return nil
			}
		case pageData, pageDataV2:
			if int64(h.values) > end-row || (h.typ == pageDataV2 && h.rows != h.values) {
				return w.corrupt("num_values", "more than the rows of the row group")
			}
			if err := w.dataPage(h, c.base+row); err != nil {
				return err
			}
			row += int64(h.values)
		default:
			if err := w.stream.skip(int64(h.compressed)); err != nil {
				return w.readError(err)
			}
		}
	}
	return nil
}

// header reads the next page header.
func (w *walker) header() (pageHeader, error) {
	for n := 512; ; n *= 8 {
		p, err := w.stream.peek(n)
		if err != nil {
			return pageHeader{}, w.readError(err)
		}
		h, size, err := parsePageHeader(p)
		switch {
		case err == nil:
			if _, err := w.stream.next(size); err != nil {
				return h, w.readError(err)
			}
			if int64(h.compressed) > w.stream.rest() {
				return h, w.corrupt("compressed_page_size", "past the column chunk")
			}
			if h.uncompressed > maxPage {
				return h, w.file.refuse("page_too_large", "a page of column %q is larger than %d bytes", w.leaf.column.Path(), maxPage)
			}
			return h, nil
		case !errors.Is(err, errThriftShort) || int64(len(p)) >= w.stream.rest() || len(p) >= maxPageHeader:
			return h, w.corrupt("page header", "cannot be decoded")
		}
	}
}

// body returns the n bytes of a page and checks their checksum.
func (w *walker) body(h pageHeader) ([]byte, error) {
	p, err := w.stream.next(int(h.compressed))
	if err != nil {
		return nil, w.readError(err)
	}
	if h.hasCRC && crc32.ChecksumIEEE(p) != uint32(h.crc) { //nolint:gosec // bits as they are
		return nil, w.corrupt("crc", "differs from the page")
	}
	return p, nil
}

// inflate returns the uncompressed form of a page or of the part of a V2 page
// behind its levels, with slack behind it.
func (w *walker) inflate(p []byte, size int) ([]byte, error) {
	if w.codecN == codecUncompressed {
		if len(p) != size {
			return nil, w.corrupt("uncompressed_page_size", "differs from the page")
		}
		return p, nil
	}
	if cap(w.page) < size+slack {
		w.page = make([]byte, size+size/4+slack)
	}
	dst := w.page[:size]
	if err := w.codec.decompress(w.codecN, dst, p); err != nil {
		return nil, w.corrupt("page", err.Error())
	}
	return dst, nil
}

// dictionaryPage looks up every entry of the dictionary.
func (w *walker) dictionaryPage(h pageHeader) error {
	if w.dict.loaded {
		return w.corrupt("dictionary page", "comes twice")
	}
	if h.encoding != encodingPlain && h.encoding != encodingPlainDictionary {
		return w.unsupported(h.encoding)
	}
	p, err := w.body(h)
	if err != nil {
		return err
	}
	if p, err = w.inflate(p, int(h.uncompressed)); err != nil {
		return err
	}
	// Every entry but that of an empty fixed array takes space in the page.
	if int64(h.values) > 8*int64(len(p)) {
		return w.corrupt("dictionary page", "more entries than the page can hold")
	}
	w.hits, w.collect = w.hits[:0], true
	err = w.plain(p, int(h.values))
	w.collect = false
	if err != nil {
		return w.valueError("dictionary page", err)
	}
	w.dict.load(int(h.values), w.hits)
	return nil
}

// dataPage probes one data page whose first row is row.
func (w *walker) dataPage(h pageHeader, row int64) error {
	if h.dictionaryEncoded() {
		if !w.dict.loaded {
			return w.corrupt("encoding", "dictionary without a dictionary page")
		}
		if !w.dict.any {
			w.st.PagesSkipped++
			return w.readError(w.stream.skip(int64(h.compressed)))
		}
	}
	p, err := w.body(h)
	if err != nil {
		return err
	}
	var values []byte
	if h.typ == pageDataV2 {
		values, err = w.splitV2(h, p)
	} else {
		values, err = w.splitV1(h, p)
	}
	if err != nil {
		return err
	}
	w.st.RowsScanned += int64(h.values)
	w.hits, w.row, w.rank, w.at = w.hits[:0], row, 0, 0
	if w.levels.present == 0 {
		return nil
	}
	if err := w.values(h.encoding, values); err != nil {
		if errors.Is(err, errUnsupported) {
			return w.unsupported(h.encoding)
		}
		return w.valueError("values", err)
	}
	w.flush()
	return nil
}

// maxHits is how many hits are kept before they are emitted.
const maxHits = 8 << 10

// hit notes that value number rank of the page equals key number id.
func (w *walker) hit(rank int, id int32) {
	if id == noKey {
		return
	}
	if len(w.hits) >= maxHits && !w.collect {
		w.flush()
	}
	w.hits = append(w.hits, hit{int32(rank), id}) //nolint:gosec // a page has fewer values
}

// flush emits the hits so far.
func (w *walker) flush() {
	for _, h := range w.hits {
		w.at = w.levels.row(int(h.rank), w.rank, w.at)
		w.rank = int(h.rank)
		w.emit(h.id, w.row+int64(w.at))
	}
	w.hits = w.hits[:0]
}

// splitV1 decodes the levels of a V1 page and returns its values.
//
//	4 bytes LE length, definition levels (columns that may be null)
//	values
func (w *walker) splitV1(h pageHeader, p []byte) ([]byte, error) {
	p, err := w.inflate(p, int(h.uncompressed))
	if err != nil {
		return nil, err
	}
	maxDef := int(w.leaf.column.MaxDefinitionLevel())
	if maxDef == 0 {
		w.levels.setAll(int(h.values))
		return p, nil
	}
	if h.defEncoding != encodingRLE {
		return nil, w.unsupported(h.defEncoding)
	}
	if len(p) < 4 || int64(leUint32(p)) > int64(len(p)-4) {
		return nil, w.corrupt("definition levels", "past the page")
	}
	n := 4 + int(leUint32(p))
	if err := w.levels.decode(p[4:n], int(h.values), maxDef); err != nil {
		return nil, w.corrupt("definition levels", err.Error())
	}
	return p[n:], nil
}

// splitV2 decodes the levels of a V2 page and returns its values.
//
//	repetition levels, definition levels (never compressed)
//	values
//
// The levels decide which rows are null: writers without statistics of a type
// leave num_nulls at zero.
func (w *walker) splitV2(h pageHeader, p []byte) ([]byte, error) {
	maxDef := int(w.leaf.column.MaxDefinitionLevel())
	n := int(h.repBytes + h.defBytes)
	if maxDef == 0 {
		w.levels.setAll(int(h.values))
	} else if err := w.levels.decode(p[h.repBytes:n], int(h.values), maxDef); err != nil {
		return nil, w.corrupt("definition levels", err.Error())
	}
	if !h.uncompressV2 {
		return p[n:], nil
	}
	size := int(h.uncompressed) - n
	if len(p) == n && size == 0 {
		return nil, nil
	}
	return w.inflate(p[n:], size)
}

// values finds hits among the values of a data page.
func (w *walker) values(encoding int32, p []byte) error {
	n, physical := w.levels.present, w.leaf.column.PhysicalType()
	isInt := physical == parquet.Types.Int32 || physical == parquet.Types.Int64
	isBytes := physical == parquet.Types.ByteArray || physical == parquet.Types.FixedLenByteArray
	switch {
	case encoding == encodingPlain:
		return w.plain(p, n)
	case encoding == encodingPlainDictionary || encoding == encodingRLEDictionary:
		return w.dict.find(p, n, w.hit)
	case encoding == encodingRLE && physical == parquet.Types.Boolean:
		return w.booleanRLE(p, n)
	case encoding == encodingDeltaBinaryPacked && isInt:
		return w.deltaInts(p, n)
	case encoding == encodingDeltaLength && physical == parquet.Types.ByteArray:
		return w.deltaLength(p, n)
	case encoding == encodingDeltaByteArray && isBytes:
		return w.deltaBytes(p, n)
	case encoding == encodingByteStreamSplit:
		return w.streamSplit(p, n)
	default:
		return errUnsupported
	}
}

func (w *walker) unsupported(encoding int32) error {
	return w.file.refuse("unsupported_encoding", "column %q is encoded as %s", w.leaf.column.Path(), parquet.Encoding(encoding))
}

func (w *walker) valueError(field string, err error) error {
	if errors.Is(err, errUnsupported) {
		return w.file.refuse("unsupported_encoding", "column %q cannot be decoded", w.leaf.column.Path())
	}
	return w.corrupt(field, err.Error())
}

func (w *walker) corrupt(field, reason string) error {
	return &storage.CorruptError{Key: w.file.key, Offset: w.stream.offset, Field: field, Reason: reason}
}

func (w *walker) readError(err error) error {
	if errors.Is(err, errTruncated) {
		return w.corrupt("column chunk", "truncated")
	}
	if err != nil {
		return fmt.Errorf("scan %q: %w", w.file.key, err)
	}
	return nil
}
