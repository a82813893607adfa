package erase_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
	"delenda/pipeline"
	"delenda/pipeline/audit"
	"delenda/pipeline/erase"
	"delenda/pipeline/intake"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
)

// consumeFrom is the way of a deleter to JetStream.
func consumeFrom(b *bus.Bus) erase.Consume {
	return func(ctx context.Context, table string) (pipeline.Fetch, error) {
		c, err := b.Consumer(ctx, events.StreamRequests, bus.DeleterDurable(table))
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, limit int, wait time.Duration) ([]pipeline.Message, error) {
			list, err := c.Fetch(ctx, limit, wait)
			var messages []pipeline.Message
			for _, m := range list {
				messages = append(messages, pipeline.Message{
					Delivery: m, Subject: m.Subject, Stream: m.Stream, Sequence: m.Sequence,
					Deliveries: m.Deliveries, ID: m.MsgID, Data: m.Data,
				})
			}
			return messages, err
		}, nil
	}
}

// stream is a world on a real JetStream and a real table.
type stream struct {
	w      *pipelinetest.World
	table  storage.Bucket
	bus    *bus.Bus
	server *bustest.Server
	store  *pipeline.Store
	in     *intake.Intake
}

func newStream(t *testing.T) *stream {
	t.Helper()
	s := &stream{w: pipelinetest.NewWorld(t), table: newDelta(t, 4)}
	s.bus, s.server = bustest.Start(t, "orders")
	s.store = s.w.Store(t)
	s.in = intake.New(s.store, deltaTable(s.table), s.bus.Publish, nil)
	return s
}

