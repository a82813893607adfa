// Package daemon is the shell of every binary: signals, logging, ordered
// drain and the exit code. It knows nothing of what it runs.
//
// A binary is a function run(ctx, process) error. Main calls it with a context
// that the first SIGINT or SIGTERM cancels, and ends the process with the exit
// code of its error. A second signal ends the process at once: everything that
// Delenda does survives that.
//
// Serve runs the parts of a service. When one fails, or the context is
// cancelled, the parts are stopped in the reverse of the order in which they
// were given, each one waited for: so a list of "embedded server, bus, worker,
// HTTP listener" stops taking requests first, finishes and acknowledges what is
// in flight, and flushes and closes its connections last.
//
// This is the only package that may call os.Exit.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitInterrupted = 130
)

// Process is what a binary sees of the world that started it.
type Process struct {
	Args   []string                        // without the program's name
	Env    func(key string) (string, bool) // looks up an environment variable
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer // logs, progress and errors
}

// ExitError ends the process with Code. With Err nil nothing is printed: the
// command has said everything already.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of Err.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// Usage marks an error as one of how the program was called.
func Usage(err error) error { return &ExitError{ExitUsage, err} }

// Main runs a binary to its end and exits the process.
func Main(name string, run func(ctx context.Context, p Process) error) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(ExitInterrupted)
	}()
	p := Process{os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr}
	code := exitCode(name, run(ctx, p), ctx.Err() != nil, p.Stderr)
	os.Exit(code)
}

// exitCode prints what an error has to say and returns the exit code. A
// cancelled context that was asked for by a signal is a clean end.
func exitCode(name string, err error, interrupted bool, stderr io.Writer) int {
	var exit *ExitError
	switch {
	case err == nil, interrupted && errors.Is(err, context.Canceled):
		return ExitOK
	case errors.As(err, &exit):
		if exit.Err != nil {
			_, _ = fmt.Fprintf(stderr, "%s: %v\n", name, exit.Err)
		}
		return exit.Code
	default:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return ExitFailure
	}
}
