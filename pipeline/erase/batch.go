package erase

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"delenda/pipeline"
	"delenda/storage"
)

// advance finishes the open batch, settles the newest, and works off what is
// to be done before anything new. On return the newest batch is settled.
func (w *worker) advance(ctx context.Context) error {
	var before *head
	for {
		h, err := w.log.head(ctx, w.known)
		if err != nil {
			return &trouble{"state_unavailable", err}
		}
		if err := w.listed(ctx, before, h); err != nil {
			return err
		}
		if h.number == 0 {
			return nil
		}
		if h.closed == nil {
			if err := w.finish(ctx, h); err != nil {
				return err
			}
			before = h
			continue
		}
		if !h.settled {
			if err := w.settle(ctx, h); err != nil {
				return err
			}
		}
		w.known = max(w.known, h.number)
		w.doubt = h.doubt()
		// The next batch is opened only now, so it cannot be committed at or
		// below what this one saw.
		w.base = max(w.base, h.intent.Base, h.closed.Version)
		next := h.next()
		if len(next) == 0 {
			return nil
		}
		if err := w.openBatch(ctx, next); err != nil {
			return err
		}
	}
}

// openBatch writes the intent of the next batch: the first group, and the
// others to follow. Another worker may have opened it first; then that one
// stands. The newest batch is settled.
func (w *worker) openBatch(ctx context.Context, groups []group) error {
	if w.base == storage.NoVersion { // the first batch of all
		d, err := w.table.Describe(ctx)
		if err != nil {
			w.table = nil
			return tableTrouble(err)
		}
		w.base = d.Version
	}
	n := max(w.known, w.taken) + 1
	if n <= w.tried { // it is there, and head did not find it
		return &trouble{"state_unavailable", fmt.Errorf("batch %d: %w", n, errUnlisted)}
	}
	_, err := w.log.open(ctx, n, &intent{
		group: groups[0], Pending: groups[1:], Base: w.base, Doubt: w.doubt,
		Worker: w.d.id, OpenedAt: w.d.store.Now(),
	})
	if err != nil {
		return &trouble{"state_unavailable", err}
	}
	w.tried = n
	return nil
}

// errUnlisted: an object is there by its key, and listing does not show it. Who
// went on would do the same again and again.
var errUnlisted = errors.New("what is in the state prefix is not listed")

// listed reports trouble if the listing does not show what came of the batch
// that was the head before, and that this worker finished or another took up.
func (w *worker) listed(ctx context.Context, before, h *head) error {
	if before == nil || h.number > before.number || h.closed != nil {
		return nil
	}
	c, err := w.log.closedOf(ctx, before.number)
	if err != nil {
		return &trouble{"state_unavailable", err}
	}
	same := slices.Equal(h.attempts, before.attempts) && slices.Equal(h.failures, before.failures)
	if c != nil || same || h.number < before.number {
		return &trouble{"state_unavailable", fmt.Errorf("batch %d: %w", before.number, errUnlisted)}
	}
	return nil
}

func (w *worker) batch(n int64, i *intent) storage.Batch {
	return storage.Batch{App: w.app, Number: n, Base: i.Base}
}

