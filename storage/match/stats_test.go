package match

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// statsWriter makes the bounds that a writer would put into Delta statistics.
type statsWriter struct {
	name      string
	deltaType string
	value     func(r *rand.Rand) string // canonical key text
	bounds    func(values []string) (min, max string)
}

func quote(s string) string {
	p, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(p)
}

func ordered(values []string, compare func(a, b string) int) (lo, hi string) {
	return slices.MinFunc(values, compare), slices.MaxFunc(values, compare)
}

func compareNumbers(a, b string) int {
	x, _ := new(big.Rat).SetString(a)
	y, _ := new(big.Rat).SetString(b)
	return x.Cmp(y)
}

func compareUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// cut keeps the first n characters, as writers do.
func cut(s string, n int) string {
	r := []rune(s)
	return string(r[:min(n, len(r))])
}

func randomText(r *rand.Rand) string {
	alphabet := []rune{'a', 'a', 'a', 'b', 0x7F, 'é', 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF}
	text := make([]rune, r.IntN(40))
	for i := range text {
		text[i] = alphabet[r.IntN(len(alphabet))]
		if r.IntN(3) > 0 {
			text[i] = 'a'
		}
	}
	return string(text)
}

func paddedBounds(pad string, compare func(a, b string) int) func([]string) (string, string) {
	return func(values []string) (string, string) {
		lo, hi := ordered(values, compare)
		if len([]rune(hi)) > 32 {
			hi = cut(hi, 32) + pad
		}
		return quote(cut(lo, 32)), quote(hi)
	}
}

func statsWriters() []statsWriter {
	long := func(r *rand.Rand) string { return strconv.FormatInt(int64(r.Uint64())>>r.IntN(64), 10) }
	instant := func(r *rand.Rand) time.Time {
		return time.UnixMicro(r.Int64N(4e15) - 2e15).UTC()
	}
	decimal := func(digits, scale int) func(*rand.Rand) string {
		return func(r *rand.Rand) string {
			text := strings.TrimLeft(strings.Repeat(strconv.FormatUint(r.Uint64(), 10), 3)[:1+r.IntN(digits)], "0")
			if len(text) <= scale {
				text = strings.Repeat("0", scale+1-len(text)) + text
			}
			text = text[:len(text)-scale] + "." + text[len(text)-scale:]
			if strings.Trim(text, "0.") != "" && r.IntN(2) == 0 {
				text = "-" + text
			}
			return text
		}
	}
	timestamps := func(layout string) func([]string) (string, string) {
		return func(values []string) (string, string) {
			lo, hi := ordered(values, strings.Compare)
			parse := func(s string) string {
				u, err := time.Parse("2006-01-02T15:04:05.999999", strings.TrimSuffix(s, "Z"))
				if err != nil {
					panic(err)
				}
				return quote(u.Format(layout))
			}
			return parse(lo), parse(hi)
		}
	}
	float := func(values []string) (string, string) {
		lo, hi := ordered(values, compareNumbers)
		round := func(s string) string {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				panic(err)
			}
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		return round(lo), round(hi)
	}
	exact := func(values []string) (string, string) { return ordered(values, compareNumbers) }
	text := func(f func([]string) (string, string)) func([]string) (string, string) { return f }
	return []statsWriter{
		{"long", "long", long, exact},
		{"byte", "byte", func(r *rand.Rand) string { return strconv.Itoa(r.IntN(256) - 128) }, exact},
		{"decimal as number", "decimal(18,4)", decimal(18, 4), exact},
		{"decimal through a double", "decimal(18,4)", decimal(18, 4), float},
		{"small decimal through a double", "decimal(10,2)", decimal(10, 2), float},
		{"wide decimal as number", "decimal(38,6)", decimal(38, 6), exact},
		{"wide decimal through a double", "decimal(38,6)", decimal(38, 6), float},
		{"string padded with U+10FFFF", "string", randomText, paddedBounds("\U0010FFFF", strings.Compare)},
		{"string padded with DEL or nothing", "string", randomText, paddedBounds("\u007f", strings.Compare)},
		{"string without padding", "string", randomText, paddedBounds("", strings.Compare)},
		{"string padded with U+FFFD", "string", randomText, paddedBounds("\uFFFD", strings.Compare)},
		{"string in UTF-16 order", "string", randomText, paddedBounds("\uFFFF", compareUTF16)},
		{"ASCII string", "string", func(r *rand.Rand) string { return strings.Repeat("user-", r.IntN(9)) + strconv.Itoa(r.IntN(1000)) }, paddedBounds("\U0010FFFF", strings.Compare)},
		{"ASCII string without padding", "string", func(r *rand.Rand) string { return strings.Repeat("user-", r.IntN(9)) + strconv.Itoa(r.IntN(1000)) }, paddedBounds("", strings.Compare)},
		{"date before widening", "timestamp_ntz", func(r *rand.Rand) string { return instant(r).Format("2006-01-02T00:00:00") }, func(v []string) (string, string) {
			lo, hi := ordered(v, strings.Compare)
			return quote(lo[:10]), quote(hi[:10])
		}},
		{"date", "date", func(r *rand.Rand) string { return instant(r).Format("2006-01-02") }, func(v []string) (string, string) {
			lo, hi := ordered(v, strings.Compare)
			return quote(lo), quote(hi)
		}},
		{"timestamp cut to milliseconds", "timestamp", func(r *rand.Rand) string { return instant(r).Format("2006-01-02T15:04:05.000000Z") }, text(timestamps("2006-01-02T15:04:05.000Z"))},
		{"timestamp with an offset", "timestamp", func(r *rand.Rand) string { return instant(r).Format("2006-01-02T15:04:05.000000Z") }, text(timestamps("2006-01-02T15:04:05.000+00:00"))},
		{"timestamp_ntz", "timestamp_ntz", func(r *rand.Rand) string { return instant(r).Format("2006-01-02T15:04:05.000000") }, text(timestamps("2006-01-02T15:04:05.000"))},
		{"boolean", "boolean", func(r *rand.Rand) string { return strconv.FormatBool(r.IntN(2) == 0) }, func(v []string) (string, string) { return ordered(v, strings.Compare) }},
	}
}

