package client_test

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"
)

func TestReadGivesTheRowsThatTheWriterSees(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"spark-dv-name", "spark-dv-id", "spark-no-dv", "deltars-plain", "deltars-partitioned"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s := serve(t, foreign(t, table))
			snapshot := mustQuery(t, s.client(), nil)
			got := sorted(rows(t, snapshot, nil))
			if diff := cmp.Diff(wantRows(t, table), got); diff != "" {
				t.Error(diff)
			}
			if s.leaks.Load() > 0 {
				t.Error("the token went to a data URL")
			}
			small := sorted(rows(t, snapshot, &client.ReadOptions{BatchRows: 3}))
			if diff := cmp.Diff(got, small); diff != "" {
				t.Errorf("in small batches: %s", diff)
			}
		})
	}
}

func TestReadCountsTheRowsOfRealTables(t *testing.T) {
	t.Parallel()
	tables := map[string]int64{
		"table-with-dv-small":              8,
		"table-with-dv-large":              1993,
		"basic-dv-no-checkpoint":           8,
		"basic-dv-with-checkpoint":         454,
		"dv-partitioned-with-checkpoint":   35,
		"log-replay-dv-key-cases":          47,
		"table-with-columnmapping-mode-id": 6, "table-with-columnmapping-mode-name": 6,
		"data-reader-partition-values": 3, "kernel-timestamp-INT96": 5, "parquet-all-types": 200,
		"table_with_edge_timestamps": 2, "table_with_deletion_logs": 98, "void-column": 3,
		"data-reader-array-complex-objects": 10, "data-reader-nested-struct": 10, "v2-checkpoint-json": 10,
		"delta-0.8.0-special-partition": 2, "cdf-column-mapping-name-mode-3-7": 3, "table_with_partitioning_mapping": 2,
	}
	for table, want := range tables {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s := serve(t, collected(t, table))
			snapshot := mustQuery(t, s.client(), nil)
			if got := int64(len(rows(t, snapshot, nil))); got != want {
				t.Errorf("got %d rows, want %d", got, want)
			}
			if got := count(t, snapshot, &client.ReadOptions{Columns: []string{}}); got != want {
				t.Errorf("without columns: got %d rows, want %d", got, want)
			}
		})
	}
}

func TestReadAppliesABitmap(t *testing.T) {
	t.Parallel()
	snapshot := mustQuery(t, serve(t, foreign(t, "spark-dv-bitmap")).client(), nil)
	seen := 0
	for _, row := range rows(t, snapshot, nil) {
		id := row["customer_id"]
		n := 0
		for _, c := range id.(interface{ String() string }).String() {
			n = 10*n + int(c-'0')
		}
		if n >= 11500 || n%2 == 1 && n < 11000 {
			seen++
		} else {
			t.Fatalf("row %d is hidden", n)
		}
	}
	if seen != 6000 {
		t.Errorf("got %d rows", seen)
	}
}

func TestReadProjectsAndLimits(t *testing.T) {
	t.Parallel()
	snapshot := mustQuery(t, serve(t, foreign(t, "spark-dv-name")).client(), nil)
	got := rows(t, snapshot, &client.ReadOptions{Columns: []string{"note", "city", "customer_id"}, Limit: 7})
	if len(got) != 7 || len(got[0]) != 3 {
		t.Errorf("got %d rows, %v", len(got), got)
	}
	if n := len(rows(t, snapshot, &client.ReadOptions{Columns: []string{"city"}})); n != 17 {
		t.Errorf("a partition column alone: got %d rows", n)
	}
	for _, err := range snapshot.Read(t.Context(), &client.ReadOptions{Columns: []string{"absent"}}) {
		if err == nil || !strings.Contains(err.Error(), "absent") {
			t.Errorf("got %v", err)
		}
	}
	n := 0
	for _, err := range snapshot.Read(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		break
	}
	if n != 1 {
		t.Error("a read can be left at any batch")
	}
}

func TestReadAcceptsAParquetAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "deltars-partitioned"))
	s.format = sharing.FormatParquet
	for _, o := range []*client.QueryOptions{nil, {ParquetOnly: true}} {
		snapshot := mustQuery(t, s.client(), o)
		got := sorted(rows(t, snapshot, nil))
		if diff := cmp.Diff(wantRows(t, "deltars-partitioned"), got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestReadWorksWithAStoreWithoutRanges(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-id"))
	s.noRange = true
	if n := count(t, mustQuery(t, s.client(), nil), nil); n != 17 {
		t.Errorf("got %d rows", n)
	}
}

func TestLocalLogIsATableOfItsOwn(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	snapshot := mustQuery(t, s.client(), nil)
	fs := snapshot.FileSystem()
	table, err := log.Load(t.Context(), fs, 0)
	if err != nil {
		t.Fatal(err)
	}
	files, hidden := 0, int64(0)
	for add, err := range table.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		files++
		if _, err := fs.Stat(t.Context(), add.Path); err != nil {
			t.Error(err)
		}
		if add.DeletionVector != nil {
			rows, err := deletion.Read(t.Context(), fs, *add.DeletionVector, -1)
			if err != nil {
				t.Fatal(err)
			}
			hidden += rows.Cardinality()
		}
	}
	if files != len(snapshot.Files()) || hidden != 3 {
		t.Errorf("got %d files, %d hidden rows", files, hidden)
	}
	dir := t.TempDir()
	if err := snapshot.WriteLog(dir); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.WriteLog(dir); err == nil {
		t.Error("a log was overwritten")
	}
	again, err := log.Load(t.Context(), serve(t, dir).bucket, 0)
	if err != nil {
		t.Fatal(err)
	}
	if again.Metadata.ID != snapshot.Metadata.ID {
		t.Error("the written log is of another table")
	}
}

func TestReadGivesBackItsMemory(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"spark-dv-name", "spark-dv-id", "deltars-plain"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			snapshot := mustQuery(t, serve(t, foreign(t, table)).client(), nil)
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			count(t, snapshot, &client.ReadOptions{Allocator: mem, BatchRows: 5})
			count(t, snapshot, &client.ReadOptions{Allocator: mem, Limit: 3})
			for _, err := range snapshot.Read(t.Context(), &client.ReadOptions{Allocator: mem}) {
				if err != nil {
					t.Error(err)
				}
				break
			}
		})
	}
}