// wipe loses everything that JetStream held.
func (s *stream) wipe(t *testing.T) {
	t.Helper()
	s.server.Wipe(t)
	if err := s.bus.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.bus.Declare(t.Context(), bus.Topology{Tables: []string{"orders"}}); err != nil {
		t.Fatal(err)
	}
	sweeper := &pipeline.Sweeper{Store: s.store, Publish: s.bus.Publish, Backlog: s.bus.Backlog, Logger: slog.New(slog.DiscardHandler)}
	if _, err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// deleter runs a deleter until the test or the returned function ends it.
func (s *stream) deleter(t *testing.T, wrap func(storage.Table) storage.Table) (stop func()) {
	t.Helper()
	tables := deltaTable(s.table)
	open := tables[0].Open
	tables[0].Open = func(ctx context.Context) (storage.Table, error) {
		table, err := open(ctx)
		if err == nil && wrap != nil {
			table = wrap(table)
		}
		return table, err
	}
	o := &erase.Options{Window: 20 * time.Millisecond, Patience: 200 * time.Millisecond, Beat: 20 * time.Millisecond, Idle: 200 * time.Millisecond, Pause: 50 * time.Millisecond}
	d := erase.New(s.store, tables, consumeFrom(s.bus), s.bus.Publish, o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var run sync.WaitGroup
	run.Go(func() { _ = d.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		run.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// closed waits until the request is closed.
func (s *stream) closed(t *testing.T, id pipeline.RequestID) *pipeline.Status {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for {
		st, err := s.store.Status(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if st.ClosedAt != nil {
			return st
		}
		select {
		case <-timeout:
			t.Fatalf("not closed: %+v", st)
		case <-tick.C:
		}
	}
}

// backlog waits until the requests stream holds nothing.
func (s *stream) drained(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for {
		n, err := s.bus.Backlog(t.Context(), "orders")
		if err == nil && n == 0 {
			return
		}
		select {
		case <-timeout:
			t.Fatalf("%d items left, %v", n, err)
		case <-tick.C:
		}
	}
}

// hooked calls hooks around the delete of a table.
type hooked struct {
	storage.Table
	before, after func()
}

func (h *hooked) Delete(ctx context.Context, d storage.Deletion) (storage.Deleted, error) {
	if h.before != nil {
		h.before()
	}
	done, err := h.Table.Delete(ctx, d)
	if h.after != nil {
		h.after()
	}
	return done, err
}

func Test_JetStream_lost_at_the_worst_moments_loses_no_request_and_runs_none_twice(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"before the item is fetched", "before the commit", "between commit and acknowledgement", "after completion"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := newStream(t)
			before, err := audit.Read(t.Context(), s.table, "id", "mail")
			if err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			wipe := func() { once.Do(func() { s.wipe(t) }) }
			wrap := func(table storage.Table) storage.Table {
				h := &hooked{Table: table}
				switch moment {
				case "before the commit":
					h.before = wipe
				case "between commit and acknowledgement":
					h.after = wipe
				}
				return h
			}
			rec, err := s.in.Accept(t.Context(), "crm", []byte(body("k", "42424201")))
			if err != nil {
				t.Fatal(err)
			}
			if moment == "before the item is fetched" {
				wipe()
			}
			s.deleter(t, wrap)
			st := s.closed(t, rec.ID)
			s.drained(t)
			if moment == "after completion" {
				wipe()
				for range 3 { // and somebody replays it
					e, err := s.store.ItemEvent(rec, "orders", "")
					if err != nil {
						t.Fatal(err)
					}
					if err := s.bus.Publish(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				}
				s.drained(t)
			}
			after, err := audit.Read(t.Context(), s.table, "id", "mail")
			if err != nil {
				t.Fatal(err)
			}
			app := s.store.App("orders")
			v, err := audit.Judge(before, after, app, storage.Key{Column: "id", Value: storage.NewSecret("42424201")})
			if err != nil {
				t.Fatal(err)
			}
			if !v.OK() || st.Tables[0].Rows != v.SubjectRowsBefore || len(after.Commits(app)) != 1 || after.Version != st.Tables[0].Version {
				t.Errorf("%+v, status %+v, commits %v, version %d", v, st.Tables, after.Commits(app), after.Version)
			}
			judgeLog(t, s.w)
		})
	}
}

func Test_two_deleters_on_JetStream_share_a_table(t *testing.T) {
	t.Parallel()
	s := newStream(t)
	before, err := audit.Read(t.Context(), s.table, "id", "mail")
	if err != nil {
		t.Fatal(err)
	}
	s.deleter(t, nil)
	s.deleter(t, nil)
	ids := map[string]pipeline.RequestID{}
	keys := []storage.Key{}
	for i := range 30 {
		v := fmt.Sprint(10_000_000 + i)
		rec, err := s.in.Accept(t.Context(), "crm", []byte(body(v, v)))
		if err != nil {
			t.Fatal(err)
		}
		ids[v] = rec.ID
		keys = append(keys, storage.Key{Column: "id", Value: storage.NewSecret(v)})
	}
	for v, id := range ids {
		if st := s.closed(t, id); st.Tables[0].Rows != 1 {
			t.Errorf("%s: %+v", v, st.Tables)
		}
	}
	s.drained(t)
	after, err := audit.Read(t.Context(), s.table, "id", "mail")
	if err != nil {
		t.Fatal(err)
	}
	v, err := audit.Judge(before, after, s.store.App("orders"), keys...)
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() || v.SubjectRowsBefore != 30 {
		t.Errorf("%+v", v)
	}
	judgeLog(t, s.w)
}

func Test_a_full_run_leaves_no_identity_in_any_byte_of_ours(t *testing.T) {
	t.Parallel()
	s := newStream(t)
	tableBefore := map[string]bool{}
	for info, err := range s.table.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		tableBefore[info.Key] = true
	}
	rec, err := s.in.Accept(t.Context(), "crm", []byte(body("customer 42424201 wants out", "42424201", "nobody.at.all@example.net")))
	if err != nil {
		t.Fatal(err)
	}
	stop := s.deleter(t, nil)
	s.closed(t, rec.ID)
	s.drained(t)
	stop()
	scan, err := audit.NewScanner(storage.NewSecret("42424201"), storage.NewSecret("nobody.at.all@example.net"))
	if err != nil {
		t.Fatal(err)
	}
	s.server.Down(t)
	if err := scan.Dir(t.Context(), "jetstream", os.DirFS(s.server.Dir()), nil); err != nil {
		t.Fatal(err)
	}
	if err := scan.Bucket(t.Context(), "state", s.w.State, nil); err != nil {
		t.Fatal(err)
	}
	if err := scan.Bucket(t.Context(), "table", s.table, func(key string) bool { return tableBefore[key] }); err != nil {
		t.Fatal(err)
	}
	for _, f := range scan.Found() {
		t.Error(f)
	}
	if scan.Searched() < 1000 {
		t.Errorf("only %d bytes searched", scan.Searched())
	}
}
