package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"delenda/sharing"
	"delenda/storage"
)

// logKey is the one commit of a local log.
const logKey = "_delta_log/00000000000000000000.json"

// vectorFrame is what a deletion vector file holds around a payload: its size
// and its checksum.
const vectorFrame = 8

// FileSystem is the read-only bucket of a snapshot: a Delta table of one commit
// whose data files and deletion vectors lie behind pre-signed URLs that it
// renews. Any reader of Delta tables that takes a bucket can read it. The keys
// are made from the ids of the files and stay the same when URLs change.
//
// It is safe for concurrent use. Put and Delete return storage.ErrDenied.
type FileSystem struct {
	client  *Client
	table   sharing.Table
	query   QueryOptions
	head    Head
	log     []byte
	keys    []string          // sorted
	vectors map[string]string // deletion vector id by a data file's key

	turn chan struct{} // held while what follows is read or renewed
	objects
}

// objects is what a renewal replaces.
type objects struct {
	byKey        map[string]object
	renewals     int64
	refreshToken string
	renewAt      time.Time // zero: never by itself
	expires      time.Time
}

type object struct {
	url     storage.SignedURL
	size    int64
	modTime time.Time
}

func newFileSystem(c *Client, table sharing.Table, o QueryOptions, a *answer, logText []byte) (*FileSystem, error) {
	fs := &FileSystem{
		client: c, table: table, query: o, head: a.Head, log: logText,
		turn: make(chan struct{}, 1), vectors: make(map[string]string, len(a.files)),
	}
	known, err := fs.index(a)
	if err != nil {
		return nil, err
	}
	fs.objects = known
	fs.keys = append(fs.keys, logKey)
	for key := range known.byKey {
		fs.keys = append(fs.keys, key)
	}
	slices.Sort(fs.keys)
	for i := range a.files {
		fs.vectors[a.files[i].Add.Path] = a.files[i].DeletionVectorID
	}
	return fs, nil
}

// index lays the objects of an answer out by key.
func (fs *FileSystem) index(a *answer) (objects, error) {
	out := objects{byKey: make(map[string]object, len(a.files)), refreshToken: a.refreshToken}
	for i := range a.files {
		f := &a.files[i]
		if _, twice := out.byKey[f.Add.Path]; twice {
			return objects{}, fmt.Errorf("%w: two files with one id", ErrProtocol)
		}
		modTime := time.UnixMilli(f.Add.ModificationTime).UTC()
		out.byKey[f.Add.Path] = object{url: f.url, size: f.Add.SizeBytes, modTime: modTime}
		if dv := f.Add.DeletionVector; dv != nil && f.dvURL.Reveal() != "" {
			key, ok := dv.Key()
			if !ok {
				return objects{}, fmt.Errorf("%w: deletionVector has no key", ErrProtocol)
			}
			size := int64(*dv.Offset) + int64(dv.SizeInBytes) + vectorFrame
			out.byKey[key] = object{url: f.dvURL, size: size, modTime: modTime}
		}
		if !f.expires.IsZero() && (out.expires.IsZero() || f.expires.Before(out.expires)) {
			out.expires = f.expires
		}
	}
	if !out.expires.IsZero() {
		now := fs.client.opts.Now()
		early := min(fs.client.opts.RefreshBefore, max(0, out.expires.Sub(now)/4))
		out.renewAt = out.expires.Add(-early)
	}
	return out, nil
}

// locate returns the object under key with a URL that has not expired, and
// counts renewals so that a reader knows whether its URL is still the newest.
func (fs *FileSystem) locate(ctx context.Context, key string) (object, int64, error) {
	if err := fs.lock(ctx); err != nil {
		return object{}, 0, err
	}
	defer fs.unlock()
	if _, ok := fs.byKey[key]; !ok {
		return object{}, 0, storage.ErrNotFound
	}
	now := fs.client.opts.Now()
	if !fs.renewAt.IsZero() && !now.Before(fs.renewAt) {
		err := fs.renew(ctx)
		switch {
		case err == nil:
		case ctx.Err() == nil && now.Before(fs.expires) && !errors.Is(err, ErrChanged):
			fs.renewAt = now.Add(fs.expires.Sub(now) / 2) // the old ones still work
		default:
			return object{}, 0, err
		}
	}
	return fs.byKey[key], fs.renewals, nil
}

// refused renews the URLs because the store refused one that was got after
// seen renewals, unless someone else has renewed them since.
func (fs *FileSystem) refused(ctx context.Context, seen int64) error {
	if err := fs.lock(ctx); err != nil {
		return err
	}
	defer fs.unlock()
	if fs.renewals != seen {
		return nil
	}
	return fs.renew(ctx)
}

