package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"delenda/storage"
)

// Sweeper feeds back what no stream knows and finishes what a crash left
// between a request's last table and its end. One pass lists open/ only. Any
// number of replicas may sweep.
type Sweeper struct {
	Store   *Store
	Publish Publish

	// Backlog, when not nil, returns how many items of a table the requests
	// stream holds. A table whose stream holds at least as many as are open is
	// left alone, but for what has waited for ten minutes.
	Backlog func(ctx context.Context, table string) (int64, error)

	// Grace is how old an open request must be before it is fed without
	// knowledge of the backlog; zero means two minutes. It is fed again after
	// twice that, four times, and so on up to ten minutes.
	Grace time.Duration
	// OrphanAge is how old a marker without a record must be; zero means 24 hours.
	OrphanAge time.Duration
	Logger    *slog.Logger // required

	fed map[RequestID]feeding
}

type feeding struct {
	next time.Time
	wait time.Duration
}

// Swept counts one pass.
type Swept struct {
	Open     int // requests found open
	Fed      int // items published
	Closed   int // requests finished by the pass
	Orphans  int // markers removed
	Waiting  int // requests that wait for a person: held or failed
	Troubled int // requests that could not be looked at: logged
}

func (n *Swept) add(o Swept) {
	n.Open += o.Open
	n.Fed += o.Fed
	n.Closed += o.Closed
	n.Orphans += o.Orphans
	n.Waiting += o.Waiting
	n.Troubled += o.Troubled
}

// sweepParallel is how many requests are looked at at a time.
const sweepParallel = 16

