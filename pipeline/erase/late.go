package erase

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"delenda/pipeline"
	"delenda/storage"
)

// lookAgain is how often a table is asked for commits of batches in doubt while
// no other batch is opened.
const lookAgain = 30 * time.Second

// look asks the table whether its newest commit of ours belongs to a batch that
// was closed without one: at the start, and now and then while that is possible.
func (w *worker) look(ctx context.Context) error {
	if !w.looked.IsZero() && (len(w.doubt) == 0 || time.Since(w.looked) < lookAgain) {
		return nil
	}
	last, err := w.table.LastBatch(ctx, w.app)
	if err != nil {
		w.table = nil
		return tableTrouble(err)
	}
	done, err := w.log.isLate(ctx, last)
	if err != nil {
		return &trouble{"state_unavailable", err}
	}
	if last > 0 && !done {
		if err := w.resolve(ctx, last); err != nil {
			return err
		}
	}
	w.looked = time.Now()
	return nil
}

// resolve makes known what a batch did that was closed without a commit, if the
// table says that it was committed all the same: by a worker that had planned it
// before a foreign commit or a release changed what it matches, and that was
// slower than the one that closed it. It may be done again at any time.
func (w *worker) resolve(ctx context.Context, n int64) error {
	stands, err := w.log.closedOf(ctx, n)
	if err != nil {
		return &trouble{"state_unavailable", err}
	}
	if stands == nil || stands.Committed {
		return nil
	}
	i, err := w.log.intentOf(ctx, n)
	if err != nil {
		return &trouble{"state_unavailable", err}
	}
	b := w.batch(n, i)
	b.Base = max(b.Base, stands.Version) // up to there it was not committed
	d, ok, err := w.table.Committed(ctx, b)
	if errors.Is(err, storage.ErrRefused) {
		// Its commit has been cleaned up: nobody can tell what it did.
		w.logg.LogAttrs(ctx, slog.LevelWarn, "late commit not read", slog.Int64("batch", n), slog.Any("error", err))
		return nil
	}
	if err != nil {
		w.table = nil
		return tableTrouble(err)
	}
	if !ok {
		return nil
	}
	h := &head{number: n, intent: i, closed: stands}
	// What is amended is the newest item, so what the closing record says must
	// be there.
	if err := w.each(ctx, stands.Results, func(ctx context.Context, r result) error {
		return w.d.store.PutItem(ctx, w.item(h, r))
	}); err != nil {
		return &trouble{"state_unavailable", err}
	}
	c := &closed{Committed: true, Version: d.Version, Kept: d.Kept, At: w.d.store.Now()}
	c.name(d.Fragments)
	for at, s := range d.Subjects {
		if at < len(i.Requests) && s.State == storage.SubjectDone {
			c.Results = append(c.Results, result{Request: i.Requests[at], State: pipeline.Hidden, Rows: s.Rows})
		}
	}
	if err := w.announceTable(ctx, n, c); err != nil {
		return &trouble{"queue_unavailable", err}
	}
	if err := w.each(ctx, c.Results, func(ctx context.Context, r result) error {
		return w.amend(ctx, n, d.Version, r)
	}); err != nil {
		return &trouble{"state_unavailable", err}
	}
	if err := w.log.late(ctx, n, c); err != nil {
		return &trouble{"state_unavailable", err}
	}
	return nil
}

// amend counts a late result and ends the request if that was the last it
// waited for.
func (w *worker) amend(ctx context.Context, late int64, version storage.Version, r result) error {
	i, err := w.d.store.Amend(ctx, r.Request, w.conf.Name, late, r.Rows, version, w.seen)
	if err != nil || i == nil || !i.Amended || !slices.Contains(i.Late, late) {
		return err
	}
	w.logg.LogAttrs(ctx, slog.LevelWarn, "late commit counted", slog.Int64("batch", late), slog.Int64("item", i.Batch),
		slog.String("request", string(r.Request)), slog.Int64("rows", r.Rows))
	if err := w.report(ctx, *i, true); err != nil {
		return err
	}
	return w.end(ctx, *i)
}

// seen returns the newest version of the table that a batch knew.
func (w *worker) seen(ctx context.Context, n int64) (storage.Version, error) {
	i, err := w.log.intentOf(ctx, n)
	if err != nil {
		return storage.NoVersion, err
	}
	c, err := w.log.closedOf(ctx, n)
	if err != nil {
		return storage.NoVersion, err
	}
	if c == nil {
		return storage.NoVersion, errors.New("a batch with items is not closed")
	}
	return max(i.Base, c.Version), nil
}
