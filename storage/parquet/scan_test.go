package parquet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"delenda/storage/match"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	gocmp "github.com/google/go-cmp/cmp"
)

func long() bool { return os.Getenv("DELENDA_LONG") == "1" }

var allCodecs = []compress.Compression{
	compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip,
	compress.Codecs.Brotli, compress.Codecs.Zstd, compress.Codecs.Lz4Raw,
}

// want returns what a scan must emit for one subject per text.
func want(rows []*string, texts []string) []found {
	subjects := make(map[string][]int)
	for i, text := range texts {
		subjects[text] = append(subjects[text], i)
	}
	var out []found
	for row, text := range rows {
		if text == nil {
			continue
		}
		for _, s := range subjects[*text] {
			out = append(out, found{s, int64(row)})
		}
	}
	return out
}

func open(tb testing.TB, data []byte) (*File, *objects) {
	tb.Helper()
	b := newObjects("f.parquet", data)
	f, err := Open(tb.Context(), b, "f.parquet", int64(len(data)))
	if err != nil {
		tb.Fatal(err)
	}
	return f, b
}

func scan(tb testing.TB, f *File, leaf Leaf, keys *match.ColumnKeys) ([]found, Stats) {
	tb.Helper()
	var got []found
	st, err := f.Scan(tb.Context(), []Key{{leaf, keys}}, func(s int, row int64) { got = append(got, found{s, row}) })
	if err != nil {
		tb.Fatal(err)
	}
	return got, st
}

// scanFallback is scan by Arrow's readers alone, without pruning.
func scanFallback(tb testing.TB, f *File, leaf Leaf, keys *match.ColumnKeys) ([]found, error) {
	tb.Helper()
	p, err := f.newProbe(leaf, keys)
	if err != nil {
		tb.Fatal(err)
	}
	var got []found
	var st Stats
	for rg := range f.meta.RowGroups {
		err := f.fallback(tb.Context(), rg, leaf, p, 0, &st, func(id int32, row int64) {
			for _, s := range keys.Subjects(int(id)) {
				got = append(got, found{s, row})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return got, nil
}

// pick returns keys for a scan: some that rows have, one twice, some that none has.
func pick(r *rand.Rand, c column, rows []*string, n int) []string {
	var texts []string
	for range n {
		if text := rows[r.IntN(len(rows))]; text != nil {
			texts = append(texts, *text)
		}
		texts = append(texts, c.pool(r))
	}
	return append(texts, texts[0])
}

func TestScanFindsWhatArrowFinds(t *testing.T) {
	t.Parallel()
	for _, c := range columns() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(1)
			for _, encoding := range append([]parquet.Encoding{parquet.Encodings.PlainDict, parquet.Encodings.Plain}, c.encodings...) {
				for i, codec := range allCodecs {
					for _, version := range []parquet.DataPageVersion{parquet.DataPageV1, parquet.DataPageV2} {
						for shape, nulls := range []int{0, 0, 30, 100} {
							if !long() && (i+shape+int(version))%3 != 0 {
								continue
							}
							seed++
							l := layout{
								rows: 700, groupRows: 300, nulls: nulls, optional: shape == 1, distinct: 40,
								props: []parquet.WriterProperty{
									parquet.WithCompression(codec), parquet.WithDataPageVersion(version),
									parquet.WithDataPageSize(int64(64 << (3 * (seed % 4)))), parquet.WithBatchSize(16),
									parquet.WithDictionaryDefault(encoding == parquet.Encodings.PlainDict),
									parquet.WithPageIndexEnabled(seed%2 == 0),
								},
							}
							if encoding != parquet.Encodings.PlainDict {
								l.props = append(l.props, parquet.WithEncodingFor("key", encoding))
								if encoding == parquet.Encodings.RLE { // Arrow's encoder repeats earlier pages
									l.props = append(l.props, parquet.WithDataPageSize(1<<20))
								}
							}
							check(t, c, l, seed, fmt.Sprintf("%s %s V%d %d%% null", encoding, codec, version+1, nulls))
						}
					}
				}
			}
		})
	}
}

// check generates a file and compares the scan with Arrow and with the model.
func check(t *testing.T, c column, l layout, seed uint64, name string) {
	t.Helper()
	data, rows := generate(t, c, l, seed)
	f, _ := open(t, data)
	leaf, err := f.LeafByFieldID(7)
	if err != nil {
		t.Fatal(err)
	}
	texts := pick(rand.New(rand.NewPCG(seed, 2)), c, rows, 5)
	keys := compile(t, c.deltaType, texts)
	expected := want(rows, texts)
	got, _ := scan(t, f, leaf, keys)
	slow, err := scanFallback(t, f, leaf, keys)
	if err != nil {
		if l.nulls == 0 || !strings.Contains(name, "DELTA") && !strings.Contains(name, "BROTLI") {
			t.Fatalf("%s, seed %d: Arrow: %v", name, seed, err)
		}
		slow = slices.Clone(expected) // Arrow does not read all of its own pages of nulls alone
	}
	for _, list := range [][]found{expected, got, slow} {
		slices.SortStableFunc(list, func(a, b found) int { return int(a.Row - b.Row) })
	}
	if diff := gocmp.Diff(expected, got); diff != "" {
		t.Fatalf("%s, seed %d: scan (-want +got):\n%s", name, seed, diff)
	}
	if diff := gocmp.Diff(expected, slow); diff != "" {
		t.Fatalf("%s, seed %d: Arrow (-want +got):\n%s", name, seed, diff)
	}
}

func TestScanReadsStructMembersAtEveryDepth(t *testing.T) {
	t.Parallel()
	for depth := range 5 {
		for _, version := range []parquet.DataPageVersion{parquet.DataPageV1, parquet.DataPageV2} {
			l := layout{rows: 900, groupRows: 400, nulls: 40, distinct: 30, depth: depth, props: []parquet.WriterProperty{
				parquet.WithDataPageSize(200), parquet.WithBatchSize(8), parquet.WithDataPageVersion(version),
			}}
			check(t, columns()[2], l, uint64(depth), fmt.Sprint("depth ", depth))
		}
	}
}

func TestScanPrunesRowGroupsAndPagesButNotPositions(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"long in INT64", "UUID as string", "date", "timestamp in micros", "decimal in INT64"} {
		c := columns()[slices.IndexFunc(columns(), func(c column) bool { return c.name == name })]
		sorted := c
		sorted.pool = sortedPool(c, 4000)
		for _, dict := range []bool{false, true} {
			l := layout{rows: 40_000, groupRows: 10_000, nulls: 10, distinct: 4000, sorted: true, props: []parquet.WriterProperty{
				parquet.WithDataPageSize(2048), parquet.WithBatchSize(100), parquet.WithPageIndexEnabled(true), parquet.WithDictionaryDefault(dict),
			}}
			data, rows := generate(t, sorted, l, 5)
			f, _ := open(t, data)
			leaf, err := f.LeafByName("key")
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(9, 9))
			texts := []string{*rows[slices.IndexFunc(rows[12345:], func(s *string) bool { return s != nil })+12345], c.pool(r)}
			got, st := scan(t, f, leaf, compile(t, c.deltaType, texts))
			if diff := gocmp.Diff(want(rows, texts), got); diff != "" {
				t.Errorf("%s, dictionary %v (-want +got):\n%s", name, dict, diff)
			}
			if st.RowGroupsPruned < 2 || st.PagesSkipped == 0 || st.RowsScanned > 5000 {
				t.Errorf("%s, dictionary %v: %+v: want less work", name, dict, st)
			}
		}
	}
}

