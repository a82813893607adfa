package bucket

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"delenda/storage"
)

const (
	tempAge   = 24 * time.Hour // an older temporary file belongs to no writer
	sweptDirs = 4096           // directories remembered as swept
)

// exclusive orders all put-if-absent of this process that cannot use links.
var exclusive sync.Mutex

func (f *file) Put(_ context.Context, key string, body io.Reader, opts storage.PutOptions) (err error) {
	dir, name := path.Dir(key), filepath.FromSlash(key)
	root, err := f.makeDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if info, err := root.Lstat(name); err == nil {
		if info.IsDir() {
			return RefuseKey("is the directory of other keys, which a file system cannot carry")
		}
		if opts.IfAbsent {
			return storage.ErrExists
		}
	}
	f.sweep(root, dir)
	temp, err := f.writeTemp(root, dir, body)
	if err != nil {
		return err
	}
	if opts.IfAbsent {
		err = f.publishAbsent(root, temp, name)
	} else {
		err = fileError(root.Rename(temp, name))
	}
	if err != nil {
		_ = root.Remove(temp)
		return err
	}
	return syncDir(root, dir)
}

// makeDir creates the root and dir below it, each synced into its parent, and
// returns the root open.
func (f *file) makeDir(dir string) (*os.Root, error) {
	root, err := f.open()
	if errors.Is(err, storage.ErrNotFound) {
		if err := f.makeRoot(f.dir); err != nil {
			return nil, err
		}
		root, err = f.open()
	}
	if err != nil {
		return nil, err
	}
	if err := f.makeSub(root, dir); err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

func (f *file) makeRoot(dir string) error {
	err := os.Mkdir(dir, f.dirMode)
	if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		if err := f.makeRoot(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, f.dirMode)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fileError(err)
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return fileError(err)
	}
	return syncClose(parent)
}

func (f *file) makeSub(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	name := filepath.FromSlash(dir)
	info, err := root.Stat(name)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil || errors.Is(err, syscall.ENOTDIR) {
		return RefuseKey("lies below another object's key, which a file system cannot carry")
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fileError(err)
	}
	if err := f.makeSub(root, path.Dir(dir)); err != nil {
		return err
	}
	if err := root.Mkdir(name, f.dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fileError(err)
	}
	return syncDir(root, path.Dir(dir))
}

// writeTemp stores body, synced, under a temporary name in dir.
func (f *file) writeTemp(root *os.Root, dir string, body io.Reader) (temp string, err error) {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	temp = filepath.Join(filepath.FromSlash(dir), tempPrefix+hex.EncodeToString(random[:]))
	h, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.fileMode)
	if err != nil {
		return "", fileError(err)
	}
	_, err = io.Copy(h, body)
	if err == nil {
		err = h.Sync()
	}
	if cerr := h.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = root.Remove(temp)
		return "", fileError(err)
	}
	return temp, nil
}

// publishAbsent gives the finished temporary file its final name if that name
// is free.
func (f *file) publishAbsent(root *os.Root, temp, name string) error {
	err := f.link(root, temp, name)
	switch {
	case err == nil:
		_ = root.Remove(temp)
		return nil
	case noLinks(err):
		f.sayNoLinks()
		return renameAbsent(root, temp, name)
	case errors.Is(err, fs.ErrExist) && sameFile(root, temp, name):
		// A network file system repeated a request that had succeeded.
		_ = root.Remove(temp)
		return nil
	}
	return fileError(err)
}

func renameAbsent(root *os.Root, temp, name string) error {
	exclusive.Lock()
	defer exclusive.Unlock()
	switch _, err := root.Lstat(name); {
	case err == nil:
		return storage.ErrExists
	case !errors.Is(err, fs.ErrNotExist):
		return fileError(err)
	}
	return fileError(root.Rename(temp, name))
}

func sameFile(root *os.Root, a, b string) bool {
	ia, errA := root.Lstat(a)
	ib, errB := root.Lstat(b)
	return errA == nil && errB == nil && os.SameFile(ia, ib)
}

func noLinks(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ENOTSUP} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// linksWork finds out whether the root's file system has hard links.
func (f *file) linksWork(context.Context) (bool, error) {
	f.probe.Lock()
	defer f.probe.Unlock()
	if f.probe.done {
		return f.probe.works, nil
	}
	root, err := f.makeDir(".")
	if err != nil {
		return false, fmt.Errorf("probe hard links: %w", err)
	}
	defer func() { _ = root.Close() }()
	temp, err := f.writeTemp(root, ".", strings.NewReader(""))
	if err != nil {
		return false, fmt.Errorf("probe hard links: %w", err)
	}
	defer func() { _ = root.Remove(temp) }()
	second := temp + "-link"
	switch err := f.link(root, temp, second); {
	case err == nil:
		_ = root.Remove(second)
		f.probe.works = true
	case !noLinks(err):
		return false, fmt.Errorf("probe hard links: %w", fileError(err))
	default:
		f.warnNoLinks()
	}
	f.probe.done = true
	return f.probe.works, nil
}

func (f *file) sayNoLinks() {
	f.probe.Lock()
	defer f.probe.Unlock()
	if !f.probe.done {
		f.probe.done = true
		f.warnNoLinks()
	}
}

func (f *file) warnNoLinks() {
	if f.logger != nil {
		f.logger.Warn("file system has no hard links: only one process may write to this directory", slog.String("dir", f.dir))
	}
}

// sweep removes, once per directory and process, temporary files that a killed
// writer left.
func (f *file) sweep(root *os.Root, dir string) {
	f.swept.Lock()
	_, done := f.swept.dirs[dir]
	if !done {
		if len(f.swept.dirs) >= sweptDirs {
			clear(f.swept.dirs)
		}
		f.swept.dirs[dir] = struct{}{}
	}
	f.swept.Unlock()
	if done {
		return
	}
	h, err := root.Open(filepath.FromSlash(dir))
	if err != nil {
		return
	}
	defer func() { _ = h.Close() }()
	for {
		entries, err := h.ReadDir(dirBatch)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), tempPrefix) {
				continue
			}
			name := filepath.Join(filepath.FromSlash(dir), e.Name())
			if info, err := root.Lstat(name); err == nil && f.now().Sub(info.ModTime()) > tempAge {
				_ = root.Remove(name)
			}
		}
		if err != nil {
			return
		}
	}
}

// syncDir makes the names in dir durable.
func syncDir(root *os.Root, dir string) error {
	h, err := root.Open(filepath.FromSlash(dir))
	if err != nil {
		return fileError(err)
	}
	return syncClose(h)
}

func syncClose(dir *os.File) error {
	err := dir.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil // this file system does not sync directories
	}
	if cerr := dir.Close(); err == nil {
		err = cerr
	}
	return fileError(err)
}
