package erase_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/events"
	"delenda/pipeline"
	"delenda/pipeline/erase"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
)

func Test_messages_that_are_no_items_end_as_dead_letters(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	w.AddTable(t, "orders", rows("x")...)
	p := newProcess(t, w)
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	subject := events.RequestsSubject("orders")
	w.Queue.Put(subject, "", []byte("not json"))
	for _, item := range []events.ErasureRequested{
		{Request: "not-a-uuid", Table: "orders"},
		{Request: "6f1c2a34-0000-8000-8000-000000000000", Table: "visits"},
		{Request: "6f1c2a34-0000-8000-8000-000000000001", Table: "orders"}, // nobody accepted it
	} {
		e, err := events.New("/x", events.TypeErasureRequested, subject, item.Request, w.Clock.Now(), item)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.conn.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.work(); err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, e := range w.Queue.Kept(events.TypeDeadLetter) {
		d, err := events.Payload[events.DeadLetter](e)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, d.Code)
		if len(d.Payload) > 0 {
			t.Error("a dead letter repeats a message that may be anything")
		}
	}
	if diff := cmp.Diff([]string{"malformed", "malformed", "malformed", "unknown_request"}, codes); diff != "" {
		t.Error(diff)
	}
}

func Test_items_delivered_too_often_are_kept_apart(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	orders := w.AddTable(t, "orders", manyRows(6)...)
	p := newProcess(t, w)
	ids := many(t, p, 3)
	for range 4 { // three come back again and again
		fetch, _ := p.conn.Consume(t.Context(), "orders")
		if _, err := fetch(t.Context(), 3, 0); err != nil {
			t.Fatal(err)
		}
		w.Queue.Redeliver()
	}
	for i := 3; i < 6; i++ {
		r, err := p.accept(body(fmt.Sprintf("key-%d", i), fmt.Sprintf("p%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	var batches []int
	p.opts.MaxDeliveries = 4
	p.wrap = through(orders, func(table *pipelinetest.Table) {
		table.BeforeDelete = func(_ context.Context, d storage.Deletion) error {
			batches = append(batches, len(d.Subjects))
			return nil
		}
	})
	if err := p.work(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{3, 3}, batches); diff != "" {
		t.Error(diff)
	}
	for _, id := range ids {
		judgeClosed(t, w, id, map[string]int64{"orders": 2})
	}
}

func Test_one_scan_serves_all_that_wait(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	orders := w.AddTable(t, "orders", manyRows(40)...)
	p := newProcess(t, w)
	ids := many(t, p, 40)
	if err := p.work(); err != nil {
		t.Fatal(err)
	}
	s, err := orders.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != 1 {
		t.Errorf("version %d: more than one commit", s.Version)
	}
	judgeClosed(t, w, ids[17], map[string]int64{"orders": 2})
}

func Test_a_batch_takes_no_more_than_its_maximum(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	orders := w.AddTable(t, "orders", manyRows(10)...)
	p := newProcess(t, w)
	many(t, p, 10)
	p.opts.Max = 4
	var sizes []int
	p.wrap = through(orders, func(table *pipelinetest.Table) {
		table.BeforeDelete = func(_ context.Context, d storage.Deletion) error {
			sizes = append(sizes, len(d.Subjects))
			return nil
		}
	})
	if err := p.work(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{4, 4, 2}, sizes); diff != "" {
		t.Error(diff)
	}
}

func Test_the_reason_of_a_parked_table_is_shown(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	p := newProcess(t, w)
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	table := pipeline.Table{
		Name: "gone", Identities: map[string]string{"customer_id": "id"},
		Open: func(context.Context) (storage.Table, error) { return nil, fmt.Errorf("open: %w", storage.ErrNoTable) },
	}
	opts := quick()
	parked := make(chan string, 1)
	opts.Metrics.Parked = func(_, code string) { parked <- code }
	d := erase.New(p.store, []pipeline.Table{table}, p.conn.Consume, p.conn.Publish, opts)
	if got := d.Tables()[0]; got.Ready || got.Code != "starting" {
		t.Errorf("before: %+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() { _ = d.Run(ctx) }()
	if got := <-parked; got != "no_table" {
		t.Errorf("parked as %q", got)
	}
	if got := d.Tables()[0]; got.Ready || got.Code != "no_table" || !strings.Contains(got.Reason, "not a table") {
		t.Errorf("after: %+v", got)
	}
}
