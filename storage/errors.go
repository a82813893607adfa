package storage

import (
	"errors"
	"fmt"
)

// Buckets.
var (
	// ErrNotFound: no object has this key. The caller decides what absence means.
	ErrNotFound = errors.New("object not found")
	// ErrExists: put-if-absent found an object. Read back what won before
	// concluding that the race is lost.
	ErrExists = errors.New("object exists")
	// ErrDenied: the store refused. Never treat it as absence.
	ErrDenied = errors.New("access denied")
)

// Tables.
var (
	// ErrNoTable: nothing at the location is a table of the format.
	ErrNoTable = errors.New("not a table")
	// ErrCorrupt: bytes do not follow their specification. Nothing was written.
	ErrCorrupt = errors.New("corrupt")
	// ErrConflict: other writers won every bounded attempt. Nothing of ours was
	// committed; trying later is safe.
	ErrConflict = errors.New("commit conflict")
	// ErrRefused matches every *Refusal: the table is sound, but Delenda may
	// not do this to it. Trying again without a change of the table or the
	// configuration gives the same answer.
	ErrRefused = errors.New("refused")
	// ErrBatchOrder: the table has already committed a batch with a higher
	// number. The state prefix is behind the table: stop and look.
	ErrBatchOrder = errors.New("table holds a later batch")
)

// Refusal says why Delenda may not act on a table. Reason names features,
// columns and properties, never a value of a row.
type Refusal struct {
	Code   string // stable, lower_snake_case: unsupported_reader_feature, append_only, ...
	Reason string // for people
}

// Error returns "refused: reason".
func (r *Refusal) Error() string { return "refused: " + r.Reason }

// Is reports that every Refusal is an ErrRefused.
func (r *Refusal) Is(target error) bool { return target == ErrRefused }

// Refuse returns a *Refusal with a formatted reason.
func Refuse(code, format string, args ...any) error {
	return &Refusal{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// CorruptError locates bytes that do not follow their specification. It
// carries where and which field, never content.
type CorruptError struct {
	Key    string // object, relative to the table root; may be empty
	Offset int64  // byte offset, or line number minus one for NDJSON; -1 if unknown
	Field  string // the field of the specification
	Reason string // what is wrong with it, without its value
}

// Error returns key, offset, field and reason.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt %s at %d: %s: %s", e.Key, e.Offset, e.Field, e.Reason)
}

// Is reports that every CorruptError is an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
