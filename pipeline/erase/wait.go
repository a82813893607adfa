package erase

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// beating gives signs of life until the returned function is called.
func (w *worker) beating(ctx context.Context, n int64) (stop func()) {
	if w.d.o.Patience < 0 {
		return func() {} // nobody looks
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(w.d.o.Beat)
		defer tick.Stop()
		for beat := 1; ; beat++ {
			if err := w.log.beat(ctx, n, attempt{w.d.id, w.d.store.Now(), beat}); err != nil && ctx.Err() == nil {
				w.logg.LogAttrs(ctx, slog.LevelDebug, "beat failed", slog.Int64("batch", n), slog.Any("error", err))
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// wait gives another worker the time to finish its batch. It reports true once
// the batch is closed, false when it is to be taken over.
func (w *worker) wait(ctx context.Context, h *head) (closed bool, err error) {
	if w.d.o.Patience < 0 {
		return false, nil
	}
	last, err := w.log.pulse(ctx, h.number)
	if err != nil {
		return false, &trouble{"state_unavailable", err}
	}
	if last.Worker == w.d.id || last.Worker == "" && h.intent.Worker == w.d.id {
		return false, nil
	}
	tick := time.NewTicker(min(w.d.o.Beat, w.d.o.Patience))
	defer tick.Stop()
	for changed := time.Now(); time.Since(changed) < w.d.o.Patience; {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
		c, err := w.log.closedOf(ctx, h.number)
		if err != nil {
			return false, &trouble{"state_unavailable", err}
		}
		if c != nil {
			return true, nil
		}
		p, err := w.log.pulse(ctx, h.number)
		if err != nil {
			return false, &trouble{"state_unavailable", err}
		}
		if p != last {
			last, changed = p, time.Now()
		}
	}
	return false, nil
}
