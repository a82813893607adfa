package deletion

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"delenda/storage"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
)

// arrowFile writes batches of rows with Arrow's own writer.
func arrowFile(tb testing.TB, field arrow.Field, options []ipc.Option, batches ...[]uint32) []byte {
	tb.Helper()
	schema := arrow.NewSchema([]arrow.Field{field}, nil)
	var out bytes.Buffer
	w, err := ipc.NewFileWriter(&out, append(options, ipc.WithSchema(schema))...)
	if err != nil {
		tb.Fatal(err)
	}
	for _, rows := range batches {
		b := array.NewUint32Builder(memory.DefaultAllocator)
		b.AppendValues(rows, nil)
		column := b.NewArray()
		if err := w.Write(array.NewRecordBatch(schema, []arrow.Array{column}, int64(len(rows)))); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

var rowField = arrow.Field{Name: rowID, Type: arrow.PrimitiveTypes.Uint32}

func TestLanceFilesComeBack(t *testing.T) {
	t.Parallel()
	for name, s := range goldens() {
		if s.Max() >= 1<<32 {
			for _, encode := range []func(*Set) ([]byte, error){EncodeLanceArrow, EncodeLanceBitmap} {
				if _, err := encode(s); err == nil {
					t.Errorf("%s: rows from 2^32 on: no error", name)
				}
			}
			continue
		}
		p, err := EncodeLanceArrow(s)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeLanceArrow(p, s.Cardinality(), s.Max()+1); err != nil || !back.Equal(s) {
			t.Errorf("%s: .arrow: %v", name, err)
		}
		if p, err = EncodeLanceBitmap(s); err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeLanceBitmap(p, s.Cardinality(), s.Max()+1); err != nil || !back.Equal(s) {
			t.Errorf("%s: .bin: %v", name, err)
		}
	}
}

func TestLanceArrowFilesOfOthersAreRead(t *testing.T) {
	t.Parallel()
	rows := make([]uint32, 5000)
	for i := range rows {
		rows[i] = uint32(i * 7 % 5001)
	}
	for name, options := range map[string][]ipc.Option{"plain": nil, "zstd": {ipc.WithZstd()}} {
		s, err := DecodeLanceArrow(arrowFile(t, rowField, options, rows), 5000, 5001)
		if err != nil || s.Cardinality() != 5000 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBrokenLanceFilesAreCorrupt(t *testing.T) {
	t.Parallel()
	nullable := rowField
	nullable.Nullable = true
	good := arrowFile(t, rowField, nil, []uint32{1, 5})
	for name, c := range map[string]struct {
		file          []byte
		deleted, rows int64
	}{
		"another column":        {arrowFile(t, arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Uint32}, nil, []uint32{1}), 1, 9},
		"a nullable column":     {arrowFile(t, nullable, nil, []uint32{1}), 1, 9},
		"two batches":           {arrowFile(t, rowField, nil, []uint32{1}, []uint32{2}), 2, 9},
		"no batch":              {arrowFile(t, rowField, nil), 0, 9},
		"LZ4":                   {arrowFile(t, rowField, []ipc.Option{ipc.WithLZ4()}, make([]uint32, 1000)), 1000, 9},
		"a row twice":           {arrowFile(t, rowField, nil, []uint32{1, 1}), 2, 9},
		"a row past the end":    {good, 2, 5},
		"another count":         {good, 3, 9},
		"a file that is cut":    {good[:len(good)-1], 2, 9},
		"nothing":               {nil, 0, 9},
		"bytes that are no one": {bytes.Repeat([]byte{7}, 100), 0, 9},
	} {
		if _, err := DecodeLanceArrow(c.file, c.deleted, c.rows); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
	bitmap, err := EncodeLanceBitmap(New(1, 5))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file          []byte
		deleted, rows int64
	}{
		"bytes behind it": {append(bytes.Clone(bitmap), 0), 2, 9}, "another count": {bitmap, 1, 9}, "a row past the end": {bitmap, 2, 5}, "cut": {bitmap[:9], 2, 9},
	} {
		if _, err := DecodeLanceBitmap(c.file, c.deleted, c.rows); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf(".bin, %s: got %v, want ErrCorrupt", name, err)
		}
	}
}

func TestForeignLanceDeletionFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(filepath.Dir(tables(t)), "lance")
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "_deletions", "*.arrow"))
	if err != nil || len(files) == 0 {
		t.Skipf("no foreign Lance deletion files at %s", dir)
	}
	for _, name := range files {
		p, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := DecodeLanceArrow(p, -1, 1<<32)
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
			continue
		}
		t.Logf("%s: %v", filepath.Base(name), collect(s))
	}
}

func TestLanceKeysNameFragmentVersionAndID(t *testing.T) {
	t.Parallel()
	got := []string{LanceKey(0, 1, 8958018423523767581, false), LanceKey(7, 12, 3, true)}
	if diff := cmp.Diff([]string{"_deletions/0-1-8958018423523767581.arrow", "_deletions/7-12-3.bin"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzDecodeLance(f *testing.F) {
	f.Add(arrowFile(f, rowField, nil, []uint32{1, 5, 9}))
	f.Add(arrowFile(f, rowField, []ipc.Option{ipc.WithZstd()}, make([]uint32, 300)))
	f.Add([]byte{0x3A, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 7, 0})
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, decode := range []func([]byte, int64, int64) (*Set, error){DecodeLanceArrow, DecodeLanceBitmap} {
			s, err := decode(file, -1, 1<<32)
			if err != nil {
				if s != nil || !errors.Is(err, storage.ErrCorrupt) {
					t.Fatalf("got %v, %v", s, err)
				}
				continue
			}
			p, err := EncodeLanceBitmap(s)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := DecodeLanceBitmap(p, s.Cardinality(), s.Max()+1); err != nil || !back.Equal(s) {
				t.Fatalf("second decoding: %v", err)
			}
		}
	})
}
