package delta_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
	"delenda/storage/delta"
	"delenda/storage/delta/log"
)

func row(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// minus returns the rows of a that are not in b, as multisets, and whether b
// is contained in a.
func minus(a, b []string) (rest []string, contained bool) {
	count := map[string]int{}
	for _, r := range a {
		count[r]++
	}
	contained = true
	for _, r := range b {
		count[r]--
		contained = contained && count[r] >= 0
	}
	for r, n := range count {
		for range n {
			rest = append(rest, r)
		}
	}
	slices.Sort(rest)
	return rest, contained
}

func TestErasureOnTablesOfOtherWriters(t *testing.T) {
	t.Parallel()
	in := func(column string, values ...string) func(map[string]any) bool {
		return func(r map[string]any) bool {
			return r[column] != nil && slices.Contains(values, fmt.Sprint(r[column]))
		}
	}
	small := "col-4f064e48-f371-433a-b851-9e73c78fa9fc"
	for _, tt := range []struct {
		name, table string
		column      string
		values      [][]string // per subject
		match       func(map[string]any) bool
		before      int
		rows        []int64
		outcomes    []storage.Outcome
		newest      storage.Version
	}{
		{
			"name mapping, one vector replaced", "table-with-dv-small", "value",
			[][]string{{"0", "3"}, {"7"}, {"77"}},
			in(small, "3", "7"), 8,
			[]int64{1, 1, 0},
			[]storage.Outcome{storage.Set},
			1,
		},
		{
			"every row of a file, with those hidden before", "table-with-dv-small", "value",
			[][]string{{"1", "2", "3", "4", "5", "6", "7", "8"}},
			in(small, "1", "2", "3", "4", "5", "6", "7", "8"), 8,
			[]int64{8},
			[]storage.Outcome{storage.Dropped},
			1,
		},
		{
			"two files of twenty-two", "table-with-dv-large", "value",
			[][]string{{"5"}, {"1999", "0"}},
			in("value", "5", "1999"), 1993,
			[]int64{1, 1},
			nil, 4,
		},
		{
			"without checkpoint", "basic-dv-no-checkpoint", "id",
			[][]string{{"2"}, {"9"}, {"0"}},
			in("id", "2", "9"), 8,
			[]int64{1, 1, 0},
			[]storage.Outcome{storage.Set, storage.Set},
			1,
		},
		{
			"vectors of a checkpoint and of commits after it", "basic-dv-with-checkpoint", "id",
			[][]string{{"1", "499", "11"}},
			in("id", "1", "499"), 454,
			[]int64{2},
			nil, 46,
		},
		{
			"partitioned, data column", "dv-partitioned-with-checkpoint", "col1",
			[][]string{{"41", "43"}, {"0"}},
			in("col1", "41", "43"), 35,
			[]int64{2, 0},
			nil, 15,
		},
		{
			"whole partition by its value", "dv-partitioned-with-checkpoint", "part",
			[][]string{{"3"}},
			in("part", "3"), 35,
			[]int64{5},
			nil, 15,
		},
		{
			"one path, four vectors", "log-replay-dv-key-cases", "id",
			[][]string{{"49"}, {"7"}},
			in("id", "49"), 47,
			[]int64{1, 0},
			[]storage.Outcome{storage.Set},
			3,
		},
		{
			"change data feed and log compaction", "compacted-log-files-table", "id",
			[][]string{{"1", "2", "3", "4", "5", "6", "7", "8", "9"}},
			nil, 5, nil, nil, 25,
		},
		{"statistics only in parsed form", "v1-single-part-struct-stats-only", "id", [][]string{{"1"}}, in("id", "1"), 5, []int64{1}, nil, 5},
		{
			"Spark, name mapping, renamed column", "spark-dv-name", "e-mail address",
			[][]string{{"person04@example.org"}, {"person05@example.org"}},
			nil, 17,
			[]int64{1, 0},
			nil, 5,
		},
		{
			"Spark, id mapping, member of a struct", "spark-dv-id", "contact.phone",
			[][]string{{"+31 20 555 0001"}, {"+31 20 555 0005"}},
			nil, 17,
			[]int64{1, 0},
			nil, 5,
		},
		{"Spark, a bitmap", "spark-dv-bitmap", "customer_id", [][]string{{"1"}, {"11998"}}, in("customer_id", "1", "11998"), 6000, []int64{1, 1}, []storage.Outcome{storage.Bitmap}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, b := realTable(t, tt.table)
			before := readRows(t, dir)
			if len(before) != tt.before {
				t.Fatalf("%d rows before, want %d", len(before), tt.before)
			}
			table, err := delta.Open(t.Context(), b, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d, err := table.Describe(t.Context()); err != nil || d.LiveRows != int64(tt.before) || d.Version != tt.newest {
				t.Fatalf("Describe = %+v, %v", d, err)
			}
			if err := table.Bind(t.Context(), []string{tt.column}); err != nil {
				t.Fatal(err)
			}
			d := storage.Deletion{
				Batch: storage.Batch{App: "delenda/test/real", Number: 1, Base: tt.newest},
				Now:   func() time.Time { return time.UnixMilli(1_800_000_000_000) },
			}
			for _, v := range tt.values {
				d.Subjects = append(d.Subjects, subject(tt.column, v...))
			}
			got, err := table.Delete(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			after := readRows(t, dir)
			gone, contained := minus(before, after)
			if !contained {
				t.Fatal("the table has rows that it did not have before")
			}
			total := int64(0)
			for i, s := range got.Subjects {
				total += s.Rows
				if s.State != storage.SubjectDone || tt.rows != nil && s.Rows != tt.rows[i] {
					t.Errorf("subject %d: %+v", i, s)
				}
			}
			if total == 0 || int64(len(gone)) != total || !got.Committed || got.Version != tt.newest+1 {
				t.Errorf("%d rows gone, %+v", len(gone), got)
			}
			if tt.match != nil {
				for _, r := range gone {
					if !tt.match(row(t, r)) {
						t.Errorf("a row of nobody is gone: %s", r)
					}
				}
				for _, r := range after {
					if tt.match(row(t, r)) {
						t.Errorf("a subject's row is left: %s", r)
					}
				}
			}
			var outcomes []storage.Outcome
			for _, f := range got.Fragments {
				outcomes = append(outcomes, f.Outcome)
			}
			if tt.outcomes != nil && !slices.Equal(outcomes, tt.outcomes) {
				t.Errorf("outcomes %v, want %v", outcomes, tt.outcomes)
			}
			checkTwice(t, dir, table, d, got)
			checkOwnCommit(t, dir, got.Version)
		})
	}
}

// checkTwice repeats the batch, reads it back, and runs the next one: none
// changes anything.
func checkTwice(t *testing.T, dir string, table *delta.Table, d storage.Deletion, first storage.Deleted) {
	t.Helper()
	again, err := table.Delete(t.Context(), d)
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("the same batch again: %v\n%s", err, diff)
	}
	back, ok, err := table.Committed(t.Context(), d.Batch)
	if diff := cmp.Diff(first, back); err != nil || !ok || diff != "" {
		t.Errorf("Committed: %v, %v\n%s", ok, err, diff)
	}
	if n, err := table.LastBatch(t.Context(), d.Batch.App); err != nil || n != d.Batch.Number {
		t.Errorf("LastBatch = %d, %v", n, err)
	}
	next := d
	next.Batch.Number++
	next.Batch.Base = first.Version
	none, err := table.Delete(t.Context(), next)
	if err != nil || none.Committed || none.Version != first.Version {
		t.Errorf("the next batch found something: %+v, %v", none, err)
	}
	if exists(filepath.Join(dir, filepath.FromSlash(log.CommitKey(first.Version+1)))) {
		t.Error("a commit without anything to delete")
	}
}

// checkOwnCommit holds the rules for the actions of a delete.
func checkOwnCommit(t *testing.T, dir string, v storage.Version) {
	t.Helper()
	live := map[string]map[string]any{}
	for i, line := range lines(t, filepath.Join(dir, filepath.FromSlash(log.CommitKey(v)))) {
		var a map[string]map[string]any
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		if i == 0 && (a["commitInfo"] == nil || len(a["commitInfo"]["operationParameters"].(map[string]any)) != 0) {
			t.Error("the first action is not a commitInfo without parameters")
		}
		if r := a["remove"]; r != nil {
			if r["stats"] != nil || r["dataChange"] != true || r["extendedFileMetadata"] != true || r["partitionValues"] == nil || r["size"] == nil {
				t.Errorf("remove: %v", r)
			}
			live[r["path"].(string)] = r
		}
		if add := a["add"]; add != nil {
			var stats map[string]any
			if err := json.Unmarshal([]byte(add["stats"].(string)), &stats); err != nil {
				t.Fatal(err)
			}
			dv := add["deletionVector"].(map[string]any)
			if stats["numRecords"] == nil || stats["tightBounds"] != false || add["dataChange"] != true || dv["storageType"] != "u" || dv["offset"] == nil {
				t.Errorf("add: %v", add)
			}
			r := live[add["path"].(string)]
			for _, k := range []string{"partitionValues", "size", "tags", "baseRowId", "defaultRowCommitVersion"} {
				if diff := cmp.Diff(r[k], add[k]); diff != "" {
					t.Errorf("%s differs between remove and add: %s", k, diff)
				}
			}
		}
	}
}

func TestTablesOfOtherWritersOpenWithTheirRows(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{
		"app-txn-checkpoint": 22, "basic-dv-no-checkpoint": 8, "basic-dv-with-checkpoint": 454,
		"basic-with-vacuum-protocol-check-feature": 100, "canonicalized-paths-normal-a": 0, "canonicalized-paths-special-a": 0,
		"cdf-column-mapping-name-mode-3-7": 3, "cdf-table": 9, "cdf-table-with-dv": 10,
		"commit-info-containing-arbitrary-operationParams-types": 2, "compacted-log-files-table": 5,
		"corrupted-last-checkpoint-kernel": 100, "data-reader-array-complex-objects": 10, "data-reader-escaped-chars": 3,
		"data-reader-nested-struct": 10, "data-reader-partition-values": 3, "delta-0.8.0-special-partition": 2,
		"dv-partitioned-with-checkpoint": 35, "kernel-timestamp-INT96": 5, "log-replay-dv-key-cases": 47,
		"log-replay-special-characters-a": 0, "multi-part-checkpoint": 31, "only-checkpoint-files": 25, "parquet-all-types": 200,
		"spark-variant-checkpoint": 102, "table-with-columnmapping-mode-id": 6, "table-with-columnmapping-mode-name": 6,
		"table-with-dv-large": 1993, "table-with-dv-small": 8, "table-with-dv-special-char": 5, "table-with-icebegCompatV2Enabled": 6,
		"table_with_deletion_logs": 98, "table_with_edge_timestamps": 2, "table_with_liquid_clustering": 10,
		"table_with_partitioning_mapping": 2, "type-widening": 2, "v1-single-part-struct-stats-only": 5, "v2-checkpoint-json": 10,
		"v2-checkpoints-parquet-with-sidecars": 1233, "void-column": 3,
		"deltars-partitioned": 23, "deltars-plain": 23, "spark-dv-bitmap": 6000, "spark-dv-id": 17, "spark-dv-name": 17, "spark-no-dv": 17,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, b := realTable(t, name)
			table, err := delta.Open(t.Context(), b, nil)
			if err != nil {
				t.Fatal(err)
			}
			d, err := table.Describe(t.Context())
			if err != nil || d.LiveRows != want {
				t.Errorf("Describe = %+v, %v; want %d live rows", d, err, want)
			}
		})
	}
}

func TestTablesThatMayNotBeErasedAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ table, code, text string }{
		{"catalog-owned-preview", "catalog_managed", "catalogManaged"},
		{"deltalog-invalid-protocol-version", "unsupported_reader_version", "99"},
		{"simple_table_features", "unsupported_reader_version", "5"},
		{"table-with-geo", "unsupported_reader_feature", "geospatial"},
		{"table_with_liquid_clustering", "unsupported_writer_feature", "liquid"},
		{"table-with-icebegCompatV2Enabled", "iceberg_compat", "icebergCompatV2"},
		{"table-with-columnmapping-mode-id", "deletion_vectors_disabled", "delta.enableDeletionVectors"},
		{"table-with-columnmapping-mode-name", "deletion_vectors_disabled", "delta.enableDeletionVectors"},
		{"cdf-column-mapping-name-mode-3-7", "deletion_vectors_disabled", "delta.enableDeletionVectors"},
		{"spark-no-dv", "deletion_vectors_disabled", "delta.enableDeletionVectors"},
		{"deltars-plain", "deletion_vectors_disabled", "delta.enableDeletionVectors"},
	} {
		t.Run(tt.table, func(t *testing.T) {
			t.Parallel()
			dir, b := realTable(t, tt.table)
			files := listing(t, dir)
			table, err := delta.Open(t.Context(), b, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, derr := table.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("id", "1")}})
			for _, err := range []error{table.Bind(t.Context(), nil), derr} {
				var r *storage.Refusal
				if !errors.As(err, &r) || r.Code != tt.code || !strings.Contains(r.Reason, tt.text) {
					t.Errorf("got %v, want %s naming %s", err, tt.code, tt.text)
				}
			}
			d, err := table.Describe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(d.Refused, func(r storage.RefusedOperation) bool { return r.Operation == "delete" && r.Code == tt.code }) {
				t.Errorf("Describe does not tell: %+v", d.Refused)
			}
			if diff := cmp.Diff(files, listing(t, dir)); diff != "" {
				t.Errorf("a refused table changed: %s", diff)
			}
		})
	}
}

func listing(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			i, ierr := d.Info()
			if ierr != nil {
				return ierr
			}
			out = append(out, fmt.Sprintf("%s %d", path, i.Size()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
