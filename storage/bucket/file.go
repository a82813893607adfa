package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"delenda/storage"
)

// file keeps objects as files below a directory. Every operation opens the
// root anew, so that a root that is replaced is seen as what it now is.
type file struct {
	dir      string // absolute
	fileMode fs.FileMode
	dirMode  fs.FileMode
	logger   *slog.Logger
	now      func() time.Time
	link     func(root *os.Root, temp, final string) error

	probe struct {
		sync.Mutex
		done, works bool
	}
	swept struct {
		sync.Mutex
		dirs map[string]struct{}
	}
}

func newFile(dir string, private bool, logger *slog.Logger, now func() time.Time) *file {
	f := &file{dir: dir, fileMode: 0o644, dirMode: 0o755, logger: logger, now: now}
	if private {
		f.fileMode, f.dirMode = 0o600, 0o700
	}
	f.link = func(root *os.Root, temp, final string) error { return root.Link(temp, final) }
	f.swept.dirs = map[string]struct{}{}
	return f
}

// open returns the root, and storage.ErrNotFound if it does not exist.
func (f *file) open() (*os.Root, error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, fileError(err)
	}
	return root, nil
}

func (f *file) Stat(_ context.Context, key string) (storage.Info, error) {
	root, err := f.open()
	if err != nil {
		return storage.Info{}, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(filepath.FromSlash(key))
	if err != nil {
		return storage.Info{}, fileError(err)
	}
	if !info.Mode().IsRegular() {
		return storage.Info{}, storage.ErrNotFound
	}
	return storage.Info{Key: key, SizeBytes: info.Size(), ModTime: info.ModTime()}, nil
}

func (f *file) Read(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	root, err := f.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	// Without O_NONBLOCK a named pipe among the files would hang the reader.
	h, err := root.OpenFile(filepath.FromSlash(key), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fileError(err)
	}
	info, err := h.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = storage.ErrNotFound
	}
	if err == nil && offset > 0 {
		_, err = h.Seek(min(offset, info.Size()), io.SeekStart)
	}
	if err != nil {
		_ = h.Close()
		return nil, fileError(err)
	}
	if length < 0 {
		return h, nil
	}
	return limited{io.LimitReader(h, length), h}, nil
}

type limited struct {
	io.Reader
	io.Closer
}

func (f *file) Delete(_ context.Context, key string) error {
	root, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	name := filepath.FromSlash(key)
	info, err := root.Lstat(name)
	if err != nil {
		return fileError(err)
	}
	if info.IsDir() {
		return storage.ErrNotFound
	}
	if err := root.Remove(name); err != nil {
		return fileError(err)
	}
	return syncDir(root, path.Dir(key))
}

// errOutside: os.Root refused to follow a path.
var errOutside = fmt.Errorf("%w: a symbolic link leads out of the bucket", storage.ErrDenied)

// fileError maps an error of the operating system to a sentinel or its number.
func fileError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return storage.ErrNotFound
	case errors.Is(err, fs.ErrExist):
		return storage.ErrExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return storage.ErrDenied
	case errors.Is(err, syscall.ENAMETOOLONG):
		return RefuseKey("holds a segment that is too long for the file system")
	}
	var errno syscall.Errno
	var pathError *fs.PathError
	var linkError *os.LinkError
	if !errors.As(err, &errno) && (errors.As(err, &pathError) || errors.As(err, &linkError)) {
		return errOutside
	}
	return scrub(err)
}
