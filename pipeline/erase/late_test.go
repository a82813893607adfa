package erase_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"delenda/pipeline"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
)

// gated stops a worker before it puts its first commit into a table's bucket.
type gated struct {
	storage.Bucket
	prefix           string
	once             sync.Once
	arrived, proceed chan struct{}
}

func (g *gated) Put(ctx context.Context, key string, body io.Reader, o storage.PutOptions) error {
	if o.IfAbsent && strings.HasPrefix(key, g.prefix) {
		g.once.Do(func() {
			close(g.arrived)
			<-g.proceed
		})
	}
	return g.Bucket.Put(context.WithoutCancel(ctx), key, body, o)
}

// hesitant stops a worker between its first delete and the closing record.
type hesitant struct {
	storage.Table
	once             sync.Once
	arrived, proceed chan struct{}
}

func (h *hesitant) Delete(ctx context.Context, d storage.Deletion) (storage.Deleted, error) {
	done, err := h.Table.Delete(ctx, d)
	h.once.Do(func() {
		close(h.arrived)
		<-h.proceed
	})
	return done, err
}

// racetrack is a table over a bucket, of either kind.
type racetrack struct {
	bucket  storage.Bucket
	commits string // prefix of its commits' keys
	open    func(b storage.Bucket) (storage.Table, error)
	append  func(t *testing.T, id string, n int)
	gone    func(t *testing.T, id string) int64 // rows of id that are hidden
}

func modelTrack(t *testing.T) *racetrack {
	b := bucket.NewMemory()
	t.Cleanup(func() { _ = b.Close() })
	table := &pipelinetest.Table{Bucket: b, Columns: []string{"id", "mail"}}
	r := &racetrack{bucket: b, commits: "log/"}
	r.open = func(b storage.Bucket) (storage.Table, error) {
		return &pipelinetest.Table{Bucket: b, Columns: table.Columns}, nil
	}
	r.append = func(t *testing.T, id string, n int) {
		t.Helper()
		if err := table.Append(t.Context(), rows(repeat(id, n)...)...); err != nil {
			t.Fatal(err)
		}
	}
	r.gone = func(t *testing.T, id string) int64 {
		t.Helper()
		s, err := table.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Gone("id", id)
	}
	r.append(t, "1", 1)
	return r
}

