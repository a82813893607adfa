package match

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"delenda/storage"
)

// MatchPartition returns the indexes of the subjects that a file's partition
// value matches, ascending. value is as in an add action's partitionValues:
// nil and the empty string are null and match nothing. Timestamps are read in
// both spellings of the protocol; one without a zone is taken as UTC, as the
// Delta kernel does. A value that is not of the column's type is
// storage.ErrCorrupt: nothing can be said about the file's rows.
func (k *ColumnKeys) MatchPartition(value *string) ([]int, error) {
	if value == nil || *value == "" {
		return nil, nil
	}
	v, err := parsePartition(k.Type, *value)
	if err != nil {
		return nil, fmt.Errorf("partition column %q: %w", k.Name, &storage.CorruptError{
			Offset: -1, Field: "partitionValues", Reason: "not a " + k.Type.String(),
		})
	}
	var id int
	var found bool
	if k.Type.Kind() == KindInt {
		id, found = k.FindInt(v.n)
	} else {
		id, found = k.FindBytes(v.b)
	}
	if !found {
		return nil, nil
	}
	return k.subjects[id], nil
}

// parsePartition reads partition value serialization, which other writers
// produced: it is lenient where a value has one meaning only.
func parsePartition(t Type, text string) (value, error) {
	switch t.Base {
	case Byte, Short, Integer, Long:
		n, err := strconv.ParseInt(text, 10, t.bits())
		return value{n: n}, err
	case Decimal:
		n, ok := parseExact(text, t.Scale)
		if !ok || !fits(n, t.Precision) {
			return value{}, errForm
		}
		return decimalValue(t, n), nil
	case Timestamp, TimestampNTZ:
		if len(text) <= 10 {
			n, err := parseDate(text)
			return value{n: n * 86400_000_000}, err
		}
		body, _ := strings.CutSuffix(text, "Z")
		n, err := parseTimestamp(body, text[10])
		if text[10] != ' ' && text[10] != 'T' {
			err = errForm
		}
		return value{n: n}, err
	case Binary:
		if !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) {
			return value{}, errForm // bytes that are no text were lost when it was written
		}
		return value{b: []byte(text)}, nil
	case String:
		return value{b: []byte(text)}, nil
	default:
		return parseKey(t, text)
	}
}

// parseExact reads a decimal number, with exponent or without, as an unscaled
// value of the given scale, and whether it is one exactly.
func parseExact(text string, scale int) (*big.Int, bool) {
	r, ok := parseNumber(text)
	if !ok {
		return nil, false
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
	if !r.IsInt() {
		return nil, false
	}
	return r.Num(), true
}

// parseNumber reads a JSON number of sane size.
func parseNumber(text string) (*big.Rat, bool) {
	const maxExponent = 400 // beyond any double
	if len(text) > 64 || strings.ContainsAny(text, "/xXpPbBoO_ ") {
		return nil, false
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.Atoi(strings.TrimPrefix(text[i+1:], "+"))
		if err != nil || e > maxExponent || e < -maxExponent {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}
