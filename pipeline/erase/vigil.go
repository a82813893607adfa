package erase

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errStalled is why an attempt was cut off.
var errStalled = errors.New("nothing moves")

// vigil watches over an attempt. A nil one does not.
type vigil struct {
	ctx     context.Context //nolint:containedctx // the attempt's, to find out why it ended
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	patient time.Duration
}

// watch returns the context of an attempt, which ends when the attempt gives no
// sign for Options.Stall.
func (w *worker) watch(ctx context.Context) (context.Context, *vigil) {
	if w.d.o.Stall < 0 {
		return ctx, nil
	}
	v := &vigil{patient: w.d.o.Stall}
	v.ctx, v.cancel = context.WithCancelCause(ctx)
	v.timer = time.AfterFunc(v.patient, func() { v.cancel(errStalled) })
	return v.ctx, v
}

// sign says that something moves. It is safe for concurrent use.
func (v *vigil) sign() {
	if v != nil {
		v.timer.Reset(v.patient)
	}
}

// end ends the vigil. An attempt that failed because it was cut off says so.
func (v *vigil) end(err error) error {
	if v == nil {
		return err
	}
	v.timer.Stop()
	defer v.cancel(nil)
	if err != nil && errors.Is(context.Cause(v.ctx), errStalled) {
		return fmt.Errorf("%w for %s: %w", errStalled, v.patient, err)
	}
	return err
}

// answers asks the table for something small, for no longer than an attempt may
// stand still.
func (w *worker) answers(ctx context.Context) error {
	if w.d.o.Stall > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.d.o.Stall, errStalled)
		defer cancel()
	}
	_, err := w.table.LastBatch(ctx, w.app)
	return err
}
