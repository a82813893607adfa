package snapshot

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"delenda/storage"
)

// A sealed object is a stream of AES-256-GCM chunks:
//
//	offset  bytes  content
//	0       8      "DLNDSEA1"
//	8       32     salt, random
//	40      ...    chunks: chunkBytes of plaintext (the last: 0 to chunkBytes) and a tag of 16 bytes
//
// The key of an object is HKDF-SHA256(installation key, salt, "delenda/sealed/1\x00" + name of the
// object). The nonce of a chunk is 7 zero bytes, the chunk's number (4 bytes, big-endian), and 1 for
// the last chunk or 0: chunks cannot be reordered, dropped or cut off, nor moved to another object.
const (
	sealMagic  = "DLNDSEA1"
	saltBytes  = 32
	chunkBytes = 64 << 10
	tagBytes   = 16
)

// Keys derives what the publisher needs from the installation key.
type Keys struct{ root []byte }

// NewKeys takes the installation key, of at least 32 bytes.
func NewKeys(installation []byte) (Keys, error) {
	if len(installation) < 32 {
		return Keys{}, errors.New("installation key is shorter than 32 bytes")
	}
	return Keys{append([]byte{}, installation...)}, nil
}

// Derive returns a key of 32 bytes for one purpose and salt.
func (k Keys) Derive(purpose string, salt []byte) []byte {
	return k.derive(salt, "delenda/"+purpose+"\x00")
}

func (k Keys) derive(salt []byte, info string) []byte {
	key, err := hkdf.Key(sha256.New, k.root, salt, info, 32)
	if err != nil { // only for lengths that HKDF cannot give
		panic("snapshot: internal error: " + err.Error())
	}
	return key
}

func (k Keys) sealer(salt []byte, name string) cipher.AEAD {
	return newGCM(k.derive(salt, "delenda/sealed/1\x00"+name))
}

func newGCM(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("snapshot: internal error: " + err.Error())
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic("snapshot: internal error: " + err.Error())
	}
	return gcm
}

func chunkNonce(number uint32, last bool) []byte {
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint32(nonce[7:], number)
	if last {
		nonce[11] = 1
	}
	return nonce
}

// sealWriter encrypts to w. Close ends the stream; without it a reader sees a
// truncated object.
type sealWriter struct {
	w      io.Writer
	aead   cipher.AEAD
	number uint32
	plain  []byte
	sealed []byte
}

func newSealWriter(w io.Writer, keys Keys, name string) (*sealWriter, error) {
	header := make([]byte, len(sealMagic)+saltBytes)
	copy(header, sealMagic)
	_, _ = rand.Read(header[len(sealMagic):]) // never fails
	if _, err := w.Write(header); err != nil {
		return nil, err
	}
	return &sealWriter{w: w, aead: keys.sealer(header[len(sealMagic):], name), plain: make([]byte, 0, chunkBytes)}, nil
}

func (s *sealWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(s.plain) == chunkBytes { // more follows: not the last
			if err := s.flush(false); err != nil {
				return 0, err
			}
		}
		k := min(len(p), chunkBytes-len(s.plain))
		s.plain = append(s.plain, p[:k]...)
		p = p[k:]
	}
	return n, nil
}

func (s *sealWriter) Close() error { return s.flush(true) }

func (s *sealWriter) flush(last bool) error {
	if s.number == 1<<32-1 {
		return errors.New("seal: object too large")
	}
	s.sealed = s.aead.Seal(s.sealed[:0], chunkNonce(s.number, last), s.plain, nil)
	s.number++
	s.plain = s.plain[:0]
	_, err := s.w.Write(s.sealed)
	return err
}

// openReader decrypts what sealWriter wrote. Only authenticated bytes are
// returned; io.EOF means that the stream was complete.
type openReader struct {
	r      *bufio.Reader
	aead   cipher.AEAD
	name   string
	number uint32
	sealed []byte
	buf    []byte // holds plain
	plain  []byte // not yet given out
	done   bool
}

func newOpenReader(r io.Reader, keys Keys, name string) (*openReader, error) {
	header := make([]byte, len(sealMagic)+saltBytes)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, readError(name, "header", err)
	}
	if string(header[:len(sealMagic)]) != sealMagic {
		return nil, &storage.CorruptError{Key: name, Offset: 0, Field: "magic", Reason: "not a sealed object"}
	}
	return &openReader{
		r: bufio.NewReaderSize(r, chunkBytes+tagBytes+1), aead: keys.sealer(header[len(sealMagic):], name), name: name,
		sealed: make([]byte, chunkBytes+tagBytes), buf: make([]byte, 0, chunkBytes),
	}, nil
}

func (o *openReader) Read(p []byte) (int, error) {
	for len(o.plain) == 0 {
		if o.done {
			return 0, io.EOF
		}
		if err := o.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, o.plain)
	o.plain = o.plain[n:]
	return n, nil
}

func (o *openReader) next() error {
	n, err := io.ReadFull(o.r, o.sealed)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return readError(o.name, "chunk", err)
	}
	last := err != nil
	if !last {
		_, err := o.r.Peek(1)
		if err != nil && !errors.Is(err, io.EOF) {
			return readError(o.name, "chunk", err)
		}
		last = err != nil
	}
	if o.plain, err = o.aead.Open(o.buf, chunkNonce(o.number, last), o.sealed[:n], nil); err != nil {
		return &storage.CorruptError{Key: o.name, Offset: int64(o.number), Field: "chunk", Reason: "not sealed by this installation for this name, or cut off"}
	}
	o.number++
	o.done = last
	return nil
}

func readError(name, field string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &storage.CorruptError{Key: name, Offset: -1, Field: field, Reason: "cut off"}
	}
	return fmt.Errorf("read %q: %w", name, err)
}
