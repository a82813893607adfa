package match

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// value is one key in the representation of its type's Kind.
type value struct {
	n int64  // KindInt
	b []byte // KindBytes, KindWide
}

// errForm is every reason why text is not canonical; callers say column and
// type themselves.
var errForm = errors.New("not in canonical form")

// parseKey reads a key in the canonical form of its type.
func parseKey(t Type, text string) (value, error) {
	switch t.Base {
	case Byte, Short, Integer, Long:
		n, err := parseInt(text, t.bits())
		return value{n: n}, err
	case Decimal:
		return parseDecimal(t, text)
	case Boolean:
		switch text {
		case "true":
			return value{n: 1}, nil
		case "false":
			return value{n: 0}, nil
		}
		return value{}, errForm
	case Date:
		n, err := parseDate(text)
		return value{n: n}, err
	case Timestamp:
		text, ok := strings.CutSuffix(text, "Z")
		if !ok {
			return value{}, errForm
		}
		n, err := parseTimestamp(text, 'T')
		return value{n: n}, err
	case TimestampNTZ:
		n, err := parseTimestamp(text, 'T')
		return value{n: n}, err
	case String:
		return value{b: []byte(text)}, nil
	case Binary:
		if strings.ToLower(text) != text {
			return value{}, errForm
		}
		b, err := hex.DecodeString(text)
		if err != nil {
			return value{}, errForm
		}
		return value{b: b}, nil
	default:
		return value{}, errForm
	}
}

// canonicalDigits tells whether text is ASCII digits without a leading zero.
func canonicalDigits(text string) bool {
	if text == "" || (text[0] == '0' && len(text) > 1) {
		return false
	}
	return allDigits(text)
}

func allDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

func parseInt(text string, bits int) (int64, error) {
	digits, negative := strings.CutPrefix(text, "-")
	if !canonicalDigits(digits) || (negative && digits == "0") {
		return 0, errForm
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return 0, errForm
	}
	return n, nil
}

func parseDecimal(t Type, text string) (value, error) {
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	if !canonicalDigits(whole) || len(whole) > t.Precision || len(fraction) > t.Scale ||
		!allDigits(fraction) || (point && fraction == "") {
		return value{}, errForm
	}
	unscaled, ok := new(big.Int).SetString(whole+fraction+strings.Repeat("0", t.Scale-len(fraction)), 10)
	if !ok || (negative && unscaled.Sign() == 0) {
		return value{}, errForm
	}
	if negative {
		unscaled.Neg(unscaled)
	}
	if !fits(unscaled, t.Precision) {
		return value{}, errForm
	}
	return decimalValue(t, unscaled), nil
}

// fits tells whether |n| < 10^precision.
func fits(n *big.Int, precision int) bool {
	return n.CmpAbs(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)) < 0
}

func decimalValue(t Type, unscaled *big.Int) value {
	if t.Kind() == KindInt {
		return value{n: unscaled.Int64()}
	}
	return value{b: wide(unscaled)}
}

// wide returns n, which fits 128 bits, as KindWide.
func wide(n *big.Int) []byte {
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	return n.FillBytes(make([]byte, 16))
}

// unwide is the inverse of wide.
func unwide(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	return n
}

// WideInt returns n as KindWide.
func WideInt(n int64) [16]byte {
	var b [16]byte
	if n < 0 {
		binary.BigEndian.PutUint64(b[:], ^uint64(0))
	}
	binary.BigEndian.PutUint64(b[8:], uint64(n)) //nolint:gosec // bits as they are
	return b
}

func parseDate(text string) (int64, error) {
	t, err := time.Parse("2006-01-02", text)
	if err != nil || t.Year() < 1 {
		return 0, errForm
	}
	return floorDiv(t.Unix(), 86400), nil
}

// parseTimestamp reads "2006-01-02?15:04:05" with 1 to 6 optional fraction
// digits, where ? is the separator, into microseconds.
func parseTimestamp(text string, separator byte) (int64, error) {
	const layout = "2006-01-02T15:04:05"
	if len(text) < len(layout) || text[10] != separator {
		return 0, errForm
	}
	t, err := time.Parse(layout, text[:10]+"T"+text[11:len(layout)])
	if err != nil || t.Year() < 1 {
		return 0, errForm
	}
	micros := int64(0)
	if fraction := text[len(layout):]; fraction != "" {
		digits, ok := strings.CutPrefix(fraction, ".")
		if !ok || digits == "" || len(digits) > 6 || !allDigits(digits) {
			return 0, errForm
		}
		micros, err = strconv.ParseInt(digits+strings.Repeat("0", 6-len(digits)), 10, 64)
		if err != nil {
			return 0, errForm
		}
	}
	return t.Unix()*1_000_000 + micros, nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
