package erase_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"delenda/events"
	"delenda/pipeline"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
	"delenda/storage/bucket/fault"
)

// through returns a wrap for one table that changes a copy of it.
func through(of *pipelinetest.Table, change func(*pipelinetest.Table)) func(*pipelinetest.Table) *pipelinetest.Table {
	return func(table *pipelinetest.Table) *pipelinetest.Table {
		if table != of {
			return table
		}
		c := *table
		change(&c)
		return &c
	}
}

func holds(d storage.Deletion, id string) bool {
	for _, s := range d.Subjects {
		for _, k := range s.Keys {
			if k.Value.Reveal() == id {
				return true
			}
		}
	}
	return false
}

// many accepts requests for p0, p1, ... and returns their ids.
func many(t *testing.T, p *process, n int) []pipeline.RequestID {
	t.Helper()
	var ids []pipeline.RequestID
	for i := range n {
		r, err := p.accept(body(fmt.Sprintf("key-%d", i), fmt.Sprintf("p%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

func manyRows(n int) []pipelinetest.Row {
	var list []pipelinetest.Row
	for i := range n {
		list = append(list, rows(fmt.Sprintf("p%d", i), "other", fmt.Sprintf("p%d", i))...)
	}
	return list
}

// judgeCulprit checks that culprit failed by code and all others are done.
func judgeCulprit(t *testing.T, w *pipelinetest.World, ids []pipeline.RequestID, culprit int, code string) {
	t.Helper()
	store := w.Store(t)
	for i, id := range ids {
		st, err := store.Status(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if i != culprit {
			judgeClosed(t, w, id, map[string]int64{"orders": 2})
			continue
		}
		if st.State != pipeline.Partial || st.ClosedAt != nil || st.Tables[0].State != pipeline.Failed || st.Tables[0].Code != code {
			t.Errorf("culprit: %+v", st)
		}
	}
	letters := w.Queue.Kept(events.TypeDeadLetter)
	if len(letters) != 1 {
		t.Fatalf("%d dead letters, want 1", len(letters))
	}
	d, err := events.Payload[events.DeadLetter](letters[0])
	if err != nil {
		t.Fatal(err)
	}
	if d.Request != string(ids[culprit]) || d.Code != code || d.Table != "orders" || len(d.Payload) == 0 {
		t.Errorf("dead letter: %+v", d)
	}
}

func Test_a_failing_batch_is_split_until_the_culprit_is_alone(t *testing.T) {
	t.Parallel()
	const culprit, n = 5, 13
	for _, trouble := range []struct {
		name, code string
		delete     func() error
	}{
		{"panic", pipeline.CodePanicked, func() error { panic("p5 in a panic") }},
		{"error", pipeline.CodeDeleteFailed, func() error { return errors.New("no reason at all") }},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			w := pipelinetest.NewWorld(t)
			orders := w.AddTable(t, "orders", manyRows(n)...)
			p := newProcess(t, w)
			bad := true
			p.wrap = through(orders, func(table *pipelinetest.Table) {
				table.BeforeDelete = func(_ context.Context, d storage.Deletion) error {
					if bad && holds(d, "p5") {
						return trouble.delete()
					}
					return nil
				}
			})
			ids := many(t, p, n)
			if err := p.work(); err != nil {
				t.Fatal(err, p.logs)
			}
			judgeCulprit(t, w, ids, culprit, trouble.code)
			judgeSilence(t, w, p.logs.String(), `p5"`, "p5 in")

			// What failed stays failed, whoever feeds it, until it is retried.
			p.recover(t)
			judgeCulprit(t, w, ids, culprit, trouble.code)
			bad = false
			letter, err := events.Payload[events.DeadLetter](w.Queue.Kept(events.TypeDeadLetter)[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := p.store.Replay(t.Context(), p.conn.Publish, letter); err != nil {
				t.Fatal(err)
			}
			p.recover(t)
			judgeClosed(t, w, ids[culprit], map[string]int64{"orders": 2})
			if err := p.store.Replay(t.Context(), p.conn.Publish, letter); !errors.Is(err, pipeline.ErrNotWaiting) {
				t.Errorf("replayed again: %v", err)
			}
		})
	}
}

func Test_a_request_that_kills_its_worker_ends_as_a_dead_letter(t *testing.T) {
	t.Parallel()
	const culprit, n = 5, 13
	w := pipelinetest.NewWorld(t)
	orders := w.AddTable(t, "orders", manyRows(n)...)
	ids := many(t, newProcess(t, w), n)
	died := 0
	for {
		p := newProcess(t, w)
		killed := false
		f := fault.Wrap(w.State)
		p.state = f
		p.wrap = through(orders, func(table *pipelinetest.Table) {
			table.BeforeDelete = func(ctx context.Context, d storage.Deletion) error {
				if !holds(d, "p5") {
					return nil
				}
				killed = true
				p.conn.Around = func(context.Context, string, func() error) error { return fault.ErrKilled }
				f.ArmMatch(fault.Kill, 1, func(fault.Op) bool { return true })
				_, err := f.Stat(ctx, "anything")
				p.cancel()
				return err
			}
		})
		w.Queue.Redeliver()
		err := p.work()
		if !killed {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if died++; died > 30 {
			t.Fatal("it kills workers for ever")
		}
	}
	t.Logf("%d workers died", died)
	judgeCulprit(t, w, ids, culprit, pipeline.CodeKilledWorker)
}

func Test_workers_that_die_after_the_commit_do_not_make_it_a_failure(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d requests", n), func(t *testing.T) {
			t.Parallel()
			w := pipelinetest.NewWorld(t)
			w.AddTable(t, "orders", manyRows(n)...)
			ids := many(t, newProcess(t, w), n)
			for range 5 {
				p := newProcess(t, w)
				f := fault.Wrap(w.State)
				f.OnKill(p.cancel)
				f.ArmMatch(fault.Kill, 1, func(op fault.Op) bool { return op.Name == "put-if-absent" && strings.HasSuffix(op.Key, "/closed") })
				p.state = f
				if err := p.work(); err == nil || !f.Struck() {
					t.Fatalf("lived: %v", err)
				}
				w.Queue.Redeliver()
			}
			newProcess(t, w).recover(t)
			for _, id := range ids {
				judgeClosed(t, w, id, map[string]int64{"orders": 2})
			}
		})
	}
}

func Test_trouble_of_one_table_parks_it_and_no_other(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code string
		err  error
	}{
		{"append_only", storage.Refuse("append_only", "the table is append only")},
		{"corrupt", &storage.CorruptError{Key: "log", Offset: 3, Field: "x", Reason: "y"}},
		{"access_denied", storage.ErrDenied},
		{"conflict", storage.ErrConflict},
		{"batch_order", storage.ErrBatchOrder},
	} {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			w := pipelinetest.NewWorld(t)
			w.AddTable(t, "good", rows("x", "y")...)
			bad := w.AddTable(t, "bad", rows("x", "y", "x")...)
			p := newProcess(t, w)
			var mu sync.Mutex
			broken := true
			p.wrap = through(bad, func(table *pipelinetest.Table) {
				table.BeforeDelete = func(context.Context, storage.Deletion) error {
					mu.Lock()
					defer mu.Unlock()
					if broken {
						return fmt.Errorf("delete: %w", c.err)
					}
					return nil
				}
			})
			r, err := p.accept(body("k", "x"))
			if err != nil {
				t.Fatal(err)
			}
			reported := make(chan struct{})
			var once sync.Once
			p.conn.Around = func(_ context.Context, op string, do func() error) error {
				if op == "publish "+events.StatusSubject("good") {
					once.Do(func() { close(reported) })
				}
				return do()
			}
			parked := make(chan string, 16)
			p.opts.Metrics.Parked = func(table, code string) {
				if table == "bad" && code != "" {
					parked <- code
				}
			}
			done := make(chan error)
			go func() { done <- p.work() }()
			<-reported
			if got := <-parked; got != c.code {
				t.Errorf("parked as %q, want %q", got, c.code)
			}
			mu.Lock()
			broken = false
			mu.Unlock()
			if err := <-done; err != nil {
				t.Fatal(err, p.logs)
			}
			judgeClosed(t, w, r.ID, map[string]int64{"good": 1, "bad": 2})
		})
	}
}

func Test_a_request_beyond_the_limits_is_held_until_released(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	w.Limits = pipeline.Limits{Rows: 2}
	orders := w.AddTable(t, "orders", rows("big", "big", "big", "small", "other")...)
	w.AddTable(t, "visits", rows("big", "small")...)
	p := newProcess(t, w)
	big, err := p.accept(body("big", "big"))
	if err != nil {
		t.Fatal(err)
	}
	small, err := p.accept(body("small", "small"))
	if err != nil {
		t.Fatal(err)
	}
	p.recover(t)
	judgeClosed(t, w, small.ID, map[string]int64{"orders": 1, "visits": 1})
	judgeTable(t, orders, "small")
	st, err := p.store.Status(t.Context(), big.ID)
	if err != nil {
		t.Fatal(err)
	}
	if st.State != pipeline.Held || st.Tables[0].State != pipeline.Held || st.Tables[0].Rows != 3 || st.Tables[1].State != pipeline.Hidden {
		t.Errorf("held: %+v", st)
	}
	// More rows come while it waits.
	if err := orders.Append(t.Context(), rows("big")...); err != nil {
		t.Fatal(err)
	}
	p.recover(t)
	judgeTable(t, orders, "small")

	tables, err := p.store.Release(t.Context(), p.conn.Publish, big.ID)
	if err != nil || !slices.Equal(tables, []string{"orders"}) {
		t.Errorf("released %v, %v", tables, err)
	}
	p.recover(t)
	judgeTable(t, orders, "small", "big")
	judgeClosed(t, w, big.ID, map[string]int64{"orders": 4, "visits": 1})
	if _, err := p.store.Release(t.Context(), p.conn.Publish, big.ID); !errors.Is(err, pipeline.ErrNotWaiting) {
		t.Errorf("released again: %v", err)
	}
}

func Test_a_release_survives_the_loss_of_its_message(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	w.Limits = pipeline.Limits{Share: 0.5}
	orders := w.AddTable(t, "orders", rows("x", "x", "y")...)
	p := newProcess(t, w)
	r, err := p.accept(body("k", "x"))
	if err != nil {
		t.Fatal(err)
	}
	p.recover(t)
	judgeTable(t, orders)
	if _, err := p.store.Release(t.Context(), p.conn.Publish, r.ID); err != nil {
		t.Fatal(err)
	}
	w.Queue.Wipe()
	p.recover(t)
	judgeTable(t, orders, "x")
	judgeClosed(t, w, r.ID, map[string]int64{"orders": 2})
}

func Test_an_invalid_value_fails_its_request_alone(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	orders := w.AddTable(t, "orders", rows("x", "y")...)
	p := newProcess(t, w)
	bad, err := p.accept(body("bad", "invalid"))
	if err != nil {
		t.Fatal(err)
	}
	good, err := p.accept(body("good", "x"))
	if err != nil {
		t.Fatal(err)
	}
	p.recover(t)
	judgeTable(t, orders, "x")
	judgeClosed(t, w, good.ID, map[string]int64{"orders": 1})
	st, err := p.store.Status(t.Context(), bad.ID)
	if err != nil || st.State != pipeline.Partial || st.Tables[0].Code != pipeline.CodeInvalidValue || st.Tables[0].Reason != "column id" {
		t.Errorf("%+v, %v", st, err)
	}
}

func Test_a_request_that_is_damaged_in_the_state_prefix_holds_up_no_other(t *testing.T) {
	t.Parallel()
	const culprit = 1
	for _, damaged := range []string{"requests/", "keys/"} {
		t.Run(damaged, func(t *testing.T) {
			t.Parallel()
			w := pipelinetest.NewWorld(t)
			w.AddTable(t, "orders", manyRows(3)...)
			p := newProcess(t, w)
			ids := many(t, p, 3)
			put(t, w.State, damaged+string(ids[culprit]), "damaged")
			if err := p.work(); err != nil {
				t.Fatalf("%v\n%s", err, p.logs)
			}
			for i, id := range ids {
				if i != culprit {
					judgeClosed(t, w, id, map[string]int64{"orders": 2})
					continue
				}
				item, err := p.store.Item(t.Context(), id, "orders")
				if err != nil || item == nil || item.State != pipeline.Failed || item.Code != pipeline.CodeUnreadable {
					t.Errorf("%+v, %v", item, err)
				}
			}
			if letters := w.Queue.Kept(events.TypeDeadLetter); len(letters) != 1 {
				t.Errorf("%d dead letters", len(letters))
			}
		})
	}
}