// sortedPool yields ascending values as c's physical order has them.
func sortedPool(c column, n int) func(*rand.Rand) string {
	r := rand.New(rand.NewPCG(3, 3))
	texts := make([]string, n)
	for i := range texts {
		texts[i] = c.pool(r)
	}
	keys := make(map[string]*match.ColumnKeys, n)
	for _, text := range texts {
		keys[text] = compileOne(c.deltaType, text)
	}
	slices.SortFunc(texts, func(a, b string) int {
		if keys[a].Type.Kind() == match.KindInt {
			return cmp.Compare(keys[a].Ints()[0], keys[b].Ints()[0])
		}
		return slices.Compare(keys[a].Values()[0], keys[b].Values()[0])
	})
	i := -1
	return func(*rand.Rand) string { i++; return texts[i%n] }
}

func TestScanSkipsAChunkWhoseDictionaryHasNoKey(t *testing.T) {
	t.Parallel()
	c := columns()[2]
	l := layout{rows: 500_000, groupRows: 500_000, distinct: 1000, props: []parquet.WriterProperty{parquet.WithStats(false)}}
	data, _ := generate(t, c, l, 1)
	f, _ := open(t, data)
	leaf, err := f.LeafByName("key")
	if err != nil {
		t.Fatal(err)
	}
	got, st := scan(t, f, leaf, compile(t, c.deltaType, []string{"17"}))
	if len(got) != 0 || st.RowsScanned != 0 || st.BytesRead > int64(len(data))/2 {
		t.Errorf("got %d hits, %+v of %d bytes", len(got), st, len(data))
	}
}

func TestScanUsesBloomFiltersForFewKeys(t *testing.T) {
	t.Parallel()
	for _, i := range []int{1, 2, 6} {
		c := columns()[i]
		l := layout{rows: 50_000, groupRows: 25_000, distinct: 50_000, props: []parquet.WriterProperty{
			parquet.WithStats(false), parquet.WithDictionaryDefault(false), parquet.WithBloomFilterEnabled(true),
			parquet.WithMaxBloomFilterBytes(64 << 10), parquet.WithBloomFilterNDV(25_000),
		}}
		if i == 1 {
			c.pool = func(r *rand.Rand) string { return fmt.Sprint(r.Int32()) }
		}
		data, rows := generate(t, c, l, 1)
		f, _ := open(t, data)
		leaf, err := f.LeafByName("key")
		if err != nil {
			t.Fatal(err)
		}
		texts := []string{*rows[100], *rows[30_000]}
		got, st := scan(t, f, leaf, compile(t, c.deltaType, texts))
		if diff := gocmp.Diff(want(rows, texts), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		absent := map[string]string{"integer in INT32": "-5", "long in INT64": "-5", "UUID as string": "nobody"}[c.name]
		if _, st = scan(t, f, leaf, compile(t, c.deltaType, []string{absent})); st.RowGroupsPruned != 2 {
			t.Errorf("%s: %+v: want both row groups pruned", c.name, st)
		}
	}
}

func TestScanStopsWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	c := columns()[2]
	data, rows := generate(t, c, layout{rows: 100, groupRows: 10, distinct: 5}, 1)
	f, _ := open(t, data)
	leaf, err := f.LeafByName("key")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Scan(ctx, []Key{{leaf, compile(t, c.deltaType, []string{*rows[0]})}}, func(int, int64) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func compileOne(deltaType, text string) *match.ColumnKeys {
	return compile(&testing.T{}, deltaType, []string{text})
}
