package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

var (
	// ErrUnauthorized says that the profile has expired or that the server does
	// not accept its token. Ask the provider for a new profile.
	ErrUnauthorized = errors.New("profile not accepted")
	// ErrNotShared says that the server knows no such share, schema or table, or
	// does not grant it.
	ErrNotShared = errors.New("not shared")
	// ErrChanged says that the table changed while it was read, so that what is
	// left to read belongs to another version. Query again.
	ErrChanged = errors.New("table changed while it was read")
	// ErrProtocol says that the answer does not follow the protocol.
	ErrProtocol = errors.New("answer does not follow the protocol")
)

// Error is an answer with an error status. Message is the server's, cut short
// and without anything that looks like a URL.
type Error struct {
	Op      string // what was asked, with the table's names
	Status  int
	Code    string // the protocol's error code, may be empty
	Message string
}

// Error returns operation, status, code and message.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: status %d", e.Op, e.Status)
	for _, part := range []string{e.Code, e.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// Is maps statuses to the sentinels that a caller branches on.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrNotShared:
		return e.Status == http.StatusNotFound
	}
	return false
}

const maxMessage = 512

// printable cuts a server's text to what is fit to print: no control
// characters, no URL.
func printable(text string) string {
	if strings.Contains(text, "://") {
		return "(message withheld: it holds a URL)"
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return text
}

// withoutURL takes the URL out of the errors of net/http.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return fmt.Errorf("%s: %w", strings.ToLower(u.Op), withoutURL(u.Err))
	}
	return err
}

// temporary marks an error after which the same call may succeed.
type temporary struct {
	err   error
	after time.Duration // at least this long, 0 if the server did not say
}

func (e *temporary) Error() string { return e.err.Error() }
func (e *temporary) Unwrap() error { return e.err }
