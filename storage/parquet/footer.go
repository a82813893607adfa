package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"delenda/storage"

	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// File layout: "PAR1", column chunks and indexes, footer (FileMetaData,
// compact Thrift), u32 LE length of the footer, "PAR1". An encrypted footer
// ends in "PARE".
const (
	magic          = "PAR1"
	magicEncrypted = "PARE"
	trailerSize    = 8

	// MaxFooter bounds the footers that Open reads.
	MaxFooter = 256 << 20

	// maxSchemaDepth bounds how deep groups nest, the root and leaves counted:
	// readers walk the schema recursively.
	maxSchemaDepth = 256
	// maxSchemaNodes and maxColumnChunks bound what takes far more memory than
	// bytes of a footer.
	maxSchemaNodes  = 1 << 18
	maxColumnChunks = 1 << 21
)

var (
	errSchemaDepth = errors.New("schema nests too deep")
	errSchemaTree  = errors.New("schema is not one tree")
	errTooMany     = errors.New("more columns or column chunks than are read")
)

// nest is a field of a struct that CheckFooter looks into. Readers decode a
// list as what the specification says that it holds, whatever the list says.
type nest struct {
	typ  byte  // thriftStruct, thriftList, or thriftI32 for num_children
	elem byte  // of a list
	of   shape // of the struct, or the structs of the list
	kind nestKind
}

type nestKind byte

const (
	ordinary nestKind = iota
	theSchema
	theChunks
)

// shape holds a struct's fields by id. Those that hold neither a list nor a
// struct with one are passed over by their type, as readers do.
type shape []nest

var (
	ints    = nest{typ: thriftList, elem: thriftI32}
	longs   = nest{typ: thriftList, elem: thriftI64}
	texts   = nest{typ: thriftList, elem: thriftBinary}
	structs = nest{typ: thriftList, elem: thriftStruct}

	// 5 num_children
	schemaElement = shape{5: {typ: thriftI32}}
	// 2 encodings  3 path_in_schema  8 key_value_metadata  13 encoding_stats
	// 16 SizeStatistics: 2, 3 histograms   17 GeospatialStatistics: 2 types
	columnMetaData = shape{
		2: ints, 3: texts, 8: structs, 13: structs,
		16: {typ: thriftStruct, of: shape{2: longs, 3: longs}},
		17: {typ: thriftStruct, of: shape{2: ints}},
	}
	// 3 ColumnMetaData   8 ColumnCryptoMetaData: 2 EncryptionWithColumnKey: 1 path_in_schema
	columnChunk = shape{
		3: {typ: thriftStruct, of: columnMetaData},
		8: {typ: thriftStruct, of: shape{2: {typ: thriftStruct, of: shape{1: texts}}}},
	}
	// 1 columns  4 sorting_columns
	rowGroup = shape{1: {typ: thriftList, elem: thriftStruct, of: columnChunk, kind: theChunks}, 4: structs}
	// 2 schema  4 row_groups  5 key_value_metadata  7 column_orders
	fileMetaData = shape{
		2: {typ: thriftList, elem: thriftStruct, of: schemaElement, kind: theSchema},
		4: {typ: thriftList, elem: thriftStruct, of: rowGroup},
		5: structs, 7: structs,
	}
)

// CheckFooter walks a footer without building it, and tells whether a reader
// that builds it stays in bounds: every list has the elements that it says, the
// schema is one tree of bounded depth and size, values nest no deeper than is
// sane. What it lets pass takes memory in proportion to its length, and may
// still be malformed in other ways.
//
// The error is a *storage.CorruptError with the offset in the footer and no
// key, or a refusal, footer_too_large.
func CheckFooter(footer []byte) error {
	w := footerWalk{r: thriftReader{p: footer}}
	w.fields(fileMetaData)
	switch err := w.r.err; {
	case err == nil:
		return nil
	case errors.Is(err, errTooMany):
		return storage.Refuse("footer_too_large", "the footer holds more columns or column chunks than are read")
	case errors.Is(err, errSchemaDepth) || errors.Is(err, errSchemaTree):
		return &storage.CorruptError{Offset: int64(w.r.pos), Field: "schema", Reason: err.Error()}
	default:
		return &storage.CorruptError{Offset: int64(w.r.pos), Field: "footer", Reason: "cannot be decoded"}
	}
}

// footerWalk is the state of one CheckFooter.
type footerWalk struct {
	r        thriftReader
	children int32 // of the schema element at hand
	chunks   int   // so far
}

func (w *footerWalk) fields(l shape) {
	w.r.fields(func(id int16, typ byte) {
		if id < 0 || int(id) >= len(l) || l[id].typ != typ {
			w.r.skip(typ, 0)
			return
		}
		switch n := &l[id]; typ {
		case thriftI32:
			w.children = w.r.i32(typ)
		case thriftStruct:
			w.fields(n.of)
		default:
			w.list(n)
		}
	})
}

