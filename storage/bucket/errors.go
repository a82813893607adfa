package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"delenda/storage"
)

// scrub reduces an error of an SDK or of the operating system to what may be
// shown: a sentinel, a system error number, or the kind of failure. Addresses,
// URLs and response bodies stay behind.
func scrub(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errOutside) {
		return errOutside
	}
	for _, sentinel := range []error{
		context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF,
		storage.ErrNotFound, storage.ErrExists, storage.ErrDenied, ErrKey,
	} {
		if errors.Is(err, sentinel) {
			return sentinel
		}
	}
	var code *CodeError
	if errors.As(err, &code) {
		return code
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return errors.New("host not found")
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("timeout")
	}
	return fmt.Errorf("unclear answer of the store (%T)", innermost(err))
}

// innermost returns the first cause of err.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
			next = many.Unwrap()[0]
		}
		if next == nil {
			return err
		}
		err = next
	}
}

// CodeError is a store's refusal that has no sentinel of its own, by the code
// and HTTP status that the store gave.
type CodeError struct {
	Code   string // as the store names it: SlowDown, InternalError, ...
	Status int    // 0 if unknown
}

// Error returns code and status.
func (e *CodeError) Error() string {
	if e.Status == 0 {
		return "store answered " + e.Code
	}
	return fmt.Sprintf("store answered %s (%d)", e.Code, e.Status)
}
