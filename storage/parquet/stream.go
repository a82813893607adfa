package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
)

const (
	// streamBuffer is what a stream asks the bucket's reader for at a time.
	streamBuffer = 256 << 10
	// slack is the number of bytes behind every slice of a stream or page
	// buffer that may be read, so that unpacking loads whole words.
	slack = 8
)

// errTruncated: the object ended before the range did.
var errTruncated = errors.New("truncated")

// stream reads one range of a file front to back through a reused buffer.
type stream struct {
	r          io.ReadCloser
	buf        []byte // len is capacity for data; cap has slack behind it
	start, end int    // the bytes at hand
	left       int64  // bytes of the range not yet in buf
	offset     int64  // in the file, of buf[start]
	st         *Stats // counts what comes from the bucket; nil for bytes at hand
}

// open starts a stream over a range that lies in the file.
func (s *stream) open(ctx context.Context, f *File, offset, length int64, st *Stats) error {
	s.close()
	s.start, s.end, s.left, s.offset, s.st = 0, 0, length, offset, nil
	if s.buf == nil {
		s.buf = make([]byte, streamBuffer, streamBuffer+slack)
	}
	if p, ok := f.cached(offset, length); ok {
		s.r = &cachedReader{p}
		return nil
	}
	r, err := f.bucket.Read(ctx, f.key, offset, length)
	if err != nil {
		return err
	}
	s.r, s.st = r, st
	return nil
}

func (s *stream) close() {
	if s.r != nil {
		_ = s.r.Close() // nothing was written
		s.r = nil
	}
}

// rest returns how many bytes of the range are not consumed.
func (s *stream) rest() int64 { return s.left + int64(s.end-s.start) }

// peek returns at least n bytes, or what is left of the range, without
// consuming them.
func (s *stream) peek(n int) ([]byte, error) {
	n = int(min(int64(n), s.rest()))
	if err := s.fill(n); err != nil {
		return nil, err
	}
	return s.buf[s.start:s.end], nil
}

// next consumes n bytes, which are valid until the next call. The range must
// have them.
func (s *stream) next(n int) ([]byte, error) {
	if err := s.fill(n); err != nil {
		return nil, err
	}
	p := s.buf[s.start : s.start+n]
	s.start += n
	s.offset += int64(n)
	return p, nil
}

// fill makes sure that n bytes are at hand.
func (s *stream) fill(n int) error {
	have := s.end - s.start
	if have >= n {
		return nil
	}
	if int64(n-have) > s.left {
		return errTruncated
	}
	if n > len(s.buf) {
		size := n + n/4
		grown := make([]byte, size, size+slack)
		copy(grown, s.buf[s.start:s.end])
		s.buf = grown
	} else {
		copy(s.buf, s.buf[s.start:s.end])
	}
	s.start, s.end = 0, have
	// A buffer that a large page once grew does not make every read large.
	limit := s.end + int(min(int64(len(s.buf)-s.end), s.left, int64(max(n-have, streamBuffer))))
	got, err := io.ReadAtLeast(s.r, s.buf[s.end:limit], n-have)
	s.end += got
	s.took(got)
	return readError(err)
}

func (s *stream) took(n int) {
	s.left -= int64(n)
	if s.st != nil {
		s.st.BytesRead += int64(n)
	}
}

// skip consumes n bytes without keeping them.
func (s *stream) skip(n int64) error {
	if n > s.rest() {
		return errTruncated
	}
	have := min(int64(s.end-s.start), n)
	s.start += int(have)
	s.offset += n
	if n -= have; n == 0 {
		return nil
	}
	for n > 0 {
		got, err := s.r.Read(s.buf[:min(n, int64(len(s.buf)))])
		n -= int64(got)
		s.took(got)
		if err != nil && n > 0 {
			return readError(err)
		}
	}
	s.start, s.end = 0, 0
	return nil
}

func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	}
	if err != nil {
		return fmt.Errorf("read column chunk: %w", err)
	}
	return nil
}

// cachedReader reads bytes that Open has fetched already.
type cachedReader struct{ p []byte }

func (r *cachedReader) Read(p []byte) (int, error) {
	if len(r.p) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.p)
	r.p = r.p[n:]
	return n, nil
}

func (r *cachedReader) Close() error { return nil }
