package log

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"delenda/storage"
	"delenda/storage/delta/internal/arrowfile"
)

// maxScale is that of Delta's decimals.
const maxScale = 38

// Stats are the statistics of one data file. The maps hold one entry per
// top-level column by physical name; a struct column's entry is an object.
type Stats struct {
	NumRecords  *int64                     `json:"numRecords,omitempty"` // physical rows
	TightBounds *bool                      `json:"tightBounds,omitempty"`
	MinValues   map[string]json.RawMessage `json:"minValues,omitempty"`
	MaxValues   map[string]json.RawMessage `json:"maxValues,omitempty"`
	NullCount   map[string]json.RawMessage `json:"nullCount,omitempty"`
}

// ParseStats parses the statistics of an add. An empty text is no statistics.
func ParseStats(text string) (*Stats, error) {
	s := &Stats{}
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, corruptJSON("stats", err)
	}
	if s.NumRecords != nil && *s.NumRecords < 0 {
		return nil, &storage.CorruptError{Offset: -1, Field: "stats.numRecords", Reason: "negative"}
	}
	return s, nil
}

// Lookup finds the entry of a column by its physical path; nil if there is none.
func Lookup(m map[string]json.RawMessage, physical []string) json.RawMessage {
	for i, name := range physical {
		raw, ok := m[name]
		if !ok || string(raw) == "null" {
			return nil
		}
		if i == len(physical)-1 {
			return raw
		}
		m = nil
		if json.Unmarshal(raw, &m) != nil {
			return nil
		}
	}
	return nil
}

// statsNode is a node of the tree of stats_parsed: a struct, or a leaf.
type statsNode struct {
	name     string
	children []*statsNode
	leaf     *arrowfile.Column
}

// insert adds a leaf column whose path goes on at depth; n may be nil.
func (n *statsNode) insert(c *arrowfile.Column, depth int) *statsNode {
	if n == nil {
		n = &statsNode{}
	}
	if depth == len(c.Path) {
		n.leaf = c
		return n
	}
	for _, child := range n.children {
		if child.name == c.Path[depth] {
			child.insert(c, depth+1)
			return n
		}
	}
	child := (&statsNode{}).insert(c, depth+1)
	child.name = c.Path[depth]
	n.children = append(n.children, child)
	return n
}

// render writes the row's statistics in the JSON form. Values without one
// (binary, not-a-number, nested lists) are left out, which only makes the
// statistics say less.
func (n *statsNode) render() string {
	p, some := n.append(nil)
	if !some {
		return ""
	}
	return string(p)
}

// append writes the node; false if there is nothing in it.
func (n *statsNode) append(p []byte) ([]byte, bool) {
	if n.leaf != nil {
		return appendValue(p, n.leaf)
	}
	p = append(p, '{')
	some := false
	for _, child := range n.children {
		mark := len(p)
		if some {
			p = append(p, ',')
		}
		p = append(append(p, quote(child.name)...), ':')
		var ok bool
		if p, ok = child.append(p); !ok {
			p = p[:mark]
			continue
		}
		some = true
	}
	return append(p, '}'), some
}

func quote(s string) []byte {
	p, _ := json.Marshal(s) // strings always marshal
	return p
}

func appendValue(p []byte, c *arrowfile.Column) ([]byte, bool) {
	if !c.Valid(0) {
		return p, false
	}
	logical := c.Desc.LogicalType()
	switch {
	case c.Is(parquet.Types.Boolean):
		return strconv.AppendBool(p, c.Bool(0)), true
	case c.Is(parquet.Types.Float, parquet.Types.Double):
		f := c.Float(0)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return p, false
		}
		return strconv.AppendFloat(p, f, 'g', -1, 64), true
	case c.Is(parquet.Types.ByteArray):
		if _, ok := logical.(schema.StringLogicalType); !ok {
			return p, false
		}
		return append(p, quote(c.Text(0))...), utf8.ValidString(c.Text(0))
	case c.Is(parquet.Types.FixedLenByteArray):
		l, ok := logical.(schema.DecimalLogicalType)
		if !ok || l.Scale() > maxScale {
			return p, false
		}
		return appendDecimal(p, fromTwosComplement(c.Text(0)), l.Scale()), true
	}
	switch l := logical.(type) {
	case schema.DecimalLogicalType:
		if l.Scale() > maxScale {
			return p, false
		}
		return appendDecimal(p, big.NewInt(c.Int(0)), l.Scale()), true
	case schema.DateLogicalType:
		return appendTime(p, time.Unix(0, 0).UTC().AddDate(0, 0, int(c.Int(0))), time.DateOnly)
	case schema.TimestampLogicalType:
		layout := "2006-01-02T15:04:05.000000"
		if l.IsAdjustedToUTC() {
			layout += "Z"
		}
		switch l.TimeUnit() {
		case schema.TimeUnitMillis:
			return appendTime(p, time.UnixMilli(c.Int(0)), layout)
		case schema.TimeUnitMicros:
			return appendTime(p, time.UnixMicro(c.Int(0)), layout)
		default:
			return p, false
		}
	case schema.NoLogicalType, schema.IntLogicalType:
		return strconv.AppendInt(p, c.Int(0), 10), true
	default:
		return p, false
	}
}

func appendTime(p []byte, t time.Time, layout string) ([]byte, bool) {
	t = t.UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return p, false
	}
	p = append(p, '"')
	p = t.AppendFormat(p, layout)
	return append(p, '"'), true
}

func fromTwosComplement(s string) *big.Int {
	n := new(big.Int).SetBytes([]byte(s))
	if s != "" && s[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(s))))
	}
	return n
}

// appendDecimal writes an unscaled value with its decimal point.
func appendDecimal(p []byte, n *big.Int, scale int32) []byte {
	digits := new(big.Int).Abs(n).String()
	for len(digits) <= int(scale) {
		digits = "0" + digits
	}
	if n.Sign() < 0 {
		p = append(p, '-')
	}
	if scale <= 0 {
		return append(p, digits...)
	}
	at := len(digits) - int(scale)
	return append(append(append(p, digits[:at]...), '.'), digits[at:]...)
}
