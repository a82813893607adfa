package match

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// OverlapsStats tells whether a file whose Delta statistics give these bounds
// may hold a row that matches. min and max are the column's entries of
// minValues and maxValues, nil when missing; a bound that is missing, null or
// not understood does not bound. It is sound for what writers do to bounds:
// strings cut to a prefix, with or without a padding character behind the
// maximum, in UTF-8 or UTF-16 order; timestamps cut to milliseconds; decimals
// that went through a double.
func (k *ColumnKeys) OverlapsStats(min, max json.RawMessage) bool {
	switch k.Type.Kind() {
	case KindInt:
		lo, hi := int64(minInt64), int64(maxInt64)
		if n, ok := k.boundInt(min, false); ok {
			lo = n
		}
		if n, ok := k.boundInt(max, true); ok {
			hi = n
		}
		return k.OverlapsInts(lo, hi)
	case KindBytes:
		if k.Type.Base != String {
			return k.Len() > 0
		}
		var lo, hi *string
		if s, ok := jsonString(min); ok {
			lo = &s
		}
		if s, ok := jsonString(max); ok {
			hi = &s
		}
		return k.overlapsStrings(lo, hi)
	default:
		lo, _ := decimalBound(min, k.Type.Scale, false)
		hi, _ := decimalBound(max, k.Type.Scale, true)
		return slices.ContainsFunc(k.values, func(v []byte) bool {
			n := unwide(v)
			return (lo == nil || n.Cmp(lo) >= 0) && (hi == nil || n.Cmp(hi) <= 0)
		})
	}
}

const (
	minInt64 = -1 << 63
	maxInt64 = 1<<63 - 1
)

// OverlapsInts tells whether a key of KindInt lies in [min, max].
func (k *ColumnKeys) OverlapsInts(min, max int64) bool {
	i, _ := slices.BinarySearch(k.ints, min)
	return i < len(k.ints) && k.ints[i] <= max
}

// OverlapsBytes tells whether a key of KindBytes may lie between two bounds
// in byte order, either of which may have been cut to a prefix.
func (k *ColumnKeys) OverlapsBytes(min, max []byte) bool {
	i, _ := slices.BinarySearchFunc(k.values, min, bytes.Compare)
	return i < len(k.values) && (bytes.Compare(k.values[i], max) <= 0 || bytes.HasPrefix(k.values[i], max))
}

// boundInt reads a bound of KindInt, rounded outwards.
func (k *ColumnKeys) boundInt(raw json.RawMessage, upper bool) (int64, bool) {
	text := string(bytes.TrimSpace(raw))
	switch k.Type.Base {
	case Boolean:
		switch text {
		case "true":
			return 1, true
		case "false":
			return 0, true
		}
		return 0, false
	case Date:
		s, ok := jsonString(raw)
		if !ok {
			return 0, false
		}
		n, err := parseDate(s)
		return n, err == nil
	case Timestamp, TimestampNTZ:
		s, ok := jsonString(raw)
		if !ok {
			return 0, false
		}
		return k.boundTimestamp(s, upper)
	default:
		n, ok := decimalBound(raw, k.Type.Scale, upper)
		if !ok || !n.IsInt64() {
			return 0, false
		}
		return n.Int64(), true
	}
}

// boundTimestamp reads a bound that may have been cut to milliseconds, in
// either direction.
func (k *ColumnKeys) boundTimestamp(text string, upper bool) (int64, bool) {
	const slack = 1_000 // microseconds
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		if k.Type.Base == Timestamp {
			return 0, false // without a zone it is in the writer's, which is unknown
		}
		// A file that was written before the column was widened holds dates.
		if t, err = time.Parse("2006-01-02T15:04:05", text); err != nil {
			if t, err = time.Parse("2006-01-02", text); err != nil {
				return 0, false
			}
		}
	}
	if upper {
		return t.UnixMicro() + slack, true
	}
	return t.UnixMicro() - slack, true
}

// decimalBound reads a number as an unscaled value, rounded outwards. Numbers
// of more digits than a double holds may have been through one: they are
// widened by its precision.
func decimalBound(raw json.RawMessage, scale int, upper bool) (*big.Int, bool) {
	text := strings.Trim(string(bytes.TrimSpace(raw)), `"`)
	r, ok := parseNumber(text)
	if !ok {
		return nil, false
	}
	if digits := strings.Count(text, "") - 1; digits > 15 || strings.ContainsAny(text, "eE") {
		slack := new(big.Rat).Abs(r)
		slack.Mul(slack, big.NewRat(1, 1<<51))
		if upper {
			r.Add(r, slack)
		} else {
			r.Sub(r, slack)
		}
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int)) // floors: the denominator is positive
	if upper && m.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return q, true
}

func jsonString(raw json.RawMessage) (string, bool) {
	var s *string
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

// overlapsStrings tells whether a key may lie between two bounds of which the
// order, the cut and the padding are the writer's choice.
func (k *ColumnKeys) overlapsStrings(min, max *string) bool {
	var lo, hi, prefix string
	if min != nil {
		lo = beforeReplacement(*min)
	}
	if max != nil {
		hi = beforeReplacement(*max)
		prefix = strings.TrimRight(hi, maxPadding)
	}
	if k.basic {
		// Both orders agree about such keys, and those that only begin with
		// the cut maximum come next behind it.
		i, _ := slices.BinarySearchFunc(k.values, lo, func(v []byte, lo string) int { return strings.Compare(string(v), lo) })
		return i < len(k.values) && (max == nil || string(k.values[i]) <= hi || strings.HasPrefix(string(k.values[i]), prefix))
	}
	return slices.ContainsFunc(k.values, func(v []byte) bool {
		s := string(v)
		if !utf8.ValidString(s) {
			return true
		}
		if s < lo && lessUTF16(s, lo) {
			return false
		}
		return max == nil || s <= hi || !lessUTF16(hi, s) || strings.HasPrefix(s, prefix)
	})
}

// beforeReplacement cuts a bound at the first replacement character: it is
// either padding or stands for bytes that are no UTF-8 and sort anywhere.
func beforeReplacement(bound string) string {
	before, _, _ := strings.Cut(bound, string(utf8.RuneError))
	return before
}

// isBasic tells whether v is UTF-8 without a character from U+E000 on.
func isBasic(v []byte) bool {
	return utf8.Valid(v) && bytes.IndexFunc(v, func(r rune) bool { return r >= 0xE000 }) < 0
}

// maxPadding are the characters that writers put behind a cut maximum.
const maxPadding = "\u007f\uffff\U0010ffff"

// lessUTF16 compares by UTF-16 code units: there supplementary characters sort
// below U+E000.
func lessUTF16(a, b string) bool {
	for a != "" && b != "" {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x != y {
			high := func(r rune) bool { return r >= 0x10000 }
			if high(x) != high(y) {
				other := max(min(x, y), 0) // the one in the basic plane
				return high(x) == (other >= 0xE000)
			}
			return x < y
		}
		a, b = a[n:], b[m:]
	}
	return a == "" && b != ""
}
