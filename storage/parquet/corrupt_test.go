package parquet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"delenda/storage"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// small generates little files of many kinds.
func small(tb testing.TB) map[string][]byte {
	tb.Helper()
	files := make(map[string][]byte)
	for _, i := range []int{2, 4, 5, 8, 15, 18} {
		c := columns()[i]
		for j, props := range [][]parquet.WriterProperty{
			{parquet.WithDictionaryDefault(false), parquet.WithDataPageVersion(parquet.DataPageV2)},
			{parquet.WithCompression(compress.Codecs.Snappy), parquet.WithPageIndexEnabled(true), parquet.WithBloomFilterEnabled(true), parquet.WithMaxBloomFilterBytes(64)},
			{parquet.WithCompression(compress.Codecs.Zstd), parquet.WithDataPageVersion(parquet.DataPageV2)},
			{parquet.WithCompression(compress.Codecs.Gzip), parquet.WithStats(false)},
		} {
			props = append(props, parquet.WithDataPageSize(100), parquet.WithBatchSize(16))
			data, _ := generate(tb, c, layout{rows: 60, groupRows: 35, nulls: 20 * (j % 2), distinct: 9, props: props}, 3)
			files[c.name+string(rune('0'+j))] = data
		}
	}
	return files
}

// scanAnything opens and scans bytes that may be anything, for keys that may
// be there, and returns the first error.
func scanAnything(tb testing.TB, data []byte, size int64) error {
	tb.Helper()
	f, err := Open(tb.Context(), newObjects("f", data), "f", size)
	if err != nil {
		return err
	}
	var first error
	for i, c := range f.meta.Schema.Columns() {
		if c.MaxRepetitionLevel() > 0 {
			continue
		}
		for _, deltaType := range []string{"long", "binary", "timestamp", "decimal(18,4)", "boolean"} {
			keys := compile(tb, deltaType, map[string][]string{
				"long": {"0", "17"}, "binary": {"", "00", strings.Repeat("ab", 16)}, "timestamp": {"2000-01-01T00:00:00Z"},
				"decimal(18,4)": {"0", "12.5"}, "boolean": {"true"},
			}[deltaType])
			_, err := f.Scan(tb.Context(), []Key{{Leaf{i, c}, keys}}, func(_ int, row int64) {
				if row < 0 || row >= f.NumRows() {
					tb.Fatalf("row %d of %d", row, f.NumRows())
				}
			})
			if err != nil && !errors.Is(err, storage.ErrRefused) && first == nil {
				first = err
			}
		}
	}
	return first
}

func TestTruncatedFilesAreCorrupt(t *testing.T) {
	t.Parallel()
	for name, data := range small(t) {
		if err := scanAnything(t, data, int64(len(data))); err != nil {
			t.Fatalf("%s: the whole file: %v", name, err)
		}
		for n := 0; n < len(data); n += 1 + n/40 {
			if err := scanAnything(t, data[:n], int64(n)); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s: the first %d bytes: got %v, want ErrCorrupt", name, n, err)
			}
			if err := scanAnything(t, data[:n], int64(len(data))); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s: %d bytes where %d are said: got %v, want ErrCorrupt", name, n, len(data), err)
			}
		}
	}
}

func TestDamagedFilesNeverPanic(t *testing.T) {
	t.Parallel()
	step := 7
	if long() {
		step = 1
	}
	for name, data := range small(t) {
		for at := 0; at < len(data); at += step {
			for _, b := range []byte{0x00, 0xFF, data[at] ^ 0x10, data[at] + 1} {
				damaged := bytes.Clone(data)
				damaged[at] = b
				if err := scanAnything(t, damaged, int64(len(damaged))); err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrRefused) {
					t.Fatalf("%s: byte %d: %v", name, at, err)
				}
			}
		}
	}
}

// failingBucket breaks every read off after some bytes.
type failingBucket struct {
	*objects
	after int64
}

var errBroken = errors.New("connection reset")

