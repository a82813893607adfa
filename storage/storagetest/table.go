package storagetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"delenda/storage"
)

// Row is a row of the tables that the suite makes. The table has the columns
//
//	id      long
//	email   string, null where Email is nil
//	contact struct<phone: string>, the member null where Phone is nil
//	region  string; a format with partitions partitions by it
//	score   double, any value
type Row struct {
	ID     int64
	Email  *string
	Phone  *string
	Region string
}

// String identifies a row in messages.
func (r Row) String() string {
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return strconv.Quote(*s)
	}
	return fmt.Sprintf("{%d %s %s %q}", r.ID, text(r.Email), text(r.Phone), r.Region)
}

// Host makes handles on one table and plays the other writers and readers of
// it, without the code under test.
type Host interface {
	// Open returns another handle on the table, as another replica has one. It
	// gives up with ErrConflict after a few attempts.
	Open(t testing.TB) storage.Table
	// Append commits rows as new fragments, one per region.
	Append(t testing.TB, rows ...Row)
	// Hide commits the deletion of all live rows with the id, merged into the
	// deletions that are there.
	Hide(t testing.TB, id int64)
	// Restore commits that no row of a live fragment is hidden.
	Restore(t testing.TB)
	// Compact commits all live rows as one new fragment per region, instead of
	// the old ones.
	Compact(t testing.TB)
	// Rows returns the live rows of the newest version, in any order.
	Rows(t testing.TB) []Row
}

const app = "delenda/storagetest/table"

// Table runs the conformance suite. open returns a new table without rows; it is
// called once for every subtest, which may run in parallel.
func Table(t *testing.T, open func(t testing.TB) Host) {
	t.Helper()
	for _, test := range slices.Concat(deleteTests, raceTests, describeTests) {
		t.Run(test.sentence, func(t *testing.T) {
			t.Parallel()
			test.run(t, &fixture{Host: open(t), number: 1})
		})
	}
}

type tableTest struct {
	sentence string
	run      func(t *testing.T, f *fixture)
}

// fixture is a host and the number of the next batch.
type fixture struct {
	Host
	number int64
}

func text(s string) *string { return &s }

// person returns n rows of one email, with ids from first on.
func person(email string, first int64, n int) []Row {
	out := make([]Row, n)
	for i := range out {
		out[i] = Row{ID: first + int64(i), Email: text(email), Phone: text("+" + strconv.FormatInt(first+int64(i), 10)), Region: "north"}
	}
	return out
}

// key is a subject with one key.
func key(column, value string) storage.Subject {
	return storage.Subject{Keys: []storage.Key{{Column: column, Value: storage.NewSecret(value)}}}
}

// deletion is the next batch.
func (f *fixture) deletion(t testing.TB, subjects ...storage.Subject) storage.Deletion {
	t.Helper()
	d, err := f.Open(t).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := f.number
	f.number++
	return storage.Deletion{
		Batch:    storage.Batch{App: app, Number: n, Base: d.Version},
		Subjects: subjects,
		Now:      func() time.Time { return time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC) },
	}
}

// delete runs the next batch and expects it to succeed.
func (f *fixture) delete(t testing.TB, subjects ...storage.Subject) storage.Deleted {
	t.Helper()
	return run(t, f.Open(t), f.deletion(t, subjects...))
}

func run(t testing.TB, table storage.Table, d storage.Deletion) storage.Deleted {
	t.Helper()
	out, err := table.Delete(t.Context(), d)
	if err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if len(out.Subjects) != len(d.Subjects) {
		t.Fatalf("%d results for %d subjects", len(out.Subjects), len(d.Subjects))
	}
	return out
}

func (f *fixture) version(t testing.TB) storage.Version {
	t.Helper()
	d, err := f.Open(t).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d.Version
}

// wantRows compares the live rows.
func (f *fixture) wantRows(t testing.TB, want ...Row) {
	t.Helper()
	if diff := diffRows(want, f.Rows(t)); diff != "" {
		t.Errorf("live rows: %s", diff)
	}
}

// diffRows compares two multisets of rows.
func diffRows(want, got []Row) string {
	sorted := func(rows []Row) []string {
		out := make([]string, len(rows))
		for i, r := range rows {
			out[i] = r.String()
		}
		slices.Sort(out)
		return out
	}
	w, g := sorted(want), sorted(got)
	for i := 0; i < len(w) || i < len(g); i++ {
		switch {
		case i >= len(g) || i < len(w) && w[i] < g[i]:
			return fmt.Sprintf("%d rows, want %d; missing %s", len(g), len(w), w[i])
		case i >= len(w) || w[i] > g[i]:
			return fmt.Sprintf("%d rows, want %d; not expected %s", len(g), len(w), g[i])
		}
	}
	return ""
}

// wantSubjects compares states and rows.
func wantSubjects(t testing.TB, got storage.Deleted, want ...storage.SubjectResult) {
	t.Helper()
	for i, s := range got.Subjects {
		if s.State != want[i].State || s.Rows != want[i].Rows {
			t.Errorf("subject %d: %s, %d rows; want %s, %d", i, s.State, s.Rows, want[i].State, want[i].Rows)
		}
	}
}

func done(rows int64) storage.SubjectResult {
	return storage.SubjectResult{State: storage.SubjectDone, Rows: rows}
}

func held(rows int64) storage.SubjectResult {
	return storage.SubjectResult{State: storage.SubjectHeld, Rows: rows}
}

// outcomes counts the changed fragments by outcome.
func outcomes(d storage.Deleted) map[storage.Outcome]int {
	out := map[storage.Outcome]int{}
	for _, f := range d.Fragments {
		out[f.Outcome]++
	}
	return out
}

// once returns an Approve that approves all and runs hook at its first call.
func once(hook func()) func(context.Context, storage.Matched) ([]bool, error) {
	calls := 0
	return func(_ context.Context, m storage.Matched) ([]bool, error) {
		if calls++; calls == 1 {
			hook()
		}
		return make([]bool, len(m.Rows)), nil
	}
}

func sortFragments(f []storage.FragmentResult) {
	slices.SortFunc(f, func(a, b storage.FragmentResult) int { return cmp.Compare(a.Fragment, b.Fragment) })
}
