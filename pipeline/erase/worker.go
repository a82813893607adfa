package erase

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"delenda/events"
	"delenda/pipeline"
	"delenda/storage"
)

const (
	fetchChunk = 256 // messages of one fetch: bounds what is in memory undecoded
	parallel   = 16  // objects and messages of a batch at a time
)

// worker works on one table. Only currentState is safe for concurrent use.
type worker struct {
	d        *Deleter
	conf     pipeline.Table
	log      batchLog
	app      string
	logg     *slog.Logger
	hand     hand
	table    storage.Table
	fetch    pipeline.Fetch
	known    int64           // the newest batch seen closed and settled
	taken    int64           // no batch up to this one is opened: the table holds it
	tried    int64           // the newest batch whose intent is there, listed or not
	base     storage.Version // the next batch is not committed at or below it; NoVersion: not known
	doubt    []int64         // intent.Doubt of the next batch
	parked   pipeline.Parked // what was last written; see mark
	unparked time.Time       // when the mark was last taken away; zero: not since it was written
	approved bool            // the attempt at hand may send, or have sent, a commit
	// looked is when the table was asked for late commits; zero: not since it
	// was opened.
	looked time.Time

	mu    sync.Mutex
	state TableState
}

func newWorker(d *Deleter, conf pipeline.Table) *worker {
	return &worker{
		d: d, conf: conf, app: d.store.App(conf.Name),
		log:   batchLog{bucket: d.store.Bucket(), table: conf.Name},
		base:  storage.NoVersion,
		logg:  d.o.Logger.With(slog.String("table", conf.Name)),
		state: TableState{Table: conf.Name, Code: "starting", Since: d.store.Now()},
	}
}

// trouble is why a table cannot be worked on at the moment.
type trouble struct {
	code string
	err  error
}

func (t *trouble) Error() string { return t.err.Error() }
func (t *trouble) Unwrap() error { return t.err }

