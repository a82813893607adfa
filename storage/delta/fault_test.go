package delta_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
	"delenda/storage/storagetest"
)

// sweepSubjects matches rows of two fragments and one fragment whole.
func sweepSubjects() []storage.Subject {
	return []storage.Subject{subject("email", "ann@example.org"), subject("id", "31", "32"), subject("contact.phone", "nobody")}
}

func sweepRows(host storagetest.Host, t testing.TB) {
	t.Helper()
	ann, bob, eve := "ann@example.org", "bob@example.org", "eve@example.org"
	row := func(id int64, email *string) storagetest.Row {
		return storagetest.Row{ID: id, Email: email, Region: "north"}
	}
	host.Append(t, row(1, &ann), row(2, &bob), row(3, nil), row(4, &ann))
	host.Append(t, row(11, &bob), row(12, &bob), row(13, &ann), row(14, &eve))
	host.Append(t, row(21, &eve), row(22, &eve))
	host.Append(t, row(31, &bob), row(32, &bob))
	host.Hide(t, 12)
}

// sweepModel is what the table must look like when the batch is done.
func sweepModel(t testing.TB) (rows []storagetest.Row, result storage.Deleted) {
	t.Helper()
	m := storagetest.NewMemory()
	sweepRows(m, t)
	d, err := m.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: sweepSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	return m.Rows(t), d
}

// judge counts the commits of the batch and compares rows with the model.
func judge(t *testing.T, h *peopleHost, want []storagetest.Row, what string) {
	t.Helper()
	dir := h.dump(t)
	if n := commitsOf(t, dir, sweepApp, 1); n != 1 {
		t.Errorf("%s: the batch has %d commits", what, n)
	}
	got := h.Rows(t)
	missing, over := 0, 0
	count := map[string]int{}
	for _, r := range want {
		count[r.String()]++
	}
	for _, r := range got {
		count[r.String()]--
	}
	for _, n := range count {
		if n > 0 {
			missing += n
		} else {
			over -= n
		}
	}
	if missing+over > 0 {
		t.Errorf("%s: %d rows missing, %d too many", what, missing, over)
	}
}

const sweepApp = "delenda/sweep/people"

func TestDeleteSurvivesAnyFaultAtAnyOperation(t *testing.T) {
	t.Parallel()
	want, model := sweepModel(t)
	properties := []map[string]string{{"delta.checkpointInterval": "3"}}
	if os.Getenv("DELENDA_LONG") == "1" {
		properties = append(properties, nil, map[string]string{"delta.checkpointInterval": "1"}, map[string]string{"delta.randomizeFilePrefixes": "true"})
	}
	for _, mode := range fault.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			for _, p := range properties {
				sweep(t, mode, p, false, want, model)
			}
			if os.Getenv("DELENDA_LONG") == "1" {
				sweep(t, mode, properties[0], true, want, model)
			}
		})
	}
}

// sweep lets one operation after the other go wrong until none is left; with
// race, another writer wins the first version that the delete wants.
func sweep(t *testing.T, mode fault.Mode, properties map[string]string, race bool, want []storagetest.Row, model storage.Deleted) {
	t.Helper()
	for n := 1; ; n++ {
		h := newPeople(t, bucket.NewMemory(), properties)
		sweepRows(h, t)
		base := h.version(t)
		f := fault.Wrap(h.b)
		ctx, cancel := context.WithCancel(t.Context())
		f.OnKill(cancel)
		h.table = f
		h.o.Workers = 1
		table := h.Open(t)
		f.Reset()
		f.Arm(mode, n)
		d := storage.Deletion{
			Batch: storage.Batch{App: sweepApp, Number: 1, Base: base}, Subjects: sweepSubjects(),
			Now: func() time.Time { return time.UnixMilli(1_800_000_000_000) },
		}
		if race {
			lose := sync.OnceFunc(func() { h.Hide(t, 12) }) // hidden before: an empty commit
			d.Approve = func(context.Context, storage.Matched) ([]bool, error) {
				lose()
				return make([]bool, len(d.Subjects)), nil
			}
		}
		first, err := table.Delete(ctx, d)
		cancel()
		struck, trace := f.Struck(), f.Trace()
		what := mode.String() + " at the end"
		if struck {
			what = mode.String() + " at " + trace[n-1].String()
		}
		if err == nil {
			compareSweep(t, what, first, model)
		} else if !struck {
			t.Fatalf("%s: %v", what, err)
		}
		// The process starts again.
		h.table = h.b
		second, err := h.Open(t).Delete(t.Context(), d)
		if err != nil {
			t.Fatalf("%s: run again: %v", what, err)
		}
		compareSweep(t, what, second, model)
		judge(t, h, want, what)
		back, ok, err := h.Open(t).Committed(t.Context(), d.Batch)
		if err != nil || !ok {
			t.Errorf("%s: Committed: %v, %v", what, ok, err)
		}
		compareSweep(t, what, back, model)
		if !struck {
			if n < 15 {
				t.Errorf("only %d operations: %v", n, trace)
			}
			return
		}
	}
}

