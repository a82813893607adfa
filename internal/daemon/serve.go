package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ErrCut is the cause of a part's context once its grace is over.
var ErrCut = errors.New("drain took too long")

// Part is one piece of a service.
type Part struct {
	Name string
	// Run works until stop is closed, then finishes what is in flight and
	// returns nil. It returns at once when ctx is done: then the grace is over.
	// Returning before stop is closed ends the whole service.
	Run func(ctx context.Context, stop <-chan struct{}) error
}

// Close is a part that only has something to do at the end.
func Close(name string, f func(ctx context.Context) error) Part {
	return Part{name, func(ctx context.Context, stop <-chan struct{}) error {
		<-stop
		return f(ctx)
	}}
}

// Serve runs the parts until ctx is done or one of them ends, then stops them
// last to first, waiting for each. The drain as a whole gets grace; when that
// is over, the contexts of the parts that are left are cancelled. It returns
// the errors of all parts, and returns only when every part has.
func Serve(ctx context.Context, log *slog.Logger, grace time.Duration, parts ...Part) error {
	type running struct {
		part Part
		stop chan struct{}
		done chan struct{}
		err  error
	}
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)

	ended := make(chan string, len(parts))
	all := make([]*running, 0, len(parts))
	for _, p := range parts {
		r := &running{part: p, stop: make(chan struct{}), done: make(chan struct{})}
		all = append(all, r)
		go func() {
			defer func() {
				close(r.done)
				ended <- r.part.Name
			}()
			r.err = r.part.Run(work, r.stop)
		}()
	}

	if len(parts) > 0 {
		select {
		case <-ctx.Done():
			log.LogAttrs(work, slog.LevelDebug, "draining")
		case name := <-ended:
			log.LogAttrs(work, slog.LevelWarn, "a part ended, draining the rest", slog.String("part", name))
		}
	}
	timer := time.AfterFunc(grace, func() { cut(ErrCut) })
	defer timer.Stop()

	var errs []error
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		close(r.stop)
		<-r.done
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.part.Name, r.err))
		}
	}
	return errors.Join(errs...)
}
