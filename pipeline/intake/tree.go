package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"
)

const maxDepth = 8

// object is a JSON object; the other values are []any, string, json.Number,
// bool and nil.
type object map[string]any

// memberName is what a member's name must look like to be repeated in an answer.
var memberName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// parse reads one JSON object. encoding/json takes the last of several equal
// members, ignores case, and replaces what is not Unicode; here all of it is
// refused.
func parse(body []byte) (object, *Problem) {
	if !utf8.Valid(body) {
		return nil, malformed("", "the body is not valid UTF-8")
	}
	if at := loneSurrogate(body); at >= 0 {
		return nil, malformed("", "half of a surrogate pair at byte %d", at)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, p := readValue(d, "", 0)
	if p != nil {
		return nil, p
	}
	root, ok := v.(object)
	if !ok {
		return nil, malformed("", "the body is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, malformed("", "more than one JSON value, at byte %d", d.InputOffset())
	}
	return root, nil
}

func readValue(d *json.Decoder, path string, depth int) (any, *Problem) {
	if depth > maxDepth {
		return nil, malformed(path, "nested too deep")
	}
	t, err := d.Token()
	if err != nil {
		return nil, syntax(d, err)
	}
	switch t {
	case json.Delim('{'):
		return readObject(d, path, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, p := readValue(d, path+"["+strconv.Itoa(len(list))+"]", depth+1)
			if p != nil {
				return nil, p
			}
			list = append(list, v)
		}
		_, err := d.Token()
		if err != nil {
			return nil, syntax(d, err)
		}
		return list, nil
	}
	return t, nil
}

func readObject(d *json.Decoder, path string, depth int) (any, *Problem) {
	o := object{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, syntax(d, err)
		}
		name, ok := t.(string)
		if !ok {
			return nil, malformed(path, "a member has no name")
		}
		field := member(path, name)
		if _, ok := o[name]; ok {
			return nil, problem(http.StatusBadRequest, "duplicate_member", field, "the member comes twice")
		}
		v, p := readValue(d, field, depth+1)
		if p != nil {
			return nil, p
		}
		o[name] = v
	}
	if _, err := d.Token(); err != nil {
		return nil, syntax(d, err)
	}
	return o, nil
}

// member names a member of the object at path. A name that does not look like
// one may be somebody's, and is not repeated.
func member(path, name string) string {
	if !memberName.MatchString(name) {
		return path
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func syntax(d *json.Decoder, err error) *Problem {
	offset := d.InputOffset()
	if s := (*json.SyntaxError)(nil); errors.As(err, &s) {
		offset = s.Offset
	}
	return malformed("", "invalid JSON at byte %d", offset)
}

// loneSurrogate returns the offset of an escape \uD800 to \uDFFF that is not
// part of a pair, or -1.
func loneSurrogate(body []byte) int {
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		high, ok := unicodeEscape(body[i:])
		if !ok {
			i++ // any other escape is two bytes
			continue
		}
		if high >= 0xDC00 && high <= 0xDFFF {
			return i
		}
		if high >= 0xD800 && high <= 0xDBFF {
			low, ok := unicodeEscape(body[i+6:])
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return i
			}
			i += 6
		}
		i += 5
	}
	return -1
}

func unicodeEscape(p []byte) (uint64, bool) {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(p[2:6]), 16, 16)
	return v, err == nil
}

// canonical returns the form by which bodies are compared: members in order of
// their names, no white space.
func canonical(v any) []byte {
	var b bytes.Buffer
	writeCanonical(&b, v)
	return b.Bytes()
}

func writeCanonical(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case object:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		b.WriteByte('{')
		for i, name := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, name)
			b.WriteByte(':')
			writeCanonical(b, v[name])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, e)
		}
		b.WriteByte(']')
	default:
		p, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("intake: internal error: %T in a JSON tree", v))
		}
		b.Write(p)
	}
}