func (b *failingBucket) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := b.objects.Read(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(io.MultiReader(io.LimitReader(r, b.after), errReader{})), nil
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

func TestABrokenReadIsNotCorruption(t *testing.T) {
	t.Parallel()
	c := columns()[6]
	for _, encoding := range []parquet.Encoding{parquet.Encodings.Plain, parquet.Encodings.DeltaByteArray} {
		l := layout{rows: 20_000, groupRows: 20_000, distinct: 20_000, props: []parquet.WriterProperty{
			parquet.WithDictionaryDefault(false), parquet.WithEncodingFor("key", encoding),
		}}
		data, rows := generate(t, c, l, 1)
		b := newObjects("f", data)
		f, err := Open(t.Context(), b, "f", int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		f.bucket = &failingBucket{b, 100_000}
		leaf, err := f.LeafByName("key")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Scan(t.Context(), []Key{{leaf, compile(t, "string", []string{*rows[19_999]})}}, func(int, int64) {})
		if !errors.Is(err, errBroken) || errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: got %v, want the bucket's error", encoding, err)
		}
	}
}

func TestLeavesAreFoundByNameAndByFieldID(t *testing.T) {
	t.Parallel()
	leafNode := func(name string, id int32) schema.Node {
		return schema.NewInt64Node(name, parquet.Repetitions.Optional, id)
	}
	group := func(name string, nodes ...schema.Node) schema.Node {
		g, err := schema.NewGroupNode(name, parquet.Repetitions.Optional, nodes, -1)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	list := func(name string) schema.Node {
		n, err := schema.ListOf(leafNode("element", 20), parquet.Repetitions.Optional, -1)
		if err != nil {
			t.Fatal(err)
		}
		return group(name, n)
	}
	root, err := schema.NewGroupNode("table", parquet.Repetitions.Required, schema.FieldList{
		leafNode("Id", 1), leafNode("id", 2), leafNode("Name", 3), leafNode("a.b", 4), group("a", leafNode("b", 5), leafNode("twice", 6)), leafNode("twice", 6), list("tags"),
	}, -1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, _ := open(t, out.Bytes())
	for _, c := range []struct {
		path []string
		id   int32
		err  error
		code string
	}{
		{[]string{"Name"}, 3, nil, ""},
		{[]string{"name"}, 3, nil, ""},
		{[]string{"id"}, 0, storage.ErrRefused, "ambiguous_column"},
		{[]string{"a.b"}, 4, nil, ""},
		{[]string{"a", "b"}, 5, nil, ""},
		{[]string{"a", "B"}, 5, nil, ""},
		{[]string{"a"}, 0, ErrNoLeaf, ""},
		{[]string{"nobody"}, 0, ErrNoLeaf, ""},
		{nil, 0, ErrNoLeaf, ""},
	} {
		leaf, err := f.LeafByName(c.path...)
		checkLeaf(t, strings.Join(c.path, "/"), leaf, err, c.id, c.err, c.code)
	}
	for id, c := range map[int32]struct {
		err  error
		code string
	}{1: {nil, ""}, 2: {nil, ""}, 5: {nil, ""}, 6: {storage.ErrRefused, "ambiguous_column"}, 20: {storage.ErrRefused, "repeated_column"}, 99: {ErrNoLeaf, ""}, -1: {ErrNoLeaf, ""}} {
		leaf, err := f.LeafByFieldID(id)
		checkLeaf(t, "field id", leaf, err, id, c.err, c.code)
	}
}

func checkLeaf(t *testing.T, name string, leaf Leaf, err error, id int32, want error, code string) {
	t.Helper()
	if want == nil {
		if err != nil || leaf.column.SchemaNode().FieldID() != id {
			t.Errorf("%s: got %v, %v", name, leaf, err)
		}
		return
	}
	var refusal *storage.Refusal
	if !errors.Is(err, want) || (code != "" && (!errors.As(err, &refusal) || refusal.Code != code)) {
		t.Errorf("%s: got %v, want %v %s", name, err, want, code)
	}
}

func TestFileTypesWithoutAnExactReadingAreRefused(t *testing.T) {
	t.Parallel()
	byName := func(name string) column {
		for _, c := range columns() {
			if c.name == name {
				return c
			}
		}
		t.Fatal(name)
		return column{}
	}
	for _, c := range []struct{ file, deltaType, key string }{
		{"long in INT64", "string", "7"},
		{"long in INT64", "boolean", "true"},
		{"long in INT64", "timestamp", "2024-01-01T00:00:00Z"},
		{"string", "long", "7"},
		{"decimal in INT64", "long", "7"},
		{"decimal in INT64", "decimal(18,2)", "7"},
		{"decimal in FIXED", "binary", "00"},
		{"date", "long", "7"},
		{"date", "timestamp", "2024-01-01T00:00:00Z"},
		{"timestamp in micros", "date", "2024-01-01"},
		{"timestamp in micros", "long", "7"},
		{"boolean", "long", "1"},
	} {
		data, _ := generate(t, byName(c.file), layout{rows: 10, groupRows: 10, distinct: 3}, 1)
		f, _ := open(t, data)
		leaf, err := f.LeafByName("key")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Scan(t.Context(), []Key{{leaf, compile(t, c.deltaType, []string{c.key})}}, func(int, int64) {})
		var refusal *storage.Refusal
		if !errors.As(err, &refusal) || refusal.Code != "file_type_mismatch" {
			t.Errorf("%s as %s: got %v, want a refusal", c.file, c.deltaType, err)
		}
	}
}

func TestLegacyCalendarsAreRefusedForOldDates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		column, property, key string
		refused               bool
	}{
		{"date", "org.apache.spark.legacyDateTime", "1899-12-31", true},
		{"date", "org.apache.spark.legacyDateTime", "1900-01-01", false},
		{"date", "org.apache.spark.legacyINT96", "1899-12-31", false},
		{"timestamp in INT96", "org.apache.spark.legacyINT96", "1899-12-31T23:59:59Z", true},
		{"timestamp in micros", "org.apache.spark.legacyDateTime", "1582-01-01T00:00:00Z", true},
		{"timestamp in micros", "another", "1582-01-01T00:00:00Z", false},
	} {
		i := slices.IndexFunc(columns(), func(candidate column) bool { return candidate.name == c.column })
		data, _ := generate(t, columns()[i], layout{rows: 10, groupRows: 10, distinct: 3}, 1)
		f, _ := open(t, data)
		kv := metadata.NewKeyValueMetadata()
		if err := kv.Append(c.property, ""); err != nil {
			t.Fatal(err)
		}
		f.meta.FileMetaData.KeyValueMetadata = kv
		leaf, err := f.LeafByName("key")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Scan(t.Context(), []Key{{leaf, compile(t, columns()[i].deltaType, []string{c.key})}}, func(int, int64) {})
		if errors.Is(err, storage.ErrRefused) != c.refused {
			t.Errorf("%s %s %s: got %v, refused %v is wanted", c.column, c.property, c.key, err, c.refused)
		}
	}
}

func TestSmallFilesTakeOneRead(t *testing.T) {
	t.Parallel()
	c := columns()[2]
	data, rows := generate(t, c, layout{rows: 1000, groupRows: 300, distinct: 50}, 1)
	f, b := open(t, data)
	leaf, err := f.LeafByName("key")
	if err != nil {
		t.Fatal(err)
	}
	scan(t, f, leaf, compile(t, c.deltaType, []string{*rows[7]}))
	if n := b.reads.Load(); n != 1 {
		t.Errorf("%d reads", n)
	}
}

func TestEachColumnChunkTakesOneRead(t *testing.T) {
	t.Parallel()
	c := columns()[6]
	data, rows := generate(t, c, layout{rows: 60_000, groupRows: 20_000, distinct: 60_000}, 1)
	f, b := open(t, data)
	leaf, err := f.LeafByName("key")
	if err != nil {
		t.Fatal(err)
	}
	before := b.reads.Load()
	_, st := scan(t, f, leaf, compile(t, c.deltaType, []string{*rows[7]}))
	if n := b.reads.Load() - before; n > 3 {
		t.Errorf("%d reads of three chunks", n)
	}
	if st.BytesRead == 0 || st.RowsScanned != 60_000 {
		t.Errorf("%+v", st)
	}
}

func FuzzScan(f *testing.F) {
	for _, data := range small(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := scanAnything(t, data, int64(len(data))); err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrRefused) {
			t.Fatal(err)
		}
	})
}

