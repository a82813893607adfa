package delta_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"delenda/storage"
	"delenda/storage/delta"
)

// TestEveryKeyTypeFindsItsRowsUnderColumnMapping counts: what the rows are
// called in the files is Spark's secret.
func TestEveryKeyTypeFindsItsRowsUnderColumnMapping(t *testing.T) {
	t.Parallel()
	for table, columns := range map[string][]string{
		"spark-dv-id": {
			"customer_id", "e-mail address", "tiny", "small", "number", "active", "token", "price", "account", "born", "seen",
			"local_seen", "contact.phone", "contact.city", "city",
		},
		"spark-dv-name": {"customer_id", "e-mail address", "price", "born", "seen", "city"},
	} {
		rows := foreignRows(t, table)
		for _, column := range columns {
			t.Run(table+", "+column, func(t *testing.T) {
				t.Parallel()
				dir, b := realTable(t, table)
				value := cell(rows[4], column)
				want := int64(0)
				for _, r := range rows {
					if v := cell(r, column); v != nil && v == value {
						want++
					}
				}
				before := readRows(t, dir)
				opened, err := delta.Open(t.Context(), b, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := opened.Delete(t.Context(), storage.Deletion{
					Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject(column, canonical(t, column, value))},
				})
				if err != nil || got.Subjects[0].State != storage.SubjectDone || got.Subjects[0].Rows != want || want == 0 {
					t.Fatalf("%+v, %v; want %d rows", got, err, want)
				}
				gone, contained := minus(before, readRows(t, dir))
				if !contained || int64(len(gone)) != want {
					t.Errorf("%d rows gone, want %d", len(gone), want)
				}
			})
		}
	}
}

func TestAVectorAtAnAbsolutePathInsideTheTableIsMerged(t *testing.T) {
	t.Parallel()
	dir, _ := realTable(t, "table-with-dv-special-char")
	name := filepath.Join(dir, "_delta_log", commitName(0))
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	folder := strings.ReplaceAll(strings.ReplaceAll(filepath.Join(dir, "folder&with%special char"), "%", "%25"), " ", "%20")
	p = []byte(strings.ReplaceAll(string(p), "{{FOLDER_WITH_SPECIAL_CHAR}}", folder))
	if err := os.WriteFile(name, p, 0o644); err != nil {
		t.Fatal(err)
	}
	before := readRows(t, dir)
	table, err := delta.Open(t.Context(), openDir(t, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	var column string
	var m map[string]any
	if err := json.Unmarshal([]byte(before[0]), &m); err != nil {
		t.Fatal(err)
	}
	for column = range m {
	}
	got, err := table.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject(column, "1", "2")}})
	if err != nil || got.Subjects[0].Rows != 1 || got.Fragments[0].RowsHidden != 6 {
		t.Fatalf("%+v, %v", got, err)
	}
	gone, contained := minus(before, readRows(t, dir))
	if len(before) != 5 || !contained || len(gone) != 1 {
		t.Errorf("%d rows before, %d gone", len(before), len(gone))
	}
	// Elsewhere the vector lies outside the table: nothing can be said of its rows.
	dir2 := t.TempDir()
	copyTree(t, dir, dir2)
	if err := os.Remove(filepath.Join(dir2, "_delta_log", commitName(1))); err != nil {
		t.Fatal(err)
	}
	other, err := delta.Open(t.Context(), openDir(t, dir2), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject(column, "1")}})
	var r *storage.Refusal
	if !asRefusal(err, &r) || r.Code != "deletion_vector_outside_table" {
		t.Errorf("got %v", err)
	}
}

func TestAMalformedVectorIsCorruptAndNothingChanges(t *testing.T) {
	t.Parallel()
	// The newest version is sound; version 5 has a vector whose text is not Z85.
	dir, _ := realTable(t, "cdf-table-with-dv")
	if err := os.Remove(filepath.Join(dir, "_delta_log", commitName(6))); err != nil {
		t.Fatal(err)
	}
	before := listing(t, dir)
	table, err := delta.Open(t.Context(), openDir(t, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = table.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("value", "1")}})
	if !isCorrupt(err) || len(listing(t, dir)) != len(before) {
		t.Errorf("got %v", err)
	}
}
