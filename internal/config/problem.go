package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration. It never carries a
// value.
type Problem struct {
	File   string // path as given, or "environment"
	Line   int    // 1-based; 0 when the problem has no line
	Key    string // dotted path, such as tables[1].url; may be empty
	Reason string
}

// String returns "file:line: key: reason".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Reason)
	return b.String()
}

// Error is everything that is wrong with a configuration, in order of lines.
type Error struct{ Problems []Problem }

// Error returns one line per problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// position is where a key stands.
type position struct {
	file string
	line int
}

// problems collects what is wrong.
type problems struct{ list []Problem }

func (ps *problems) add(at position, key, format string, args ...any) {
	ps.list = append(ps.list, Problem{at.file, at.line, key, fmt.Sprintf(format, args...)})
}

func (ps *problems) err() error {
	if len(ps.list) == 0 {
		return nil
	}
	slices.SortStableFunc(ps.list, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return &Error{ps.list}
}

// index returns the key of an element of a list.
func index(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }
