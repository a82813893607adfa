package audit_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"delenda/pipeline/audit"
	"delenda/storage"
	"delenda/storage/bucket"
)

var testdata = filepath.Join("..", "..", "storage", "delta", "testdata")

// load copies a table into memory.
func load(t testing.TB, dir string) storage.Bucket {
	t.Helper()
	b := bucket.NewMemory()
	t.Cleanup(func() { _ = b.Close() })
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		key, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return b.Put(t.Context(), filepath.ToSlash(key), bytes.NewReader(p), storage.PutOptions{})
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func text(v *string) string {
	if v == nil {
		return "null"
	}
	return *v
}

func Test_rows_are_those_that_the_writer_itself_reads(t *testing.T) {
	t.Parallel()
	for table, columns := range map[string][]string{
		"spark-dv-name":       {"customer_id", "e-mail address", "price", "born", "city", "note"},
		"spark-dv-id":         {"customer_id", "e-mail address", "price", "born", "account", "contact.phone"},
		"deltars-plain":       {"customer_id", "email", "token", "active", "account"},
		"deltars-partitioned": {"customer_id", "email", "city", "price"},
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			var want, got []string
			f, err := os.Open(filepath.Join(testdata, table+".rows.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			for lines := bufio.NewScanner(f); lines.Scan(); {
				var row map[string]any
				d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
				d.UseNumber()
				if err := d.Decode(&row); err != nil {
					t.Fatal(err)
				}
				want = append(want, line(columns, func(c string) string { return member(row, c) }))
			}
			for r, err := range audit.Rows(t.Context(), load(t, filepath.Join(testdata, table)), columns...) {
				if err != nil {
					t.Fatal(err)
				}
				if !r.Hidden {
					got = append(got, line(columns, func(c string) string { return text(r.Values[slices.Index(columns, c)]) }))
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func line(columns []string, value func(string) string) string {
	var parts []string
	for _, c := range columns {
		parts = append(parts, value(c))
	}
	return strings.Join(parts, "|")
}

func member(row map[string]any, name string) string {
	var v any = row
	for part := range strings.SplitSeq(name, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return "null"
		}
		v = m[part]
	}
	if v == nil {
		return "null"
	}
	return fmt.Sprint(v)
}

func Test_a_vector_with_a_bitmap_container_hides_what_spark_hid(t *testing.T) {
	t.Parallel()
	s, err := audit.Read(t.Context(), load(t, filepath.Join(testdata, "spark-dv-bitmap")), "customer_id")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Rows) != 6000 || len(s.Hidden) != 6000 {
		t.Errorf("%d live, %d hidden", len(s.Rows), len(s.Hidden))
	}
	for _, v := range s.Rows {
		var n int
		if _, err := fmt.Sscan(*v[0], &n); err != nil {
			t.Fatal(err)
		}
		if n < 11_500 && (n >= 11_000 || n%2 == 0) {
			t.Errorf("%d is live", n)
		}
	}
}

func Test_live_rows_of_real_tables(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("DELENDA_TABLES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "tables", "delta")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no foreign Delta tables at %s: set DELENDA_TABLES to a folder of them", dir)
	}
	for table, want := range map[string]int{
		"table-with-dv-small": 8, "table-with-dv-large": 1993, "basic-dv-no-checkpoint": 8, "basic-dv-with-checkpoint": 454,
		"dv-partitioned-with-checkpoint": 35, "log-replay-dv-key-cases": 47,
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s, err := audit.Read(t.Context(), load(t, filepath.Join(dir, table)))
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Rows) != want {
				t.Errorf("%d live rows, want %d", len(s.Rows), want)
			}
		})
	}
}

