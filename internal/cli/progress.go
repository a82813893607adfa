package cli

import (
	"time"

	"github.com/schollz/progressbar/v3"

	"delenda/internal/daemon"
)

// progress returns how long work is told: by a bar if a person watches, not at
// all otherwise.
func (w *world) progress() func(what string, total int64) (func(int64), func()) {
	if !daemon.Interactive(w.Stderr) {
		return nil
	}
	return func(what string, total int64) (func(int64), func()) {
		bar := progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(w.Stderr), progressbar.OptionSetDescription(what),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
		return func(n int64) { _ = bar.Add64(n) }, func() { _ = bar.Finish() }
	}
}
