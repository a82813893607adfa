//go:build unix

package embedded

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockDir holds an advisory lock until unlockDir or the process ends.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the path is the configured directory
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another server uses it")
		}
		return nil, errors.Join(fmt.Errorf("lock: %w", err), f.Close())
	}
	return f, nil
}

// unlockDir gives the lock up and closes the file. Closing alone does not give
// it up while a child that another goroutine is about to start has a copy of
// the descriptor.
func unlockDir(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
