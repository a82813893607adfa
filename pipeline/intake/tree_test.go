package intake

import (
	"bytes"
	"testing"
)

func Test_white_space_order_and_escapes_do_not_matter_to_the_canonical_form(t *testing.T) {
	t.Parallel()
	want := `{"a":[1,2.50,true,null],"b":"é\"/","c":{"x":"","y":{}}}`
	for _, in := range []string{
		`{"a":[1,2.50,true,null],"b":"é\"/","c":{"x":"","y":{}}}`,
		` { "c" : { "y" : { } , "x" : "" } , "b" : "\u00e9\u0022\/" , "a" : [ 1 , 2.50 , true , null ] } `,
	} {
		v, p := parse([]byte(in))
		if p != nil {
			t.Fatal(p)
		}
		if got := string(canonical(v)); got != want {
			t.Errorf("%s", got)
		}
	}
}

func Test_numbers_and_order_of_lists_do_matter_to_the_canonical_form(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, in := range []string{`{"a":[1,2]}`, `{"a":[2,1]}`, `{"a":[1,2.0]}`, `{"a":["1","2"]}`, `{"a":[9007199254740993,2]}`, `{"a":[9007199254740992,2]}`} {
		v, p := parse([]byte(in))
		if p != nil {
			t.Fatal(p)
		}
		if c := string(canonical(v)); seen[c] {
			t.Errorf("%s looks like another", in)
		} else {
			seen[c] = true
		}
	}
}

func Test_surrogates_must_come_in_pairs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int{
		`"\ud83d\ude00"`: -1, `"\\ud83d"`: -1, `"\\\ud83d"`: 3, `"\ud83d"`: 1, `"\ude00"`: 1, `"\ud83dx"`: 1,
		`"\ud83d\ud83d\ude00"`: 1, `"\u0041"`: -1, `"\ud83d\n"`: 1, `"\ud8`: -1, `\`: -1,
	} {
		if got := loneSurrogate([]byte(in)); got != want {
			t.Errorf("%s: %d, want %d", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":[1,2.5e3,{"b":null}]}`, `{"idempotency_key":"k","identities":[{"type":"email","value":"x"}]}`,
		`{"a":"\ud83d\ude00"}`, `{"a":1,"a":2}`, "{\"\\u0000\":\"\u2028<>&\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, p := parse(body)
		if p != nil {
			if v != nil {
				t.Error("a value with a problem")
			}
			return
		}
		c := canonical(v)
		again, p := parse(c)
		if p != nil {
			t.Fatalf("the canonical form does not parse: %v: %q", p, c)
		}
		if !bytes.Equal(c, canonical(again)) {
			t.Errorf("%q is not canonical", c)
		}
		_, _ = read(body)
	})
}
