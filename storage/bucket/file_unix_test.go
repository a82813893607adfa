//go:build unix

package bucket

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"delenda/storage"
)

func TestNamedPipesDoNotHangAReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	b := openDir(t, dir, nil)
	if _, err := b.Read(t.Context(), "pipe", 0, -1); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("read: %v", err)
	}
	if got := keys(t, b); len(got) != 0 {
		t.Errorf("listed %q", got)
	}
}