// finish takes the open batch to its closing record, whoever opened it.
func (w *worker) finish(ctx context.Context, h *head) error {
	if done, err := w.wait(ctx, h); err != nil || done {
		return err
	}
	kills, failures := w.d.o.MaxKills, w.d.o.MaxFailures
	if len(h.intent.Origins) > 0 && len(h.intent.Requests) > 1 {
		kills, failures = 1, min(failures, 2) // on the way to the culprit
	}
	switch {
	case len(h.attempts) >= kills:
		return w.giveUp(ctx, h, pipeline.CodeKilledWorker)
	case len(h.failures) >= failures:
		return w.giveUp(ctx, h, pipeline.CodeDeleteFailed)
	}
	k := 1
	if len(h.attempts) > 0 {
		k = slices.Max(h.attempts) + 1
	}
	sign := attempt{Worker: w.d.id, At: w.d.store.Now()}
	if ok, err := w.log.begin(ctx, h.number, k, sign); err != nil || !ok {
		if err != nil {
			return &trouble{"state_unavailable", err}
		}
		return nil
	}
	start := w.d.store.Now()
	watched, v := w.watch(ctx)
	stop := w.beating(watched, h.number)
	c, err := w.attempt(watched, h, v)
	stop()
	if err = v.end(err); err != nil {
		return w.failed(ctx, h, k, err)
	}
	c, err = w.close(ctx, h, c)
	if err != nil {
		return errors.Join(err, w.log.end(context.WithoutCancel(ctx), h.number, k, true))
	}
	if f := w.d.o.Metrics.Batch; f != nil {
		var rows int64
		for _, r := range c.Results {
			if r.State == pipeline.Hidden {
				rows += r.Rows
			}
		}
		f(w.conf.Name, len(h.intent.Requests), rows, w.d.store.Now().Sub(start))
	}
	return nil
}

// close writes the closing record. If another worker's stands that knows of no
// commit, ours is made known all the same.
func (w *worker) close(ctx context.Context, h *head, c *closed) (*closed, error) {
	stands, err := w.log.close(ctx, h.number, c)
	if err != nil {
		return nil, &trouble{"state_unavailable", err}
	}
	if c.Committed && !stands.Committed {
		if err := w.resolve(ctx, h.number); err != nil {
			return nil, err
		}
	}
	return stands, nil
}

// attempt deletes the batch and returns what is to be its closing record.
func (w *worker) attempt(ctx context.Context, h *head, v *vigil) (*closed, error) {
	w.approved = false
	subjects, lost, err := w.load(ctx, h.intent.Requests, v)
	if err != nil {
		return nil, &trouble{"state_unavailable", err}
	}
	d, err := w.delete(ctx, h, subjects, v)
	if err != nil {
		return nil, err
	}
	v.sign()
	return w.record(ctx, h, &d, lost)
}

// errClosed ends an attempt at a batch that another worker has closed.
var errClosed = errors.New("closed by another worker")

// panicked is a panic inside the table's Delete: where, and nothing of what.
// Neither the value nor the arguments of the frames are kept, since both may
// be what rows were compared with.
type panicked struct{ frames []string }

func (*panicked) Error() string { return "delete panicked" }

func (w *worker) delete(ctx context.Context, h *head, subjects []storage.Subject, v *vigil) (d storage.Deleted, err error) {
	defer func() {
		if recover() != nil {
			err = &panicked{callers()}
		}
	}()
	return w.table.Delete(ctx, storage.Deletion{
		Batch: w.batch(h.number, h.intent), Subjects: subjects, Now: w.d.store.Now,
		Progress: func(storage.Progress) { v.sign() },
		Approve: func(ctx context.Context, m storage.Matched) ([]bool, error) {
			// A batch that others have closed meanwhile is not committed any
			// more, as far as that can be seen; see head.doubt.
			c, err := w.log.closedOf(ctx, h.number)
			if err != nil {
				return nil, &trouble{"state_unavailable", err}
			}
			if c != nil {
				return nil, errClosed
			}
			w.approved = true
			held := make([]bool, len(m.Rows))
			for i, rows := range m.Rows {
				v.sign()
				if !w.conf.Limits.Exceeded(rows, m.LiveRows) {
					continue
				}
				released, err := w.d.store.IsReleased(ctx, h.intent.Requests[i])
				if err != nil {
					return nil, &trouble{"state_unavailable", err}
				}
				held[i] = !released
			}
			return held, nil
		},
	})
}

func callers() []string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var list []string
	for {
		f, more := frames.Next()
		list = append(list, fmt.Sprintf("%s:%d", f.Function, f.Line))
		if !more {
			return list
		}
	}
}

