package daemon

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// NewLogger returns a logger that writes lines for people if w is a terminal,
// and JSON otherwise.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if Interactive(w) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// Interactive reports whether a person watches what is written to w.
func Interactive(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
