package delta_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"delenda/storage"
	"delenda/storage/delta"
)

// foreignRows reads what the writer of a table in testdata says is in it.
func foreignRows(t *testing.T, table string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", table+".rows.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	for line := range strings.Lines(string(text)) {
		rows = append(rows, row(t, line))
	}
	return rows
}

// cell returns the value at a dotted path, nil if it is null.
func cell(row map[string]any, path string) any {
	value, rest, nested := any(row), path, true
	for nested && value != nil {
		var name string
		name, rest, nested = strings.Cut(rest, ".")
		value = value.(map[string]any)[name]
	}
	return value
}

// canonical gives a cell the form of a key.
func canonical(t *testing.T, path string, value any) string {
	t.Helper()
	text := fmt.Sprint(value)
	switch path {
	case "token":
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(raw)
	case "seen":
		return strings.Replace(text, " ", "T", 1) + "Z"
	case "local_seen":
		return strings.Replace(text, " ", "T", 1)
	}
	return text
}

// TestEveryKeyTypeFindsItsRowsInForeignFiles erases by one value of each type
// and compares what is gone with what the table's writer says holds the value.
func TestEveryKeyTypeFindsItsRowsInForeignFiles(t *testing.T) {
	t.Parallel()
	all := []string{
		"customer_id", "email", "tiny", "small", "number", "active", "token", "price", "account", "born", "seen",
		"local_seen", "contact.phone", "contact.city", "city",
	}
	few := []string{"customer_id", "email", "price", "born", "seen", "city"}
	for table, columns := range map[string][]string{"deltars-plain": all, "spark-no-dv": all, "deltars-partitioned": few} {
		for _, column := range columns {
			t.Run(table+", "+column, func(t *testing.T) {
				t.Parallel()
				dir, b := realTable(t, table)
				want := foreignRows(t, table)
				value := cell(want[4], column)
				var gone []string
				for _, r := range want {
					if v := cell(r, column); v != nil && v == value {
						gone = append(gone, fmt.Sprint(r["customer_id"]))
					}
				}
				if len(gone) == 0 {
					t.Fatal("no row holds the value")
				}
				base, err := delta.EnableDeletionVectors(t.Context(), b, nil)
				if err != nil {
					t.Fatal(err)
				}
				before := readRows(t, dir)
				if len(before) != len(want) {
					t.Fatalf("%d rows before, the writer says %d", len(before), len(want))
				}
				opened, err := delta.Open(t.Context(), b, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := opened.Delete(t.Context(), storage.Deletion{
					Batch:    storage.Batch{App: "delenda/test/foreign", Number: 1, Base: base},
					Subjects: []storage.Subject{subject(column, canonical(t, column, value))},
					Now:      func() time.Time { return time.UnixMilli(1_800_000_000_000) },
				})
				if err != nil {
					t.Fatal(err)
				}
				if s := got.Subjects[0]; s.State != storage.SubjectDone || s.Rows != int64(len(gone)) {
					t.Errorf("%+v, want %d rows", s, len(gone))
				}
				for _, f := range got.Fragments {
					if strings.Contains(f.Fragment, "/") {
						t.Errorf("fragment %q names its directory, which holds partition values", f.Fragment)
					}
				}
				lost, contained := minus(before, readRows(t, dir))
				var lostIDs []string
				for _, r := range lost {
					lostIDs = append(lostIDs, fmt.Sprint(row(t, r)["customer_id"]))
				}
				slices.Sort(lostIDs)
				slices.Sort(gone)
				if !contained || !slices.Equal(lostIDs, gone) {
					t.Errorf("lost %v, want %v", lostIDs, gone)
				}
			})
		}
	}
}