// rewrite replaces text in a commit.
func rewrite(t *testing.T, b storage.Bucket, version int, change func(string) string) {
	t.Helper()
	key := fmt.Sprintf("_delta_log/%020d.json", version)
	p, err := storage.ReadObject(t.Context(), b, key, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), key, strings.NewReader(change(string(p))), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, b storage.Bucket, version int, lines ...string) {
	t.Helper()
	key := fmt.Sprintf("_delta_log/%020d.json", version)
	if err := b.Put(t.Context(), key, strings.NewReader(strings.Join(lines, "\n")+"\n"), storage.PutOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
}

func Test_the_verdict_names_what_went_wrong(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testdata, "spark-dv-bitmap")
	key := storage.Key{Column: "customer_id", Value: storage.NewSecret("11777")}
	before, err := audit.Read(t.Context(), load(t, dir), "customer_id")
	if err != nil {
		t.Fatal(err)
	}
	newest := int(before.Version)
	var whole, withVector string // the add of the first and of the newest version
	for v := range newest + 1 {
		p, err := os.ReadFile(filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d.json", v)))
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(p)) {
			if strings.HasPrefix(l, `{"add"`) {
				withVector = strings.TrimSpace(l)
				if !strings.Contains(l, "deletionVector\"") {
					whole = withVector
				}
			}
		}
	}
	remove := strings.Replace(withVector, `{"add"`, `{"remove"`, 1)
	for name, c := range map[string]struct {
		lines []string
		want  audit.Verdict
	}{
		"nothing happened":    {nil, audit.Verdict{SubjectRowsLeft: 1}},
		"everything is gone":  {[]string{remove}, audit.Verdict{OtherRowsMissing: 5999}},
		"hidden rows return":  {[]string{remove, whole}, audit.Verdict{SubjectRowsLeft: 1, RowsResurrected: 6000}},
		"committed twice":     {[]string{`{"txn":{"appId":"a","version":7}}`, `{"txn":{"appId":"a","version":7}}`}, audit.Verdict{SubjectRowsLeft: 1, CommittedTwice: []int64{7}}},
		"another application": {[]string{`{"txn":{"appId":"b","version":7}}`, `{"txn":{"appId":"b","version":7}}`}, audit.Verdict{SubjectRowsLeft: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := load(t, dir)
			if len(c.lines) > 0 {
				commit(t, b, newest+1, c.lines...)
			}
			after, err := audit.Read(t.Context(), b, "customer_id")
			if err != nil {
				t.Fatal(err)
			}
			got, err := audit.Judge(before, after, "a", key)
			if err != nil {
				t.Fatal(err)
			}
			c.want.SubjectRowsBefore, c.want.OtherRowsBefore = 1, 5999
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if got.OK() {
				t.Error("all well?")
			}
		})
	}
}

func Test_what_cannot_be_read_is_an_error(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, b storage.Bucket){
		"an unknown feature": func(t *testing.T, b storage.Bucket) {
			rewrite(t, b, 0, func(s string) string { return strings.ReplaceAll(s, `"deletionVectors"`, `"somethingNew"`) })
		},
		"a wrong cardinality": func(t *testing.T, b storage.Bucket) {
			rewrite(t, b, 3, func(s string) string { return strings.ReplaceAll(s, `"cardinality":6000`, `"cardinality":5999`) })
		},
		"a missing commit": func(t *testing.T, b storage.Bucket) {
			if err := b.Delete(t.Context(), "_delta_log/00000000000000000001.json"); err != nil {
				t.Fatal(err)
			}
		},
		"a flipped bit of a vector": func(t *testing.T, b storage.Bucket) {
			for info, err := range b.List(t.Context(), "deletion_vector", "") {
				if err != nil {
					t.Fatal(err)
				}
				p, err := storage.ReadObject(t.Context(), b, info.Key, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				p[len(p)/2] ^= 1
				if err := b.Put(t.Context(), info.Key, bytes.NewReader(p), storage.PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := load(t, filepath.Join(testdata, "spark-dv-bitmap"))
			spoil(t, b)
			if _, err := audit.Read(t.Context(), b, "customer_id"); err == nil {
				t.Error("read all the same")
			}
		})
	}
	if _, err := audit.Read(t.Context(), load(t, filepath.Join(testdata, "spark-dv-bitmap")), "nobody"); err == nil {
		t.Error("a column that does not exist")
	}
}
