package erase_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
)

func Test_a_worker_whose_store_never_answers_holds_up_no_other(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	orders := w.AddTable(t, "orders", manyRows(2)...)
	stands := newProcess(t, w)
	stands.opts.Patience, stands.opts.Beat, stands.opts.Stall = time.Minute, time.Millisecond, 100*time.Millisecond
	arrived, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	stands.wrap = through(orders, func(table *pipelinetest.Table) {
		table.BeforeDelete = func(context.Context, storage.Deletion) error { // heeds no context
			once.Do(func() {
				close(arrived)
				<-proceed
			})
			return nil
		}
	})
	id := many(t, stands, 1)[0]
	done := make(chan error, 1)
	go func() { done <- stands.work() }()
	<-arrived

	other := newProcess(t, w)
	other.opts.Patience, other.opts.Beat = 200*time.Millisecond, 5*time.Millisecond
	w.Queue.Redeliver()
	if err := other.work(); err != nil {
		t.Fatal(err)
	}
	judgeClosed(t, w, id, map[string]int64{"orders": 2})
	close(proceed)
	if err := <-done; err != nil {
		t.Error(err)
	}
	judgeClosed(t, w, id, map[string]int64{"orders": 2})
	judgeTable(t, orders, "p0")
}

func Test_an_attempt_is_cut_off_when_nothing_moves_and_only_then(t *testing.T) {
	t.Parallel()
	const stall = 150 * time.Millisecond
	for name, c := range map[string]struct {
		delete func(ctx context.Context, d storage.Deletion) error
		cut    bool
	}{
		"nothing moves": {func(ctx context.Context, _ storage.Deletion) error {
			<-ctx.Done()
			return ctx.Err()
		}, true},
		"the scan goes on": {func(ctx context.Context, d storage.Deletion) error {
			tick := time.NewTicker(stall / 10)
			defer tick.Stop()
			for range 30 {
				select {
				case <-tick.C:
					d.Progress(storage.Progress{})
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := pipelinetest.NewWorld(t)
			orders := w.AddTable(t, "orders", manyRows(2)...)
			p := newProcess(t, w)
			p.opts.Stall = stall
			var calls atomic.Int64
			p.wrap = through(orders, func(table *pipelinetest.Table) {
				table.BeforeDelete = func(ctx context.Context, d storage.Deletion) error {
					if calls.Add(1) == 1 {
						return c.delete(ctx, d)
					}
					return nil
				}
			})
			id := many(t, p, 1)[0]
			if err := p.work(); err != nil {
				t.Fatal(err)
			}
			judgeClosed(t, w, id, map[string]int64{"orders": 2})
			if cut := strings.Contains(p.logs.String(), "nothing moves for 150ms"); cut != c.cut || (calls.Load() > 1) != c.cut {
				t.Errorf("cut off: %t after %d calls\n%s", cut, calls.Load(), p.logs)
			}
		})
	}
}
