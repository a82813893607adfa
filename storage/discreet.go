package storage

import (
	"errors"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Discreet returns err with the data file that key names called by its name
// alone: the directories of a partitioned table hold partition values, which may
// be what identifies a person. errors.Is and errors.As find what they found
// before; a *CorruptError is found with the short key. A nil error stays nil.
func Discreet(err error, key string) error {
	dir, name := path.Split(key)
	if err == nil || dir == "" {
		return err
	}
	text := err.Error()
	for _, spell := range spellings {
		text = strings.ReplaceAll(text, spell(key), spell(name))
	}
	for segment := range strings.SplitSeq(dir, "/") { // whatever names a part of it
		for _, spell := range spellings {
			if strings.Contains(segment, "=") {
				text = strings.ReplaceAll(text, spell(segment), "…")
			}
		}
	}
	return &discreet{err: err, text: text, key: key, name: name}
}

// spellings are how texts have keys.
var spellings = []func(key string) string{
	func(key string) string { return key }, quoted, escaped,
	func(key string) string { return quoted(escaped(key)) },
	func(key string) string { return escaped(escaped(key)) },
}

func escaped(key string) string { return (&url.URL{Path: key}).EscapedPath() }

func quoted(key string) string {
	q := strconv.Quote(key)
	return q[1 : len(q)-1]
}

// discreet has no Unwrap: who walks the chain to print it finds no key either.
type discreet struct {
	err             error
	text, key, name string
}

func (d *discreet) Error() string        { return d.text }
func (d *discreet) Is(target error) bool { return errors.Is(d.err, target) }

func (d *discreet) As(target any) bool {
	if !errors.As(d.err, target) {
		return false
	}
	if c, ok := target.(**CorruptError); ok && (*c).Key == d.key {
		short := **c
		short.Key = d.name
		*c = &short
	}
	return true
}
