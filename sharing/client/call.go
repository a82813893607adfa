package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"delenda/sharing"
)

const (
	maxListBytes  = 64 << 20
	maxErrorBytes = 64 << 10
)

// call is one request to the server.
type call struct {
	op, method, path string
	query            url.Values
	capabilities     string
	body             []byte // JSON, nil for none
}

// handler reads a good answer. It may be called again after an error, and then
// starts afresh.
type handler func(http.Header, io.Reader) error

// call sends a request and hands a good answer to handle; both are tried again
// when that may help. Every call of the protocol is safe to repeat.
func (c *Client) call(ctx context.Context, k call, handle handler) error {
	if c.profile.Expired(c.opts.Now()) {
		return fmt.Errorf("%s: %w: it expired at %s", k.op, ErrUnauthorized, c.profile.ExpiresAt.Format("2006-01-02T15:04:05Z"))
	}
	err := c.retry(ctx, func() error { return c.attempt(ctx, k, handle) })
	var status *Error
	if err == nil || errors.As(err, &status) {
		return err
	}
	return fmt.Errorf("%s: %w", k.op, err)
}

func (c *Client) attempt(ctx context.Context, k call, handle handler) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	target := c.profile.Endpoint + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, k.method, target, bytes.NewReader(k.body))
	if err != nil {
		return withoutURL(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.profile.BearerToken.Reveal())
	r.Header.Set("User-Agent", c.opts.UserAgent)
	if k.capabilities != "" {
		r.Header.Set(sharing.HeaderCapabilities, k.capabilities)
	}
	if k.body != nil {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	answer, err := c.api.Do(r)
	if err != nil {
		return &temporary{err: withoutURL(err)}
	}
	defer func() {
		// What is left is little; with it read the connection serves again.
		_, _ = io.CopyN(io.Discard, answer.Body, maxErrorBytes)
		_ = answer.Body.Close()
	}()
	if answer.StatusCode != http.StatusOK {
		return c.statusError(k.op, answer)
	}
	err = handle(answer.Header, bodyReader{answer.Body})
	var bad *sharing.LineError
	if err == nil || errors.Is(err, ErrProtocol) || errors.As(err, &bad) {
		return err
	}
	var again *temporary
	if errors.As(err, &again) {
		return err
	}
	var transport *bodyError
	if errors.As(err, &transport) {
		return &temporary{err: withoutURL(err)}
	}
	return err
}

// statusError reads what the server says of an error.
func (c *Client) statusError(op string, answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBytes)) // the status says enough if the text breaks off
	var body sharing.ErrorBody
	err := &Error{Op: op, Status: answer.StatusCode}
	if json.Unmarshal(text, &body) == nil {
		if body.Code == "" {
			body.Code = body.Code2
		}
		err.Code, err.Message = printable(body.Code), printable(body.Message)
	}
	if worthRetry(answer.StatusCode) {
		return &temporary{err: err, after: retryAfter(answer.Header, c.opts.Now())}
	}
	return err
}

// bodyError is a body that broke off.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "read body: " + e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// bodyReader marks the errors of a body apart from those of its content.
type bodyReader struct{ r io.Reader }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &bodyError{err}
	}
	return n, err
}

// decodeJSON reads a JSON body into v, afresh for every attempt.
func decodeJSON[T any](v *T) handler {
	return func(_ http.Header, body io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(body, maxListBytes+1))
		if err != nil {
			return err
		}
		if len(text) > maxListBytes {
			return fmt.Errorf("%w: body longer than %d bytes", ErrProtocol, maxListBytes)
		}
		var fresh T
		if json.Unmarshal(text, &fresh) != nil {
			return fmt.Errorf("%w: body is not JSON of the right form", ErrProtocol)
		}
		*v = fresh
		return nil
	}
}