func deltaTrack(t *testing.T) *racetrack {
	b := newDelta(t, 2)
	r := &racetrack{bucket: b, commits: "_delta_log/"}
	open := func(b storage.Bucket) (*delta.Table, error) {
		return delta.Open(context.Background(), b, &delta.Options{Workers: 1, IdentityColumns: []string{"id", "mail"}})
	}
	r.open = func(b storage.Bucket) (storage.Table, error) { return open(b) }
	files, added := 0, map[string]int64{}
	r.append = func(t *testing.T, id string, n int) {
		t.Helper()
		table, err := open(b)
		if err != nil {
			t.Fatal(err)
		}
		var number int64
		if _, err := fmt.Sscan(id, &number); err != nil {
			t.Fatal(err)
		}
		files++
		ids := []int64{number + 1}
		for range n {
			ids = append(ids, number)
		}
		appendDelta(t, b, table, fmt.Sprintf("more-%d.parquet", files), ids)
		added[id] += int64(n)
	}
	r.gone = func(t *testing.T, id string) int64 {
		t.Helper()
		table, err := open(b)
		if err != nil {
			t.Fatal(err)
		}
		d, err := table.Delete(t.Context(), storage.Deletion{
			Batch:    storage.Batch{App: "counting", Number: 1, Base: storage.NoVersion},
			Subjects: []storage.Subject{{Keys: []storage.Key{{Column: "id", Value: storage.NewSecret(id)}}}},
			Approve: func(context.Context, storage.Matched) ([]bool, error) {
				return []bool{true}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return added[id] - d.Subjects[0].Rows
	}
	return r
}

func (r *racetrack) config(b storage.Bucket, wrap func(storage.Table) storage.Table, limits pipeline.Limits) []pipeline.Table {
	return []pipeline.Table{{
		Name: "orders", Identities: map[string]string{"customer_id": "id", "email": "mail"}, Limits: limits,
		Open: func(context.Context) (storage.Table, error) {
			t, err := r.open(b)
			if err == nil && wrap != nil {
				t = wrap(t)
			}
			return t, err
		},
	}}
}

func Test_a_commit_that_others_closed_as_none_is_counted(t *testing.T) {
	t.Parallel()
	tracks := map[string]func(*testing.T) *racetrack{"model": modelTrack, "delta": deltaTrack}
	for kind, track := range tracks {
		for _, held := range []bool{false, true} {
			for _, end := range []string{"its worker goes on", "its worker dies and another starts", "its worker dies and a batch follows", theOtherGoesOn} {
				name := fmt.Sprintf("%s, %s", kind, end)
				if held {
					name += ", released meanwhile"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					lateCommit(t, track(t), held, end)
				})
			}
		}
	}
}

const theOtherGoesOn = "its worker dies and the other goes on"

// lateCommit has one worker find nothing to do (held: too much) and, before it
// closes the batch, another plan the batch on what was appended (released)
// meanwhile; the second commits when the first has closed the batch and ended.
func lateCommit(t *testing.T, r *racetrack, held bool, end string) {
	const who = "42424201777"
	w := pipelinetest.NewWorld(t)
	var limits pipeline.Limits
	if held {
		limits.Rows = 3
		r.append(t, who, 5)
	}
	first := newProcess(t, w)
	slow := &hesitant{arrived: make(chan struct{}), proceed: make(chan struct{})}
	first.tables = r.config(r.bucket, func(table storage.Table) storage.Table {
		slow.Table = table
		return slow
	}, limits)
	rec, err := first.accept(body("k", who))
	if err != nil {
		t.Fatal(err)
	}
	if end == theOtherGoesOn {
		w.Queue.Put("delenda.requests.other", "", nil) // work is never done
	}
	firstDone := make(chan error, 1)
	go func() { firstDone <- first.work() }()
	<-slow.arrived

	want := int64(5)
	if held {
		_, err := w.Store(t).Release(t.Context(), first.conn.Publish, rec.ID)
		if !errors.Is(err, pipeline.ErrNotWaiting) { // it is not known as held yet
			t.Fatal(err)
		}
		put(t, w.State, "releases/"+string(rec.ID), `{"at":"2026-03-01T12:00:00Z"}`)
	} else {
		r.append(t, who, int(want))
	}

	second := newProcess(t, w)
	gate := &gated{Bucket: r.bucket, prefix: r.commits, arrived: make(chan struct{}), proceed: make(chan struct{})}
	second.tables = r.config(gate, nil, limits)
	dies := end != "its worker goes on"
	if !dies {
		second.opts.Drain = 10 * time.Second // the queue is empty once the first is done
	}
	w.Queue.Redeliver()
	secondDone := make(chan error, 1)
	go func() { secondDone <- second.work() }()
	<-gate.arrived
	close(slow.proceed)
	if held || end == theOtherGoesOn {
		// Released by now, it is wanted again; wait only until it is closed.
		waitFor(t, w, "batches/orders/00000000000000000001/settled")
		if end != theOtherGoesOn {
			first.cancel()
			t.Log("cut off:", <-firstDone)
		}
	} else if err := <-firstDone; err != nil {
		t.Fatal(err)
	}
	if dies {
		second.cancel()
	}
	close(gate.proceed)
	if err := <-secondDone; err != nil && !dies {
		t.Fatal(err)
	}
	if end == theOtherGoesOn {
		next, err := first.accept(body("next", "42424201888"))
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, w, "closed/2026-03/"+string(next.ID))
		first.cancel()
		t.Log("cut off:", <-firstDone)
		w.Queue.Wipe()
	}
	third := newProcess(t, w)
	third.tables = r.config(r.bucket, nil, limits)
	if end == "its worker dies and a batch follows" {
		r.append(t, "42424201888", 2)
		if _, err := third.accept(body("next", "42424201888")); err != nil {
			t.Fatal(err)
		}
	}
	if dies && end != theOtherGoesOn {
		third.recover(t)
		idle(t, third)
	}
	if got := r.gone(t, who); got != want {
		t.Errorf("%d rows are hidden", got)
	}
	st, err := w.Store(t).Status(t.Context(), rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Tables[0]; st.State != pipeline.Hidden || st.ClosedAt == nil || got.Rows != want {
		t.Errorf("%s, closed %v, %d rows, %d were hidden\n%s", st.State, st.ClosedAt, got.Rows, want, third.logs)
	}
	// Everything may be done again.
	again := newProcess(t, w)
	again.tables = third.tables
	again.recover(t)
	idle(t, again)
	if st, err = w.Store(t).Status(t.Context(), rec.ID); err != nil || st.Tables[0].Rows != want {
		t.Errorf("then %+v, %v", st, err)
	}
}

// idle runs a deleter once although nothing waits.
func idle(t *testing.T, p *process) {
	t.Helper()
	if _, err := p.accept(body(fmt.Sprintf("idle %p", p), "9")); err != nil {
		t.Fatal(err)
	}
	if err := p.work(); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, b storage.Bucket, key, text string) {
	t.Helper()
	if err := b.Put(t.Context(), key, strings.NewReader(text), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waitFor returns once an object is there whose key begins so.
func waitFor(t *testing.T, w *pipelinetest.World, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		for _, err := range w.State.List(ctx, prefix, "") {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		<-w.Queue.Changed()
	}
	t.Fatalf("nothing under %s", prefix)
}
