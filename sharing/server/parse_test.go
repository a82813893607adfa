package server

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"delenda/sharing/snapshot"
)

func TestPathsAreTakenApartInPlace(t *testing.T) {
	t.Parallel()
	table := route{share: "s", schema: "d", table: "t"}
	as := func(op operation) route { r := table; r.op = op; return r }
	for path, want := range map[string]route{
		"/delta-sharing":                                                         {op: opRoot},
		"/delta-sharing/":                                                        {op: opRoot},
		"//delta-sharing///shares//":                                             {op: opShares},
		"/delta-sharing/shares/s":                                                {op: opShare, share: "s"},
		"/delta-sharing/shares/a%2Db%20c":                                        {op: opShare, share: "a-b c"},
		"/delta-sharing/shares/a%2Fb":                                            {op: opShare, share: "a/b"},
		"/delta-sharing/shares/s/schemas":                                        {op: opSchemas, share: "s"},
		"/delta-sharing/shares/s/all-tables":                                     {op: opAllTables, share: "s"},
		"/delta-sharing/shares/s/schemas/d/tables":                               {op: opTables, share: "s", schema: "d"},
		"/delta-sharing/shares/s/schemas/d/tables/t":                             as(opTable),
		"/delta-sharing/shares/s/schemas/d/tables/t/version":                     as(opVersion),
		"/delta-sharing/shares/s/schemas/d/tables/t/metadata":                    as(opMetadata),
		"/delta-sharing/shares/s/schemas/d/tables/t/query":                       as(opQuery),
		"/delta-sharing/shares/s/schemas/d/tables/t/changes":                     as(opChanges),
		"/delta-sharing/shares/s/schemas/d/tables/t/queries/1":                   as(opQueryStatus),
		"/delta-sharing/shares/s/schemas/d/tables/t/temporary-table-credentials": as(opCredentials),
		"/delta-sharing/files/x":                                                 {op: opFile},
		"/delta-sharing/shares/s/schemas/d/tables/t/else":                        as(opUnknown),
		"/other/shares":                                                          {op: opUnknown},
		"/delta-sharing/shares/%zz":                                              {op: opUnknown},
		"/shares":                                                                {op: opUnknown},
		"/":                                                                      {op: opUnknown},
	} {
		if got := parseRoute(path, DefaultPrefix); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
}

func testKeys(t testing.TB) snapshot.Keys {
	t.Helper()
	keys, err := snapshot.NewKeys(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestATokenIsGoodForItsKindAndTimeOnly(t *testing.T) {
	t.Parallel()
	keys, now := testKeys(t), time.Unix(1000, 0)
	c := claims{ExpiresAt: now.Add(time.Minute).UnixMilli(), Scope: "s.d.t", Recipient: "r", Version: 7, Key: "k/ü"}
	s := newSealer(keys)
	first, err := s.seal(kindFile, c)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.seal(kindFile, c)
	if err != nil || first == second || url.QueryEscape(first) != first {
		t.Errorf("%v, same %v", err, first == second)
	}
	for _, text := range []string{first, second} {
		if got, err := unseal(keys, kindFile, text, now); err != nil || got != c {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if _, err := unseal(keys, kindRefresh, first, now); !errors.Is(err, errToken) {
		t.Errorf("as another kind: %v", err)
	}
	if _, err := unseal(keys, kindFile, first, now.Add(time.Minute)); !errors.Is(err, errExpired) {
		t.Errorf("after its time: %v", err)
	}
	other, err := snapshot.NewKeys(bytes.Repeat([]byte{2}, 32))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unseal(other, kindFile, first, now); !errors.Is(err, errToken) {
		t.Errorf("under another key: %v", err)
	}
	for i := range first {
		changed := []byte(first)
		changed[i] = map[bool]byte{true: 'A', false: 'B'}[changed[i] != 'A']
		if got, err := unseal(keys, kindFile, string(changed), now); err == nil && got != c {
			t.Errorf("changed at %d it carries %+v", i, got)
		}
	}
}

func FuzzUnseal(f *testing.F) {
	keys := testKeys(f)
	text, err := newSealer(keys).seal(kindFile, claims{ExpiresAt: 1 << 50, Scope: "x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(strings.Repeat("A", 100))
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := unseal(keys, kindFile, s, time.Unix(0, 0)); err == nil && c.Scope != "x" {
			t.Errorf("forged %+v", c)
		}
	})
}

func FuzzParseQuery(f *testing.F) {
	for _, s := range []string{`{}`, `{"limitHint":"3","max_files":4,"version":null}`, `{"predicateHints":[""]}`, `[`, `{"a":1}{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		q, err := parseQuery(p)
		if err != nil {
			var failed *failure
			if !errors.As(err, &failed) || failed.status != 400 {
				t.Errorf("got %v", err)
			}
			return
		}
		_ = checkQuery(q)
	})
}

func FuzzParseRoute(f *testing.F) {
	f.Add("/delta-sharing/shares/s/schemas/d/tables/t/query")
	f.Add("//delta-sharing//files/%41")
	f.Fuzz(func(t *testing.T, path string) {
		r := parseRoute(path, DefaultPrefix)
		if r.op == "" || r.op == opTable && (r.share == "" || r.schema == "" || r.table == "") {
			t.Errorf("got %+v", r)
		}
	})
}