func (w *footerWalk) list(n *nest) {
	elem, count := w.r.list()
	if count > 0 && elem != n.elem {
		w.r.fail(errThriftBad)
	}
	switch n.kind {
	case theSchema:
		w.schema(n.of, count)
		return
	case theChunks:
		if w.chunks += count; w.chunks > maxColumnChunks {
			w.r.fail(errTooMany)
		}
	default:
	}
	for i := 0; i < count && w.r.err == nil; i++ {
		if elem == thriftStruct {
			w.fields(n.of)
		} else {
			w.r.skip(elem, 0)
		}
	}
}

// schema walks the flattened tree: every element is followed by its children.
func (w *footerWalk) schema(element shape, count int) {
	if count > maxSchemaNodes {
		w.r.fail(errTooMany)
	}
	var open []int // elements around the one at hand: how many children follow
	pending := 0   // the sum of them
	for i := 0; i < count && w.r.err == nil; i++ {
		w.children = 0
		w.fields(element)
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		switch {
		case len(open) > 0:
			open[len(open)-1]--
			pending--
		case i > 0:
			w.r.fail(errSchemaTree)
		}
		n := int(w.children)
		if n < 0 || n > count-i-1-pending {
			w.r.fail(errSchemaTree)
		}
		pending += n
		if open = append(open, n); len(open) > maxSchemaDepth {
			w.r.fail(errSchemaDepth)
		}
	}
	if pending != 0 {
		w.r.fail(errSchemaTree)
	}
}

// ReadFooter reads and decodes the footer of a Parquet file of sizeBytes, after
// CheckFooter. Footers of more than limit bytes, and those of encrypted files,
// are refused; malformed ones are storage.ErrCorrupt, without a key. Errors of
// r are wrapped.
func ReadFooter(r io.ReaderAt, sizeBytes, limit int64) (*metadata.FileMetaData, error) {
	if sizeBytes < int64(len(magic)+trailerSize) {
		return nil, corruptFooter(0, "file", "shorter than a footer")
	}
	var trailer [trailerSize]byte
	if err := readAt(r, trailer[:], sizeBytes-trailerSize); err != nil {
		return nil, err
	}
	n, err := footerLength(trailer[:], sizeBytes, limit)
	if err != nil {
		return nil, err
	}
	footer := make([]byte, n)
	if err := readAt(r, footer, sizeBytes-trailerSize-n); err != nil {
		return nil, err
	}
	return decodeFooter(footer, sizeBytes)
}

func readAt(r io.ReaderAt, p []byte, offset int64) error {
	n, err := r.ReadAt(p, offset)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return corruptFooter(offset, "file", "truncated")
	default:
		return fmt.Errorf("read footer: %w", err)
	}
}

// footerLength reads the last bytes of a file.
func footerLength(trailer []byte, sizeBytes, limit int64) (int64, error) {
	switch string(trailer[4:]) {
	case magic:
	case magicEncrypted:
		return 0, errEncrypted()
	default:
		return 0, corruptFooter(sizeBytes-4, "magic", "is not PAR1")
	}
	n := int64(binary.LittleEndian.Uint32(trailer))
	if n > sizeBytes-int64(len(magic)+trailerSize) {
		return 0, corruptFooter(sizeBytes-trailerSize, "footer length", "out of range")
	}
	if n > limit {
		return 0, storage.Refuse("footer_too_large", "a Parquet footer of more than %d bytes", limit)
	}
	return n, nil
}

// decodeFooter checks and decodes the footer of a file of sizeBytes.
func decodeFooter(footer []byte, sizeBytes int64) (meta *metadata.FileMetaData, err error) {
	start := sizeBytes - trailerSize - int64(len(footer))
	if err := CheckFooter(footer); err != nil {
		var corrupt *storage.CorruptError
		if errors.As(err, &corrupt) {
			corrupt.Offset += start
		}
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			meta, err = nil, corruptFooter(start, "footer", "cannot be decoded")
		}
	}()
	meta, err = metadata.NewFileMetaData(footer, nil)
	if err != nil {
		return nil, corruptFooter(start, "footer", "cannot be decoded") // the library's text may quote content
	}
	if meta.IsSetEncryptionAlgorithm() {
		return nil, errEncrypted()
	}
	meta.SetSourceFileSize(sizeBytes)
	return meta, nil
}

func errEncrypted() error { return storage.Refuse("encrypted_file", "encrypted Parquet file") }

func corruptFooter(offset int64, field, reason string) error {
	return &storage.CorruptError{Offset: offset, Field: field, Reason: reason}
}
