package storagetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
)

var raceTests = []tableTest{
	{"the same batch again returns what its commit did", func(t *testing.T, f *fixture) {
		f.Append(t, append(person("ann@example.org", 1, 3), person("bob@example.org", 9, 1)...)...)
		d := f.deletion(t, key("email", "ann@example.org"), key("id", "x"))
		first := run(t, f.Open(t), d)
		f.Append(t, person("ann@example.org", 20, 2)...)
		again := run(t, f.Open(t), d)
		dropReasons(&first, &again)
		if diff := cmp.Diff(first, again); diff != "" {
			t.Error(diff)
		}
		if n := len(f.Rows(t)); n != 3 {
			t.Errorf("%d rows, want the later rows to stay: 3", n)
		}
	}},
	{"Committed tells from the table alone what a batch did", func(t *testing.T, f *fixture) {
		f.Append(t, append(person("ann@example.org", 1, 3), person("bob@example.org", 9, 1)...)...)
		d := f.deletion(t, key("email", "ann@example.org"), key("id", "9"), key("id", "x"))
		d.Approve = func(context.Context, storage.Matched) ([]bool, error) { return []bool{false, true, false}, nil }
		if _, ok, err := f.Open(t).Committed(t.Context(), d.Batch); ok || err != nil {
			t.Errorf("committed before it ran: %v, %v", ok, err)
		}
		first := run(t, f.Open(t), d)
		for range 3 {
			f.Append(t, person("eve@example.org", 40, 1)...)
		}
		back, ok, err := f.Open(t).Committed(t.Context(), d.Batch)
		dropReasons(&first, &back)
		if diff := cmp.Diff(first, back); !ok || err != nil || diff != "" {
			t.Errorf("%v, %v\n%s", ok, err, diff)
		}
		other := d.Batch
		other.App += "/other"
		if _, ok, err := f.Open(t).Committed(t.Context(), other); ok || err != nil {
			t.Errorf("another application's batch: %v, %v", ok, err)
		}
		next := d.Batch
		next.Number, next.Base = d.Batch.Number+1, first.Version
		if _, ok, err := f.Open(t).Committed(t.Context(), next); ok || err != nil {
			t.Errorf("the next batch: %v, %v", ok, err)
		}
	}},
	{"LastBatch returns the newest batch number of the application", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 9)...)
		last := func(a string) int64 {
			n, err := f.Open(t).LastBatch(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := last(app); n != 0 {
			t.Errorf("%d before any batch", n)
		}
		f.delete(t, key("id", "1"))
		f.number = 7
		f.delete(t, key("id", "2"))
		f.delete(t, key("id", "999")) // matches nothing: leaves no number
		if n := last(app); n != 7 {
			t.Errorf("%d, want 7", n)
		}
		if n := last(app + "/other"); n != 0 {
			t.Errorf("%d for another application", n)
		}
	}},
	{"a batch below the table's number is ErrBatchOrder and changes nothing", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 9)...)
		low := f.deletion(t, key("id", "1"))
		f.delete(t, key("id", "2"))
		before := f.version(t)
		if _, err := f.Open(t).Delete(t.Context(), low); !errors.Is(err, storage.ErrBatchOrder) || f.version(t) != before {
			t.Errorf("got %v", err)
		}
		if n := len(f.Rows(t)); n != 8 {
			t.Errorf("%d rows, want 8", n)
		}
	}},
	{"on a lost race rows that another writer added are found", func(t *testing.T, f *fixture) {
		bob := person("bob@example.org", 9, 1)
		f.Append(t, append(person("ann@example.org", 1, 3), bob...)...)
		d := f.deletion(t, key("email", "ann@example.org"))
		d.Approve = once(func() { f.Append(t, person("ann@example.org", 20, 2)...) })
		got := run(t, f.Open(t), d)
		wantSubjects(t, got, done(5))
		f.wantRows(t, bob...)
	}},
	{"on a lost race rows that another writer moved are found", func(t *testing.T, f *fixture) {
		bob := person("bob@example.org", 9, 2)
		f.Append(t, append(person("ann@example.org", 1, 3), bob[0])...)
		f.Append(t, append(person("ann@example.org", 11, 3), bob[1])...)
		d := f.deletion(t, key("email", "ann@example.org"))
		d.Approve = once(func() { f.Compact(t) })
		got := run(t, f.Open(t), d)
		wantSubjects(t, got, done(6))
		f.wantRows(t, bob...)
	}},
	{"on a lost race another writer's deletions stay", func(t *testing.T, f *fixture) {
		rows := append(person("ann@example.org", 1, 3), person("bob@example.org", 9, 2)...)
		f.Append(t, rows...)
		d := f.deletion(t, key("email", "ann@example.org"))
		d.Approve = once(func() { f.Hide(t, 2); f.Hide(t, 9) })
		got := run(t, f.Open(t), d)
		wantSubjects(t, got, done(2))
		if len(got.Fragments) != 1 || got.Fragments[0].RowsDeleted != 2 || got.Fragments[0].RowsHidden != 4 {
			t.Errorf("%+v", got.Fragments)
		}
		f.wantRows(t, rows[4])
	}},
	{"on a lost race rows that another writer brought back are found", func(t *testing.T, f *fixture) {
		rows := append(person("ann@example.org", 1, 3), person("bob@example.org", 9, 2)...)
		f.Append(t, rows...)
		f.Hide(t, 2)
		f.Hide(t, 9)
		d := f.deletion(t, key("email", "ann@example.org"))
		d.Approve = once(func() { f.Restore(t) })
		got := run(t, f.Open(t), d)
		wantSubjects(t, got, done(3))
		f.wantRows(t, rows[3:]...)
	}},
	{"on a lost race a delete that has nothing left to hide is no commit", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 2)...)
		d := f.deletion(t, key("id", "1"))
		d.Approve = once(func() { f.Hide(t, 1) })
		got := run(t, f.Open(t), d)
		wantSubjects(t, got, done(0))
		if got.Committed || got.Version != f.version(t) {
			t.Errorf("%+v", got)
		}
	}},
	{"Approve is asked again after a lost race", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 2)...)
		d := f.deletion(t, key("email", "ann@example.org"))
		var seen []int64
		d.Approve = func(_ context.Context, m storage.Matched) ([]bool, error) {
			seen = append(seen, m.Rows[0])
			if len(seen) == 1 {
				f.Append(t, person("ann@example.org", 20, 5)...)
			}
			return []bool{m.Rows[0] > 5}, nil
		}
		wantSubjects(t, run(t, f.Open(t), d), held(7))
		if diff := cmp.Diff([]int64{2, 7}, seen); diff != "" {
			t.Error(diff)
		}
		if n := len(f.Rows(t)); n != 7 {
			t.Errorf("%d rows, want 7", n)
		}
	}},
	{"other writers that always win end in ErrConflict, and nothing is committed", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 2)...)
		d := f.deletion(t, key("email", "ann@example.org"))
		n := int64(100)
		d.Approve = func(context.Context, storage.Matched) ([]bool, error) {
			n++
			f.Append(t, person("bob@example.org", n, 1)...)
			return []bool{false}, nil
		}
		if _, err := f.Open(t).Delete(t.Context(), d); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("got %v", err)
		}
		if _, ok, err := f.Open(t).Committed(t.Context(), d.Batch); ok || err != nil {
			t.Errorf("committed %v, %v", ok, err)
		}
		d.Approve = nil
		wantSubjects(t, run(t, f.Open(t), d), done(2))
	}},
	{"replicas that run the same batch commit it once and tell the same", func(t *testing.T, f *fixture) {
		bob := person("bob@example.org", 9, 1)
		f.Append(t, append(person("ann@example.org", 1, 3), bob...)...)
		f.Append(t, person("ann@example.org", 20, 3)...)
		d := f.deletion(t, key("email", "ann@example.org"))
		before := f.version(t)
		const replicas = 4
		results, errs := make([]storage.Deleted, replicas), make([]error, replicas)
		var wg sync.WaitGroup
		for i := range replicas {
			table := f.Open(t)
			wg.Go(func() { results[i], errs[i] = table.Delete(t.Context(), d) })
		}
		wg.Wait()
		for i := range replicas {
			if diff := cmp.Diff(results[0], results[i]); errs[i] != nil || diff != "" {
				t.Errorf("replica %d: %v\n%s", i, errs[i], diff)
			}
		}
		if v := f.version(t); v != before+1 {
			t.Errorf("version %d, want %d", v, before+1)
		}
		f.wantRows(t, bob...)
	}},
	{"a replica that loses the race to its own batch tells what won", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 3)...)
		d := f.deletion(t, key("email", "ann@example.org"))
		var first storage.Deleted
		second := d
		second.Approve = once(func() { first = run(t, f.Open(t), d) })
		got := run(t, f.Open(t), second)
		if diff := cmp.Diff(first, got); diff != "" {
			t.Error(diff)
		}
	}},
}

