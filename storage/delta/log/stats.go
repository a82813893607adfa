package log

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"delenda/storage"
)

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

// renderStats writes row i of a stats_parsed column in the JSON form. Values
// without one (binary, not-a-number, nested lists) are left out, which only
// makes the statistics say less.
func renderStats(st *array.Struct, i int) string {
	var p []byte
	p, _ = appendStruct(p, st, i)
	return string(p)
}

func appendStruct(p []byte, st *array.Struct, i int) ([]byte, bool) {
	t, _ := st.DataType().(*arrow.StructType)
	p = append(p, '{')
	first := true
	for c, f := range t.Fields() {
		col := st.Field(c)
		if col.IsNull(i) {
			continue
		}
		mark := len(p)
		if !first {
			p = append(p, ',')
		}
		name, _ := json.Marshal(f.Name)
		p = append(append(p, name...), ':')
		var ok bool
		if p, ok = appendValue(p, col, i); !ok {
			p = p[:mark]
			continue
		}
		first = false
	}
	return append(p, '}'), true
}

func appendValue(p []byte, col arrow.Array, i int) ([]byte, bool) {
	switch c := col.(type) {
	case *array.Struct:
		return appendStruct(p, c, i)
	case *array.Int64:
		return strconv.AppendInt(p, c.Value(i), 10), true
	case *array.Int32:
		return strconv.AppendInt(p, int64(c.Value(i)), 10), true
	case *array.Int16:
		return strconv.AppendInt(p, int64(c.Value(i)), 10), true
	case *array.Int8:
		return strconv.AppendInt(p, int64(c.Value(i)), 10), true
	case *array.Boolean:
		return strconv.AppendBool(p, c.Value(i)), true
	case *array.Float64:
		return appendFloat(p, c.Value(i), 64)
	case *array.Float32:
		return appendFloat(p, float64(c.Value(i)), 32)
	case *array.String:
		q, err := json.Marshal(c.Value(i))
		return append(p, q...), err == nil
	case *array.Decimal128:
		t, _ := c.DataType().(*arrow.Decimal128Type)
		return append(p, c.Value(i).ToString(t.Scale)...), true
	case *array.Date32:
		return appendTime(p, c.Value(i).ToTime(), time.DateOnly)
	case *array.Timestamp:
		t, _ := c.DataType().(*arrow.TimestampType)
		layout := "2006-01-02T15:04:05.000000"
		if t.TimeZone != "" {
			layout += "Z"
		}
		return appendTime(p, c.Value(i).ToTime(t.Unit), layout)
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

func appendFloat(p []byte, f float64, bits int) ([]byte, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return p, false
	}
	return strconv.AppendFloat(p, f, 'g', -1, bits), true
}
