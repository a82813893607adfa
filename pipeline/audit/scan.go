package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"unicode/utf16"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/klauspost/compress/zstd"

	"delenda/storage"
)

// Finding is a place where an identity lies.
type Finding struct {
	Where  string // file or object, and what inside it
	Needle int    // index of the identity
	Form   string // raw, hex, base64, JSON escapes, URL escapes, UTF-16
}

// String names the place, and the identity by its index.
func (f Finding) String() string {
	return fmt.Sprintf("identity %d as %s in %s", f.Needle, f.Form, f.Where)
}

// Scanner searches bytes for identities in the forms in which software writes
// text: as it is, in upper, lower case, hexadecimal, base64 at any alignment,
// JSON and URL escapes, UTF-16, and all of these again inside gzip and zstd
// frames and the columns of Parquet files. What looks like one of these and
// cannot be read, or not whole, is an error: it is never taken for clean. What is
// encrypted otherwise cannot be searched, and a form of a few bytes would be
// found everywhere: identities shorter than six bytes are refused.
type Scanner struct {
	forms []form
	found []Finding
	bytes int64
}

type form struct {
	needle int
	name   string
	text   []byte
}

const (
	minNeedle  = 6
	maxInflate = 64 << 20
	maxFrames  = 10_000 // of one object
)

// NewScanner returns a scanner for identities.
func NewScanner(identities ...storage.Secret) (*Scanner, error) {
	s := &Scanner{}
	for i, id := range identities {
		v := id.Reveal()
		if len(v) < minNeedle {
			return nil, fmt.Errorf("scan: identity %d has less than %d bytes", i, minNeedle)
		}
		for _, text := range []string{v, strings.ToLower(v), strings.ToUpper(v)} {
			s.add(i, text)
		}
	}
	return s, nil
}

func (s *Scanner) add(needle int, v string) {
	put := func(name string, text string) {
		for _, f := range s.forms {
			if string(f.text) == text {
				return
			}
		}
		s.forms = append(s.forms, form{needle, name, []byte(text)})
	}
	put("raw", v)
	put("hex", hex.EncodeToString([]byte(v)))
	put("hex", strings.ToUpper(hex.EncodeToString([]byte(v))))
	for shift := range 3 {
		put("base64", inBase64(base64.RawStdEncoding, v, shift))
		put("base64", inBase64(base64.RawURLEncoding, v, shift))
	}
	quoted, err := json.Marshal(v)
	if err == nil {
		put("JSON escapes", string(quoted[1:len(quoted)-1]))
	}
	var escaped strings.Builder
	for _, r := range v {
		if r < 0x80 {
			escaped.WriteRune(r)
		} else if r < 0x10000 {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		}
	}
	var wide []byte
	for _, unit := range utf16.Encode([]rune(v)) {
		wide = binary.LittleEndian.AppendUint16(wide, unit)
	}
	put("JSON escapes", escaped.String())
	put("URL escapes", url.QueryEscape(v))
	put("URL escapes", url.PathEscape(v))
	put("UTF-16", string(wide))
}

// inBase64 is what base64 makes of v when shift bytes came before it, without
// the digits that depend on its neighbours.
func inBase64(e *base64.Encoding, v string, shift int) string {
	full := e.EncodeToString(append(make([]byte, shift), v...))
	start := (shift*8 + 5) / 6
	end := (shift + len(v)) * 8 / 6
	return full[start:end]
}

