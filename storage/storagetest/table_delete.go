package storagetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
)

var deleteTests = []tableTest{
	{"Delete hides every live row that equals a key, and no other row", func(t *testing.T, f *fixture) {
		ann, bob := person("ann@example.org", 1, 3), person("bob@example.org", 10, 2)
		more := person("ann@example.org", 20, 1)
		f.Append(t, append(slices.Clone(ann), bob[0])...)
		f.Append(t, append(slices.Clone(more), bob[1])...)
		f.Append(t, person("eve@example.org", 30, 2)...)
		got := f.delete(t, key("email", "ann@example.org"))
		wantSubjects(t, got, done(4))
		f.wantRows(t, append(bob, person("eve@example.org", 30, 2)...)...)
		if got.Kept != 1 || len(got.Fragments) != 2 {
			t.Errorf("%d kept and %d changed, want 1 and 2", got.Kept, len(got.Fragments))
		}
	}},
	{"keys of any type of column find their rows", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 5)
		f.Append(t, rows...)
		got := f.delete(t, key("id", "2"), key("contact.phone", "+4"), key("email", "nobody"))
		wantSubjects(t, got, done(1), done(1), done(0))
		f.wantRows(t, rows[0], rows[2], rows[4])
	}},
	{"a key of a partition matches whole fragments", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 4)
		rows[1].Region, rows[3].Region = "south", "south"
		f.Append(t, rows...)
		got := f.delete(t, key("region", "south"))
		wantSubjects(t, got, done(2))
		f.wantRows(t, rows[0], rows[2])
	}},
	{"a delete is one commit", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 2)...)
		f.Append(t, person("ann@example.org", 3, 2)...)
		before := f.version(t)
		got := f.delete(t, key("email", "ann@example.org"))
		if !got.Committed || got.Version != before+1 || f.version(t) != before+1 {
			t.Errorf("committed %v at %d, newest %d, want %d", got.Committed, got.Version, f.version(t), before+1)
		}
	}},
	{"a delete of no row is no commit", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 2)...)
		f.delete(t, key("id", "1"))
		before := f.version(t)
		for _, s := range []storage.Subject{key("email", "bob@example.org"), key("id", "1"), {}} {
			got := f.delete(t, s)
			wantSubjects(t, got, done(0))
			if got.Committed || got.Version != before || f.version(t) != before || len(got.Fragments) != 0 || got.Kept != 1 {
				t.Errorf("%+v, newest %d, want none after %d", got, f.version(t), before)
			}
		}
	}},
	{"a delete in a table without rows is no commit", func(t *testing.T, f *fixture) {
		if got := f.delete(t, key("id", "1")); got.Committed {
			t.Errorf("%+v", got)
		}
	}},
	{"null matches nothing", func(t *testing.T, f *fixture) {
		rows := []Row{{ID: 1, Region: "north"}, {ID: 2, Email: text(""), Region: "north"}, {ID: 3, Email: text("null"), Region: "north"}}
		f.Append(t, rows...)
		got := f.delete(t, key("email", ""), key("contact.phone", ""), key("contact.phone", "null"))
		wantSubjects(t, got, done(1), done(0), done(0))
		f.wantRows(t, rows[0], rows[2])
	}},
	{"a row of two subjects counts for both and is hidden once", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 3)
		f.Append(t, rows...)
		got := f.delete(t, key("email", "ann@example.org"), key("id", "2"), key("id", "2"))
		wantSubjects(t, got, done(3), done(1), done(1))
		if got.Fragments[0].RowsDeleted != 3 {
			t.Errorf("%d rows hidden, want 3", got.Fragments[0].RowsDeleted)
		}
		f.wantRows(t)
	}},
	{"a subject with several keys owns the rows of any of them", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 4)
		rows[2].Email = text("old@example.org")
		f.Append(t, rows...)
		got := f.delete(t, storage.Subject{Keys: slices.Concat(key("email", "old@example.org").Keys, key("id", "3").Keys, key("id", "1").Keys)})
		wantSubjects(t, got, done(2))
		f.wantRows(t, rows[1], rows[3])
	}},
	{"a value that is not canonical makes only its subject invalid, and is not repeated", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 3)
		f.Append(t, rows...)
		for _, bad := range []string{"007", " 7 ", "1_000", "+1", "1.0", "\u0661\u0662", "9223372036854775808"} {
			got := f.delete(t, storage.Subject{Keys: slices.Concat(key("id", bad).Keys, key("email", "ann@example.org").Keys)})
			wantSubjects(t, got, storage.SubjectResult{State: storage.SubjectInvalid})
			if r := got.Subjects[0].Reason; !strings.Contains(r, "id") || strings.Contains(r, bad) {
				t.Errorf("reason %q", r)
			}
		}
		got := f.delete(t, key("id", "x"), key("id", "1"))
		wantSubjects(t, got, storage.SubjectResult{State: storage.SubjectInvalid}, done(1))
		f.wantRows(t, rows[1:]...)
	}},
	{"deletions merge with those that are there, whoever made them", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 5)
		f.Append(t, rows...)
		f.delete(t, key("id", "1"))
		f.Hide(t, 3)
		got := f.delete(t, key("id", "5"), key("id", "3"))
		wantSubjects(t, got, done(1), done(0))
		want := storage.FragmentResult{Fragment: got.Fragments[0].Fragment, Outcome: storage.Set, RowsDeleted: 1, RowsHidden: 3, PhysicalRows: 5}
		if diff := cmp.Diff([]storage.FragmentResult{want}, got.Fragments); diff != "" {
			t.Error(diff)
		}
		f.wantRows(t, rows[1], rows[3])
	}},
	{"a fragment is kept, gets a set, gets a bitmap, or is dropped", testOutcomes},
	{"a fragment whose last rows are hidden is dropped", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 3)...)
		f.delete(t, key("id", "2"))
		f.Hide(t, 1)
		got := f.delete(t, key("id", "3"))
		want := storage.FragmentResult{Fragment: got.Fragments[0].Fragment, Outcome: storage.Dropped, RowsDeleted: 1, RowsHidden: 3, PhysicalRows: 3}
		if diff := cmp.Diff([]storage.FragmentResult{want}, got.Fragments); diff != "" {
			t.Error(diff)
		}
		f.wantRows(t)
	}},
	{"Approve sees what the plan matches", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 3)...)
		f.Append(t, person("bob@example.org", 4, 2)...)
		f.Hide(t, 2)
		d := f.deletion(t, key("email", "ann@example.org"), key("id", "5"), key("id", "x"), storage.Subject{})
		var seen []storage.Matched
		d.Approve = func(_ context.Context, m storage.Matched) ([]bool, error) {
			seen = append(seen, m)
			return make([]bool, 4), nil
		}
		run(t, f.Open(t), d)
		if diff := cmp.Diff([]storage.Matched{{Rows: []int64{2, 1, 0, 0}, LiveRows: 4}}, seen); diff != "" {
			t.Error(diff)
		}
	}},
	{"the rows of held subjects stay, unless another subject matches them too", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 3)
		f.Append(t, rows...)
		d := f.deletion(t, key("email", "ann@example.org"), key("id", "2"))
		d.Approve = func(context.Context, storage.Matched) ([]bool, error) { return []bool{true, false}, nil }
		got := run(t, f.Open(t), d)
		wantSubjects(t, got, held(3), done(1))
		f.wantRows(t, rows[0], rows[2])
	}},
	{"a batch of held subjects is no commit, and may run again when released", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 3)
		f.Append(t, rows...)
		before := f.version(t)
		d := f.deletion(t, key("email", "ann@example.org"))
		d.Approve = func(context.Context, storage.Matched) ([]bool, error) { return []bool{true}, nil }
		got := run(t, f.Open(t), d)
		wantSubjects(t, got, held(3))
		if got.Committed || f.version(t) != before {
			t.Errorf("a held batch was committed: %+v", got)
		}
		d.Approve = nil
		wantSubjects(t, run(t, f.Open(t), d), done(3))
		f.wantRows(t)
	}},
	{"an error of Approve ends the delete before any commit", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 3)
		f.Append(t, rows...)
		before := f.version(t)
		stop := errors.New("stop")
		d := f.deletion(t, key("email", "ann@example.org"))
		d.Approve = func(context.Context, storage.Matched) ([]bool, error) { return nil, stop }
		if _, err := f.Open(t).Delete(t.Context(), d); !errors.Is(err, stop) || f.version(t) != before {
			t.Errorf("got %v at version %d", err, f.version(t))
		}
		f.wantRows(t, rows...)
	}},
	{"Progress is called after each scanned fragment", func(t *testing.T, f *fixture) {
		for i := range int64(3) {
			f.Append(t, person("ann@example.org", 10*i, 2)...)
		}
		var calls, most atomic.Int64
		d := f.deletion(t, key("email", "ann@example.org"))
		d.Progress = func(p storage.Progress) {
			calls.Add(1)
			for {
				m := most.Load()
				if p.FragmentsDone <= m || most.CompareAndSwap(m, p.FragmentsDone) {
					break
				}
			}
			if p.FragmentsDone > p.FragmentsTotal {
				t.Errorf("progress %+v", p)
			}
		}
		run(t, f.Open(t), d)
		if calls.Load() < 3 || most.Load() != 3 {
			t.Errorf("%d calls up to %d, want 3 at least, up to 3", calls.Load(), most.Load())
		}
	}},
	{"a cancelled delete changes nothing", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 3)
		f.Append(t, rows...)
		d := f.deletion(t, key("email", "ann@example.org"))
		ctx, cancel := context.WithCancel(t.Context())
		d.Approve = func(context.Context, storage.Matched) ([]bool, error) {
			cancel()
			return nil, ctx.Err()
		}
		if _, err := f.Open(t).Delete(ctx, d); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		f.wantRows(t, rows...)
	}},
	{"a column that does not exist or cannot be compared is refused, and nothing changes", func(t *testing.T, f *fixture) {
		rows := person("ann@example.org", 1, 1)
		f.Append(t, rows...)
		for _, column := range []string{"nobody", "score", "contact", "contact.nobody", "ID"} {
			_, err := f.Open(t).Delete(t.Context(), f.deletion(t, key(column, "1")))
			var r *storage.Refusal
			if !errors.As(err, &r) {
				t.Errorf("column %s: %v", column, err)
			}
		}
		f.wantRows(t, rows...)
	}},
}

