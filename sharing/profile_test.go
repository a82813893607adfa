package sharing_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/sharing"
)

var compareToken = cmp.Comparer(func(a, b sharing.Token) bool { return a == b })

func TestParseProfile(t *testing.T) {
	t.Parallel()
	plain := sharing.Profile{Version: 1, Endpoint: "https://host/delta-sharing", BearerToken: sharing.NewToken("sesame")}
	expiring := plain
	expiring.ExpiresAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	second := plain
	second.Version = 2
	tests := map[string]struct {
		file string
		want sharing.Profile
		err  string
	}{
		"version 1 is read": {
			file: `{"shareCredentialsVersion":1,"endpoint":"https://host/delta-sharing/","bearerToken":"sesame"}`, want: plain,
		},
		"version 2 with a bearer token is read": {
			file: `{"shareCredentialsVersion":2,"type":"bearer_token","endpoint":"https://host/delta-sharing","bearerToken":"sesame"}`, want: second,
		},
		"version 2 without a type is a bearer token": {
			file: `{"shareCredentialsVersion":2,"endpoint":"https://host/delta-sharing","bearerToken":"sesame"}`, want: second,
		},
		"unknown members are ignored": {
			file: `{"shareCredentialsVersion":1,"endpoint":"https://host/delta-sharing","bearerToken":"sesame","icebergEndpoint":"x","n":[1]}`, want: plain,
		},
		"the expiration is read with its zone": {
			file: `{"shareCredentialsVersion":1,"endpoint":"https://host/delta-sharing","bearerToken":"sesame","expirationTime":"2026-01-02T05:04:05+02:00"}`, want: expiring,
		},
		"an expiration without a zone is an error": {
			file: `{"shareCredentialsVersion":1,"endpoint":"https://h","bearerToken":"sesame","expirationTime":"2026-01-02T05:04:05"}`, err: "expirationTime",
		},
		"a newer version is refused by its number": {
			file: `{"shareCredentialsVersion":3,"endpoint":"https://h","bearerToken":"sesame"}`, err: "shareCredentialsVersion 3",
		},
		"a missing version is refused": {file: `{"endpoint":"https://h","bearerToken":"sesame"}`, err: "shareCredentialsVersion 0"},
		"client credentials are refused by name": {
			file: `{"shareCredentialsVersion":2,"type":"oauth_client_credentials","endpoint":"https://h","clientSecret":"sesame"}`, err: "oauth_client_credentials",
		},
		"basic is refused by name": {
			file: `{"shareCredentialsVersion":2,"type":"basic","endpoint":"https://h","password":"sesame"}`, err: "type basic",
		},
		"an unknown type is refused without its text": {
			file: `{"shareCredentialsVersion":2,"type":"sesame","endpoint":"https://h"}`, err: "type is unknown",
		},
		"a missing token is an error": {file: `{"shareCredentialsVersion":1,"endpoint":"https://h"}`, err: "bearerToken is missing"},
		"a token with a line break is an error": {
			file: `{"shareCredentialsVersion":1,"endpoint":"https://h","bearerToken":"sesame\r\nX: y"}`, err: "bearerToken holds",
		},
		"an endpoint that is no URL is an error": {file: `{"shareCredentialsVersion":1,"endpoint":"sesame","bearerToken":"x"}`, err: "endpoint"},
		"an endpoint with a user is an error":    {file: `{"shareCredentialsVersion":1,"endpoint":"https://a:sesame@h","bearerToken":"x"}`, err: "endpoint"},
		"a wrong type names the member":          {file: `{"shareCredentialsVersion":1,"endpoint":"https://h","bearerToken":17}`, err: "bearerToken"},
		"broken JSON is an error":                {file: `{"sesame`, err: "JSON"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := sharing.ParseProfile([]byte(test.file))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got error %v, want one with %q", err, test.err)
				}
				if strings.Contains(err.Error(), "sesame") {
					t.Errorf("the error carries content: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, compareToken); diff != "" {
				t.Error(diff)
			}
			out, err := sharing.FormatProfile(got)
			if err != nil {
				t.Fatal(err)
			}
			again, err := sharing.ParseProfile(out)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, again, compareToken); diff != "" {
				t.Errorf("format and parse: %s", diff)
			}
		})
	}
}

func TestProfileExpires(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := sharing.Profile{ExpiresAt: at}
	if p.Expired(at.Add(-time.Second)) || !p.Expired(at) || (sharing.Profile{}).Expired(at) {
		t.Error("a profile expires at its time, and never without one")
	}
}

func TestTokenNeverPrints(t *testing.T) {
	t.Parallel()
	p := sharing.Profile{Endpoint: "https://h", BearerToken: sharing.NewToken("sesame")}
	j, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{fmt.Sprint(p), fmt.Sprintf("%+v %#v %s", p, p, p.BearerToken), string(j), p.BearerToken.LogValue().String()} {
		if strings.Contains(out, "sesame") {
			t.Errorf("printed the token: %s", out)
		}
	}
}

func TestParseTableRef(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ref, profile string
		table        sharing.Table
		bad          bool
	}{
		"three names after the mark":        {ref: "p.share#a.b.c", profile: "p.share", table: sharing.Table{Share: "a", Schema: "b", Name: "c"}},
		"the last mark splits":              {ref: "dir#1/p#a.b.c", profile: "dir#1/p", table: sharing.Table{Share: "a", Schema: "b", Name: "c"}},
		"a share's name may hold dots":      {ref: "p#a.x.b.c", profile: "p", table: sharing.Table{Share: "a.x", Schema: "b", Name: "c"}},
		"two names are not enough":          {ref: "p#a.b", bad: true},
		"one name is not enough":            {ref: "p#a", bad: true},
		"an empty name is refused":          {ref: "p#a..c", bad: true},
		"an empty profile is refused":       {ref: "#a.b.c", bad: true},
		"a reference without mark is wrong": {ref: "a.b.c", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile, table, err := sharing.ParseTableRef(test.ref)
			if (err != nil) != test.bad {
				t.Fatalf("got error %v", err)
			}
			if profile != test.profile || table != test.table {
				t.Errorf("got %q %+v", profile, table)
			}
		})
	}
}

func FuzzParseProfile(f *testing.F) {
	f.Add([]byte(`{"shareCredentialsVersion":1,"endpoint":"https://host/delta-sharing/","bearerToken":"sesame"}`))
	f.Add([]byte(`{"shareCredentialsVersion":2,"type":"bearer_token","endpoint":"http://h:1","bearerToken":"x","expirationTime":"2026-01-02T05:04:05.5+02:00"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := sharing.ParseProfile(in)
		if err != nil {
			if p != (sharing.Profile{}) {
				t.Error("a partial profile with an error")
			}
			return
		}
		out, err := sharing.FormatProfile(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := sharing.ParseProfile(out)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, again, compareToken); diff != "" {
			t.Error(diff)
		}
	})
}
