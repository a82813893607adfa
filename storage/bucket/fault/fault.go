// Package fault wraps a storage.Bucket so that tests can make any single
// operation go wrong. It is for tests only.
//
// Operations are counted from 1 in the order in which they begin. One fault can
// be armed at a time; it strikes the operation with the given number and
// nothing else, except that after a kill every later operation fails too. A
// sweep runs the code under test with the fault at 1, 2, 3, ... until a run
// ends without Struck:
//
//	for n := 1; ; n++ {
//		f := fault.Wrap(b)
//		f.Arm(fault.Tear, n)
//		err := run(f)
//		... restart on b, let the auditor judge
//		if !f.Struck() {
//			break
//		}
//	}
//
// Given the same operations in the same order the outcome is the same. With
// concurrent callers the order is theirs; ArmMatch picks an operation by what
// it is instead of by its place.
package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"delenda/storage"
)

// ErrInjected is what a struck operation returns.
var ErrInjected = errors.New("injected fault")

// ErrKilled is what every operation returns after a kill.
var ErrKilled = errors.New("killed by injected fault")

// Mode says how an operation goes wrong.
type Mode int

// The modes.
const (
	// Fail returns ErrInjected and has no effect.
	Fail Mode = iota + 1
	// Tear breaks the operation off after its effect, or in the middle of its
	// answer: Put and Delete are done, but return ErrInjected, Stat loses its
	// answer, a Read stream and a List break off halfway.
	Tear
	// Kill has no effect, calls OnKill, and returns ErrKilled from now on.
	Kill
	// KillAfter is done as in Tear, calls OnKill, and returns ErrKilled from
	// now on.
	KillAfter
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case Fail:
		return "fail"
	case Tear:
		return "tear"
	case Kill:
		return "kill"
	case KillAfter:
		return "kill after"
	default:
		return fmt.Sprintf("mode %d", int(m))
	}
}

// Modes returns all modes, for sweeps.
func Modes() []Mode { return []Mode{Fail, Tear, Kill, KillAfter} }

// Op is one operation that began.
type Op struct {
	N    int    // from 1
	Name string // stat, read, put, put-if-absent, list, delete
	Key  string // list: the prefix
}

// String returns number, name and key.
func (o Op) String() string { return fmt.Sprintf("%d %s %q", o.N, o.Name, o.Key) }

// Faults is a bucket with faults. It is safe for concurrent use.
type Faults struct {
	inner storage.Bucket

	mu     sync.Mutex
	mode   Mode
	at     int
	match  func(Op) bool
	onKill func()
	before func(ctx context.Context, op Op)
	trace  []Op
	struck bool
	killed bool
}

var _ storage.Bucket = (*Faults)(nil)

// Wrap returns b without any fault.
func Wrap(b storage.Bucket) *Faults { return &Faults{inner: b} }

// Arm lets the n-th operation go wrong, n counting from 1 and from the start of
// the trace. It replaces a fault armed before.
func (f *Faults) Arm(m Mode, n int) { f.arm(m, n, nil) }

// ArmMatch lets the n-th operation from now on for which match is true go
// wrong. match must not use the bucket.
func (f *Faults) ArmMatch(m Mode, n int, match func(Op) bool) { f.arm(m, n, match) }

func (f *Faults) arm(m Mode, n int, match func(Op) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode, f.at, f.match, f.struck = m, n, match, false
}

// OnKill sets what a kill calls, usually the cancel function of the process
// under test. It is called once, without any lock held.
func (f *Faults) OnKill(cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onKill = cancel
}

// Before sets what is called before every operation's effect, without any lock
// held: another writer that wins a race, for example. It may use the wrapped
// bucket, and this one only if it can bear being called again.
func (f *Faults) Before(hook func(ctx context.Context, op Op)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = hook
}

// Reset forgets trace, fault and kill: the process starts again.
func (f *Faults) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode, f.at, f.match, f.trace, f.struck, f.killed = 0, 0, nil, nil, false, false
}

// Count returns how many operations began.
func (f *Faults) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.trace)
}

// Trace returns the operations that began, in order.
func (f *Faults) Trace() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Op(nil), f.trace...)
}

// Struck reports whether the armed fault has happened.
func (f *Faults) Struck() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.struck
}

