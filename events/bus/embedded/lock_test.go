//go:build unix

package embedded

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A child between fork and exec holds a copy of every descriptor.
func TestTheLockIsGivenUpThoughACopyOfItsDescriptorIsOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	f, err := lockDir(path)
	if err != nil {
		t.Fatal(err)
	}
	duplicate, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(duplicate) }()
	if _, err := lockDir(path); err == nil {
		t.Fatal("two hold the lock")
	}
	if err := unlockDir(f); err != nil {
		t.Fatal(err)
	}
	again, err := lockDir(path)
	if err != nil {
		t.Fatalf("a server that has stopped still holds its directory: %v", err)
	}
	if err := unlockDir(again); err != nil {
		t.Fatal(err)
	}
}
