package bucket

import (
	"bytes"
	"context"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"delenda/storage"
)

const listPage = 1000

// memory keeps objects in a map and their keys in order.
type memory struct {
	now func() time.Time

	mu      sync.RWMutex
	objects map[string]object
	keys    []string // ascending
}

// object is immutable once it is in the map.
type object struct {
	body    []byte
	modTime time.Time
}

func newMemory(now func() time.Time) *memory {
	return &memory{now: now, objects: map[string]object{}}
}

var (
	namedMu sync.Mutex
	named   = map[string]*memory{}
)

// sharedMemory returns the process's memory bucket of that name; a bucket
// without a name is never shared.
func sharedMemory(name string, now func() time.Time) *memory {
	if name == "" {
		return newMemory(now)
	}
	namedMu.Lock()
	defer namedMu.Unlock()
	m, ok := named[name]
	if !ok {
		m = newMemory(now)
		named[name] = m
	}
	return m
}

func (m *memory) Stat(_ context.Context, key string) (storage.Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	o, ok := m.objects[key]
	if !ok {
		return storage.Info{}, storage.ErrNotFound
	}
	return o.info(key), nil
}

func (o object) info(key string) storage.Info {
	return storage.Info{Key: key, SizeBytes: int64(len(o.body)), ModTime: o.modTime}
}

func (m *memory) Read(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	m.mu.RLock()
	o, ok := m.objects[key]
	m.mu.RUnlock()
	if !ok {
		return nil, storage.ErrNotFound
	}
	size := int64(len(o.body))
	from := min(offset, size)
	to := size
	if length >= 0 && length < size-from {
		to = from + length
	}
	return io.NopCloser(bytes.NewReader(o.body[from:to])), nil
}

func (m *memory) Put(_ context.Context, key string, body io.Reader, opts storage.PutOptions) error {
	p, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, exists := m.objects[key]
	if exists && opts.IfAbsent {
		return storage.ErrExists
	}
	m.objects[key] = object{body: p, modTime: m.now().UTC()}
	if !exists {
		i, _ := slices.BinarySearch(m.keys, key)
		m.keys = slices.Insert(m.keys, i, key)
	}
	return nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[key]; !ok {
		return nil
	}
	delete(m.objects, key)
	i, _ := slices.BinarySearch(m.keys, key)
	m.keys = slices.Delete(m.keys, i, i+1)
	return nil
}

func (m *memory) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		for {
			if err := ctx.Err(); err != nil {
				yield(storage.Info{}, err)
				return
			}
			page := m.page(prefix, after)
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			after = page[len(page)-1].Key
		}
	}
}

func (m *memory) page(prefix, after string) []storage.Info {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, _ := slices.BinarySearch(m.keys, prefix)
	if after >= prefix && after != "" {
		var found bool
		if i, found = slices.BinarySearch(m.keys, after); found {
			i++
		}
	}
	var page []storage.Info
	for ; i < len(m.keys) && len(page) < listPage && strings.HasPrefix(m.keys[i], prefix); i++ {
		page = append(page, m.objects[m.keys[i]].info(m.keys[i]))
	}
	return page
}
