// Package keeper opens the key that wraps every other key of an installation:
// a local file, or a cloud's key management service.
//
// A local key file holds 32 random bytes in base64 on one line. It is made at
// the first start with mode 0600, whole or not at all, and of several processes
// that start at once one makes it. A file that others may read is refused. Whoever
// loses it loses every identity that is still sealed, and the installation's
// ids: keep a copy, apart from the state prefix.
package keeper

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gocloud.dev/secrets"
	"gocloud.dev/secrets/localsecrets"
)

const (
	keyBytes    = 32
	maxKeyFile  = 1 << 10
	keyFileMode = 0o600
	keyDirMode  = 0o700
)

// ErrWrongKey tells that the key file is not the one that sealed this. Nothing but the
// right file helps.
var ErrWrongKey = errors.New("the key file is not the one that sealed this state")

// Keeper wraps and unwraps keys. It is safe for concurrent use.
type Keeper struct {
	keeper *secrets.Keeper
	path   string // of a local key file
}

// Encrypt wraps a key.
func (k *Keeper) Encrypt(ctx context.Context, plaintext []byte) ([]byte, error) {
	return k.keeper.Encrypt(ctx, plaintext)
}

// Decrypt unwraps a key: ErrWrongKey if it was wrapped under another file's.
func (k *Keeper) Decrypt(ctx context.Context, ciphertext []byte) ([]byte, error) {
	p, err := k.keeper.Decrypt(ctx, ciphertext)
	if err != nil && k.path != "" && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %s", ErrWrongKey, k.path)
	}
	return p, err
}

// Close releases the keeper.
func (k *Keeper) Close() error { return k.keeper.Close() }

// Open opens the keeper at a plain path, a file URL, or the URL of a key
// service. A local file that is not there is made; created tells. The caller
// closes the keeper.
func Open(ctx context.Context, rawURL string) (k *Keeper, created bool, err error) {
	path, local := strings.CutPrefix(rawURL, "file://")
	if !local && strings.Contains(rawURL, "://") {
		service, err := openService(ctx, rawURL)
		if err != nil {
			return nil, false, err
		}
		return &Keeper{keeper: service}, false, nil
	}
	key, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if created, err = makeKey(path); err == nil {
			key, err = readKey(path)
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("open keeper: %w", err)
	}
	return &Keeper{localsecrets.NewKeeper(key), path}, created, nil
}

// OpenExisting opens a keeper as Open does, but makes nothing.
func OpenExisting(ctx context.Context, rawURL string) (*Keeper, error) {
	if path, local := strings.CutPrefix(rawURL, "file://"); local || !strings.Contains(rawURL, "://") {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("open keeper: %w", err)
		}
	}
	k, _, err := Open(ctx, rawURL)
	return k, err
}

// openService opens a key service. A URL may hold a key or credentials, so
// errors name its scheme only.
func openService(ctx context.Context, rawURL string) (*secrets.Keeper, error) {
	scheme, _, _ := strings.Cut(rawURL, "://")
	if !secrets.DefaultURLMux().ValidKeeperScheme(scheme) {
		return nil, fmt.Errorf("open keeper: no key service has the scheme %q; known: %s, or a path",
			scheme, strings.Join(secrets.DefaultURLMux().KeeperSchemes(), ", "))
	}
	k, err := secrets.OpenKeeper(ctx, rawURL)
	if err != nil {
		return nil, fmt.Errorf("open keeper %s: %s", scheme, strings.ReplaceAll(err.Error(), rawURL, scheme+"://…"))
	}
	return k, nil
}

func readKey(path string) (key [keyBytes]byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return key, err
	}
	switch {
	case !info.Mode().IsRegular() || info.Size() > maxKeyFile:
		return key, fmt.Errorf("%s: not a key file", path)
	case info.Mode().Perm()&0o077 != 0:
		return key, fmt.Errorf("%s: others may read it: chmod 600 it, and think about who has", path)
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return key, err
	}
	plain, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(plain) != keyBytes {
		return key, fmt.Errorf("%s: not a key file: want %d bytes in base64", path, keyBytes)
	}
	return [keyBytes]byte(plain), nil
}

// makeKey puts a new key at path unless another process was first.
func makeKey(path string) (bool, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, keyDirMode); err != nil {
		return false, err
	}
	tmp, err := os.CreateTemp(dir, ".keeper-*") // mode 0600
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	var key [keyBytes]byte
	if _, err := rand.Read(key[:]); err != nil {
		return false, errors.Join(err, tmp.Close())
	}
	_, err = tmp.WriteString(base64.StdEncoding.EncodeToString(key[:]) + "\n")
	if err = errors.Join(err, tmp.Chmod(keyFileMode), tmp.Sync(), tmp.Close()); err != nil {
		return false, err
	}
	err = os.Link(tmp.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the directory of the operator's file
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
