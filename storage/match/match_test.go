package match

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"delenda/storage"

	"github.com/google/go-cmp/cmp"
)

func subject(column, text string) storage.Subject {
	return storage.Subject{Keys: []storage.Key{{Column: column, Value: storage.NewSecret(text)}}}
}

// compile makes the keys of one column, one subject per text.
func compile(tb testing.TB, deltaType string, texts ...string) *ColumnKeys {
	tb.Helper()
	subjects := make([]storage.Subject, len(texts))
	for i, text := range texts {
		subjects[i] = subject("c", text)
	}
	set, results, err := Compile(subjects, []Column{{"c", deltaType}})
	if err != nil {
		tb.Fatal(err)
	}
	for i, r := range results {
		if r.State != storage.SubjectDone {
			tb.Fatalf("subject %d: %+v", i, r)
		}
	}
	return set.Column("c")
}

func TestEachTypeHasOneTextForm(t *testing.T) {
	t.Parallel()
	for deltaType, c := range map[string]struct{ valid, invalid []string }{
		"byte":    {[]string{"0", "7", "-128", "127"}, []string{"128", "-129", "+1"}},
		"short":   {[]string{"32767", "-32768"}, []string{"32768", "-32769"}},
		"integer": {[]string{"2147483647", "-2147483648"}, []string{"2147483648", "1.0", "1e3"}},
		"long": {
			[]string{"0", "9223372036854775807", "-9223372036854775808"},
			[]string{"", "007", " 7 ", "7 ", "1_000", "1,000", "١٢", "+7", "-0", "--1", "-", "0x10", "9223372036854775808", "7.0", "1e3", "true", "null", "７"},
		},
		"decimal(10,2)": {
			[]string{"0", "123.4", "123.40", "-0.01", "99999999.99", "12"},
			[]string{"", "123.400", "123.", ".5", "-0", "-0.00", "0123", "1e2", "100000000", "99999999.999", "+1", "1,5", "NaN", "1_0"},
		},
		"decimal(38,0)": {[]string{strings.Repeat("9", 38), "-" + strings.Repeat("9", 38)}, []string{"1" + strings.Repeat("0", 38), "1.0"}},
		"decimal(2,2)":  {[]string{"0.99", "-0.5"}, []string{"1", "1.00"}},
		"boolean":       {[]string{"true", "false"}, []string{"1", "0", "True", "TRUE", "yes", "t", ""}},
		"date": {
			[]string{"2024-02-29", "0001-01-01", "9999-12-31"},
			[]string{"2023-02-29", "2024-2-9", "24-02-29", "2024-02-29T00:00:00", "0000-01-01", "10000-01-01", "2024/02/29", " 2024-02-29"},
		},
		"timestamp": {
			[]string{"2024-02-29T13:45:00Z", "2024-02-29T13:45:00.5Z", "2024-02-29T13:45:00.123456Z", "1969-12-31T23:59:59.999999Z"},
			[]string{"2024-02-29T13:45:00", "2024-02-29 13:45:00Z", "2024-02-29T13:45:00+01:00", "2024-02-29T13:45:00.Z", "2024-02-29T13:45:00.1234567Z", "2024-02-29T13:45Z", "2024-02-29T25:00:00Z", "2024-02-29T13:45:00,5Z", "2024-02-29T13:45:00z"},
		},
		"timestamp_ntz": {
			[]string{"2024-02-29T13:45:00", "2024-02-29T13:45:00.000001"},
			[]string{"2024-02-29T13:45:00Z", "2024-02-29 13:45:00", "2024-02-29"},
		},
		"string": {[]string{"", " ", "007", "José", "Jose\u0301", "null", "a\x00b"}, nil},
		"binary": {[]string{"", "00ff", "0123456789abcdef0123456789abcdef"}, []string{"0", "00FF", "0x00", "zz", "00 ff", "01234567-89ab-cdef-0123-456789abcdef"}},
	} {
		for _, text := range c.valid {
			_, results, err := Compile([]storage.Subject{subject("c", text)}, []Column{{"c", deltaType}})
			if err != nil || results[0].State != storage.SubjectDone {
				t.Errorf("%s %q: %v, %v: want it accepted", deltaType, text, results, err)
			}
		}
		for _, text := range c.invalid {
			set, results, err := Compile([]storage.Subject{subject("c", text)}, []Column{{"c", deltaType}})
			if err != nil {
				t.Fatal(err)
			}
			if results[0].State != storage.SubjectInvalid || set.Column("c") != nil {
				t.Errorf("%s %q: %v: want it invalid", deltaType, text, results)
			}
			if r := results[0].Reason; len(text) > 2 && strings.Contains(r, text) || !strings.Contains(r, `"c"`) || !strings.Contains(r, deltaType) {
				t.Errorf("%s: reason %q: want column and type and no value", deltaType, r)
			}
		}
	}
}

