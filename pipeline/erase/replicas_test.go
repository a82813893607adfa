package erase_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"delenda/pipeline"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
	"delenda/storage/bucket/fault"
)

func Test_two_deleters_on_one_table_hide_every_row_once(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{-1, 20 * time.Millisecond} {
		t.Run(patience.String(), func(t *testing.T) {
			t.Parallel()
			w := pipelinetest.NewWorld(t)
			orders := w.AddTable(t, "orders", manyRows(30)...)
			var all []*process
			for range 3 {
				p := newProcess(t, w)
				p.opts.Patience, p.opts.Beat, p.opts.Max = patience, 5*time.Millisecond, 4
				all = append(all, p)
			}
			ids := many(t, all[0], 30)
			var run sync.WaitGroup
			for _, p := range all {
				run.Go(func() {
					if err := p.work(); err != nil {
						t.Error(err)
					}
				})
			}
			run.Wait()
			var erased []string
			for i, id := range ids {
				judgeClosed(t, w, id, map[string]int64{"orders": 2})
				erased = append(erased, fmt.Sprintf("p%d", i))
			}
			judgeTable(t, orders, erased...)
		})
	}
}

// stuck is a worker that stands still in the middle of its first commit.
type stuck struct {
	*process
	arrived, proceed chan struct{}
	once             sync.Once
	done             chan error
}

func newStuck(t *testing.T, w *pipelinetest.World, at *pipelinetest.Table) *stuck {
	s := &stuck{process: newProcess(t, w), arrived: make(chan struct{}), proceed: make(chan struct{}), done: make(chan error, 1)}
	s.wrap = through(at, func(table *pipelinetest.Table) {
		table.BeforeCommit = func(context.Context) error {
			s.once.Do(func() {
				close(s.arrived)
				<-s.proceed
			})
			return nil
		}
	})
	return s
}

func (s *stuck) start() {
	go func() { s.done <- s.work() }()
	<-s.arrived
}

func Test_a_worker_waits_for_one_that_shows_life_and_takes_over_from_one_that_does_not(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	orders := w.AddTable(t, "orders", manyRows(2)...)
	slow := newStuck(t, w, orders)
	slow.opts.Patience, slow.opts.Beat = time.Minute, time.Millisecond
	id := many(t, slow.process, 1)[0]
	slow.start()

	other := newProcess(t, w)
	other.opts.Patience, other.opts.Beat = 300*time.Millisecond, 5*time.Millisecond
	began := make(chan struct{}, 100)
	other.wrap = through(orders, func(table *pipelinetest.Table) {
		table.BeforeDelete = func(context.Context, storage.Deletion) error {
			began <- struct{}{}
			return nil
		}
	})
	done := make(chan error, 1)
	go func() { done <- other.work() }()
	select {
	case <-began:
		t.Error("took over from a worker that shows life")
	case <-time.After(500 * time.Millisecond):
	}
	close(slow.proceed)
	if err := <-slow.done; err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	judgeClosed(t, w, id, map[string]int64{"orders": 2})

	// The next one dies in the middle of it.
	dead := newStuck(t, w, orders)
	dead.opts.Patience, dead.opts.Beat = time.Minute, time.Millisecond
	r, err := dead.accept(body("second", "p1"))
	if err != nil {
		t.Fatal(err)
	}
	dead.start()
	f := fault.Wrap(w.State)
	f.ArmMatch(fault.Kill, 1, func(fault.Op) bool { return true })
	dead.cancel()
	w.Queue.Redeliver()
	heir := newProcess(t, w)
	heir.opts.Patience, heir.opts.Beat = 50*time.Millisecond, 5*time.Millisecond
	if err := heir.work(); err != nil {
		t.Fatal(err)
	}
	judgeClosed(t, w, r.ID, map[string]int64{"orders": 2})
	close(dead.proceed)
	if err := <-dead.done; err == nil {
		t.Error("a killed process ended well")
	}
	judgeClosed(t, w, r.ID, map[string]int64{"orders": 2})
}

func Test_rows_hidden_by_a_worker_that_was_given_up_still_count(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	orders := w.AddTable(t, "orders", manyRows(4)...)
	zombie := newStuck(t, w, orders)
	ids := many(t, zombie.process, 4)
	zombie.start()
	w.Queue.Redeliver()

	// Others give the batch up, and only before they commit the first half
	// does the zombie's commit land.
	other := newProcess(t, w)
	other.opts.MaxKills = 1
	var once sync.Once
	other.wrap = through(orders, func(table *pipelinetest.Table) {
		table.BeforeCommit = func(context.Context) error {
			once.Do(func() {
				close(zombie.proceed)
				if err := <-zombie.done; err != nil {
					t.Error(err)
				}
			})
			return nil
		}
	})
	if err := other.work(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		judgeClosed(t, w, id, map[string]int64{"orders": 2})
	}
	judgeTable(t, orders, "p0", "p1", "p2", "p3")
}