// begin records an operation and returns the mode that strikes it, 0 if none.
func (f *Faults) begin(ctx context.Context, name, key string) (Mode, error) {
	f.mu.Lock()
	op := Op{N: len(f.trace) + 1, Name: name, Key: key}
	f.trace = append(f.trace, op)
	if f.killed {
		f.mu.Unlock()
		return 0, opError(op, ErrKilled)
	}
	mode := f.strike(op)
	before := f.before
	f.mu.Unlock()
	if before != nil {
		before(ctx, op)
	}
	switch mode {
	case Fail:
		return 0, opError(op, ErrInjected)
	case Kill:
		f.kill()
		return 0, opError(op, ErrKilled)
	case Tear, KillAfter:
	}
	return mode, nil
}

func (f *Faults) strike(op Op) Mode {
	if f.mode == 0 || f.struck {
		return 0
	}
	if f.match != nil {
		if !f.match(op) {
			return 0
		}
		if f.at--; f.at > 0 {
			return 0
		}
	} else if op.N != f.at {
		return 0
	}
	f.struck = true
	return f.mode
}

func (f *Faults) kill() {
	f.mu.Lock()
	f.killed = true
	cancel := f.onKill
	f.onKill = nil
	f.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// after ends a struck operation whose effect is done.
func (f *Faults) after(mode Mode, name, key string) error {
	op := Op{Name: name, Key: key}
	if mode == KillAfter {
		f.kill()
		return opError(op, ErrKilled)
	}
	return opError(op, ErrInjected)
}

func opError(op Op, err error) error { return fmt.Errorf("%s %q: %w", op.Name, op.Key, err) }

// Stat implements storage.Bucket.
func (f *Faults) Stat(ctx context.Context, key string) (storage.Info, error) {
	mode, err := f.begin(ctx, "stat", key)
	if err != nil {
		return storage.Info{}, err
	}
	info, err := f.inner.Stat(ctx, key)
	if mode != 0 {
		return storage.Info{}, f.after(mode, "stat", key)
	}
	return info, err
}

// Put implements storage.Bucket.
func (f *Faults) Put(ctx context.Context, key string, body io.Reader, opts storage.PutOptions) error {
	name := "put"
	if opts.IfAbsent {
		name = "put-if-absent"
	}
	mode, err := f.begin(ctx, name, key)
	if err != nil {
		return err
	}
	err = f.inner.Put(ctx, key, body, opts)
	if mode != 0 {
		return f.after(mode, name, key)
	}
	return err
}

// Delete implements storage.Bucket.
func (f *Faults) Delete(ctx context.Context, key string) error {
	mode, err := f.begin(ctx, "delete", key)
	if err != nil {
		return err
	}
	err = f.inner.Delete(ctx, key)
	if mode != 0 {
		return f.after(mode, "delete", key)
	}
	return err
}

// Read implements storage.Bucket.
func (f *Faults) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	mode, err := f.begin(ctx, "read", key)
	if err != nil {
		return nil, err
	}
	r, err := f.inner.Read(ctx, key, offset, length)
	if mode == 0 || err != nil {
		return r, err
	}
	defer func() { _ = r.Close() }()
	size := length
	if info, err := f.inner.Stat(ctx, key); err == nil && (size < 0 || size > info.SizeBytes-offset) {
		size = max(info.SizeBytes-offset, 0)
	}
	half := make([]byte, size/2)
	n, _ := io.ReadFull(r, half)
	return &torn{rest: half[:n], end: func() error { return f.after(mode, "read", key) }}, nil
}

// torn gives the first half of a stream and then an error.
type torn struct {
	rest []byte
	end  func() error
	err  error
}

func (t *torn) Read(p []byte) (int, error) {
	if len(t.rest) > 0 {
		n := copy(p, t.rest)
		t.rest = t.rest[n:]
		return n, nil
	}
	if t.err == nil {
		t.err = t.end()
	}
	return 0, t.err
}

func (t *torn) Close() error { return nil }

// List implements storage.Bucket. The operation begins when the sequence is
// first asked for an element.
func (f *Faults) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		mode, err := f.begin(ctx, "list", prefix)
		if err != nil {
			yield(storage.Info{}, err)
			return
		}
		if mode == 0 {
			f.inner.List(ctx, prefix, after)(yield)
			return
		}
		var all []storage.Info
		for info, err := range f.inner.List(ctx, prefix, after) {
			if err != nil {
				break
			}
			all = append(all, info)
		}
		for _, info := range all[:len(all)/2] {
			if !yield(info, nil) {
				return
			}
		}
		yield(storage.Info{}, f.after(mode, "list", prefix))
	}
}