func TestTypesWithoutAnExactFormAreRefusedByName(t *testing.T) {
	t.Parallel()
	for deltaType, code := range map[string]string{
		"float": "float_key", "double": "float_key", "variant": "unsupported_key_type", "struct": "unsupported_key_type",
		"interval year to month": "unsupported_key_type", "decimal(39,0)": "unsupported_key_type", "decimal(5,6)": "unsupported_key_type",
		"geometry(OGC:CRS84)": "unsupported_key_type", "": "unsupported_key_type", "void": "unsupported_key_type",
	} {
		_, _, err := Compile([]storage.Subject{subject("c", "1")}, []Column{{"c", deltaType}})
		var refusal *storage.Refusal
		if !errors.As(err, &refusal) || refusal.Code != code {
			t.Errorf("%q: got %v, want code %s", deltaType, err, code)
		}
	}
}

func TestColumnsThatAreMissingOrTwiceAreRefused(t *testing.T) {
	t.Parallel()
	if _, _, err := Compile([]storage.Subject{subject("x", "1")}, []Column{{"c", "long"}}); !errors.Is(err, storage.ErrRefused) {
		t.Errorf("missing: %v", err)
	}
	if _, _, err := Compile(nil, []Column{{"c", "long"}, {"c", "string"}}); !errors.Is(err, storage.ErrRefused) {
		t.Errorf("twice: %v", err)
	}
}

func TestOneInvalidKeyTakesTheWholeSubjectOut(t *testing.T) {
	t.Parallel()
	subjects := []storage.Subject{
		{Keys: []storage.Key{{Column: "id", Value: storage.NewSecret("7")}, {Column: "id", Value: storage.NewSecret("007")}}},
		{Keys: []storage.Key{{Column: "id", Value: storage.NewSecret("8")}, {Column: "contact.email", Value: storage.NewSecret("a@b")}}},
		{},
		{Keys: []storage.Key{{Column: "id", Value: storage.NewSecret("8")}, {Column: "id", Value: storage.NewSecret("8")}}},
	}
	set, results, err := Compile(subjects, []Column{{"id", "long"}, {"contact.email", "string"}})
	if err != nil {
		t.Fatal(err)
	}
	states := []storage.SubjectState{results[0].State, results[1].State, results[2].State, results[3].State}
	if diff := cmp.Diff([]storage.SubjectState{storage.SubjectInvalid, storage.SubjectDone, storage.SubjectDone, storage.SubjectDone}, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	ids := set.Column("id")
	if _, ok := ids.FindInt(7); ok || ids.Len() != 1 {
		t.Error("a key of an invalid subject is in the set")
	}
	id, ok := ids.FindInt(8)
	if !ok {
		t.Fatal("8 is not in the set")
	}
	if diff := cmp.Diff([]int{1, 3}, ids.Subjects(id)); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	if _, ok := set.Column("contact.email").FindBytes([]byte("a@b")); !ok {
		t.Error("a struct member has no key")
	}
}

func TestValuesAreComparedByType(t *testing.T) {
	t.Parallel()
	if k := compile(t, "long", "0"); !finds(k, 0) || finds(k, 1) {
		t.Error("0 is a value like any other")
	}
	if k := compile(t, "string", ""); !findsBytes(k, "") || findsBytes(k, " ") {
		t.Error("the empty string is a value like any other")
	}
	if k := compile(t, "string", "José"); findsBytes(k, "Jose\u0301") {
		t.Error("strings are compared byte for byte")
	}
	if k := compile(t, "string", "ab"); findsBytes(k, "ab   ") || findsBytes(k, "AB") {
		t.Error("padding and case count")
	}
	if k := compile(t, "decimal(10,2)", "123.4", "123.40"); k.Len() != 1 || !finds(k, 12340) {
		t.Error("123.4 and 123.40 are one number")
	}
	if k := compile(t, "boolean", "false"); !finds(k, 0) || finds(k, 1) {
		t.Error("false is 0")
	}
	if k := compile(t, "date", "1969-12-31"); !finds(k, -1) {
		t.Error("dates are days")
	}
	if k := compile(t, "timestamp", "1969-12-31T23:59:59.999999Z"); !finds(k, -1) {
		t.Error("timestamps are microseconds")
	}
	if k := compile(t, "binary", "00ff"); !findsBytes(k, "\x00\xff") {
		t.Error("binary is hexadecimal")
	}
	k := compile(t, "decimal(38,0)", "-1", strings.Repeat("9", 38))
	if !findsBytes(k, strings.Repeat("\xff", 16)) {
		t.Error("wide decimals are two's complement")
	}
	p, err := hex.DecodeString("4b3b4ca85a86c47a098a223fffffffff")
	if err != nil {
		t.Fatal(err)
	}
	if !findsBytes(k, string(p)) {
		t.Error("the largest decimal is not found")
	}
}

func finds(k *ColumnKeys, v int64) bool { _, ok := k.FindInt(v); return ok }

func findsBytes(k *ColumnKeys, v string) bool { _, ok := k.FindBytes([]byte(v)); return ok }

func TestEveryKeyIsFoundAndFewOthersPassTheFilter(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 10, 1000, 50_000} {
		texts := make([]string, n)
		for i := range texts {
			texts[i] = "k" + strings.Repeat("x", i%40) + string(rune('0'+i%10)) + hex.EncodeToString([]byte{byte(i >> 16), byte(i >> 8), byte(i)})
		}
		k := compile(t, "string", texts...)
		for i, text := range texts {
			id, ok := k.FindBytes([]byte(text))
			if !ok || !cmp.Equal(k.Subjects(id), []int{i}) || !k.Filter().Has(HashBytes([]byte(text))) {
				t.Fatalf("%d keys: key %d is lost", n, i)
			}
		}
		passed := 0
		for i := range 100_000 {
			if k.Filter().Has(HashInt(int64(i) * 1_000_003)) {
				passed++
			}
		}
		if passed > 5_000 {
			t.Errorf("%d keys: %d of 100000 strangers pass the filter", n, passed)
		}
	}
}

