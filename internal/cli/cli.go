// Package cli is the command line of the binaries: flags, help, output for
// people and machines, and errors with the next step.
//
// Delenda is the run function of cmd/delenda; Service makes those of
// cmd/ingest, cmd/deleter and cmd/publisher. Long flags may be written with one
// dash or two.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"delenda/internal/daemon"
)

// world is what commands get beside their flags.
type world struct {
	daemon.Process
	level slog.Level
}

// log returns the logger of the command.
func (w *world) log() *slog.Logger { return daemon.NewLogger(w.Stderr, w.level) }

// quiet returns a logger of warnings and errors, for commands that speak to
// people themselves.
func (w *world) quiet() *slog.Logger {
	return daemon.NewLogger(w.Stderr, max(w.level, slog.LevelWarn))
}

// errors returns a logger of errors only, unless more than the default is asked
// for: a busy machine's hiccups are no part of a demo.
func (w *world) errors() *slog.Logger {
	if w.level < slog.LevelInfo {
		return w.log()
	}
	return daemon.NewLogger(w.Stderr, max(w.level, slog.LevelError))
}

// now is the clock of the binaries.
func now() time.Time { return time.Now() }

// delenda is the command line of cmd/delenda.
type delenda struct {
	Demo    demoCmd    `cmd:"" help:"See one erasure end to end, in a temporary directory. Start here."`
	Up      upCmd      `cmd:"" help:"Run ingest, deleter and publisher in one process, with NATS embedded."`
	Check   checkCmd   `cmd:"" help:"Check a configuration and every table in it. Exit code 1 if one is refused."`
	Erase   eraseCmd   `cmd:"" help:"Send an erasure request to a running ingest."`
	Status  statusCmd  `cmd:"" help:"Show where requests stand, and how tables are served."`
	Release releaseCmd `cmd:"" help:"Let a held request go: it matches more than the limits allow."`
	Inspect inspectCmd `cmd:"" help:"Show what a table is, and what Delenda may do with it."`
	Share   shareCmd   `cmd:"" help:"Add a recipient of shares, and write the profile file for them."`
	Dlq     dlqCmd     `cmd:"" help:"List, replay or remove dead letters: work that was given up."`
	Config  configCmd  `cmd:"" help:"Print an example configuration and the meaning of every key."`

	Health  upHealthCmd `cmd:"" help:"Ask a running delenda up whether it is ready. Exit code 1 if not."`
	Setup   setupCmd    `cmd:"" help:"Make the secrets of a deployment: NATS users, a store's credentials, a sender's token."`
	Prepare prepareCmd  `cmd:"" help:"Make the buckets of an S3-compatible store, and a sample table and recipient if asked."`

	LogLevel slog.Level       `default:"info" placeholder:"LEVEL" help:"Least severe log lines to write: debug, info, warn or error."`
	Version  kong.VersionFlag `help:"Print the version."`
}

const description = `Delenda erases people from lakehouse tables, and from everyone those tables were shared with.

Start with:

    delenda demo

Your table:

    delenda inspect /path/to/table
    delenda demo --table /path/to/table --column customer_id --id 4711

For real:

    delenda config > delenda.yaml       # an example: edit it
    delenda check -config delenda.yaml
    delenda up -config delenda.yaml`

// Delenda runs cmd/delenda.
func Delenda(ctx context.Context, p daemon.Process) error {
	var c delenda
	if len(p.Args) == 0 {
		p.Args = []string{"--help"}
	}
	return parse(ctx, "delenda", description, &c, &c.LogLevel, p)
}

// parse reads the arguments and runs the command that they name.
func parse(ctx context.Context, name, about string, into any, level *slog.Level, p daemon.Process) error {
	done := false
	parser, err := kong.New(into,
		kong.Name(name), kong.Description(about), kong.UsageOnError(),
		kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(func(int) { done = true }), // --help has been printed
		kong.Vars{"version": name + " " + daemon.Version()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return fmt.Errorf("define command line: %w", err)
	}
	parsed, err := parser.Parse(dashes(p.Args))
	if done {
		return nil
	}
	if err != nil {
		return daemon.Usage(fmt.Errorf("%w\nSee: %s --help", err, name))
	}
	w := &world{Process: p, level: *level}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return parsed.Run(w)
}

// single matches a long flag that is written with one dash.
var single = regexp.MustCompile(`^-[a-z][a-z-]+(=|$)`)

// dashes turns -config into --config, for those who know Go's flags.
func dashes(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == "--" {
			copy(out[i:], args[i:])
			return out
		}
		if out[i] = a; single.MatchString(a) {
			out[i] = "-" + a
		}
	}
	return out
}

// next adds to an error what to do about it.
func next(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &nextStep{err, fmt.Sprintf(format, args...)}
}

type nextStep struct {
	err  error
	step string
}

func (n *nextStep) Error() string {
	return n.err.Error() + "\n" + indent("next: "+n.step)
}

func (n *nextStep) Unwrap() error { return n.err }

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

// failed ends a command whose output has said everything.
func failed() error { return &daemon.ExitError{Code: daemon.ExitFailure} }

// say writes a line for people.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}

// cancelled reports whether the command was stopped by a signal.
func cancelled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
