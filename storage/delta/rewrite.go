package delta

import (
	"encoding/json"
	"strconv"

	"delenda/storage/delta/log"
)

// nullCount reads a column's null count.
func nullCount(stats *log.Stats, physical []string) (int64, bool) {
	raw := log.Lookup(stats.NullCount, physical)
	if raw == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// bounds are the minimum and maximum of a column, nil where it has no value.
type bounds struct{ min, max json.RawMessage }

// restate writes the statistics of a file that gets another deletion vector:
// the physical row count, bounds that are no longer tight, none for the columns
// in drop except those in keep. hidden is how many rows the file hid before.
func restate(old *log.Stats, physical, hidden int64, drop [][]string, keep map[string]bounds) (string, error) {
	loose := false
	s := log.Stats{NumRecords: &physical, TightBounds: &loose, MinValues: old.MinValues, MaxValues: old.MaxValues, NullCount: old.NullCount}
	for _, path := range drop {
		b := keep[pathKey(path)]
		s.MinValues = replaceValue(s.MinValues, path, b.min)
		s.MaxValues = replaceValue(s.MaxValues, path, b.max)
	}
	if hidden > 0 && (old.TightBounds == nil || *old.TightBounds) {
		s.NullCount = raiseNulls(s.NullCount, physical-hidden, physical)
	}
	p, err := json.Marshal(s)
	return string(p), err
}

func pathKey(path []string) string {
	p, _ := json.Marshal(path) // strings always marshal
	return string(p)
}

// replaceValue returns m with the entry at path set to value, or without it if
// value is nil. m is not changed.
func replaceValue(m map[string]json.RawMessage, path []string, value json.RawMessage) map[string]json.RawMessage {
	raw, ok := m[path[0]]
	if !ok && value == nil {
		return m
	}
	out := make(map[string]json.RawMessage, len(m))
	for k, v := range m {
		if k != path[0] {
			out[k] = v
		}
	}
	if len(path) > 1 {
		var inner map[string]json.RawMessage
		if ok && json.Unmarshal(raw, &inner) != nil {
			return out // not an object: says nothing about the column
		}
		inner = replaceValue(inner, path[1:], value)
		if len(inner) == 0 {
			return out
		}
		value, _ = json.Marshal(inner) // raw JSON always marshals
	}
	if value != nil {
		out[path[0]] = value
	}
	return out
}

// raiseNulls turns "all live rows are null" into "all rows are null", which is
// what a null count means once bounds are not tight.
func raiseNulls(m map[string]json.RawMessage, from, to int64) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(m))
	for k, v := range m {
		var inner map[string]json.RawMessage
		switch n, err := strconv.ParseInt(string(v), 10, 64); {
		case err == nil && n == from && n > 0:
			v = json.RawMessage(strconv.FormatInt(to, 10))
		case err != nil && json.Unmarshal(v, &inner) == nil && inner != nil:
			v, _ = json.Marshal(raiseNulls(inner, from, to)) // raw JSON always marshals
		}
		out[k] = v
	}
	return out
}
