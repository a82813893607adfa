package erase

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"delenda/pipeline"
	"delenda/storage"
)

// parkedReasons are what senders may know of trouble that is no refusal: its
// own text may name places and files.
var parkedReasons = map[string]string{
	"table_unavailable":       "the table cannot be opened or read at the moment",
	"corrupt":                 "the table's log or files do not follow their format",
	"no_table":                "there is no table at the configured place",
	"batch_order":             "the table holds a later batch than the state prefix knows of",
	"access_denied":           "the table's store refuses access",
	"conflict":                "other writers won every attempt to commit",
	pipeline.CodeDeleteFailed: "a batch fails and is tried again",
}

// unparkEvery is how often a worker of a table that is well takes away what
// another one may have said of it.
const unparkEvery = time.Minute

// mark leaves in the state prefix whether and why the table is parked, for who
// asks about a request. Trouble of the bus or of the state prefix is no table's.
// It decides nothing: a mark that cannot be written is written at the next step.
func (w *worker) mark(ctx context.Context, err error) {
	if err == nil {
		if !w.unparked.IsZero() && time.Since(w.unparked) < unparkEvery {
			return
		}
		if err := w.d.store.Unpark(ctx, w.conf.Name); err != nil {
			w.logg.LogAttrs(ctx, slog.LevelDebug, "unpark failed", slog.Any("error", err))
			return
		}
		w.unparked, w.parked = time.Now(), pipeline.Parked{}
		return
	}
	var t *trouble
	if !errors.As(err, &t) {
		return
	}
	p := pipeline.Parked{Code: t.code, Reason: parkedReasons[t.code]}
	if refused := (*storage.Refusal)(nil); errors.As(err, &refused) {
		p.Reason = refused.Reason
	}
	if p.Reason == "" || p == (pipeline.Parked{Code: w.parked.Code, Reason: w.parked.Reason}) {
		return
	}
	w.unparked = time.Time{}
	p.Since = w.d.store.Now()
	if err := w.d.store.Park(ctx, w.conf.Name, p); err != nil {
		w.logg.LogAttrs(ctx, slog.LevelDebug, "park failed", slog.Any("error", err))
		return
	}
	w.parked = p
}
