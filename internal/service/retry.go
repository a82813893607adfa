package service

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"delenda/internal/daemon"
)

const (
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second
	retryFor   = 20 * time.Second
)

// pauses returns growing pauses without an end.
func pauses() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMaxInterval(maxPause), backoff.WithMaxElapsedTime(0))
}

// retry calls f until it succeeds, ctx is done, or it has failed for long.
func retry(ctx context.Context, f func() error) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMaxInterval(maxPause), backoff.WithMaxElapsedTime(retryFor))
	return backoff.Retry(f, backoff.WithContext(b, ctx))
}

// wait returns after d or when ctx is done.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// background is a part that runs f until the drain begins.
func background(name string, f func(ctx context.Context)) daemon.Part {
	return daemon.Part{Name: name, Run: func(ctx context.Context, stop <-chan struct{}) error {
		ctx, cancel := until(ctx, stop)
		defer cancel()
		f(ctx)
		<-stop
		return nil
	}}
}

// until returns a context that ends with ctx, or when stop is closed.
func until(ctx context.Context, stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