func testOutcomes(t *testing.T, f *fixture) {
	const many = 3000
	f.Append(t, person("keep@example.org", 1, 10)...)
	few := append(person("few@example.org", 100, 3), person("keep@example.org", 110, 10)...)
	f.Append(t, few...)
	var mixed []Row
	for i := range int64(2 * many) {
		email := "keep@example.org"
		if i%2 == 0 {
			email = "many@example.org"
		}
		mixed = append(mixed, person(email, 1000+i, 1)...)
	}
	f.Append(t, mixed...)
	f.Append(t, person("all@example.org", 90000, 7)...)
	got := f.delete(t, key("email", "few@example.org"), key("email", "many@example.org"), key("email", "all@example.org"))
	wantSubjects(t, got, done(3), done(many), done(7))
	want := map[storage.Outcome]int{storage.Set: 1, storage.Bitmap: 1, storage.Dropped: 1}
	if diff := cmp.Diff(want, outcomes(got)); diff != "" || got.Kept != 1 {
		t.Errorf("%d kept, %s", got.Kept, diff)
	}
	for _, r := range got.Fragments {
		expect := map[storage.Outcome][3]int64{storage.Set: {3, 3, 13}, storage.Bitmap: {many, many, 2 * many}, storage.Dropped: {7, 7, 7}}[r.Outcome]
		if [3]int64{r.RowsDeleted, r.RowsHidden, r.PhysicalRows} != expect {
			t.Errorf("%+v, want %v", r, expect)
		}
	}
	if !slices.IsSortedFunc(got.Fragments, func(a, b storage.FragmentResult) int { return strings.Compare(a.Fragment, b.Fragment) }) {
		t.Error("fragments are not in ascending order")
	}
	if left := f.Rows(t); len(left) != 20+many {
		t.Errorf("%d rows left, want %d", len(left), 20+many)
	}
}
