package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"delenda/sharing"
	"delenda/sharing/recipients"
	"delenda/sharing/snapshot"
)

// contentTypeJSON of lists and errors.
const contentTypeJSON = "application/json; charset=utf-8"

// retryAfter is told with 503: the next confirmation of a head may succeed.
const retryAfter = "1"

// failure is an answer that is no success. Its message is for the recipient;
// what went wrong inside is in cause and does not cross.
type failure struct {
	status  int
	code    string
	message string
	cause   error
}

func (f *failure) Error() string { return f.message }
func (f *failure) Unwrap() error { return f.cause }

func invalid(format string, args ...any) *failure {
	return &failure{status: http.StatusBadRequest, code: sharing.CodeInvalidParameter, message: fmt.Sprintf(format, args...)}
}

func malformed(message string) *failure {
	return &failure{status: http.StatusBadRequest, code: sharing.CodeMalformedRequest, message: message}
}

func unsupported(format string, args ...any) *failure {
	return &failure{status: http.StatusBadRequest, code: sharing.CodeUnsupportedOperation, message: fmt.Sprintf(format, args...)}
}

// absent is the answer for what does not exist and for what is not granted.
func absent(names ...string) *failure {
	what := [...]string{"Share", "Share/Schema", "Share/Schema/Table"}[len(names)-1]
	return &failure{
		status: http.StatusNotFound, code: sharing.CodeDoesNotExist,
		message: fmt.Sprintf("[%s] '%s' does not exist, please contact your share provider for further information.", what, strings.Join(names, "/")),
	}
}

var (
	errUnauthenticated = &failure{status: http.StatusUnauthorized, code: sharing.CodeUnauthenticated, message: "the bearer token is missing, not valid, or expired"}
	errNoEndpoint      = &failure{status: http.StatusNotFound, code: sharing.CodeDoesNotExist, message: "no such endpoint"}
	errNoToken         = &failure{status: http.StatusForbidden, code: sharing.CodeInvalidParameter, message: "the URL's signature is not valid for this request, or has expired: query the table again"}
)

// unavailable maps what the snapshot store could not give.
func unavailable(err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, snapshot.ErrNoHead):
		return &failure{status: http.StatusServiceUnavailable, code: sharing.CodeUnavailable, message: "the table is being prepared; try again", cause: err}
	case errors.Is(err, snapshot.ErrStale), errors.Is(err, recipients.ErrStale):
		return &failure{status: http.StatusServiceUnavailable, code: sharing.CodeUnavailable, message: "this server cannot tell whether what it knows is current; try again", cause: err}
	case errors.Is(err, snapshot.ErrFenced), errors.Is(err, snapshot.ErrUnread):
		return &failure{status: http.StatusServiceUnavailable, code: sharing.CodeUnavailable, message: "the files of the table cannot be listed now; try again", cause: err}
	default:
		return &failure{status: http.StatusInternalServerError, code: sharing.CodeInternal, message: "internal error", cause: err}
	}
}

func (f *failure) write(w http.ResponseWriter) {
	switch f.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", retryAfter)
	}
	writeJSON(w, f.status, sharing.ErrorBody{Code: f.code, Code2: f.code, Message: f.message})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil { // every body is one of ours
		panic("server: internal error: " + err.Error())
	}
	w.Header().Set("Content-Type", contentTypeJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the recipient has gone: nothing to tell
}

// progress lets an answer take any time as long as its recipient takes it.
type progress struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	status  int
	bytes   int64
	setAt   time.Time
}

func newProgress(w http.ResponseWriter, timeout time.Duration) *progress {
	return &progress{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout}
}

func (p *progress) WriteHeader(status int) {
	if p.status == 0 && status >= 200 {
		p.status = status
	}
	p.extend()
	p.ResponseWriter.WriteHeader(status)
}

func (p *progress) Write(b []byte) (int, error) {
	if p.status == 0 {
		p.status = http.StatusOK
	}
	p.extend()
	n, err := p.ResponseWriter.Write(b)
	p.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (p *progress) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// extend moves the deadline, which the kernel holds to the real clock.
func (p *progress) extend() {
	if now := time.Now(); now.Sub(p.setAt) > p.timeout/8 {
		p.setAt = now
		_ = p.control.SetWriteDeadline(now.Add(p.timeout)) // not every writer has one
	}
}
