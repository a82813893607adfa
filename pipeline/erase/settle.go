package erase

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"delenda/events"
	"delenda/pipeline"
	"delenda/storage"
)

// settle makes known what a closed batch did: items, announcements, the end of
// requests that are done; then it acknowledges what is in hand of it. All of
// it may be done again.
func (w *worker) settle(ctx context.Context, h *head) error {
	if err := w.each(ctx, h.closed.Results, func(ctx context.Context, r result) error {
		return w.d.store.PutItem(ctx, w.item(h, r))
	}); err != nil {
		return &trouble{"state_unavailable", err}
	}
	for _, n := range h.intent.Doubt {
		if err := w.resolve(ctx, n); err != nil {
			return err
		}
	}
	if h.closed.Committed {
		if err := w.announceTable(ctx, h.number, h.closed); err != nil {
			return &trouble{"queue_unavailable", err}
		}
	}
	if err := w.each(ctx, h.closed.Results, func(ctx context.Context, r result) error {
		return w.report(ctx, w.item(h, r), false)
	}); err != nil {
		return &trouble{"queue_unavailable", err}
	}
	if err := w.each(ctx, h.closed.Results, func(ctx context.Context, r result) error {
		return w.end(ctx, w.item(h, r))
	}); err != nil {
		return &trouble{"state_unavailable", err}
	}
	if err := w.log.settle(ctx, h.number); err != nil {
		return &trouble{"state_unavailable", err}
	}
	w.logg.LogAttrs(ctx, slog.LevelInfo, "batch settled", slog.Int64("batch", h.number),
		slog.Int("requests", len(h.intent.Requests)), slog.Bool("committed", h.closed.Committed),
		slog.Int64("version", int64(h.closed.Version)), slog.Int("split", len(h.closed.Split)))
	return w.each(ctx, h.closed.Results, func(ctx context.Context, r result) error {
		w.ack(ctx, r.Request)
		return nil
	})
}

func (w *worker) each(ctx context.Context, results []result, do func(context.Context, result) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, r := range results {
		g.Go(func() error { return do(gctx, r) })
	}
	return g.Wait()
}

func (w *worker) item(h *head, r result) pipeline.Item {
	i := pipeline.Item{
		Request: r.Request, Table: w.conf.Name, Batch: h.number, State: r.State, Rows: r.Rows,
		Version: storage.NoVersion, Code: r.Code, Reason: r.Reason, At: h.closed.At, Late: r.Late,
	}
	if r.State == pipeline.Hidden {
		i.Version = h.closed.Version
	}
	return i
}

func (w *worker) announceTable(ctx context.Context, n int64, c *closed) error {
	e, err := events.New(w.d.store.Source("deleter"), events.TypeTableChanged, events.TableSubject(w.conf.Name),
		fmt.Sprintf("%d/%d", n, c.Version), c.At, events.TableChanged{
			Table: w.conf.Name, Version: int64(c.Version), Kind: events.ChangeDelete, Batch: n, At: c.At,
		})
	if err != nil {
		return err
	}
	return w.d.publish(ctx, e)
}

// report announces an item, and a failed one by a dead letter too.
func (w *worker) report(ctx context.Context, i pipeline.Item, amended bool) error {
	reason := i.Code
	if i.Reason != "" {
		reason += ": " + i.Reason
	}
	key := fmt.Sprintf("%s/%s/%d", i.Request, i.State, i.Batch)
	if amended {
		key += fmt.Sprintf("/%d", len(i.Late))
	}
	e, err := events.New(w.d.store.Source("deleter"), events.TypeErasureReported, events.StatusSubject(w.conf.Name), key, i.At, events.ErasureReported{
		Request: string(i.Request), Table: i.Table, State: string(i.State), Rows: i.Rows,
		Version: int64(i.Version), Batch: i.Batch, Reason: reason, At: i.At,
	})
	if err != nil {
		return err
	}
	if err := w.d.publish(ctx, e); err != nil || i.State != pipeline.Failed {
		return err
	}
	letter := events.DeadLetter{
		Subject: events.RequestsSubject(i.Table), Stream: events.StreamRequests,
		Request: string(i.Request), Table: i.Table, Code: i.Code, At: i.At,
	}
	if r, err := w.d.store.Record(ctx, i.Request); err == nil {
		item, err := w.d.store.ItemEvent(r, i.Table, "")
		if err != nil {
			return err
		}
		if letter.Payload, err = item.Encode(); err != nil {
			return err
		}
	}
	return w.deadLetter(ctx, letter, fmt.Sprintf("%s/%s/%d", i.Request, i.Table, i.Batch))
}

func (w *worker) deadLetter(ctx context.Context, d events.DeadLetter, key string) error {
	if d.At.IsZero() {
		d.At = w.d.store.Now()
	}
	e, err := events.New(w.d.store.Source("deleter"), events.TypeDeadLetter, events.DeadSubject("requests"), key, d.At, d)
	if err != nil {
		return err
	}
	return w.d.publish(ctx, e)
}

// end closes the request if this was its last table.
func (w *worker) end(ctx context.Context, i pipeline.Item) error {
	r, err := w.d.store.Record(ctx, i.Request)
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrCorrupt) {
		return nil // lost from the state prefix: there is nothing to end
	}
	if err != nil {
		return err
	}
	if f := w.d.o.Metrics.Item; f != nil {
		f(i.Table, i.State, i.At.Sub(r.AcceptedAt))
	}
	if i.State != pipeline.Hidden {
		return nil
	}
	_, err = w.d.store.Close(ctx, r)
	if errors.Is(err, storage.ErrCorrupt) { // of another table of the request: it stays open, and the sweep tells
		return nil
	}
	return err
}