// load reads the identities of the requests. lost tells, per request, why it
// can never be deleted.
func (w *worker) load(ctx context.Context, ids []pipeline.RequestID, v *vigil) (subjects []storage.Subject, lost []string, err error) {
	subjects, lost = make([]storage.Subject, len(ids)), make([]string, len(ids))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, id := range ids {
		g.Go(func() error {
			defer v.sign()
			r, err := w.d.store.Record(gctx, id)
			if err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
				return err
			}
			var identities []pipeline.Identity
			if err == nil {
				identities, err = w.d.store.Unseal(gctx, r)
			}
			switch {
			case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrCorrupt), errors.Is(err, pipeline.ErrSealed):
				lost[i] = pipeline.CodeUnreadable
			case errors.Is(err, pipeline.ErrShredded):
				lost[i] = pipeline.CodeKeyShredded
			case err != nil:
				return err
			default:
				subjects[i].Keys = w.conf.Keys(identities)
				if len(subjects[i].Keys) == 0 {
					lost[i] = pipeline.CodeNotMapped
				}
			}
			return nil
		})
	}
	return subjects, lost, g.Wait()
}

// record turns what a delete did into a closing record.
func (w *worker) record(ctx context.Context, h *head, d *storage.Deleted, lost []string) (*closed, error) {
	if len(d.Subjects) != len(h.intent.Requests) {
		return nil, fmt.Errorf("batch %d: %d results for %d requests", h.number, len(d.Subjects), len(h.intent.Requests))
	}
	c := &closed{Committed: d.Committed, Version: d.Version, Kept: d.Kept, At: w.d.store.Now()}
	c.name(d.Fragments)
	for i, s := range d.Subjects {
		r := result{Request: h.intent.Requests[i], Rows: s.Rows}
		switch {
		case lost != nil && lost[i] != "" && s.Rows == 0:
			var err error
			if r, err = w.lost(ctx, r.Request, lost[i]); err != nil {
				return nil, err
			}
		case s.State == storage.SubjectHeld:
			r.State = pipeline.Held
		case s.State == storage.SubjectInvalid:
			r.State, r.Code, r.Reason = pipeline.Failed, pipeline.CodeInvalidValue, s.Reason
		default:
			r.State = pipeline.Hidden
		}
		c.Results = append(c.Results, r)
	}
	for _, o := range h.intent.Origins {
		if err := w.addOrigin(ctx, c, o); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// lost is the result for a request that fails. One that is hidden already does
// not: a late commit of an earlier batch was counted
// after this one had been opened, and ended the request.
func (w *worker) lost(ctx context.Context, id pipeline.RequestID, code string) (result, error) {
	i, err := w.d.store.Item(ctx, id, w.conf.Name)
	if err != nil {
		return result{}, &trouble{"state_unavailable", err}
	}
	if i != nil && i.State == pipeline.Hidden {
		return result{Request: id, State: pipeline.Hidden, Rows: i.Rows, Late: i.Late}, nil
	}
	return result{Request: id, State: pipeline.Failed, Code: code}, nil
}

// addOrigin counts what a batch that was given up did after all.
func (w *worker) addOrigin(ctx context.Context, c *closed, origin int64) error {
	i, err := w.log.intentOf(ctx, origin)
	if err != nil {
		return &trouble{"state_unavailable", err}
	}
	d, ok, err := w.table.Committed(ctx, w.batch(origin, i))
	if err != nil || !ok {
		return err
	}
	for n, r := range c.Results {
		at := slices.Index(i.Requests, r.Request)
		if at < 0 || at >= len(d.Subjects) || r.State != pipeline.Hidden || d.Subjects[at].State != storage.SubjectDone {
			continue
		}
		c.Results[n].Rows += d.Subjects[at].Rows
		c.Results[n].Late = append(c.Results[n].Late, origin)
	}
	c.Version = max(c.Version, d.Version)
	return nil
}

// failed decides what an error of an attempt means.
func (w *worker) failed(ctx context.Context, h *head, k int, err error) error {
	alive := context.WithoutCancel(ctx)
	end := func() { // best effort: an attempt left behind only counts as a dead worker
		if err := w.log.end(alive, h.number, k, w.approved); err != nil {
			w.logg.LogAttrs(ctx, slog.LevelDebug, "end attempt failed", slog.Int64("batch", h.number), slog.Any("error", err))
		}
	}
	note := func(code string) {
		w.logg.LogAttrs(ctx, slog.LevelWarn, "attempt failed", slog.Int64("batch", h.number),
			slog.String("code", code), slog.Int("requests", len(h.intent.Requests)), slog.Any("error", err))
		if f := w.d.o.Metrics.Attempt; f != nil {
			f(w.conf.Name, code)
		}
	}
	var p *panicked
	var t *trouble
	switch {
	case ctx.Err() != nil:
		end()
		return ctx.Err()
	case errors.Is(err, errClosed):
		end()
		return nil
	case errors.As(err, &p):
		note(pipeline.CodePanicked)
		w.logg.LogAttrs(ctx, slog.LevelError, "delete panicked", slog.Int64("batch", h.number), slog.Any("frames", p.frames))
		end()
		return w.giveUp(ctx, h, pipeline.CodePanicked)
	case errors.As(err, &t):
		end()
		return err
	}
	if errors.Is(err, storage.ErrBatchOrder) {
		if c, cerr := w.log.closedOf(ctx, h.number); cerr == nil && c != nil {
			end() // others have closed it and gone on
			return nil
		}
	}
	for _, of := range []error{
		storage.ErrRefused, storage.ErrCorrupt, storage.ErrNoTable,
		storage.ErrBatchOrder, storage.ErrDenied, storage.ErrConflict,
	} {
		if errors.Is(err, of) {
			end()
			w.table = nil
			err = tableTrouble(err)
			note(err.(*trouble).code) //nolint:errorlint // made one line above
			return err
		}
	}
	// Neither says whose fault it is. A table that cannot even be asked for
	// its last batch is in trouble itself.
	if perr := w.answers(ctx); perr != nil {
		end()
		w.table = nil
		note("table_unavailable")
		return tableTrouble(err)
	}
	note(pipeline.CodeDeleteFailed)
	f := 1
	if len(h.failures) > 0 {
		f = slices.Max(h.failures) + 1
	}
	if ferr := w.log.fail(ctx, h.number, f, attempt{Worker: w.d.id, At: w.d.store.Now()}); ferr != nil {
		err = errors.Join(err, ferr)
	}
	end()
	return &trouble{pipeline.CodeDeleteFailed, fmt.Errorf("batch %d: %w", h.number, err)}
}

// giveUp closes a batch without effect: as two halves, or, if one request is
// alone, with its failure. If it was committed after all, it is closed so.
func (w *worker) giveUp(ctx context.Context, h *head, code string) error {
	d, ok, err := w.table.Committed(ctx, w.batch(h.number, h.intent))
	if err != nil {
		w.table = nil
		return tableTrouble(err)
	}
	ids := h.intent.Requests
	var c *closed
	switch {
	case ok:
		_, lost, err := w.load(ctx, ids, nil)
		if err != nil {
			return &trouble{"state_unavailable", err}
		}
		if c, err = w.record(ctx, h, &d, lost); err != nil {
			return tableTrouble(err)
		}
	case len(ids) == 1:
		r, err := w.lost(ctx, ids[0], code)
		if err != nil {
			return err
		}
		c = &closed{Version: storage.NoVersion, Code: code, At: w.d.store.Now(), Results: []result{r}}
	default:
		origins := append(slices.Clone(h.intent.Origins), h.number)
		half := len(ids) / 2
		c = &closed{
			Version: storage.NoVersion, Code: code, At: w.d.store.Now(),
			Split: []group{{Requests: ids[:half], Origins: origins}, {Requests: ids[half:], Origins: origins}},
		}
	}
	w.logg.LogAttrs(ctx, slog.LevelWarn, "batch given up", slog.Int64("batch", h.number),
		slog.String("code", code), slog.Int("requests", len(ids)), slog.Bool("committed", ok))
	_, err = w.close(ctx, h, c)
	return err
}
