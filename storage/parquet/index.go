package parquet

// Page index: OffsetIndex and ColumnIndex of one column chunk (compact Thrift).
//
//	OffsetIndex   1 list<PageLocation>; PageLocation 1 i64 offset,
//	              2 i32 compressed_page_size (with the header), 3 i64 first_row_index
//	ColumnIndex   1 list<bool> null_pages, 2 list<binary> min_values,
//	              3 list<binary> max_values, 4 boundary_order, 5 null_counts

// pageLocation is where a data page lies and which row it starts with.
type pageLocation struct {
	offset   int64
	size     int32
	firstRow int64 // within the row group
}

func parseOffsetIndex(p []byte) ([]pageLocation, error) {
	r := thriftReader{p: p}
	var pages []pageLocation
	r.fields(func(id int16, typ byte) {
		if id != 1 || typ != thriftList {
			r.skip(typ, 0)
			return
		}
		elem, n := r.list()
		if n > 0 && !r.want(elem, thriftStruct) {
			return
		}
		for range n {
			var l pageLocation
			r.fields(func(id int16, typ byte) {
				switch id {
				case 1:
					l.offset = r.i64(typ)
				case 2:
					l.size = r.i32(typ)
				case 3:
					l.firstRow = r.i64(typ)
				default:
					r.skip(typ, 0)
				}
			})
			if r.err != nil {
				return
			}
			pages = append(pages, l)
		}
	})
	return pages, r.err
}

// pageBounds are the bounds of the values of one data page.
type pageBounds struct {
	null     bool // every row is null
	min, max []byte
}

func parseColumnIndex(p []byte) ([]pageBounds, error) {
	r := thriftReader{p: p}
	var nulls []bool
	var mins, maxs [][]byte
	binaries := func(typ byte) (out [][]byte) {
		if !r.want(typ, thriftList) {
			return nil
		}
		elem, n := r.list()
		if n > 0 && !r.want(elem, thriftBinary) {
			return nil
		}
		for range n {
			out = append(out, r.binary())
			if r.err != nil {
				return nil
			}
		}
		return out
	}
	r.fields(func(id int16, typ byte) {
		switch id {
		case 1:
			if r.want(typ, thriftList) {
				_, n := r.list()
				for range n {
					nulls = append(nulls, r.byte() == thriftTrue)
				}
			}
		case 2:
			mins = binaries(typ)
		case 3:
			maxs = binaries(typ)
		default:
			r.skip(typ, 0)
		}
	})
	if r.err != nil {
		return nil, r.err
	}
	if len(nulls) != len(mins) || len(nulls) != len(maxs) {
		return nil, errThriftBad
	}
	bounds := make([]pageBounds, len(nulls))
	for i := range bounds {
		bounds[i] = pageBounds{nulls[i], mins[i], maxs[i]}
	}
	return bounds, nil
}
