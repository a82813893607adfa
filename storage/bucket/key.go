package bucket

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKeyBytes bounds a key together with the bucket's root prefix.
const MaxKeyBytes = 1024

// tempPrefix begins the name of every temporary file of a directory.
const tempPrefix = ".delenda-tmp-"

// ErrKey matches every key that a store refuses because it cannot carry it.
var ErrKey = errors.New("key refused")

// CheckKey returns an error that is ErrKey unless key can name an object on
// every kind of store. Single stores refuse more.
func CheckKey(key string) error {
	if key == "" {
		return RefuseKey("is empty")
	}
	if strings.HasSuffix(key, "/") {
		return RefuseKey("ends with /")
	}
	return checkPath(key)
}

// checkPrefix is CheckKey for the argument of List: it may be empty, end
// inside a segment or end with '/'.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return checkPath(strings.TrimSuffix(prefix, "/"))
}

func checkPath(key string) error {
	if len(key) > MaxKeyBytes {
		return RefuseKey("is longer than %d bytes", MaxKeyBytes)
	}
	if !utf8.ValidString(key) {
		return RefuseKey("is not UTF-8")
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] == 0x7f {
			return RefuseKey("holds a control character")
		}
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch {
		case segment == "":
			return RefuseKey("holds an empty segment")
		case segment == "." || segment == "..":
			return RefuseKey("holds the segment %s", segment)
		case strings.HasPrefix(segment, tempPrefix):
			return RefuseKey("holds the reserved name %s", tempPrefix)
		}
	}
	return nil
}

// RefuseKey returns an error that is ErrKey: the key "it ..." what format says,
// which never repeats the key.
func RefuseKey(format string, args ...any) error {
	return fmt.Errorf("%w: it %s", ErrKey, fmt.Sprintf(format, args...))
}