func FuzzPageHeader(f *testing.F) {
	f.Add([]byte{0x15, 0x00, 0x15, 0x10, 0x15, 0x10, 0x2c, 0x15, 0x08, 0x15, 0x00, 0x15, 0x06, 0x15, 0x06, 0x00, 0x00})
	f.Add([]byte{0x15, 0x06, 0x15, 0x10, 0x15, 0x10, 0x5c, 0x15, 0x08, 0x15, 0x00, 0x15, 0x08, 0x15, 0x00, 0x15, 0x04, 0x15, 0x00, 0x11, 0x00, 0x00})
	f.Fuzz(func(t *testing.T, p []byte) {
		h, n, err := parsePageHeader(p)
		if err != nil {
			return
		}
		if n > len(p) || h.compressed < 0 || h.uncompressed < 0 || h.values < 0 {
			t.Fatalf("%+v in %d of %d bytes", h, n, len(p))
		}
		for i := range n { // every proper prefix is short, never another header
			if _, _, err := parsePageHeader(p[:i]); !errors.Is(err, errThriftShort) {
				t.Fatalf("the first %d of %d bytes: %v", i, n, err)
			}
		}
	})
}

func FuzzIndexes(f *testing.F) {
	f.Add([]byte{0x19, 0x1c, 0x16, 0x08, 0x15, 0x10, 0x16, 0x00, 0x00, 0x00})
	f.Add([]byte{0x19, 0x11, 0x02, 0x19, 0x18, 0x01, 0x61, 0x19, 0x18, 0x01, 0x62, 0x15, 0x00, 0x00})
	f.Fuzz(func(t *testing.T, p []byte) {
		pages, err := parseOffsetIndex(p)
		if err == nil && len(pages) > len(p) {
			t.Fatal("more pages than bytes")
		}
		bounds, err := parseColumnIndex(p)
		if err == nil && len(bounds) > len(p) {
			t.Fatal("more bounds than bytes")
		}
		parseBloomHeader(p)
	})
}