// run works until ctx is done; what is begun goes on under work.
func (w *worker) run(ctx, work context.Context) {
	keep, cancel := context.WithCancel(work)
	var kept sync.WaitGroup
	kept.Go(func() { w.hand.keep(keep, w.d.o.InProgress) })
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(min(250*time.Millisecond, w.d.o.Pause)),
		backoff.WithMaxInterval(w.d.o.Pause), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil && work.Err() == nil {
		err := w.step(ctx, work)
		if ctx.Err() != nil {
			break
		}
		w.setState(ctx, err)
		w.mark(work, err)
		if err == nil {
			pause.Reset()
			continue
		}
		delay := pause.NextBackOff()
		w.hand.giveBack(work, delay)
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	cancel()
	kept.Wait()
	if work.Err() == nil {
		w.hand.giveBack(work, 0)
	}
}

// step finishes what is open, takes what waits, and works on it.
func (w *worker) step(ctx, work context.Context) error {
	if err := w.open(work); err != nil {
		return err
	}
	if err := w.advance(work); err != nil {
		return err
	}
	if err := w.look(work); err != nil {
		return err
	}
	if err := w.gather(ctx, work); err != nil {
		return err
	}
	return w.work(work)
}

func (w *worker) open(ctx context.Context) error {
	if w.table == nil {
		t, err := w.conf.Open(ctx)
		if err != nil {
			return tableTrouble(err)
		}
		columns := make([]string, 0, len(w.conf.Identities))
		for _, c := range w.conf.Identities {
			columns = append(columns, c)
		}
		slices.Sort(columns)
		if err := t.Bind(ctx, slices.Compact(columns)); err != nil {
			return tableTrouble(err)
		}
		if err := w.locate(ctx, t); err != nil {
			return err
		}
		w.table, w.looked = t, time.Time{}
	}
	if w.fetch == nil {
		fetch, err := w.d.consume(ctx, w.conf.Name)
		if err != nil {
			return &trouble{"queue_unavailable", err}
		}
		w.fetch = fetch
	}
	return nil
}

// locate finds out where table and batch log stand. The log is read from the
// table's last batch on, unless it ends before that: then the state prefix is
// behind the table, as after it was restored from a copy. A batch that is open
// in it may be one that was done and closed long ago, so a person must look;
// what is closed is settled, and new batches come after the table's.
func (w *worker) locate(ctx context.Context, t storage.Table) error {
	last, err := t.LastBatch(ctx, w.app)
	if err != nil {
		return tableTrouble(err)
	}
	taken := max(w.taken, w.known, last)
	h, err := w.log.head(ctx, taken)
	if err == nil && h.number == 0 && taken > 0 {
		h, err = w.log.head(ctx, 0)
	}
	switch {
	case err != nil:
		return &trouble{"state_unavailable", err}
	case h.number > 0 && h.number < last && h.closed == nil:
		return tableTrouble(fmt.Errorf("batch %d is open: %w: %d", h.number, storage.ErrBatchOrder, last))
	case h.number < last:
		w.logg.LogAttrs(ctx, slog.LevelWarn, "the state prefix is behind the table", slog.Int64("batch", h.number), slog.Int64("table_batch", last))
	}
	// An open batch below it keeps being looked for.
	w.taken, w.known = taken, min(taken, h.number)
	return nil
}

// gather fetches for a window once the first item is there.
func (w *worker) gather(ctx, work context.Context) error {
	if err := w.take(ctx, work, 1, w.d.o.Idle); err != nil {
		return err
	}
	if n, _ := w.hand.size(); n == 0 {
		return nil
	}
	for until := time.Now().Add(w.d.o.Window); ctx.Err() == nil; {
		n, bytes := w.hand.size()
		left := max(time.Until(until), 0)
		if n >= w.d.o.Max || bytes >= w.d.o.MaxBytes {
			return nil
		}
		if err := w.take(ctx, work, min(fetchChunk, w.d.o.Max-n), left); err != nil {
			return err
		}
		if after, _ := w.hand.size(); left == 0 && after == n {
			return nil
		}
	}
	return nil
}

func (w *worker) take(ctx, work context.Context, limit int, wait time.Duration) error {
	messages, err := w.fetch(ctx, limit, wait)
	if err != nil && ctx.Err() == nil { // a fetch that is cut short is no trouble
		w.fetch = nil
		return &trouble{"queue_unavailable", err}
	}
	for _, m := range messages {
		if err := w.accept(work, m); err != nil {
			return err
		}
	}
	return nil
}

// accept takes a message in hand, or ends it if it is not an item of this table.
func (w *worker) accept(ctx context.Context, m pipeline.Message) error {
	e, err := events.Decode(m.Data)
	if err != nil {
		return w.reject(ctx, m, "", "malformed")
	}
	item, err := events.Payload[events.ErasureRequested](e)
	id, ok := pipeline.ParseRequestID(item.Request)
	if err != nil || !ok || e.Type != events.TypeErasureRequested || item.Table != w.conf.Name {
		return w.reject(ctx, m, "", "malformed")
	}
	w.hand.add(id, m.Delivery, m.Deliveries > w.d.o.MaxDeliveries, len(item.Ciphertext))
	return nil
}

// reject ends a message that is no work, with a dead letter.
func (w *worker) reject(ctx context.Context, m pipeline.Message, id pipeline.RequestID, code string) error {
	err := w.deadLetter(ctx, events.DeadLetter{
		Subject: m.Subject, Stream: m.Stream, Sequence: m.Sequence, Deliveries: m.Deliveries,
		Request: string(id), Table: w.conf.Name, Code: code,
	}, fmt.Sprintf("%s/%d/%s", m.Stream, m.Sequence, code))
	if err != nil {
		return &trouble{"queue_unavailable", errors.Join(err, m.Nak(ctx, time.Second))}
	}
	w.logg.LogAttrs(ctx, slog.LevelWarn, "message rejected", slog.String("code", code), slog.Uint64("sequence", m.Sequence))
	return m.Term(ctx, code)
}

// work deletes what is in hand: first what was delivered suspiciously often,
// apart from the rest.
func (w *worker) work(ctx context.Context) error {
	for {
		// What is in hand may have been done by others: only once everything
		// up to the newest batch is settled do the items tell.
		if err := w.advance(ctx); err != nil {
			return err
		}
		often, others := w.hand.list()
		var groups []group
		for _, ids := range [][]pipeline.RequestID{often, others} {
			ids, err := w.runnable(ctx, ids)
			if err != nil {
				return err
			}
			if len(ids) > 0 {
				groups = append(groups, group{Requests: ids})
			}
		}
		if len(groups) == 0 {
			return nil
		}
		if err := w.openBatch(ctx, groups); err != nil {
			return err
		}
	}
}

// runnable keeps the requests that are to be deleted and ends the others.
func (w *worker) runnable(ctx context.Context, ids []pipeline.RequestID) ([]pipeline.RequestID, error) {
	run := make([]bool, len(ids))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, id := range ids {
		g.Go(func() (err error) {
			run[i], err = w.isRunnable(gctx, id)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, &trouble{"state_unavailable", err}
	}
	var keep []pipeline.RequestID
	for i, id := range ids {
		if run[i] {
			keep = append(keep, id)
			continue
		}
		w.ack(ctx, id)
	}
	return keep, nil
}

// isRunnable reports whether a request is to be deleted. One without a record
// was never accepted: its message means nothing.
func (w *worker) isRunnable(ctx context.Context, id pipeline.RequestID) (bool, error) {
	r, err := w.d.store.Record(ctx, id)
	if errors.Is(err, storage.ErrNotFound) {
		w.logg.LogAttrs(ctx, slog.LevelWarn, "item without a request", slog.String("request", string(id)))
		return false, w.deadLetter(ctx, events.DeadLetter{
			Subject: events.RequestsSubject(w.conf.Name), Stream: events.StreamRequests,
			Request: string(id), Table: w.conf.Name, Code: "unknown_request",
		}, string(id)+"/unknown_request")
	}
	// A record that cannot be read fails by name in a batch, like a ciphertext
	// that does not open.
	if err != nil && !errors.Is(err, storage.ErrCorrupt) {
		return false, err
	}
	if err == nil && !slices.Contains(r.Tables, w.conf.Name) {
		return false, nil
	}
	run, err := w.d.store.Runnable(ctx, id, w.conf.Name)
	if errors.Is(err, storage.ErrCorrupt) { // whether it was done cannot be told: a person must look
		w.logg.LogAttrs(ctx, slog.LevelError, "item not readable", slog.String("request", string(id)), slog.Any("error", err))
		return false, w.deadLetter(ctx, events.DeadLetter{
			Subject: events.RequestsSubject(w.conf.Name), Stream: events.StreamRequests,
			Request: string(id), Table: w.conf.Name, Code: "item_unreadable",
		}, string(id)+"/item_unreadable")
	}
	return run, err
}

// ack ends the messages of an item. One that is not ended comes again and is
// ended then.
func (w *worker) ack(ctx context.Context, id pipeline.RequestID) {
	for _, d := range w.hand.take(id) {
		if err := d.Ack(ctx); err != nil {
			w.logg.LogAttrs(ctx, slog.LevelDebug, "ack failed", slog.String("request", string(id)), slog.Any("error", err))
		}
	}
}

func (w *worker) currentState() TableState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

func (w *worker) setState(ctx context.Context, err error) {
	s := TableState{Table: w.conf.Name, Ready: err == nil, Since: w.d.store.Now()}
	if err != nil {
		s.Code, s.Reason = "failed", err.Error()
		if t := (*trouble)(nil); errors.As(err, &t) {
			s.Code = t.code
		}
	}
	w.mu.Lock()
	old := w.state
	if old.Ready == s.Ready && old.Code == s.Code {
		s.Since = old.Since
	}
	w.state = s
	w.mu.Unlock()
	if old.Ready == s.Ready && old.Code == s.Code {
		return
	}
	if s.Ready {
		w.logg.LogAttrs(ctx, slog.LevelInfo, "table ready")
	} else {
		w.logg.LogAttrs(ctx, slog.LevelWarn, "table parked", slog.String("code", s.Code), slog.Any("error", err))
	}
	if f := w.d.o.Metrics.Parked; f != nil {
		f(w.conf.Name, s.Code)
	}
}

// tableTrouble names what is wrong with a table.
func tableTrouble(err error) error {
	code := "table_unavailable"
	var refused *storage.Refusal
	switch {
	case errors.As(err, &refused):
		code = refused.Code
	case errors.Is(err, storage.ErrCorrupt):
		code = "corrupt"
	case errors.Is(err, storage.ErrNoTable):
		code = "no_table"
	case errors.Is(err, storage.ErrBatchOrder):
		code = "batch_order"
	case errors.Is(err, storage.ErrDenied):
		code = "access_denied"
	case errors.Is(err, storage.ErrConflict):
		code = "conflict"
	}
	return &trouble{code, err}
}