// Bytes searches p. An error says that some of it could not be searched; the
// rest was.
func (s *Scanner) Bytes(ctx context.Context, where string, p []byte) error {
	s.bytes += int64(len(p))
	s.look(where, p)
	frames := errors.Join(
		s.frames(where+" zstd", p, []byte{0x28, 0xb5, 0x2f, 0xfd}, func(r io.Reader) (io.Reader, error) {
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxInflate))
		}),
		s.frames(where+" gzip", p, []byte{0x1f, 0x8b, 0x08}, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }),
	)
	if !isParquet(p) {
		return frames
	}
	// Of a Parquet file the columns are what counts: its pages are frames too.
	err := eachRecord(ctx, where, p, func(rec arrow.RecordBatch) error {
		return guard(where, func() error {
			s.record(where, rec)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("search columns: %w", err)
	}
	return nil
}

// isParquet tells a Parquet file, whole, torn or encrypted.
func isParquet(p []byte) bool {
	for _, magic := range []string{"PAR1", "PARE"} {
		if bytes.HasPrefix(p, []byte(magic)) || bytes.HasSuffix(p, []byte(magic)) {
			return true
		}
	}
	return false
}

// frames searches what is behind every magic number of a compression.
func (s *Scanner) frames(where string, p, magic []byte, open func(io.Reader) (io.Reader, error)) error {
	var errs error
	at := 0
	for range maxFrames {
		i := bytes.Index(p[at:], magic)
		if i < 0 {
			return errs
		}
		at += i + len(magic)
		if err := s.inflate(where, p[at-len(magic):], open); err != nil && errs == nil {
			errs = err
		}
	}
	if bytes.Contains(p[at:], magic) {
		return errors.Join(errs, fmt.Errorf("search %s: more than %d frames", where, maxFrames))
	}
	return errs
}

func (s *Scanner) record(where string, rec arrow.RecordBatch) {
	for i, c := range rec.Columns() {
		for row := range c.Len() {
			if !c.IsNull(row) {
				s.look(where+" column "+rec.ColumnName(i), []byte(c.ValueStr(row)))
			}
		}
	}
}

// inflate searches what a decompressor makes of p, as far as it comes: a magic
// number is found in other bytes too, by chance. What is too large for it is an
// error.
func (s *Scanner) inflate(where string, p []byte, open func(io.Reader) (io.Reader, error)) error {
	r, err := open(bytes.NewReader(p))
	if err != nil {
		return nil //nolint:nilerr // no frame
	}
	out, err := io.ReadAll(io.LimitReader(r, maxInflate+1))
	if c, ok := r.(*zstd.Decoder); ok {
		c.Close()
	}
	s.look(where, out)
	if len(out) > maxInflate || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return fmt.Errorf("search %s: unpacks to more than %d bytes", where, maxInflate)
	}
	return nil
}

func (s *Scanner) look(where string, p []byte) {
	for _, f := range s.forms {
		if bytes.Contains(p, f.text) {
			s.found = append(s.found, Finding{where, f.needle, f.name})
		}
	}
}

// Dir searches every file of a file system, names included. skip may be nil.
// Files that could not be searched are an error, once all others are.
func (s *Scanner) Dir(ctx context.Context, name string, fsys fs.FS, skip func(path string) bool) error {
	var unsearched []error
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if skip != nil && skip(path) {
			return nil
		}
		p, err := fs.ReadFile(fsys, path)
		if err != nil {
			return err
		}
		where := name + "/" + path
		s.look(where+" name", []byte(path))
		if err := s.Bytes(ctx, where, p); err != nil {
			unsearched = append(unsearched, err)
		}
		return ctx.Err()
	})
	return errors.Join(append(unsearched, err)...)
}

// Bucket searches every object of a bucket, keys included. skip may be nil.
// Objects that could not be searched are an error, once all others are.
func (s *Scanner) Bucket(ctx context.Context, name string, b storage.Bucket, skip func(key string) bool) error {
	var unsearched []error
	for info, err := range b.List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("scan %s: %w", name, err)
		}
		if skip != nil && skip(info.Key) {
			continue
		}
		p, err := storage.ReadObject(ctx, b, info.Key, maxDataFile)
		if err != nil {
			return fmt.Errorf("scan %s: %w", name, err)
		}
		where := name + "/" + info.Key
		s.look(where+" key", []byte(info.Key))
		if err := s.Bytes(ctx, where, p); err != nil {
			unsearched = append(unsearched, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errors.Join(unsearched...)
}

// Found returns the findings so far.
func (s *Scanner) Found() []Finding { return s.found }

// Searched returns how many bytes were searched: a scan of nothing finds nothing.
func (s *Scanner) Searched() int64 { return s.bytes }