func FuzzHybrid(f *testing.F) {
	f.Add([]byte{0x03, 0xAA, 0x08, 0x01}, uint8(1), uint16(12))
	f.Add([]byte{0x05, 0x88, 0xC6, 0xFA, 0x88, 0xC6, 0xFA}, uint8(3), uint16(16))
	f.Fuzz(func(t *testing.T, p []byte, maxDef uint8, n uint16) {
		padded := append(bytes.Clone(p), make([]byte, slack)...)[:len(p)]
		var l levels
		if l.decode(padded, int(n), max(int(maxDef), 1)) == nil {
			if l.present > int(n) {
				t.Fatalf("%d of %d rows present", l.present, n)
			}
			last := -1
			for rank := range l.present {
				row := l.row(rank, 0, 0)
				if row <= last || row >= int(n) {
					t.Fatalf("value %d in row %d after %d", rank, row, last)
				}
				last = row
			}
		}
		var d dictionary
		d.reset()
		d.load(7, []hit{{1, 4}, {6, 2}})
		_ = d.find(padded, int(n), func(rank int, id int32) {
			if rank < 0 || rank >= int(n) || (id != 4 && id != 2) {
				t.Fatalf("value %d, key %d", rank, id)
			}
		})
		if r, err := newDeltaReader(padded); err == nil {
			for range min(r.left, int(n)) {
				if _, err := r.next(); err != nil {
					break
				}
			}
		}
	})
}

func TestLevelsMapValuesToRows(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		n := r.IntN(300)
		l := levels{rows: n, bits: make([]byte, (n+7)/8)}
		var rows []int
		density := r.IntN(11)
		for i := range n {
			if r.IntN(10) < density {
				l.bits[i>>3] |= 1 << (i & 7)
				rows = append(rows, i)
			}
		}
		rank, at := 0, 0
		for i := 0; i < len(rows); i += 1 + r.IntN(5) {
			at = l.row(i, rank, at)
			rank = i
			if at != rows[i] {
				t.Fatalf("value %d in row %d, want %d", i, at, rows[i])
			}
		}
	}
}
