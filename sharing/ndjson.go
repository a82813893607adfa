package sharing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ContentTypeNDJSON is the content type of an answer of lines.
const ContentTypeNDJSON = "application/x-ndjson; charset=utf-8"

// DefaultMaxLineBytes bounds a line unless told otherwise. A schema, the
// statistics of a wide file and an inline deletion vector fit many times over.
const DefaultMaxLineBytes = 64 << 20

// LineError says which line of an answer could not be read, and which member
// of it. It never carries content of the line.
type LineError struct {
	Line   int64  // from 1
	Field  string // dotted path, "" if the line as a whole is meant
	Reason string
}

// Error returns line, field and reason.
func (e *LineError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Field, e.Reason)
}

// Decoder reads an answer line by line. It is not safe for concurrent use.
type Decoder struct {
	r       *bufio.Reader
	max     int
	line    int64
	skipped int64
	buf     []byte
}

// NewDecoder reads from r and refuses lines of more than maxLineBytes;
// maxLineBytes <= 0 means DefaultMaxLineBytes.
func NewDecoder(r io.Reader, maxLineBytes int) *Decoder {
	if maxLineBytes <= 0 {
		maxLineBytes = DefaultMaxLineBytes
	}
	return &Decoder{r: bufio.NewReaderSize(r, 64<<10), max: maxLineBytes}
}

// Next returns the next line that has a known member, and io.EOF after the
// last. Blank lines and lines of an unknown kind are skipped, members that are
// not known within a line are ignored. What is not JSON, or has two known
// members, is a *LineError; an error of the reader is returned as it is,
// wrapped with the number of the line.
func (d *Decoder) Next() (Line, error) {
	for {
		text, err := d.read()
		if err != nil {
			return Line{}, err
		}
		if len(text) == 0 {
			continue
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return Line{}, lineError(d.line, err)
		}
		switch line.members() {
		case 0:
			d.skipped++
		case 1:
			return line, nil
		default:
			return Line{}, &LineError{Line: d.line, Reason: "more than one of protocol, metaData, file and endStreamAction"}
		}
	}
}

// Line returns the number of the line that Next returned last, from 1.
func (d *Decoder) Line() int64 { return d.line }

// Skipped returns how many lines of an unknown kind were passed over.
func (d *Decoder) Skipped() int64 { return d.skipped }

// read returns the next line without its end; the slice is valid until the
// next call. A last line without an end counts.
func (d *Decoder) read() ([]byte, error) {
	d.buf = d.buf[:0]
	d.line++
	for {
		part, err := d.r.ReadSlice('\n')
		if len(d.buf)+len(part) > d.max {
			return nil, &LineError{Line: d.line, Reason: fmt.Sprintf("longer than %d bytes", d.max)}
		}
		d.buf = append(d.buf, part...)
		switch {
		case err == nil:
			return bytes.TrimSpace(d.buf), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if text := bytes.TrimSpace(d.buf); len(text) > 0 {
				return text, nil
			}
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("line %d: %w", d.line, err)
		}
	}
}

func (l *Line) members() int {
	n := 0
	for _, set := range []bool{l.Protocol != nil, l.MetaData != nil, l.File != nil, l.EndStream != nil} {
		if set {
			n++
		}
	}
	return n
}

func lineError(line int64, err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return &LineError{Line: line, Field: wrong.Field, Reason: "wrong type"}
	}
	return &LineError{Line: line, Reason: describe(err)}
}

// describe says what is wrong with JSON without a part of it.
func describe(err error) string {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return wrong.Field + " has the wrong type"
	case errors.As(err, &wrong):
		return "not a JSON object of the right form"
	case errors.As(err, &syntax):
		return fmt.Sprintf("not JSON at byte %d", syntax.Offset)
	default:
		return "not JSON of the right form"
	}
}

// Encoder writes an answer line by line, each ended by '\n', URLs as they are.
// It is not safe for concurrent use and does not buffer: give it a writer that
// does.
type Encoder struct{ enc *json.Encoder }

// NewEncoder writes to w.
func NewEncoder(w io.Writer) *Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &Encoder{enc}
}

// Encode writes one line. A line without exactly one member is an error and
// writes nothing.
func (e *Encoder) Encode(line Line) error {
	if n := line.members(); n != 1 {
		return fmt.Errorf("encode line: %d members set, want one", n)
	}
	if err := e.enc.Encode(line); err != nil {
		return fmt.Errorf("encode line: %w", err)
	}
	return nil
}
