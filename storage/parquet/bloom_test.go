package parquet

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/apache/arrow-go/v18/parquet"
)

// TestBloomFiltersNeverHideAMatch gives every kind of column a filter that a
// scan for few keys looks into.
func TestBloomFiltersNeverHideAMatch(t *testing.T) {
	t.Parallel()
	for _, c := range columns() {
		if c.physical == parquet.Types.Boolean {
			continue // has no filter
		}
		l := layout{rows: 30_000, groupRows: 30_000, distinct: 30_000, props: []parquet.WriterProperty{
			parquet.WithStats(false), parquet.WithDictionaryDefault(false), parquet.WithBloomFilterEnabled(true),
			parquet.WithMaxBloomFilterBytes(32 << 10), parquet.WithBloomFilterNDV(30_000),
		}}
		data, rows := generate(t, c, l, 1)
		f, _ := open(t, data)
		if f.meta.RowGroups[0].Columns[1].MetaData.GetBloomFilterOffset() == 0 {
			t.Errorf("%s: the file has no filter", c.name)
		}
		leaf, err := f.LeafByName("key")
		if err != nil {
			t.Fatal(err)
		}
		texts := []string{*rows[100], *rows[29_000]}
		got, _ := scan(t, f, leaf, compile(t, c.deltaType, texts))
		expected := want(rows, texts)
		slices.SortStableFunc(got, func(a, b found) int { return int(a.Row - b.Row) })
		if diff := gocmp.Diff(expected, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
