package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// maxPause bounds a server's Retry-After.
const maxPause = time.Minute

// retry runs op until it succeeds, fails for good or the attempts are used up.
// It is the only place where this package tries again.
func (c *Client) retry(ctx context.Context, op func() error) error {
	exponential := backoff.NewExponentialBackOff()
	exponential.InitialInterval = c.opts.RetryInterval
	exponential.MaxInterval = maxPause / 2
	exponential.MaxElapsedTime = 0
	pause := &pacer{inner: backoff.WithMaxRetries(exponential, c.opts.Retries)}
	return backoff.Retry(func() error {
		err := op()
		var again *temporary
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil && errors.As(err, &again):
			pause.least = again.after
			return again.err
		default:
			return backoff.Permanent(err)
		}
	}, backoff.WithContext(pause, ctx))
}

// pacer waits as long as the server asked for, if that is longer.
type pacer struct {
	inner backoff.BackOff
	least time.Duration
}

func (p *pacer) NextBackOff() time.Duration {
	d := p.inner.NextBackOff()
	if d == backoff.Stop {
		return d
	}
	return max(d, min(p.least, maxPause))
}

func (p *pacer) Reset() { p.inner.Reset() }

// retryAfter reads the header in both of its forms.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return time.Duration(min(n, 3600)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// worthRetry tells statuses that pass by themselves.
func worthRetry(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout ||
		status >= 500 && status != http.StatusNotImplemented
}