func TestPartitionValuesMatchByType(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		deltaType, key string
		match          []string
		differ         []string
		corrupt        []string
	}{
		{"long", "7", []string{"7", "07"}, []string{"70", "-7"}, []string{"x", "7.0", "９"}},
		{"short", "7", []string{"7"}, nil, []string{"40000"}},
		{"string", "a b", []string{"a b"}, []string{"a%20b", "A B"}, nil},
		{"boolean", "true", []string{"true"}, []string{"false"}, []string{"1"}},
		{"date", "2024-01-31", []string{"2024-01-31"}, []string{"2024-01-30"}, []string{"20240131"}},
		{"decimal(10,2)", "1.5", []string{"1.5", "1.50", "1.500"}, []string{"1.51"}, []string{"1.505", "x", "1/2"}},
		{"decimal(30,2)", "1.5", []string{"1.50"}, []string{"-1.50"}, []string{"1.505"}},
		{
			"timestamp", "2024-01-31T10:00:00Z",
			[]string{"2024-01-31 10:00:00", "2024-01-31 10:00:00.000000", "2024-01-31T10:00:00.000000Z", "2024-01-31T10:00:00Z"},
			[]string{"2024-01-31 10:00:00.000001", "2024-01-31"},
			[]string{"2024-01-31x10:00:00", "yesterday"},
		},
		{"timestamp_ntz", "2024-01-31T00:00:00", []string{"2024-01-31 00:00:00", "2024-01-31"}, []string{"2024-01-31 00:00:01"}, []string{""[:0] + "2024-13-01"}},
		{"binary", "0102", []string{"\x01\x02"}, []string{"0102"}, []string{"\x01\uFFFD"}},
	} {
		k := compile(t, c.deltaType, c.key)
		for _, v := range c.match {
			if got, err := k.MatchPartition(text(v)); err != nil || !cmp.Equal(got, []int{0}) {
				t.Errorf("%s %q: %v, %v: want a match", c.deltaType, v, got, err)
			}
		}
		for _, v := range c.differ {
			if got, err := k.MatchPartition(text(v)); err != nil || len(got) != 0 {
				t.Errorf("%s %q: %v, %v: want no match", c.deltaType, v, got, err)
			}
		}
		for _, v := range c.corrupt {
			if _, err := k.MatchPartition(text(v)); !errors.Is(err, storage.ErrCorrupt) || len(v) > 3 && strings.Contains(err.Error(), v) {
				t.Errorf("%s: %v: want ErrCorrupt without the value", c.deltaType, err)
			}
		}
		for _, null := range []*string{nil, text("")} {
			if got, err := k.MatchPartition(null); err != nil || len(got) != 0 {
				t.Errorf("%s null: %v, %v", c.deltaType, got, err)
			}
		}
	}
	if got, err := compile(t, "string", "").MatchPartition(text("")); err != nil || len(got) != 0 {
		t.Errorf("an empty partition value is null: %v, %v", got, err)
	}
}
