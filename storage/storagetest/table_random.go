package storagetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
)

// TableModel runs random appends, deletes, lost races and commits of other
// writers on a table and on the model, and compares results and rows after each
// step. The seed is in the subtest's name.
func TableModel(t *testing.T, seed uint64, steps int, open func(t testing.TB) Host) {
	t.Helper()
	t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
		t.Parallel()
		r := &randomRun{
			rnd:  rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // reproducible on purpose
			host: open(t), model: NewMemory(),
		}
		for i := range steps {
			r.step(t)
			if diff := diffRows(r.model.Rows(t), r.host.Rows(t)); diff != "" || t.Failed() {
				t.Fatalf("step %d (%s): %s", i, r.last, diff)
			}
		}
	})
}

type randomRun struct {
	rnd    *rand.Rand
	host   Host
	model  *Memory
	number int64
	base   [2]storage.Version
	nextID int64
	last   string
}

func (r *randomRun) row() Row {
	r.nextID++
	row := Row{ID: r.nextID % 50, Region: []string{"north", "south", "åland %2F"}[r.rnd.IntN(3)]}
	if r.rnd.IntN(4) > 0 {
		row.Email = text(r.email())
	}
	if r.rnd.IntN(4) > 0 {
		row.Phone = text("+" + strconv.Itoa(r.rnd.IntN(6)))
	}
	return row
}

func (r *randomRun) email() string {
	return "person" + strconv.Itoa(r.rnd.IntN(8)) + "@example.org"
}

func (r *randomRun) subject() storage.Subject {
	var s storage.Subject
	for range r.rnd.IntN(3) {
		k := []storage.Subject{
			key("id", strconv.Itoa(r.rnd.IntN(60))), key("email", r.email()), key("contact.phone", "+"+strconv.Itoa(r.rnd.IntN(8))),
			key("id", "x"), key("email", ""), key("region", "south"),
		}
		i := r.rnd.IntN(20)
		if i >= len(k) {
			i %= 3
		}
		s.Keys = append(s.Keys, k[i].Keys...)
	}
	return s
}

// foreign returns a commit of another writer, to run on either host.
func (r *randomRun) foreign() (string, func(t testing.TB, h Host)) {
	switch r.rnd.IntN(6) {
	case 0, 1, 2:
		rows := make([]Row, 1+r.rnd.IntN(30))
		for i := range rows {
			rows[i] = r.row()
		}
		return fmt.Sprintf("append %d", len(rows)), func(t testing.TB, h Host) { h.Append(t, rows...) }
	case 3:
		id := int64(r.rnd.IntN(50))
		return fmt.Sprintf("hide %d", id), func(t testing.TB, h Host) { h.Hide(t, id) }
	case 4:
		return "restore", func(t testing.TB, h Host) { h.Restore(t) }
	default:
		return "compact", func(t testing.TB, h Host) { h.Compact(t) }
	}
}

func (r *randomRun) step(t *testing.T) {
	t.Helper()
	if r.rnd.IntN(2) == 0 {
		name, f := r.foreign()
		r.last = name
		f(t, r.host)
		f(t, r.model)
		return
	}
	subjects := make([]storage.Subject, r.rnd.IntN(4))
	hold := make([]bool, len(subjects))
	for i := range subjects {
		subjects[i], hold[i] = r.subject(), r.rnd.IntN(8) == 0
	}
	r.number++
	var race func(t testing.TB, h Host)
	r.last = fmt.Sprintf("delete %d subjects", len(subjects))
	if r.rnd.IntN(3) == 0 {
		name, f := r.foreign()
		race, r.last = f, r.last+" against "+name
	}
	var results [2]storage.Deleted
	for i, h := range []Host{r.host, r.model} {
		d := storage.Deletion{Batch: storage.Batch{App: app, Number: r.number, Base: r.base[i]}, Subjects: subjects}
		asked := 0
		d.Approve = func(_ context.Context, m storage.Matched) ([]bool, error) {
			if asked++; asked == 1 && race != nil {
				race(t, h)
			}
			return slices.Clone(hold), nil
		}
		results[i] = run(t, h.Open(t), d)
		if results[i].Committed {
			again := run(t, h.Open(t), d)
			a, b := clone(results[i]), clone(again)
			dropReasons(&a, &b)
			if diff := cmp.Diff(a, b); diff != "" {
				t.Errorf("the same batch again: %s", diff)
			}
		}
		r.base[i] = results[i].Version
	}
	compareResults(t, results[1], results[0])
}

// compareResults compares all that does not depend on names and versions.
func compareResults(t *testing.T, want, got storage.Deleted) {
	t.Helper()
	if want.Committed != got.Committed || want.Kept != got.Kept {
		t.Errorf("committed %v, kept %d; want %v, %d", got.Committed, got.Kept, want.Committed, want.Kept)
	}
	wantSubjects(t, got, want.Subjects...)
	shape := func(d storage.Deleted) []string {
		out := []string{}
		for _, f := range d.Fragments {
			out = append(out, fmt.Sprintf("%s %d %d %d", f.Outcome, f.RowsDeleted, f.RowsHidden, f.PhysicalRows))
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(shape(want), shape(got)); diff != "" {
		t.Error(diff)
	}
}
