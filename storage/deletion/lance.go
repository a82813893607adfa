package deletion

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"
)

// LanceThreshold is the number of rows from which Lance itself writes a bitmap
// file; readers take the kind from the manifest, so that any number will do.
const LanceThreshold = 5_000

// rowID is the one column of a Lance .arrow deletion file.
const rowID = "row_id"

// LanceKey returns the key of a deletion file, relative to the dataset's root:
// _deletions/{fragment}-{read version}-{id}, then .bin for a bitmap or .arrow.
func LanceKey(fragment, readVersion, id uint64, bitmap bool) string {
	extension := ".arrow"
	if bitmap {
		extension = ".bin"
	}
	return "_deletions/" + strconv.FormatUint(fragment, 10) + "-" + strconv.FormatUint(readVersion, 10) + "-" +
		strconv.FormatUint(id, 10) + extension
}

var errLanceRows = errors.New("encode deletion file: rows from 2^32 on do not fit")

// EncodeLanceBitmap returns s as a .bin file: one portable 32-bit Roaring
// bitmap.
func EncodeLanceBitmap(s *Set) ([]byte, error) {
	if s.Max() > math.MaxUint32 {
		return nil, errLanceRows
	}
	rows := roaring.New()
	if s != nil {
		rows = s.low().Clone()
	}
	rows.RunOptimize()
	return rows.ToBytes()
}

// DecodeLanceBitmap returns the rows of a .bin file. deleted is the count that
// the manifest gives, -1 if it gives none; every row must be below
// physicalRows. Any disagreement is a *storage.CorruptError.
func DecodeLanceBitmap(file []byte, deleted, physicalRows int64) (*Set, error) {
	size, n, f := roaringSize(file)
	if f == nil && size != len(file) {
		f = &fault{int64(size), "bitmap", "bytes after the end"}
	}
	if f != nil {
		return nil, f.corrupt("", 0)
	}
	s := &Set{bitmap: roaring.New()}
	if _, err := s.bitmap.ReadFrom(bytes.NewReader(file)); err != nil {
		return nil, (&fault{0, "bitmap", "not a portable bitmap"}).corrupt("", 0)
	}
	s.settle()
	return checkLance(s, n, deleted, physicalRows)
}

func checkLance(s *Set, n, deleted, physicalRows int64) (*Set, error) {
	switch {
	case deleted >= 0 && n != deleted:
		return nil, (&fault{0, "num_deleted_rows", "differs from the manifest"}).corrupt("", 0)
	case s.Cardinality() != n:
		return nil, (&fault{0, rowID, "comes twice"}).corrupt("", 0)
	case s.Max() >= physicalRows:
		return nil, (&fault{0, "row", "not below the number of rows in the fragment"}).corrupt("", 0)
	}
	return s, nil
}

// EncodeLanceArrow returns s as an .arrow file: an Arrow IPC file of one
// record batch with the one column row_id, u32, not nullable, ascending, not
// compressed.
func EncodeLanceArrow(s *Set) ([]byte, error) {
	if s.Max() > math.MaxUint32 {
		return nil, errLanceRows
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: rowID, Type: arrow.PrimitiveTypes.Uint32}}, nil)
	b := array.NewUint32Builder(memory.DefaultAllocator)
	defer b.Release()
	for row := range s.All() {
		b.Append(uint32(row & math.MaxUint32))
	}
	column := b.NewArray()
	defer column.Release()
	batch := array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))
	defer batch.Release()
	var out bytes.Buffer
	w, err := ipc.NewFileWriter(&out, ipc.WithSchema(schema))
	if err != nil {
		return nil, fmt.Errorf("encode deletion file: %w", err)
	}
	if err := w.Write(batch); err != nil {
		return nil, fmt.Errorf("encode deletion file: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encode deletion file: %w", err)
	}
	return out.Bytes(), nil
}

// Arrow IPC file (Arrow columnar format, "IPC File Format"):
//
//	"ARROW1\0\0", messages, footer (FlatBuffers), i32 LE its length, "ARROW1"
//	message  0xFFFFFFFF, i32 LE length, metadata (FlatBuffers), padding; body
//	Footer   1 schema, 3 vector<Block>
//	Block    i64 offset, i32 metadata length with prefix, 4 bytes, i64 body length
//	Message  1 header type (3 RecordBatch), 2 header
//	RecordBatch  0 length, 1 vector<FieldNode>, 2 vector<Buffer>, 3 compression
//	Buffer   i64 offset in the body, i64 length; compressed: i64 LE uncompressed
//	         length (-1: the rest is not compressed), zstd frame
//
// DecodeLanceArrow reads exactly what a deletion file is, and its counts are
// checked before anything is allocated for them.
const (
	arrowMagic      = "ARROW1"
	arrowBlock      = 24
	typeInt         = 2
	headerBatch     = 3
	compressionZstd = 1
)

