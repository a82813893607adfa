package erase_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"delenda/pipeline"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
)

// unlisting does not list some objects that are there, for as long as it hides
// them, and counts the puts of those.
type unlisting struct {
	storage.Bucket
	hides  func(key string) bool
	hiding atomic.Bool
	puts   atomic.Int64
}

func (u *unlisting) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		for info, err := range u.Bucket.List(ctx, prefix, after) {
			if err == nil && u.hiding.Load() && u.hides(info.Key) {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

func (u *unlisting) Put(ctx context.Context, key string, body io.Reader, o storage.PutOptions) error {
	if u.hides(key) {
		u.puts.Add(1)
	}
	return u.Bucket.Put(ctx, key, body, o)
}

func Test_a_worker_does_not_spin_on_what_is_there_and_is_not_listed(t *testing.T) {
	t.Parallel()
	const batch = "batches/orders/00000000000000000001/"
	for name, hides := range map[string]func(key string) bool{
		"the batch":          func(key string) bool { return strings.HasPrefix(key, batch) },
		"its closing record": func(key string) bool { return key == batch+"closed" },
		"its attempts":       func(key string) bool { return strings.HasPrefix(key, batch+"attempt") },
	} {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by others: %t", name, others), func(t *testing.T) {
				t.Parallel()
				w := pipelinetest.NewWorld(t)
				orders := w.AddTable(t, "orders", manyRows(1)...)
				u := &unlisting{Bucket: w.State, hides: hides}
				u.hiding.Store(true)
				p := newProcess(t, w)
				p.state = u
				p.opts.Pause = 50 * time.Millisecond
				id := many(t, p, 1)[0]
				if others { // another one opened it, and died trying
					put(t, w.State, batch+"intent", fmt.Sprintf(`{"requests":[%q],"base":0,"worker":"another","opened_at":"2026-03-01T12:00:00Z"}`, id))
					put(t, w.State, batch+"attempt-0001", `{"worker":"another","at":"2026-03-01T12:00:00Z"}`)
				}
				parked := make(chan string, 1000)
				p.opts.Metrics.Parked = func(_, code string) { parked <- code }
				done := make(chan error, 1)
				go func() { done <- p.work() }()
				blocked := others || name != "its attempts" // else nobody notices
				for blocked && <-parked != "state_unavailable" {
				}
				if n := u.puts.Load(); n > 8 {
					t.Errorf("%d puts until the worker noticed", n)
				}
				u.hiding.Store(false)
				if err := <-done; err != nil {
					t.Fatal(err, p.logs)
				}
				judgeClosed(t, w, id, map[string]int64{"orders": 2})
				judgeTable(t, orders, "p0")
				if blocked && !strings.Contains(p.logs.String(), "is not listed") {
					t.Errorf("not told: %s", p.logs)
				}
			})
		}
	}
}

func Test_a_state_prefix_behind_its_table(t *testing.T) {
	t.Parallel()
	const batch = "batches/orders/00000000000000000001/"
	closed := func(id pipeline.RequestID) string {
		return fmt.Sprintf(`{"committed":true,"version":1,"kept":0,"results":[{"request":%q,"state":"hidden","rows":7}],"at":"2026-03-01T12:00:00Z"}`, id)
	}
	for name, c := range map[string]struct {
		objects map[string]func(id pipeline.RequestID) string
		stops   bool
		rows    int64
	}{
		"with an open batch stops the table":                           {map[string]func(pipeline.RequestID) string{}, true, 0},
		"with a closed batch is settled and goes on after the table's": {map[string]func(pipeline.RequestID) string{"closed": closed}, false, 7},
		"with a settled batch goes on after the table's": {map[string]func(pipeline.RequestID) string{
			"closed": closed, "settled": func(pipeline.RequestID) string { return "{}" },
		}, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := pipelinetest.NewWorld(t)
			orders := w.AddTable(t, "orders", manyRows(3)...)
			p := newProcess(t, w)
			ids := many(t, p, 2)
			app := w.Store(t).App("orders")
			if _, err := orders.Delete(t.Context(), storage.Deletion{
				Batch:    storage.Batch{App: app, Number: 3, Base: 0},
				Subjects: []storage.Subject{{Keys: []storage.Key{{Column: "id", Value: storage.NewSecret("p2")}}}},
			}); err != nil {
				t.Fatal(err)
			}
			put(t, w.State, batch+"intent", fmt.Sprintf(`{"requests":[%q],"base":0,"worker":"another","opened_at":"2026-03-01T12:00:00Z"}`, ids[0]))
			for name, text := range c.objects {
				put(t, w.State, batch+name, text(ids[0]))
			}
			if !c.stops {
				if err := p.work(); err != nil {
					t.Fatal(err, p.logs)
				}
				for i, want := range []int64{c.rows, 2} {
					st, err := w.Store(t).Status(t.Context(), ids[i])
					if err != nil || st.State != pipeline.Hidden || st.Tables[0].Rows != want {
						t.Errorf("%+v, %v, want %d rows", st, err, want)
					}
				}
				waitFor(t, w, "batches/orders/00000000000000000004/settled")
				if !strings.Contains(p.logs.String(), "the state prefix is behind the table") {
					t.Errorf("not told: %s", p.logs)
				}
				return
			}
			parked := make(chan string, 1)
			var once sync.Once
			p.opts.Metrics.Parked = func(_, code string) { once.Do(func() { parked <- code }) }
			done := make(chan error, 1)
			go func() { done <- p.work() }()
			if code := <-parked; code != "batch_order" {
				t.Errorf("parked as %q", code)
			}
			waitFor(t, w, "parked/orders")
			p.cancel()
			t.Log("cut off:", <-done)
			s, err := orders.Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := s.Commits(app); len(n) != 1 || n[3] != 1 {
				t.Errorf("commits: %v", n)
			}
			for info, err := range w.State.List(t.Context(), "batches/", batch+"zzz") {
				t.Errorf("%s, %v", info.Key, err)
			}
		})
	}
}