// Run sweeps at once and then every interval until ctx is done. A failed pass
// is logged and the next one tries again.
func (w *Sweeper) Run(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		switch n, err := w.Sweep(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			w.Logger.LogAttrs(ctx, slog.LevelWarn, "sweep failed", slog.Any("error", err))
		case n.Fed > 0 || n.Closed > 0 || n.Orphans > 0:
			w.Logger.LogAttrs(ctx, slog.LevelInfo, "swept", slog.Int("open", n.Open), slog.Int("fed", n.Fed),
				slog.Int("closed", n.Closed), slog.Int("orphans", n.Orphans))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sweep makes one pass.
func (w *Sweeper) Sweep(ctx context.Context) (Swept, error) {
	var n Swept
	now := w.Store.Now()
	seen := map[RequestID]feeding{}
	todo := map[string][]RequestID{} // table -> runnable
	var mu sync.Mutex                // guards n and todo
	var looking errgroup.Group
	looking.SetLimit(sweepParallel)
	var lerr error
	for m, err := range w.Store.Open(ctx) {
		if err != nil || ctx.Err() != nil {
			lerr = cmp.Or(err, ctx.Err())
			break
		}
		if f, ok := w.fed[m.ID]; ok {
			seen[m.ID] = f
		}
		looking.Go(func() error {
			one, tables, err := w.look(ctx, m, now)
			mu.Lock()
			defer mu.Unlock()
			n.add(one)
			for _, table := range tables {
				todo[table] = append(todo[table], m.ID)
			}
			if err != nil && ctx.Err() == nil {
				w.troubled(ctx, m.ID, err, &n)
			}
			return nil
		})
	}
	_ = looking.Wait()
	if err := cmp.Or(lerr, ctx.Err()); err != nil {
		return n, err
	}
	w.fed = seen
	due := map[RequestID]bool{}
	for table, ids := range todo {
		if err := w.feed(ctx, table, ids, now, due, &n); err != nil {
			return n, fmt.Errorf("sweep table %s: %w", table, err)
		}
	}
	return n, nil
}

func (w *Sweeper) troubled(ctx context.Context, id RequestID, err error, n *Swept) {
	n.Troubled++
	w.Logger.LogAttrs(ctx, slog.LevelWarn, "sweep request failed", slog.String("request", string(id)), slog.Any("error", err))
}

// maxMisses is how many requests of a table may fail to be fed, one after the
// other, before the pass takes it for trouble of the bus or of the state prefix.
const maxMisses = 3

// look finishes what can be finished of a request, counts it, and returns the
// tables on which it is still to be done.
func (w *Sweeper) look(ctx context.Context, m Marker, now time.Time) (n Swept, tables []string, err error) {
	n.Open = 1
	r, err := w.Store.Record(ctx, m.ID)
	if errors.Is(err, storage.ErrNotFound) {
		if now.Sub(m.ModTime) < orDefault(w.OrphanAge, 24*time.Hour) {
			return n, nil, nil
		}
		n.Orphans = 1
		return n, nil, w.Store.removeOrphan(ctx, m.ID)
	}
	if err != nil {
		return n, nil, err
	}
	st, err := w.Store.status(ctx, r)
	if err != nil {
		return n, nil, err
	}
	closed, err := w.Store.end(ctx, st)
	if err != nil {
		return n, nil, err
	}
	if closed {
		n.Closed = 1
		return n, nil, nil
	}
	for _, t := range st.Tables {
		if t.State == Received {
			tables = append(tables, t.Table)
		}
	}
	if len(tables) == 0 {
		n.Waiting = 1
	}
	return n, tables, nil
}

func (w *Sweeper) feed(ctx context.Context, table string, ids []RequestID, now time.Time, due map[RequestID]bool, n *Swept) error {
	grace := orDefault(w.Grace, 2*time.Minute)
	if w.Backlog != nil {
		held, err := w.Backlog(ctx, table)
		if err != nil {
			return err
		}
		// What the stream holds may be other items of the same requests, or of
		// requests that came since the pass began, so what waits for long is fed
		// although the numbers match; but not without end.
		if held >= 2*int64(len(ids)) {
			return nil
		}
		grace = masked
		if held < int64(len(ids)) {
			grace = 0
		}
	}
	misses := 0
	for _, id := range ids {
		fed, err := w.feedOne(ctx, table, id, now, grace, due)
		switch {
		case err == nil:
			misses = 0
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			if misses++; misses == maxMisses {
				return err
			}
			w.troubled(ctx, id, err, n)
		}
		if fed {
			n.Fed++
		}
	}
	return nil
}

// masked is how long an item waits that the backlog seems to hold.
const masked = 10 * time.Minute

// feedOne publishes an item that is still to be done. With a grace, only if its
// turn has come.
func (w *Sweeper) feedOne(ctx context.Context, table string, id RequestID, now time.Time, grace time.Duration, due map[RequestID]bool) (bool, error) {
	if f, ok := w.fed[id]; ok && grace > 0 && !due[id] && now.Before(f.next) {
		return false, nil
	}
	r, err := w.Store.Record(ctx, id)
	if err != nil {
		return false, err
	}
	if grace > 0 {
		if _, ok := due[id]; !ok {
			due[id] = w.due(id, r.AcceptedAt, now, grace)
		}
		if !due[id] {
			return false, nil
		}
	}
	// It may have been done since it was looked at: a batch that was settled
	// meanwhile emptied the backlog too.
	if run, err := w.Store.Runnable(ctx, id, table); err != nil || !run {
		return false, err
	}
	if err := w.Store.feed(ctx, w.Publish, r, table, ""); err != nil {
		return false, err
	}
	return true, nil
}

// due reports whether to feed a request without knowledge of the backlog, and
// if so puts off the next time.
func (w *Sweeper) due(id RequestID, accepted, now time.Time, grace time.Duration) bool {
	f, ok := w.fed[id]
	if !ok {
		f = feeding{next: accepted.Add(grace), wait: grace}
	}
	ready := !now.Before(f.next)
	if ready {
		f.wait = min(2*f.wait, 10*time.Minute)
		f.next = now.Add(f.wait)
	}
	w.fed[id] = f
	return ready
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}
