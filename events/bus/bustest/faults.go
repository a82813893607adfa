package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"delenda/events/bus"
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
	// Tear has its effect but returns ErrInjected: a publication is stored, a
	// fetch has delivered, an acknowledgement is taken. A follower breaks off
	// before its first record.
	Tear
	// Kill has no effect, calls OnKill, and returns ErrKilled from now on.
	Kill
	// KillAfter has its effect, calls OnKill, and returns ErrKilled from now on.
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
	N int // from 1
	bus.Op
}

// String returns number, kind and target.
func (o Op) String() string { return fmt.Sprintf("%d %s %s", o.N, o.Kind, o.Target) }

// Faults makes any single operation of a bus go wrong: give its Intercept to
// bus.Options. Operations are counted from 1 in the order in which they begin.
// One fault can be armed at a time; it strikes one operation and nothing else,
// except that after a kill every later operation fails too. It is safe for
// concurrent use; the zero value has no fault.
type Faults struct {
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

// Arm lets the n-th operation go wrong, n counting from 1 and from the start of
// the trace. It replaces a fault armed before.
func (f *Faults) Arm(m Mode, n int) { f.arm(m, n, nil) }

// ArmMatch lets the n-th operation from now on for which match is true go
// wrong. match must not use the bus.
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
// held: a stream that is lost at this very moment, for example.
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

// Intercept is for bus.Options.
func (f *Faults) Intercept(ctx context.Context, bop bus.Op, do func(context.Context) error) error {
	f.mu.Lock()
	op := Op{N: len(f.trace) + 1, Op: bop}
	f.trace = append(f.trace, op)
	if f.killed {
		f.mu.Unlock()
		return ErrKilled
	}
	mode := f.strike(op)
	before := f.before
	f.mu.Unlock()
	if before != nil {
		before(ctx, op)
	}
	switch mode {
	case Fail:
		return ErrInjected
	case Kill:
		f.kill()
		return ErrKilled
	case Tear, KillAfter:
		if op.Kind != "follow" {
			_ = do(ctx)
		}
		if mode == KillAfter {
			f.kill()
			return ErrKilled
		}
		return ErrInjected
	}
	return do(ctx)
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