// Test_random_histories_end_right runs processes with random faults, several
// at a time, over random requests, appends, losses of the bus, holds and
// releases, and compares the end with a model that only knows which ids were
// asked for.
func Test_random_histories_end_right(t *testing.T) {
	t.Parallel()
	histories := 40
	if os.Getenv("DELENDA_LONG") != "" {
		histories = 2000
	}
	for seed := range histories {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { history(t, uint64(seed)) })
		if t.Failed() {
			return
		}
	}
}

func history(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := pipelinetest.NewWorld(t)
	w.Limits = pipeline.Limits{Rows: 3}
	w.AddTable(t, "a", rows("nobody")...)
	w.AddTable(t, "b", rows("nobody")...)
	requests := map[string]pipeline.RequestID{} // by id asked for
	var asked []string
	steps := 6 + rnd.IntN(10)
	for step := range steps {
		switch rnd.IntN(6) {
		case 0, 1: // a request for somebody with some rows
			id := fmt.Sprintf("s%d", step)
			for _, table := range w.Tables {
				if err := table.Append(t.Context(), rows(repeat(id, rnd.IntN(5))...)...); err != nil {
					t.Fatal(err)
				}
			}
			p := newProcess(t, w)
			if rnd.IntN(3) == 0 {
				f := fault.Wrap(w.State)
				f.OnKill(p.cancel)
				f.Arm(fault.Modes()[rnd.IntN(4)], 1+rnd.IntN(12))
				p.state = f
			}
			r, err := p.accept(body(id, id))
			p.cancel()
			if err != nil { // the sender asks again
				if r, err = newProcess(t, w).accept(body(id, id)); err != nil {
					t.Fatal(err)
				}
			}
			requests[id] = r.ID
			asked = append(asked, id)
		case 2, 3: // one or two deleters, of which one may meet a fault
			var run sync.WaitGroup
			for range 1 + rnd.IntN(2) {
				p := newProcess(t, w)
				p.opts.Max = 1 + rnd.IntN(4)
				at, mode, where := 1+rnd.IntN(60), fault.Modes()[rnd.IntN(4)], rnd.IntN(4)
				switch where {
				case 0:
					f := fault.Wrap(w.State)
					f.OnKill(p.cancel)
					f.Arm(mode, at)
					p.state = f
				case 1:
					p.conn.Around = pipelinetest.NewStrike(mode, at, p.cancel).Around
				case 2:
					p.wrap = through(w.Tables["a"], func(table *pipelinetest.Table) {
						f := fault.Wrap(table.Bucket)
						f.OnKill(p.cancel)
						f.Arm(mode, at%12)
						table.Bucket = f
					})
				}
				run.Go(func() {
					_ = p.work()
					p.cancel()
				})
			}
			run.Wait()
			w.Queue.Redeliver()
		case 4:
			if rnd.IntN(2) == 0 {
				w.Queue.Wipe()
			} else if len(asked) > 0 {
				p := newProcess(t, w)
				if err := p.open(); err != nil {
					t.Fatal(err)
				}
				_, _ = p.store.Release(t.Context(), p.conn.Publish, requests[asked[rnd.IntN(len(asked))]])
			}
		case 5:
			w.Clock.Advance(time.Duration(rnd.IntN(40*24)) * time.Hour)
		}
	}
	p := newProcess(t, w)
	p.recover(t)
	store := w.Store(t)
	for _, id := range asked { // let go what is still held
		if st, err := store.Status(t.Context(), requests[id]); err != nil {
			t.Fatal(err)
		} else if st.State == pipeline.Held {
			if _, err := store.Release(t.Context(), p.conn.Publish, st.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.recover(t)
	idle(t, p) // whatever was lost, the next request of a table settles what is open
	for _, id := range asked {
		want := map[string]int64{}
		for name, table := range w.Tables {
			s, err := table.Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want[name] = s.Gone("id", id)
		}
		judgeClosed(t, w, requests[id], want)
	}
	for _, table := range w.Tables {
		judgeTable(t, table, asked...)
	}
	judgeLog(t, w)
	if t.Failed() {
		t.Logf("seed %d\n%s", seed, p.logs)
	}
}

func repeat(s string, n int) []string {
	var list []string
	for range n {
		list = append(list, s)
	}
	return list
}
