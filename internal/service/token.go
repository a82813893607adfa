package service

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tokenFile holds what clients of the embedded server's listener must show.
const tokenFile = "client.token"

// EmbeddedToken returns the token of the embedded server in dir, which is made
// at its first start: whoever may read the directory may connect.
func EmbeddedToken(dir string) (string, error) {
	path := filepath.Join(dir, tokenFile)
	token, err := os.ReadFile(path) //nolint:gosec // a fixed name in the operator's directory
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fmt.Errorf("make NATS token: %w", err)
		}
		token = []byte(rand.Text() + "\n")
		err = os.WriteFile(path, token, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("read NATS token: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}