// renew asks for the same files again. Each file must come back under its id
// with the deletion vector that it had: anything else is another version.
func (fs *FileSystem) renew(ctx context.Context) error {
	a, err := fs.client.query(ctx, fs.table, fs.query, fs.refreshToken)
	var status *Error
	if errors.As(err, &status) && status.Status == 400 && fs.refreshToken != "" {
		// The token expired, or its version is no longer served.
		a, err = fs.client.query(ctx, fs.table, fs.query, "")
	}
	if err != nil {
		return fmt.Errorf("renew URLs: %w", err)
	}
	if a.Metadata.ID != fs.head.Metadata.ID || a.Metadata.SchemaString != fs.head.Metadata.SchemaString || a.Format != fs.head.Format {
		return fmt.Errorf("renew URLs: %w: its metadata is another", ErrChanged)
	}
	next, err := fs.index(a)
	if err != nil {
		return fmt.Errorf("renew URLs: %w", err)
	}
	for key, old := range fs.byKey {
		found, ok := next.byKey[key]
		switch {
		case !ok && strings.HasSuffix(key, ".bin"):
			return fmt.Errorf("renew URLs: %w: other rows of a file are hidden", ErrChanged)
		case !ok:
			return fmt.Errorf("renew URLs: %w: a file is gone", ErrChanged)
		case found.size != old.size:
			return fmt.Errorf("renew URLs: %w: two sizes for one id", ErrProtocol)
		}
	}
	for i := range a.files {
		had, ok := fs.vectors[a.files[i].Add.Path]
		if ok && had != a.files[i].DeletionVectorID {
			return fmt.Errorf("renew URLs: %w: other rows of a file are hidden", ErrChanged)
		}
	}
	for key := range next.byKey {
		if _, ok := fs.byKey[key]; !ok {
			delete(next.byKey, key) // of a later version, not part of this snapshot
		}
	}
	next.renewals = fs.renewals + 1
	fs.objects = next
	return nil
}

// lock waits for the turn to look at or renew the URLs.
func (fs *FileSystem) lock(ctx context.Context) error {
	select {
	case fs.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (fs *FileSystem) unlock() { <-fs.turn }

// Stat implements storage.Bucket.
func (fs *FileSystem) Stat(ctx context.Context, key string) (storage.Info, error) {
	if key == logKey {
		return storage.Info{Key: key, SizeBytes: int64(len(fs.log))}, nil
	}
	if err := fs.lock(ctx); err != nil {
		return storage.Info{}, fmt.Errorf("stat %q: %w", key, err)
	}
	defer fs.unlock()
	o, ok := fs.byKey[key]
	if !ok {
		return storage.Info{}, fmt.Errorf("stat %q: %w", key, storage.ErrNotFound)
	}
	return storage.Info{Key: key, SizeBytes: o.size, ModTime: o.modTime}, nil
}

// Read implements storage.Bucket. The bytes come in ranges of bounded size,
// each tried again by itself, so a long read outlives a URL.
func (fs *FileSystem) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if offset < 0 {
		return nil, fmt.Errorf("read %q: negative offset", key)
	}
	if key == logKey {
		from := min(offset, int64(len(fs.log)))
		text := fs.log[from:]
		if length >= 0 && length < int64(len(text)) {
			text = text[:length]
		}
		return io.NopCloser(bytes.NewReader(text)), nil
	}
	info, err := fs.Stat(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	length = clamp(length, info.SizeBytes-offset)
	return io.NopCloser(&rangeStream{ctx: ctx, fs: fs, key: key, next: offset, end: offset + length}), nil
}

// clamp bounds a length, negative for all, by what is left.
func clamp(length, left int64) int64 {
	left = max(left, 0)
	if length < 0 {
		return left
	}
	return min(length, left)
}

// List implements storage.Bucket.
func (fs *FileSystem) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		for _, key := range fs.keys {
			if !strings.HasPrefix(key, prefix) || key <= after {
				continue
			}
			info, err := fs.Stat(ctx, key)
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

// Put implements storage.Bucket: a shared table is not written.
func (fs *FileSystem) Put(_ context.Context, key string, _ io.Reader, _ storage.PutOptions) error {
	return fmt.Errorf("put %q: %w: a shared table is read-only", key, storage.ErrDenied)
}

// Delete implements storage.Bucket: a shared table is not written.
func (fs *FileSystem) Delete(_ context.Context, key string) error {
	return fmt.Errorf("delete %q: %w: a shared table is read-only", key, storage.ErrDenied)
}
