package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// logger carries the server's warnings and errors to slog and keeps the first
// fatal one, which ends Start.
type logger struct {
	log *slog.Logger

	mu    sync.Mutex
	first error
}

func newLogger(l *slog.Logger) *logger {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return &logger{log: l}
}

func (l *logger) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *logger) write(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "nats-server", slog.String("message", fmt.Sprintf(format, v...)))
}

// Noticef drops what the server says when all is well.
func (l *logger) Noticef(string, ...any) {}

// Debugf drops.
func (l *logger) Debugf(string, ...any) {}

// Tracef drops: traces hold message content.
func (l *logger) Tracef(string, ...any) {}

// Warnf logs.
func (l *logger) Warnf(format string, v ...any) { l.write(slog.LevelWarn, format, v) }

// Errorf logs.
func (l *logger) Errorf(format string, v ...any) { l.write(slog.LevelError, format, v) }

// Fatalf keeps the first message.
func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = fmt.Errorf(format, v...)
	}
}
