package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"delenda/storage"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// footerOf returns the footer of a whole file.
func footerOf(tb testing.TB, data []byte) []byte {
	tb.Helper()
	n, err := footerLength(data[len(data)-trailerSize:], int64(len(data)), MaxFooter)
	if err != nil {
		tb.Fatal(err)
	}
	return data[len(data)-trailerSize-int(n) : len(data)-trailerSize]
}

// parquetFiles returns the Parquet files below a folder, by path.
func parquetFiles(tb testing.TB, dir string) map[string][]byte {
	tb.Helper()
	found := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".parquet") {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(string(data), magic) { // some tables test the log alone
			found[path] = data
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// wide returns the footer of a file of many columns, whose row groups say the
// same, repeated until it is as large as asked.
func wide(tb testing.TB, data []byte, size int) []byte {
	tb.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	m := r.MetaData()
	n := size/len(footerOf(tb, data)) + 1
	m.RowGroups = slices.Repeat(m.RowGroups, n)
	m.NumRows *= int64(n)
	p, err := m.Serialize(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestFootersOfRealWritersPass(t *testing.T) {
	t.Parallel()
	n := 0
	for _, dir := range []string{filepath.Join("..", "delta", "testdata"), tables(t)} {
		for path, data := range parquetFiles(t, dir) {
			footer := footerOf(t, data)
			if err := CheckFooter(footer); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			meta, err := ReadFooter(bytes.NewReader(data), int64(len(data)), MaxFooter)
			if err != nil || meta.GetSourceFileSize() != int64(len(data)) {
				t.Errorf("%s: %v", path, err)
			}
			n++
		}
	}
	t.Logf("%d footers", n)
	if n < 300 {
		t.Errorf("only %d footers", n)
	}
}

func TestFootersOfThisLibraryPass(t *testing.T) {
	t.Parallel()
	for name, data := range small(t) {
		if err := CheckFooter(footerOf(t, data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	data, _ := generate(t, columns()[4], layout{rows: 60, groupRows: 35, distinct: 9}, 3)
	footer := wide(t, data, 20<<20)
	began := time.Now()
	if err := CheckFooter(footer); err != nil {
		t.Errorf("%d bytes: %v", len(footer), err)
	}
	t.Logf("%d bytes in %v", len(footer), time.Since(began))
}

// nested returns the footer of a file without rows, whose schema nests n groups.
func nested(n int) []byte {
	footer := list([]byte{0x15, 2}, 0x19, n+1) // version, count of elements
	for range n {
		footer = append(footer, 0x35, 0, 0x18, 1, 'a', 0x15, 2, 0) // required group of one
	}
	return append(footer, 0x15, 2, 0x25, 0, 0x18, 1, 'a', 0, 0x16, 0, 0x19, 0x0c, 0) // column, no rows, no row groups
}

// list appends the head of a field that is a list of structs.
func list(p []byte, field byte, n int) []byte {
	return binary.AppendUvarint(append(p, field, 0xf0|thriftStruct), uint64(n))
}

// flat returns a footer whose root says that it has so many children, and that
// has the others.
func flat(said, has int) []byte {
	p := list([]byte{0x15, 2}, 0x19, has+1)
	p = append(p, 0x48, 1, 'r', 0x15)
	p = binary.AppendUvarint(p, uint64(said)<<1)
	p = append(p, 0)
	for range has {
		p = append(p, 0x15, 2, 0x25, 0, 0x18, 1, 'a', 0)
	}
	return append(p, 0x16, 0, 0x19, 0x0c, 0)
}

func TestFootersThatWouldNotStayInBoundsAreRefused(t *testing.T) {
	t.Parallel()
	for name, footer := range map[string][]byte{
		"nested as deep as can be": nested(maxSchemaDepth - 1),
		"no columns":               flat(0, 0),
		"columns":                  flat(1000, 1000),
	} {
		if err := CheckFooter(footer); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := metadata.NewFileMetaData(footer, nil); err != nil {
			t.Errorf("%s: Arrow says %v", name, err)
		}
	}
	chunks := list([]byte{0x15, 2}, 0x39, 1)                                   // a row group
	chunks = list(chunks, 0x19, maxColumnChunks+1)                             // its columns
	chunks = append(chunks, bytes.Repeat([]byte{0x26, 0, 0}, 3*(1<<20))...)    // of three bytes each
	deep := bytes.Repeat([]byte{0xfc}, 1000)                                   // a struct in field 15 in field 15 ...
	lists := append([]byte{0xf9}, bytes.Repeat([]byte{0x19}, 1000)...)         // a list of one list of one list ...
	confused := append([]byte{0x15, 2, 0x19, 0x83}, make([]byte, 8)...)        // a schema of eight bytes
	inChunk := []byte{0x15, 2, 0x39, 0x1c, 0x19, 0x1c, 0x3c, 0x39, 0xf8, 0x40} // path_in_schema of 64 in 0 bytes
	for name, test := range map[string]struct {
		footer []byte
		want   error
	}{
		"one group too deep":                     {nested(maxSchemaDepth), storage.ErrCorrupt},
		"8 million groups deep":                  {nested(8 << 20), storage.ErrRefused},
		"250,000 groups deep":                    {nested(250_000), storage.ErrCorrupt},
		"99 million elements in no bytes":        {list([]byte{0x15, 2}, 0x19, 99_000_000), storage.ErrCorrupt},
		"99 million row groups in no bytes":      {list([]byte{0x15, 2}, 0x39, 99_000_000), storage.ErrCorrupt},
		"64 names in no bytes":                   {inChunk, storage.ErrCorrupt},
		"more children than elements":            {flat(1<<30, 2), storage.ErrCorrupt},
		"more elements than children":            {flat(1, 2), storage.ErrCorrupt},
		"elements behind a root without any":     {flat(0, 2), storage.ErrCorrupt},
		"more elements than are read":            {flat(maxSchemaNodes, maxSchemaNodes), storage.ErrRefused},
		"more column chunks than are read":       {chunks, storage.ErrRefused},
		"structs that nest in an unknown field":  {deep, storage.ErrCorrupt},
		"lists that nest in an unknown field":    {lists, storage.ErrCorrupt},
		"a schema that is said to hold bytes":    {confused, storage.ErrCorrupt},
		"a footer that ends within a struct":     {nested(3)[:20], storage.ErrCorrupt},
		"a footer of no bytes":                   {nil, storage.ErrCorrupt},
		"a field of no type the protocol knows":  {[]byte{0x1e}, storage.ErrCorrupt},
		"a negative number of children":          {[]byte{0x15, 2, 0x19, 0x1c, 0x48, 1, 'r', 0x15, 1, 0, 0}, storage.ErrCorrupt},
		"a text that is longer than the footer":  {[]byte{0x15, 2, 0x58, 0xff, 0xff, 0xff, 0xff, 0x0f}, storage.ErrCorrupt},
		"a map of 99 million entries, no bytes":  {append([]byte{0xfb}, binary.AppendUvarint(nil, 99_000_000)...), storage.ErrCorrupt},
		"a list of 2^64-1 elements in a column":  {append([]byte{0x15, 2, 0x39, 0xfc}, bytes.Repeat([]byte{0xff}, 10)...), storage.ErrCorrupt},
		"a row group whose columns are integers": {[]byte{0x15, 2, 0x39, 0x1c, 0x19, 0x15, 0, 0, 0}, storage.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := CheckFooter(test.footer); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			data := append([]byte(magic), test.footer...)
			data = append(binary.LittleEndian.AppendUint32(data, uint32(len(test.footer))), magic...)
			_, err := Open(t.Context(), newObjects("f", data), "f", int64(len(data)))
			var corrupt *storage.CorruptError
			if !errors.Is(err, test.want) || errors.As(err, &corrupt) && corrupt.Key != "f" {
				t.Errorf("Open: got %v, want %v", err, test.want)
			}
		})
	}
}

func TestAFooterThatIsTooLargeOrEncryptedIsRefusedByName(t *testing.T) {
	t.Parallel()
	data, _ := generate(t, columns()[4], layout{rows: 60, groupRows: 35, distinct: 9, props: []parquet.WriterProperty{parquet.WithStats(false)}}, 3)
	size := int64(len(data))
	n := int64(len(footerOf(t, data)))
	if _, err := ReadFooter(bytes.NewReader(data), size, n); err != nil {
		t.Error(err)
	}
	var refusal *storage.Refusal
	if _, err := ReadFooter(bytes.NewReader(data), size, n-1); !errors.As(err, &refusal) || refusal.Code != "footer_too_large" {
		t.Errorf("got %v", err)
	}
	encrypted := append(bytes.Clone(data[:size-4]), magicEncrypted...)
	if _, err := ReadFooter(bytes.NewReader(encrypted), size, n); !errors.As(err, &refusal) || refusal.Code != "encrypted_file" {
		t.Errorf("got %v", err)
	}
	for n := range data {
		if _, err := ReadFooter(bytes.NewReader(data[:n]), int64(n), size); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("the first %d bytes: got %v", n, err)
		}
		if _, err := ReadFooter(bytes.NewReader(data[:n]), size, size); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%d bytes where %d are said: got %v", n, size, err)
		}
	}
}

// FuzzCheckFooter: what the check lets pass, Arrow decodes or says that it
// cannot, within memory in proportion to it.
func FuzzCheckFooter(f *testing.F) {
	n := 0
	for _, data := range parquetFiles(f, filepath.Join("..", "delta", "testdata")) {
		f.Add(footerOf(f, data))
		n++
	}
	if n == 0 {
		f.Fatal("no real footers")
	}
	for _, data := range small(f) {
		f.Add(footerOf(f, data))
	}
	f.Add(nested(3))
	f.Add(flat(3, 3))
	f.Fuzz(func(t *testing.T, footer []byte) {
		err := CheckFooter(footer)
		var corrupt *storage.CorruptError
		switch {
		case err == nil:
		case errors.As(err, &corrupt):
			if corrupt.Offset < 0 || corrupt.Offset > int64(len(footer)) {
				t.Fatalf("offset %d of %d", corrupt.Offset, len(footer))
			}
			return
		case errors.Is(err, storage.ErrRefused):
			return
		default:
			t.Fatalf("an error of no kind: %v", err)
		}
		meta, err := decodeFooter(footer, int64(len(magic)+len(footer)+trailerSize))
		if err != nil {
			return
		}
		chunks := 0
		for _, group := range meta.RowGroups {
			chunks += len(group.Columns)
		}
		if len(meta.GetSchema()) > len(footer) || chunks > len(footer) || len(meta.RowGroups) > len(footer) {
			t.Fatalf("%d elements, %d chunks of %d bytes", len(meta.GetSchema()), chunks, len(footer))
		}
		for _, c := range meta.Schema.Columns() {
			if len(c.ColumnPath()) > maxSchemaDepth {
				t.Fatalf("%d names in a path", len(c.ColumnPath()))
			}
		}
	})
}
