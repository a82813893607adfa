package bucket

import (
	"container/heap"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"delenda/storage"
)

const (
	dirBatch = 512    // entries read from a directory at a time
	dirPage  = 32_768 // names of one directory held in memory at a time
)

// List walks the tree in the byte order of whole keys, in which a directory
// sorts by its name followed by '/'. A directory with more names than a page
// is read once per page, so memory is bounded by depth, not by size.
func (f *file) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		root, err := f.open()
		if errors.Is(err, storage.ErrNotFound) {
			return
		}
		if err != nil {
			yield(storage.Info{}, err)
			return
		}
		defer func() { _ = root.Close() }()
		w := &walk{ctx: ctx, root: root, prefix: prefix, after: after, page: dirPage, yield: yield}
		w.dir(prefix[:strings.LastIndexByte(prefix, '/')+1])
	}
}

type walk struct {
	ctx           context.Context //nolint:containedctx // lives as long as one List
	root          *os.Root
	prefix, after string
	page          int
	yield         func(storage.Info, error) bool
	entered       []fs.FileInfo // directories entered, to stop at symbolic links that lead back
}

// dir yields what lies below the directory whose keys begin with base, "" or
// ending with '/'. It returns false when the walk is over.
func (w *walk) dir(base string) bool {
	h, err := w.root.Open(filepath.FromSlash("./" + base))
	if err != nil {
		return w.skipOrFail(err)
	}
	info, err := h.Stat()
	if cerr := h.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return w.skipOrFail(err)
	}
	if !info.IsDir() || slices.ContainsFunc(w.entered, func(up fs.FileInfo) bool { return os.SameFile(up, info) }) {
		return true
	}
	w.entered = append(w.entered, info)
	defer func() { w.entered = w.entered[:len(w.entered)-1] }()
	for last, more := "", true; more; {
		var names []string
		names, more, err = w.names(base, last)
		if err != nil {
			return w.skipOrFail(err)
		}
		for _, name := range names {
			last = name
			if strings.HasSuffix(name, "/") {
				if !w.dir(base + name) {
					return false
				}
			} else if !w.file(base + name) {
				return false
			}
		}
	}
	return true
}

func (w *walk) file(key string) bool {
	if err := w.ctx.Err(); err != nil {
		w.yield(storage.Info{}, err)
		return false
	}
	info, err := w.root.Stat(filepath.FromSlash(key))
	if err != nil {
		return w.skipOrFail(err)
	}
	if !info.Mode().IsRegular() {
		return true
	}
	return w.yield(storage.Info{Key: key, SizeBytes: info.Size(), ModTime: info.ModTime()}, nil)
}

// skipOrFail passes over what went away during the walk or leads out of the
// root, and ends the walk with any other error.
func (w *walk) skipOrFail(err error) bool {
	if err = fileError(err); errors.Is(err, storage.ErrNotFound) || errors.Is(err, errOutside) {
		return true
	}
	w.yield(storage.Info{}, err)
	return false
}

// names returns the next names of a directory after last, in order, at most a
// page, directories with a trailing '/', and whether there may be more.
func (w *walk) names(base, last string) (names []string, more bool, err error) {
	h, err := w.root.Open(filepath.FromSlash("./" + base))
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = h.Close() }()
	var smallest largestFirst
	for {
		if err := w.ctx.Err(); err != nil {
			return nil, false, err
		}
		entries, err := h.ReadDir(dirBatch)
		for _, e := range entries {
			name, ok := w.wanted(base, e)
			if !ok || name <= last && last != "" {
				continue
			}
			if len(smallest) < w.page {
				heap.Push(&smallest, name)
				continue
			}
			more = true
			if name < smallest[0] {
				smallest[0] = name
				heap.Fix(&smallest, 0)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	slices.Sort(smallest)
	return smallest, more, nil
}

// wanted returns the name by which an entry sorts, and whether it can lead to
// a key that is asked for.
func (w *walk) wanted(base string, e fs.DirEntry) (string, bool) {
	name := e.Name()
	if strings.HasPrefix(name, tempPrefix) {
		return "", false
	}
	isDir := e.IsDir()
	if e.Type()&fs.ModeSymlink != 0 {
		info, err := w.root.Stat(filepath.FromSlash(base + name))
		if err != nil {
			return "", false
		}
		isDir = info.IsDir()
	}
	if isDir {
		name += "/"
		key := base + name
		below := strings.HasPrefix(key, w.prefix) || strings.HasPrefix(w.prefix, key)
		passed := key <= w.after && !strings.HasPrefix(w.after, key)
		return name, below && !passed
	}
	key := base + name
	return name, strings.HasPrefix(key, w.prefix) && (w.after == "" || key > w.after)
}

// largestFirst is a heap of the smallest names met so far.
type largestFirst []string

func (h largestFirst) Len() int           { return len(h) }
func (h largestFirst) Less(i, j int) bool { return h[i] > h[j] }
func (h largestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *largestFirst) Push(x any) { *h = append(*h, x.(string)) }

// Pop implements heap.Interface.
func (h *largestFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
