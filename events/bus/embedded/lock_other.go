//go:build !unix

package embedded

import "os"

// lockDir opens the lock file; this system offers no advisory lock that ends
// with the process.
func lockDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

func unlockDir(f *os.File) error { return f.Close() }
