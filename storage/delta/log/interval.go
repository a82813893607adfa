package log

import (
	"strconv"
	"strings"
	"time"
)

// Interval parses a table property of the form "interval 1 week 2 days" (the
// word interval is optional); months and years have no fixed length and are
// not understood.
func Interval(text string) (time.Duration, bool) {
	units := map[string]time.Duration{
		"microsecond": time.Microsecond, "millisecond": time.Millisecond, "second": time.Second,
		"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	}
	f := strings.Fields(strings.ToLower(text))
	if len(f) > 0 && f[0] == "interval" {
		f = f[1:]
	}
	if len(f) == 0 || len(f)%2 != 0 {
		return 0, false
	}
	var total time.Duration
	for i := 0; i < len(f); i += 2 {
		n, err := strconv.ParseInt(f[i], 10, 32)
		unit, ok := units[strings.TrimSuffix(f[i+1], "s")]
		if err != nil || !ok || n < 0 {
			return 0, false
		}
		total += time.Duration(n) * unit
	}
	return total, total >= 0
}

// interval reads a property that holds an interval.
func (m *Metadata) interval(property string, otherwise time.Duration) time.Duration {
	if text, ok := m.Configuration[property]; ok {
		if d, ok := Interval(text); ok {
			return d
		}
	}
	return otherwise
}

// CheckpointInterval returns the number of commits after which the table wants
// a checkpoint.
func (m *Metadata) CheckpointInterval() int64 {
	n, err := strconv.ParseInt(m.Configuration["delta.checkpointInterval"], 10, 64)
	if err != nil || n < 1 {
		return 10
	}
	return n
}