func compareSweep(t *testing.T, what string, got, model storage.Deleted) {
	t.Helper()
	if !got.Committed || got.Kept != model.Kept || len(got.Fragments) != len(model.Fragments) {
		t.Errorf("%s: %+v, want %+v", what, got, model)
	}
	for i, s := range got.Subjects {
		if s.Rows != model.Subjects[i].Rows || s.State != model.Subjects[i].State {
			t.Errorf("%s: subject %d: %+v", what, i, s)
		}
	}
}

func (h *peopleHost) version(t testing.TB) storage.Version {
	t.Helper()
	d, err := h.Open(t).Describe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return d.Version
}

// TestDeleteWithAnUnclearAnswerAndALostRace lets the store lose the answer to
// the commit while another writer takes the next version.
func TestACommitWhoseAnswerIsLostIsFoundAgain(t *testing.T) {
	t.Parallel()
	want, model := sweepModel(t)
	h := newPeople(t, bucket.NewMemory(), nil)
	sweepRows(h, t)
	f := fault.Wrap(h.b)
	h.table = f
	table := h.Open(t)
	f.ArmMatch(fault.Tear, 1, func(op fault.Op) bool { return op.Name == "put-if-absent" && isCommit(op.Key) })
	d := storage.Deletion{Batch: storage.Batch{App: sweepApp, Number: 1, Base: 0}, Subjects: sweepSubjects()}
	got, err := table.Delete(t.Context(), d)
	if err != nil || !f.Struck() {
		t.Fatalf("%v, struck %v", err, f.Struck())
	}
	compareSweep(t, "lost answer", got, model)
	judge(t, h, want, "lost answer")
}

func TestACommitThatDidNotLandIsAnError(t *testing.T) {
	t.Parallel()
	h := newPeople(t, bucket.NewMemory(), nil)
	sweepRows(h, t)
	before := h.version(t)
	f := fault.Wrap(h.b)
	h.table = f
	table := h.Open(t)
	f.ArmMatch(fault.Fail, 1, func(op fault.Op) bool { return op.Name == "put-if-absent" && isCommit(op.Key) })
	_, err := table.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: sweepApp, Number: 1}, Subjects: sweepSubjects()})
	if !errors.Is(err, fault.ErrInjected) || h.version(t) != before {
		t.Errorf("%v", err)
	}
}

func TestApplicationsThatDeleteAtOnceAllSucceed(t *testing.T) {
	t.Parallel()
	const apps, each = 4, 3
	h := newPeople(t, openDir(t, t.TempDir()), map[string]string{"delta.checkpointInterval": "4"})
	h.o.Attempts = 100
	var rows []storagetest.Row
	for id := range int64(apps*each + 2) {
		rows = append(rows, storagetest.Row{ID: id, Region: "north"})
	}
	h.Append(t, rows[:5]...)
	h.Append(t, rows[5:]...)
	var wg sync.WaitGroup
	for app := range apps {
		table := h.Open(t)
		wg.Go(func() {
			for n := range each {
				got, err := table.Delete(t.Context(), storage.Deletion{
					Batch:    storage.Batch{App: fmt.Sprintf("app %d", app), Number: int64(n + 1)},
					Subjects: []storage.Subject{subject("id", strconv.Itoa(app*each+n))},
				})
				if err != nil || !got.Committed || got.Subjects[0].Rows != 1 {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	if left := h.Rows(t); len(left) != 2 || left[0].ID < apps*each || left[1].ID < apps*each {
		t.Errorf("rows left: %v", left)
	}
}
