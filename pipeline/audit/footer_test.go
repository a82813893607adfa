package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	parquetfile "github.com/apache/arrow-go/v18/parquet/file"
	parquetmeta "github.com/apache/arrow-go/v18/parquet/metadata"

	"delenda/storage"
)

// ended returns a file of a footer alone.
func ended(footer []byte) []byte {
	p := append([]byte("PAR1"), footer...)
	return append(binary.LittleEndian.AppendUint32(p, uint32(len(footer))), "PAR1"...)
}

// listField appends the head of a list field.
func listField(p []byte, field, elem byte, n int) []byte {
	return binary.AppendUvarint(append(p, field, 0xf0|elem), uint64(n))
}

// nested returns a Parquet file without rows, whose schema nests n groups.
func nested(n int) []byte {
	footer := listField([]byte{0x15, 2}, 0x19, thriftStruct, n+1) // version, count of elements
	for range n {
		footer = append(footer, 0x35, 0, 0x18, 1, 'a', 0x15, 2, 0) // required group of one
	}
	return ended(append(footer, 0x15, 2, 0x25, 0, 0x18, 1, 'a', 0, 0x16, 0, 0x19, 0x0c, 0)) // column, no rows, no row groups
}

func Test_a_schema_that_nests_too_deep_is_refused(t *testing.T) {
	t.Parallel()
	if err := decode(t, nested(maxDepth-1)); err != nil {
		t.Error(err)
	}
	for _, n := range []int{maxDepth, 250_000, maxFooter/8 - 8, maxFooter} {
		if err := decode(t, nested(n)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%d groups: got %v", n, err)
		}
	}
}

func Test_a_footer_that_claims_more_than_it_holds_is_refused(t *testing.T) {
	t.Parallel()
	child := func(n uint64) []byte {
		p := append([]byte{0x15, 2, 0x19, 0x2c, 0x48, 1, 'r', 0x15}, binary.AppendUvarint(nil, n)...)
		return append(p, 0, 0x15, 2, 0x25, 0, 0x18, 1, 'a', 0, 0x16, 0, 0x19, 0x0c, 0)
	}
	if err := checkFooter(ended(child(2))); err != nil { // zigzag: one
		t.Error(err)
	}
	for name, footer := range map[string][]byte{
		"nothing":                          nil,
		"elements":                         listField([]byte{0x15, 2}, 0x19, thriftStruct, 99_000_000),
		"row groups":                       listField([]byte{0x15, 2}, 0x39, thriftStruct, 99_000_000),
		"names":                            {0x15, 2, 0x39, 0x1c, 0x19, 0x1c, 0x3c, 0x39, 0xf8, 0x40},
		"a schema of bytes":                append([]byte{0x15, 2, 0x19, 0x83}, make([]byte, 9)...),
		"no children":                      child(0),
		"a child too many":                 child(4),
		"a negative number of children":    child(1),
		"as many children as can be":       child(1<<64 - 2),
		"structs in structs":               bytes.Repeat([]byte{0xfc}, 1000),
		"lists in lists":                   append([]byte{0xf9}, bytes.Repeat([]byte{0x19}, 1000)...),
		"a map":                            append([]byte{0xfb}, binary.AppendUvarint(nil, 99_000_000)...),
		"a text":                           {0x15, 2, 0x58, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"a list of more than all integers": append([]byte{0x15, 2, 0x39, 0xfc}, bytes.Repeat([]byte{0xff}, 10)...),
	} {
		if err := decode(t, ended(footer)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := checkFooter(ended(footer)); err == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

func Test_footers_of_real_writers_are_read(t *testing.T) {
	t.Parallel()
	tables := os.Getenv("DELENDA_TABLES")
	if tables == "" {
		tables = filepath.Join("..", "..", "..", "shared", "tables", "delta")
	}
	n := 0
	for _, dir := range []string{filepath.Join("..", "..", "storage", "delta", "testdata"), tables} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the foreign tables are not part of this module
			}
			if err != nil || !strings.HasSuffix(path, ".parquet") {
				return err
			}
			p, err := os.ReadFile(path)
			if err != nil || !bytes.HasSuffix(p, []byte("PAR1")) {
				return err
			}
			n++
			if err := checkFooter(p); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d footers", n)
	if n < 10 {
		t.Errorf("only %d footers", n)
	}
}

func Test_a_footer_of_many_megabytes_is_read(t *testing.T) {
	t.Parallel()
	p := damaged(t)[1]
	r, err := parquetfile.NewParquetReader(bytes.NewReader(p))
	if err != nil {
		t.Fatal(err)
	}
	meta := r.MetaData() // the same row groups again and again
	n := 24 << 20 / int(binary.LittleEndian.Uint32(p[len(p)-8:]))
	meta.RowGroups = slices.Repeat(meta.RowGroups, n)
	meta.NumRows *= int64(n)
	footer, err := meta.Serialize(t.Context())
	if err != nil || len(footer) < 9<<20 {
		t.Fatalf("%d bytes, %v", len(footer), err)
	}
	q := append(slices.Clip(p), footer...)
	q = append(binary.LittleEndian.AppendUint32(q, uint32(len(footer))), "PAR1"...)
	if err := checkFooter(q); err != nil {
		t.Error(err)
	}
}

// FuzzCheckFooter: what the walk lets pass, the library builds or says that it
// cannot, within memory in proportion to it.
func FuzzCheckFooter(f *testing.F) {
	for _, p := range damaged(f) {
		n := int(binary.LittleEndian.Uint32(p[len(p)-8:]))
		f.Add(p[len(p)-8-n : len(p)-8])
	}
	f.Fuzz(func(t *testing.T, footer []byte) {
		if checkFooter(ended(footer)) != nil {
			return
		}
		_ = guard("f", func() error {
			meta, err := parquetmeta.NewFileMetaData(footer, nil)
			if err == nil && len(meta.GetSchema()) > len(footer) {
				t.Errorf("%d elements of %d bytes", len(meta.GetSchema()), len(footer))
			}
			return nil
		})
	})
}
