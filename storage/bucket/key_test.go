package bucket

import (
	"errors"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckKey(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key string
		ok  bool
	}{
		"a segment":                          {"a", true},
		"a longest key":                      {strings.Repeat("k", MaxKeyBytes), true},
		"dots inside a segment":              {"..a/b../.c", true},
		"percent, plus, equals, unicode":     {"p=%25+/ü", true},
		"a tilde and a backslash":            {`~\`, true},
		"an empty key":                       {"", false},
		"a key that is too long":             {strings.Repeat("k", MaxKeyBytes+1), false},
		"a leading slash":                    {"/a", false},
		"a trailing slash":                   {"a/", false},
		"an empty segment":                   {"a//b", false},
		"a dot":                              {"a/./b", false},
		"a way up":                           {"a/../b", false},
		"a NUL":                              {"a\x00", false},
		"bytes that are no UTF-8":            {"a\xff", false},
		"the name of a temporary file":       {"a/.delenda-tmp-1", false},
		"a directory named like a temporary": {".delenda-tmp-1/a", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckKey(test.key)
			if (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
			if err != nil && !errors.Is(err, ErrKey) {
				t.Errorf("%v is not ErrKey", err)
			}
		})
	}
}

// FuzzCheckKey: a key that is taken is a clean relative path, and refusals do
// not repeat it.
func FuzzCheckKey(f *testing.F) {
	for _, seed := range []string{"", "a/b", "../x", "a//b", "/", "ts=2024 12%3A00/x", "\x00", "a/.delenda-tmp-0/b", "é\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		err := CheckKey(key)
		if err != nil {
			if !errors.Is(err, ErrKey) {
				t.Errorf("%v is not ErrKey", err)
			}
			if len(key) > 20 && strings.Contains(err.Error(), key) {
				t.Errorf("the refusal repeats the key")
			}
			return
		}
		if path.Clean("/"+key) != "/"+key || !utf8.ValidString(key) || len(key) > MaxKeyBytes || strings.ContainsRune(key, 0) {
			t.Errorf("%q was taken", key)
		}
		if err := checkPrefix(key + "/"); err != nil {
			t.Errorf("%q is a key, but not a prefix: %v", key, err)
		}
	})
}

// FuzzNormalize: a normal form is its own normal form, lies in itself, and
// opens like the URL it was made from.
func FuzzNormalize(f *testing.F) {
	for _, seed := range []string{
		"/a/../b", "file:///a//b/", "s3://b/p//q?region=x&endpoint=http%3A%2F%2Fh", "gs://b", "azblob://c/a%20b/%25",
		"mem://n/p/", "s3a://b", "s3://u:p@b/", "file://host/x", "a b#c?d", "s3://b/%2e%2e/x", "mem://",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		once, err := Normalize(raw)
		if err != nil {
			return
		}
		twice, err := Normalize(once)
		if err != nil || once != twice {
			t.Fatalf("%q, then %q, %v", once, twice, err)
		}
		a, errA := parse(raw)
		b, errB := parse(once)
		if errA != nil || errB != nil || a.scheme != b.scheme || a.host != b.host || a.path != b.path || a.query.Encode() != b.query.Encode() {
			t.Errorf("%q opens %+v, its normal form %+v", raw, a, b)
		}
		if !Overlap(raw, once) {
			t.Errorf("%q does not overlap itself", raw)
		}
	})
}
