package erase_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"delenda/pipeline"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
)

func Test_a_request_says_that_its_table_is_parked_and_why_until_it_opens(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]struct {
		err          error
		code, reason string
	}{
		"a refusal gives its own reason": {
			storage.Refuse("deletion_vectors_disabled", "the table may not carry deletion vectors"),
			"deletion_vectors_disabled", "the table may not carry deletion vectors",
		},
		"an error gives no place": {
			errors.New("dial tcp 10.1.2.3: no route to /lake/mail=jane@example.com"),
			"table_unavailable", "the table cannot be opened or read at the moment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := pipelinetest.NewWorld(t)
			w.AddTable(t, "orders", manyRows(1)...)
			w.AddTable(t, "visits", manyRows(1)...)
			p := newProcess(t, w)
			var well atomic.Bool
			p.tables = p.w.Config(nil)
			for i := range p.tables {
				if p.tables[i].Name != "orders" {
					continue
				}
				open := p.tables[i].Open
				p.tables[i].Open = func(ctx context.Context) (storage.Table, error) {
					if !well.Load() {
						return nil, trouble.err
					}
					return open(ctx)
				}
			}
			id := many(t, p, 1)[0]
			w.Queue.Put("delenda.requests.other", "", nil) // work is never done
			done := make(chan error, 1)
			go func() { done <- p.work() }()
			waitFor(t, w, "parked/orders")
			waitFor(t, w, "items/"+string(id)+"/visits/")
			st, err := w.Store(t).Status(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range st.Tables {
				switch {
				case table.Table == "visits":
					if table.Parked || table.State != pipeline.Hidden {
						t.Errorf("%+v", table)
					}
				case !table.Parked || table.State != pipeline.Received || table.Code != trouble.code || table.Reason != trouble.reason:
					t.Errorf("%+v", table)
				}
			}
			well.Store(true)
			waitFor(t, w, "closed/2026-03/"+string(id))
			for parked := true; parked; {
				there, err := w.Store(t).Parked(p.ctx, "orders")
				if err != nil {
					t.Fatal(err)
				}
				parked = there != nil
				<-w.Queue.Changed()
			}
			w.Queue.Wipe()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			judgeClosed(t, w, id, map[string]int64{"orders": 2, "visits": 2})
		})
	}
}

func Test_a_mark_of_a_worker_that_is_gone_is_taken_away(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	w.AddTable(t, "orders", manyRows(1)...)
	store := w.Store(t)
	if err := store.Park(t.Context(), "orders", pipeline.Parked{Code: "no_table", Reason: "there was none"}); err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, w)
	w.Queue.Put("delenda.requests.other", "", nil)
	done := make(chan error, 1)
	go func() { done <- p.work() }()
	for parked := true; parked; {
		there, err := store.Parked(p.ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		parked = there != nil
		<-w.Queue.Changed()
	}
	w.Queue.Wipe()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