func TestPruningNeverDropsAMatch(t *testing.T) {
	t.Parallel()
	for _, w := range statsWriters() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			pruned := 0
			for seed := range uint64(800) {
				r := rand.New(rand.NewPCG(seed, 4))
				values := make([]string, 1+r.IntN(4))
				for i := range values {
					values[i] = w.value(r)
				}
				lo, hi := w.bounds(values)
				for _, v := range values {
					for _, bounds := range [][2]json.RawMessage{
						{json.RawMessage(lo), json.RawMessage(hi)}, {nil, json.RawMessage(hi)}, {json.RawMessage(lo), nil}, {json.RawMessage("null"), json.RawMessage("null")},
					} {
						if !compile(t, w.deltaType, v).OverlapsStats(bounds[0], bounds[1]) {
							t.Fatalf("seed %d: %q is between %s and %s", seed, v, bounds[0], bounds[1])
						}
					}
				}
				if !compile(t, w.deltaType, w.value(r)).OverlapsStats(json.RawMessage(lo), json.RawMessage(hi)) {
					pruned++
				}
			}
			if pruned == 0 {
				t.Error("nothing was pruned at all")
			}
		})
	}
}

func TestPruningOfManyKeysAgreesWithPruningOfEach(t *testing.T) {
	t.Parallel()
	for _, w := range statsWriters() {
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(seed, 5))
			keys := make([]string, 1+r.IntN(6))
			for i := range keys {
				keys[i] = w.value(r)
			}
			lo, hi := w.bounds([]string{w.value(r), w.value(r)})
			each := slices.ContainsFunc(keys, func(key string) bool {
				return compile(t, w.deltaType, key).OverlapsStats(json.RawMessage(lo), json.RawMessage(hi))
			})
			if all := compile(t, w.deltaType, keys...).OverlapsStats(json.RawMessage(lo), json.RawMessage(hi)); all != each {
				t.Errorf("%s, seed %d: %v together, %v one by one", w.name, seed, all, each)
			}
		}
	}
}

func TestBoundsThatAreNotUnderstoodDoNotBound(t *testing.T) {
	t.Parallel()
	for deltaType, key := range map[string]string{
		"long": "7", "string": "x", "date": "2024-01-01", "timestamp": "2024-01-01T00:00:00Z", "decimal(10,2)": "7", "decimal(30,2)": "7", "binary": "00", "boolean": "true",
	} {
		k := compile(t, deltaType, key)
		for _, bound := range []string{`{}`, `[]`, `x`, `"\ud800"`, `1e999999999`, `"NaN"`, `NaN`, `""x`, `1/0`, `0x10`, strings.Repeat("9", 1000), ``} {
			if deltaType == "string" && bound == `"NaN"` {
				continue
			}
			if !k.OverlapsStats(json.RawMessage(bound), json.RawMessage(bound)) {
				t.Errorf("%s: pruned by %q", deltaType, bound)
			}
		}
	}
}

func TestFarAwayKeysArePruned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ deltaType, key, min, max string }{
		{"long", "7", "8", "100"},
		{"long", "9007199254740993", "1", "9007199254740000"},
		{"decimal(10,2)", "1.23", "1.24", "2"},
		{"decimal(30,2)", "1.23", "1.24", "2"},
		{"string", "zed", `"a"`, `"m"`},
		{"string", "4b3b4ca8-5a86-c47a-098a-223fffffffff", `"5b3b4ca8-5a86-c47a-098a-223ffff"`, `"6"`},
		{"date", "2024-01-01", `"2024-01-02"`, `"2024-12-31"`},
		{"timestamp", "2024-01-01T00:00:00Z", `"2024-01-01T00:00:01.000Z"`, `"2025-01-01T00:00:00.000Z"`},
	} {
		if compile(t, c.deltaType, c.key).OverlapsStats(json.RawMessage(c.min), json.RawMessage(c.max)) {
			t.Errorf("%s %s is not pruned by %s and %s", c.deltaType, c.key, c.min, c.max)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for i, text := range []string{"7", "-12.50", "true", "2024-02-29", "2024-02-29T13:45:00.5Z", "00ff", "x"} {
		f.Add(uint8(i), text)
	}
	types := []string{"byte", "short", "integer", "long", "decimal(10,2)", "decimal(38,6)", "boolean", "date", "timestamp", "timestamp_ntz", "string", "binary"}
	f.Fuzz(func(t *testing.T, i uint8, text string) {
		typ, err := ParseType(types[int(i)%len(types)])
		if err != nil {
			t.Fatal(err)
		}
		v, err := parseKey(typ, text)
		if err != nil {
			return
		}
		// What is canonical is also a partition value with the same meaning.
		if text == "" || typ.Base == Binary {
			return
		}
		p, err := parsePartition(typ, text)
		if err != nil || fmt.Sprint(p) != fmt.Sprint(v) {
			t.Fatalf("%s: as key and as partition value it differs: %v", typ, err)
		}
	})
}
