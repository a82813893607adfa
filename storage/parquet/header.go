package parquet

// Values of the Parquet format's enumerations.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3

	encodingPlain           = 0
	encodingPlainDictionary = 2
	encodingRLE             = 3
	encodingBitPacked       = 4
	encodingRLEDictionary   = 8
)

// pageHeader is what a scan needs of the format's PageHeader:
//
//	1 i32 type   2 i32 uncompressed_page_size   3 i32 compressed_page_size
//	4 i32 crc    5 DataPageHeader   7 DictionaryPageHeader   8 DataPageHeaderV2
type pageHeader struct {
	typ          int32
	uncompressed int32
	compressed   int32
	crc          int32
	hasCRC       bool

	values      int32 // num_values, nulls included; entries of a dictionary
	encoding    int32
	defEncoding int32

	// Of V2 only. Levels are never compressed there.
	nulls        int32
	rows         int32
	defBytes     int32
	repBytes     int32
	uncompressV2 bool // is_compressed

	kind int16 // field id of the header that came with it
}

// parsePageHeader reads a page header from the front of p and returns its
// length. errThriftShort means that p ends before the header does.
func parsePageHeader(p []byte) (pageHeader, int, error) {
	r := thriftReader{p: p}
	h := pageHeader{typ: -1, uncompressed: -1, compressed: -1, uncompressV2: true}
	r.fields(func(id int16, typ byte) {
		switch id {
		case 1:
			h.typ = r.i32(typ)
		case 2:
			h.uncompressed = r.i32(typ)
		case 3:
			h.compressed = r.i32(typ)
		case 4:
			h.crc, h.hasCRC = r.i32(typ), true
		case 5, 7, 8:
			if r.want(typ, thriftStruct) {
				h.kind = id
				r.fields(func(field int16, typ byte) { h.detail(&r, id, field, typ) })
			}
		default:
			r.skip(typ, 0)
		}
	})
	if r.err != nil {
		return h, 0, r.err
	}
	if !h.valid() {
		return h, 0, errThriftBad
	}
	return h, r.pos, nil
}

// detail reads a field of the data page, dictionary page or V2 header:
//
//	DataPageHeader        1 num_values 2 encoding 3 def_encoding 4 rep_encoding 5 statistics
//	DictionaryPageHeader  1 num_values 2 encoding 3 is_sorted
//	DataPageHeaderV2      1 num_values 2 num_nulls 3 num_rows 4 encoding
//	                      5 def_levels_bytes 6 rep_levels_bytes 7 is_compressed 8 statistics
func (h *pageHeader) detail(r *thriftReader, kind, field int16, typ byte) {
	targets := [...]*int32{&h.values, &h.encoding, &h.defEncoding}
	if kind == 8 {
		v2 := [...]*int32{&h.values, &h.nulls, &h.rows, &h.encoding, &h.defBytes, &h.repBytes}
		switch {
		case field >= 1 && int(field) <= len(v2):
			*v2[field-1] = r.i32(typ)
		case field == 7 && typ == thriftFalse:
			h.uncompressV2 = false
		default:
			r.skip(typ, 0)
		}
		return
	}
	if field >= 1 && int(field) <= len(targets) && (kind == 5 || field <= 2) {
		*targets[field-1] = r.i32(typ)
		return
	}
	r.skip(typ, 0)
}

func (h *pageHeader) valid() bool {
	if h.typ < 0 || h.uncompressed < 0 || h.compressed < 0 || h.values < 0 {
		return false
	}
	switch h.typ {
	case pageData:
		return h.kind == 5
	case pageDictionary:
		return h.kind == 7
	case pageDataV2:
		return h.kind == 8 && h.defBytes >= 0 && h.repBytes >= 0 &&
			int64(h.defBytes)+int64(h.repBytes) <= int64(min(h.compressed, h.uncompressed)) &&
			h.nulls >= 0
	default:
		return true
	}
}

func (h *pageHeader) dictionaryEncoded() bool {
	return h.encoding == encodingPlainDictionary || h.encoding == encodingRLEDictionary
}