// DecodeLanceArrow returns the rows of an .arrow file; see DecodeLanceBitmap.
func DecodeLanceArrow(file []byte, deleted, physicalRows int64) (*Set, error) {
	rows, f := arrowRows(file)
	if f != nil {
		return nil, f.corrupt("", 0)
	}
	n := len(rows) / 4
	s := New()
	for i := range n {
		s.Add(int64(binary.LittleEndian.Uint32(rows[4*i:])))
	}
	return checkLance(s, int64(n), deleted, physicalRows)
}

// arrowRows returns the values of the file's one column.
func arrowRows(file []byte) ([]byte, *fault) {
	const trailer = 4 + len(arrowMagic)
	if len(file) < 8+trailer || string(file[:6]) != arrowMagic || string(file[len(file)-6:]) != arrowMagic {
		return nil, &fault{0, "magic", "is not ARROW1"}
	}
	end := len(file) - trailer
	length := int64(binary.LittleEndian.Uint32(file[end:]))
	if length > int64(end-8) {
		return nil, &fault{int64(end), "footer length", "past the file"}
	}
	footer := rootTable(file[end-int(length) : end])
	if f := checkSchema(footer.child(1)); f != nil {
		return nil, f
	}
	blocks, n := footer.vector(3, arrowBlock)
	if n != 1 {
		return nil, &fault{int64(end), "record batches", "not exactly one"}
	}
	offset := leInt64(blocks)
	metadata := int64(binary.LittleEndian.Uint32(blocks[8:]))
	body := leInt64(blocks[16:])
	if offset < 8 || offset > int64(end) || metadata < 8 || metadata > int64(end)-offset || body < 0 || body > int64(end)-offset-metadata {
		return nil, &fault{int64(end), "block", "outside the file"}
	}
	prefix := file[offset : offset+metadata]
	if binary.LittleEndian.Uint32(prefix) == math.MaxUint32 {
		prefix = prefix[4:]
	}
	message := rootTable(prefix[4:])
	if message.u8(1) != headerBatch {
		return nil, &fault{offset, "message", "not a record batch"}
	}
	return batchRows(message.child(2), file[offset+metadata:][:body], offset)
}

func checkSchema(schema table) *fault {
	_, n := schema.vector(1, 4)
	field := schema.element(1, 0)
	name, _ := field.vector(0, 1)
	typ := field.child(3)
	if n != 1 || string(name) != rowID || field.u8(1) != 0 || field.u8(2) != typeInt || typ.i32(0) != 32 || typ.u8(1) != 0 ||
		!field.child(4).absent() {
		return &fault{0, "schema", "not one column row_id of u32 without nulls"}
	}
	return nil
}

func batchRows(batch table, body []byte, offset int64) ([]byte, *fault) {
	nodes, n := batch.vector(1, 16)
	buffers, m := batch.vector(2, 16)
	if n != 1 || m != 2 {
		return nil, &fault{offset, "record batch", "not one column of two buffers"}
	}
	rows := batch.i64(0)
	if leInt64(nodes) != rows || binary.LittleEndian.Uint64(nodes[8:]) != 0 {
		return nil, &fault{offset, "record batch", "lengths differ or a row is null"}
	}
	start, length := leInt64(buffers[16:]), leInt64(buffers[24:])
	if start < 0 || length < 0 || start > int64(len(body)) || length > int64(len(body))-start {
		return nil, &fault{offset, "buffer", "outside the body"}
	}
	data := body[start : start+length]
	if rows < 0 || rows > math.MaxUint32 {
		return nil, &fault{offset, "length", "out of range"}
	}
	if c := batch.child(3); !c.absent() {
		if c.u8(0) != compressionZstd {
			return nil, &fault{offset, "compression", "not zstd"}
		}
		var f *fault
		if data, f = inflateBuffer(data, rows, offset); f != nil {
			return nil, f
		}
	}
	if int64(len(data))/4 < rows {
		return nil, &fault{offset, "buffer", "shorter than its rows"}
	}
	return data[:4*rows], nil
}

func inflateBuffer(data []byte, rows, offset int64) ([]byte, *fault) {
	const alignment, maxRatio = 64, 1 << 16
	if rows == 0 && len(data) == 0 {
		return nil, nil
	}
	if len(data) < 8 {
		return nil, &fault{offset, "buffer", "truncated"}
	}
	size := leInt64(data)
	data = data[8:]
	if size == -1 {
		return data, nil
	}
	if size < 4*rows || size > 4*rows+alignment || size > maxRatio*int64(len(data)) {
		return nil, &fault{offset, "buffer", "uncompressed length differs from its rows"}
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, &fault{offset, "buffer", "cannot be decompressed"}
	}
	defer z.Close()
	out, err := z.DecodeAll(data, make([]byte, 0, size))
	if err != nil || int64(len(out)) != size {
		return nil, &fault{offset, "buffer", "cannot be decompressed"}
	}
	return out, nil
}
