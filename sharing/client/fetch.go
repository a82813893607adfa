package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"delenda/storage"
)

// chunkBytes is how much a stream asks for at a time.
const chunkBytes = 4 << 20

// readAt fills p from the object under key at offset off. It tries again when
// the network or the store fails for a moment, and renews the URL once when the
// store refuses it. Less than len(p) bytes is an error.
func (fs *FileSystem) readAt(ctx context.Context, key string, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	renewed := false
	err := fs.client.retry(ctx, func() error {
		for {
			o, seen, err := fs.locate(ctx, key)
			if err != nil {
				return err
			}
			err = fs.client.getRange(ctx, o.url, p, off)
			if renewed || !errors.Is(err, storage.ErrDenied) {
				return err
			}
			renewed = true
			if err := fs.refused(ctx, seen); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read %q: %w", key, err)
	}
	return nil
}

// getRange does one ranged read of a pre-signed URL, without the token.
func (c *Client) getRange(ctx context.Context, u storage.SignedURL, p []byte, off int64) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Reveal(), nil)
	if err != nil {
		return withoutURL(err)
	}
	r.Header.Set("User-Agent", c.opts.UserAgent)
	r.Header.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-"+strconv.FormatInt(off+int64(len(p))-1, 10))
	answer, err := c.data.Do(r)
	if err != nil {
		return &temporary{err: withoutURL(err)}
	}
	defer answer.Body.Close() //nolint:errcheck // what was asked for has been read
	switch status := answer.StatusCode; {
	case status == http.StatusPartialContent:
		if !strings.HasPrefix(answer.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(off, 10)+"-") {
			return fmt.Errorf("%w: the store answered with another range", ErrProtocol)
		}
	case status == http.StatusOK: // the store knows no ranges
		if _, err := io.CopyN(io.Discard, answer.Body, off); err != nil {
			return shortRead(err)
		}
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %w", ErrChanged, storage.ErrNotFound)
	case worthRetry(status):
		return &temporary{err: fmt.Errorf("the store answered with status %d", status), after: retryAfter(answer.Header, c.opts.Now())}
	case status == http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusGone:
		// One of these is how a store says that a URL has expired.
		return fmt.Errorf("%w: the store answered with status %d", storage.ErrDenied, status)
	default:
		return fmt.Errorf("the store answered with status %d", status)
	}
	if _, err := io.ReadFull(answer.Body, p); err != nil {
		return shortRead(err)
	}
	return nil
}

// shortRead is a body that ends early: a broken connection, or an object that
// is shorter than it should be. Trying again tells.
func shortRead(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &temporary{err: fmt.Errorf("read body: %w", withoutURL(err))}
}

// rangeStream reads an object from next to end, chunk by chunk.
type rangeStream struct {
	ctx       context.Context //nolint:containedctx // io.Reader carries none
	fs        *FileSystem
	key       string
	next, end int64
	chunk     []byte
}

func (s *rangeStream) Read(p []byte) (int, error) {
	if len(s.chunk) == 0 {
		n := min(chunkBytes, s.end-s.next)
		if n <= 0 {
			return 0, io.EOF
		}
		chunk := make([]byte, n)
		if err := s.fs.readAt(s.ctx, s.key, chunk, s.next); err != nil {
			return 0, err
		}
		s.chunk, s.next = chunk, s.next+n
	}
	n := copy(p, s.chunk)
	s.chunk = s.chunk[n:]
	return n, nil
}

// tailBytes is read at once from the end of a data file: footers are small.
const tailBytes = 64 << 10

// objectReader is random access to one object, with its tail kept.
type objectReader struct {
	ctx  context.Context //nolint:containedctx // io.ReaderAt carries none
	fs   *FileSystem
	key  string
	size int64
	pos  int64
	tail []byte
	err  error // the first failure to read, kept since decoders drop its kind
}

func (fs *FileSystem) openObject(ctx context.Context, key string, size int64) (*objectReader, error) {
	r := &objectReader{ctx: ctx, fs: fs, key: key, size: size, tail: make([]byte, min(size, tailBytes))}
	if err := fs.readAt(ctx, key, r.tail, size-int64(len(r.tail))); err != nil {
		return nil, err
	}
	return r, nil
}

// ReadAt implements io.ReaderAt.
func (r *objectReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %q: negative offset", r.key)
	}
	n := int(min(int64(len(p)), max(0, r.size-off)))
	if start := r.size - int64(len(r.tail)); off >= start && n > 0 {
		copy(p[:n], r.tail[off-start:])
	} else if err := r.fs.readAt(r.ctx, r.key, p[:n], off); err != nil {
		if r.err == nil {
			r.err = err
		}
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Seek implements io.Seeker.
func (r *objectReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek %q: negative offset", r.key)
	}
	r.pos = offset
	return offset, nil
}

// Read implements io.Reader.
func (r *objectReader) Read(p []byte) (int, error) {
	if r.pos >= r.size {
		return 0, io.EOF
	}
	n, err := r.ReadAt(p, r.pos)
	r.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