func dropReasons(ds ...*storage.Deleted) {
	for _, d := range ds {
		for i := range d.Subjects {
			d.Subjects[i].Reason = ""
		}
	}
}

var describeTests = []tableTest{
	{"Describe counts fragments, live and deleted rows", func(t *testing.T, f *fixture) {
		f.Append(t, person("ann@example.org", 1, 5)...)
		f.Append(t, person("bob@example.org", 10, 5)...)
		f.Append(t, person("eve@example.org", 20, 5)...)
		f.Hide(t, 2)
		f.delete(t, key("email", "bob@example.org"), key("id", "3"))
		d, err := f.Open(t).Describe(t.Context())
		if err != nil || d.Fragments != 2 || d.LiveRows != 8 || d.DeletedRows != 2 || len(d.Refused) != 0 || d.Features == nil {
			t.Errorf("%+v, %v", d, err)
		}
	}},
	{"Bind accepts columns that can be compared and refuses others by name", func(t *testing.T, f *fixture) {
		table := f.Open(t)
		if err := table.Bind(t.Context(), []string{"id", "email", "contact.phone", "region"}); err != nil {
			t.Error(err)
		}
		for _, column := range []string{"nobody", "score", "contact", "contact.nobody", "EMAIL", "Contact.phone", ""} {
			err := table.Bind(t.Context(), []string{"id", column})
			var r *storage.Refusal
			if !errors.As(err, &r) || r.Code == "" || r.Reason == "" {
				t.Errorf("column %q: %v", column, err)
			}
		}
	}},
	{"a table is safe for concurrent use", func(t *testing.T, f *fixture) {
		for i := range int64(4) {
			f.Append(t, person("ann@example.org", 10*i, 5)...)
		}
		table := f.Open(t)
		d := f.deletion(t, key("email", "ann@example.org"))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := table.Describe(t.Context()); err != nil {
					t.Error(err)
				}
				if err := table.Bind(t.Context(), []string{"id"}); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if _, err := table.Delete(t.Context(), d); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		f.wantRows(t)
	}},
}
