package sharingtest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"delenda/sharing"
)

func rules(t *testing.T, target Target) {
	t.Helper()
	table := target.Tables[0]
	post := func(t *testing.T, body string) reply {
		t.Helper()
		return target.do(t, request{method: http.MethodPost, path: table.path("/query"), body: body, header: capable(everything)})
	}
	const invalid, malformed = sharing.CodeInvalidParameter, sharing.CodeMalformedRequest
	for name, test := range map[string]struct{ body, code string }{
		"two positions are refused":                         {`{"version":0,"timestamp":"2022-01-01T00:00:00Z"}`, invalid},
		"version and startingVersion are refused":           {`{"version":0,"startingVersion":0}`, invalid},
		"a negative version is refused":                     {`{"version":-1}`, invalid},
		"a negative startingVersion is refused":             {`{"startingVersion":-1}`, invalid},
		"maxFiles of none is refused":                       {`{"maxFiles":0}`, invalid},
		"a refresh token is not given for a version":        {`{"version":0,"includeRefreshToken":true}`, invalid},
		"a refresh token is given on the first page only":   {`{"pageToken":"x","includeRefreshToken":true}`, invalid},
		"a refresh token does not go with a version":        {`{"version":0,"refreshToken":"x"}`, invalid},
		"a refresh token does not go with a page token":     {`{"pageToken":"x","refreshToken":"x"}`, invalid},
		"a garbled refresh token is refused":                {`{"refreshToken":"x"}`, invalid},
		"a garbled page token is refused":                   {`{"pageToken":"x"}`, invalid},
		"an empty body is malformed":                        {``, malformed},
		"a body that is no JSON is malformed":               {`{`, malformed},
		"a body that is no object is malformed":             {`[]`, malformed},
		"a body that is null is malformed":                  {`null`, malformed},
		"a number that is none is malformed":                {`{"limitHint":"x3"}`, malformed},
		"a member of another type is malformed":             {`{"predicateHints":"a"}`, malformed},
		"a fraction where a number is counted is malformed": {`{"limitHint":1.5}`, malformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			post(t, test.body).fails(t, http.StatusBadRequest, test.code)
		})
	}
	for name, body := range map[string]string{
		"an empty object is a query":                     `{}`,
		"empty hints are none":                           `{"predicateHints":[""],"limitHint":0}`,
		"no hints are none":                              `{"predicateHints":[],"limitHint":"0"}`,
		"unknown members are ignored":                    `{"surprise":{"a":[1]},"queryDeltaLog":false,"requested_columns":["a"]}`,
		"members may be null":                            `{"version":null,"limitHint":null,"pageToken":null}`,
		"a refusal of a refresh token is fine":           `{"includeRefreshToken":false}`,
		"JSON hints that make no sense filter nothing":   `{"jsonPredicateHints":"{\"op\":\"=\"}"}`,
		"hints in SQL that make no sense filter nothing": `{"predicateHints":["a is b"]}`,
		"a large body within reason is read":             `{"jsonPredicateHints":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, want := count(post(t, body).lines(t)), table.Files; got != want {
				t.Errorf("%d files, want %d", got, want)
			}
		})
	}
	t.Run("an oversized body is refused", func(t *testing.T) {
		t.Parallel()
		r, err := target.try(t.Context(), request{
			method: http.MethodPost, path: table.path("/query"), header: capable(everything),
			body: `{"jsonPredicateHints":"` + strings.Repeat("x", 64<<20) + `"}`,
		})
		if err == nil && (r.status < 400 || r.status >= 500) { // the server may also hang up
			t.Errorf("status %d", r.status)
		}
	})
	t.Run("the hash of file ids is chosen by a header and echoed", func(t *testing.T) {
		t.Parallel()
		for value, length := range map[string]int{"parquet": 32, "delta": 64, " Delta ": 64, "PARQUET": 32} {
			h := capable(everything)
			h.Set(sharing.HeaderFileIDHash, value)
			r := target.do(t, request{method: http.MethodPost, path: table.path("/query"), body: "{}", header: h})
			for _, line := range r.lines(t)[2:] {
				if line.File != nil && len(line.File.ID) != length {
					t.Errorf("%q: id of %d characters", value, len(line.File.ID))
				}
			}
			if got := r.header.Get(sharing.HeaderFileIDHash); got != strings.ToLower(strings.TrimSpace(value)) {
				t.Errorf("%q is echoed as %q", value, got)
			}
		}
		for _, value := range []string{"", "md5"} {
			h := capable(everything)
			h[http.CanonicalHeaderKey(sharing.HeaderFileIDHash)] = []string{value}
			target.do(t, request{method: http.MethodPost, path: table.path("/query"), body: "{}", header: h}).fails(t, http.StatusBadRequest, invalid)
		}
	})
	t.Run("metadata takes a version or a timestamp, not both", func(t *testing.T) {
		t.Parallel()
		for _, query := range []string{"version=0&timestamp=2022-01-01T00:00:00Z", "version=-1", "version=x", "timestamp=2022-01-01"} {
			target.do(t, request{path: table.path("/metadata?" + query), header: capable(everything)}).fails(t, http.StatusBadRequest, invalid)
		}
	})
}

func count(lines []sharing.Line) (files int64) {
	for _, line := range lines {
		if line.File != nil {
			files++
		}
	}
	return files
}

// listing are capabilities that list the features.
func listing(format string, features []string) http.Header {
	value := "responseformat=" + format
	if len(features) > 0 {
		value += ";readerfeatures=" + strings.Join(features, ",")
	}
	return capable(value)
}

func negotiation(t *testing.T, target Target, table Table) {
	t.Helper()
	both := func(t *testing.T, h http.Header, check func(*testing.T, reply)) {
		t.Helper()
		check(t, target.do(t, request{path: table.path("/metadata"), header: h}))
		check(t, target.do(t, request{method: http.MethodPost, path: table.path("/query"), body: "{}", header: h}))
	}
	format := func(want string) func(*testing.T, reply) {
		return func(t *testing.T, r reply) {
			t.Helper()
			lines := r.lines(t)
			if got := r.header.Get(sharing.HeaderCapabilities); got != "responseformat="+want {
				t.Errorf("capabilities %q, want format %s", got, want)
			}
			if isDelta := lines[0].Protocol.DeltaProtocol != nil; isDelta != (want == "delta") {
				t.Errorf("the lines are not in %s format", want)
			}
		}
	}
	refused := func(t *testing.T, r reply) {
		t.Helper()
		r.fails(t, http.StatusBadRequest, sharing.CodeUnsupportedOperation)
		if !slices.ContainsFunc(table.Required, func(f string) bool { return strings.Contains(string(r.body), f) }) {
			t.Errorf("no missing feature is named: %.300s", r.body)
		}
	}
	plain := len(table.Required) == 0
	only := func(ifPlain, otherwise func(*testing.T, reply)) func(*testing.T, reply) {
		if plain {
			return ifPlain
		}
		return otherwise
	}
	deltaUnlessPlain := only(format("parquet"), format("delta"))
	for name, test := range map[string]struct {
		header http.Header
		check  func(*testing.T, reply)
	}{
		"no header means parquet, and what parquet cannot say is refused": {http.Header{}, only(format("parquet"), refused)},
		"parquet alone is kept to without any features":                   {capable("responseformat=parquet"), only(format("parquet"), refused)},
		"parquet alone is kept to whatever features are listed":           {listing("parquet", table.Required), only(format("parquet"), refused)},
		"delta with all features is answered in delta":                    {listing("delta", table.Required), format("delta")},
		"delta without the features is refused":                           {listing("delta", nil), only(format("delta"), refused)},
		"of two formats the one that does is chosen":                      {listing("delta,parquet", table.Required), deltaUnlessPlain},
		"the order of two formats does not matter":                        {listing("parquet,delta", table.Required), deltaUnlessPlain},
		"an unknown format beside a known one is ignored":                 {listing("iceberg,delta", table.Required), format("delta")},
		"mixed case is read":                                              {capable("ResponseFormat=DELTA;ReaderFeatures=" + strings.Join(table.Required, ",")), format("delta")},
		"spaces are read":                                                 {capable(" responseformat = delta ; readerfeatures = " + strings.Join(table.Required, " , ") + " "), format("delta")},
		"two lines are one header":                                        {capable("responseformat=delta", "readerfeatures="+strings.Join(table.Required, ",")), format("delta")},
		"a boolean that is none is false":                                 {capable("responseformat=delta;includeendstreamaction=perhaps;readerfeatures=" + strings.Join(table.Required, ",")), format("delta")},
		"capabilities that are not known are ignored":                     {capable("responseformat=delta;surprise=1;flag;readerfeatures=" + strings.Join(table.Required, ",")), format("delta")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, test.header, test.check)
		})
	}
	t.Run("unknown formats alone are refused", func(t *testing.T) {
		t.Parallel()
		both(t, capable("responseformat=iceberg"), func(t *testing.T, r reply) {
			t.Helper()
			r.fails(t, http.StatusBadRequest, sharing.CodeUnsupportedOperation)
		})
	})
	t.Run("the header of the founding document is accepted as it stands", func(t *testing.T) {
		t.Parallel()
		check := format("delta")
		for _, f := range table.Required {
			if f != "deletionVectors" && f != "columnMapping" {
				check = refused
			}
		}
		both(t, capable(founding), check)
	})
	for _, missing := range table.Required {
		t.Run("a client without "+missing+" is refused by its name", func(t *testing.T) {
			t.Parallel()
			others := slices.DeleteFunc(slices.Clone(table.Required), func(f string) bool { return f == missing })
			both(t, listing("delta", others), func(t *testing.T, r reply) {
				t.Helper()
				r.fails(t, http.StatusBadRequest, sharing.CodeUnsupportedOperation)
				if !strings.Contains(string(r.body), missing) {
					t.Errorf("%.300s", r.body)
				}
			})
		})
	}
}

func answers(t *testing.T, target Target, table Table) {
	t.Helper()
	query := func(t *testing.T, body, capabilities string) reply {
		t.Helper()
		return target.do(t, request{method: http.MethodPost, path: table.path("/query"), body: body, header: capable(capabilities)})
	}
	t.Run("metadata is exactly two lines, the same that a query begins with", func(t *testing.T) {
		t.Parallel()
		meta := target.do(t, request{path: table.path("/metadata"), header: capable(everything + ";includeendstreamaction=true")})
		if n := len(meta.lines(t)); n != 2 {
			t.Errorf("%d lines", n)
		}
		if !bytes.HasPrefix(query(t, "{}", everything).body, meta.body) {
			t.Error("a query begins with other lines")
		}
	})
	t.Run("a version, the past and changes are refused without history", func(t *testing.T) {
		t.Parallel()
		for _, body := range []string{`{"version":0}`, `{"version":"0"}`, `{"timestamp":"2022-01-01T00:00:00Z"}`, `{"startingVersion":0}`, `{"starting_version":0,"endingVersion":1}`} {
			query(t, body, everything).fails(t, http.StatusBadRequest, sharing.CodeInvalidParameter)
		}
		for _, path := range []string{"/changes?startingVersion=0", "/version?startingTimestamp=2022-01-01T00:00:00Z", "/metadata?version=0", "/metadata?timestamp=2022-01-01T00:00:00Z"} {
			target.do(t, request{path: table.path(path), header: capable(everything)}).fails(t, http.StatusBadRequest, sharing.CodeInvalidParameter)
		}
	})
	t.Run("size and number of files are told, and agree with the files", func(t *testing.T) {
		t.Parallel()
		lines := query(t, "{}", everything).lines(t)
		meta := lines[1].MetaData
		if meta.SizeBytes == nil || meta.NumFiles == nil {
			t.Fatal("size or numFiles is missing")
		}
		var size int64
		for _, line := range lines[2:] {
			size += line.File.Action.Add.SizeBytes
		}
		if *meta.NumFiles != table.Files || count(lines) != table.Files || *meta.SizeBytes != size {
			t.Errorf("numFiles %d, size %d; the lines have %d and %d, and %d are expected", *meta.NumFiles, *meta.SizeBytes, count(lines), size, table.Files)
		}
	})
	t.Run("the protocol line says what a reader needs and no more", func(t *testing.T) {
		t.Parallel()
		p := query(t, "{}", everything).lines(t)[0].Protocol.DeltaProtocol
		legacy := p.MinReaderVersion < 3
		if legacy && (p.ReaderFeatures != nil || p.WriterFeatures != nil) {
			t.Error("a legacy protocol has feature lists")
		}
		if !legacy && (p.MinReaderVersion != 3 || p.MinWriterVersion != 7 || !slices.Equal(p.ReaderFeatures, table.Required)) {
			t.Errorf("got %+v, want features %v", p, table.Required)
		}
		for _, f := range p.ReaderFeatures {
			if !slices.Contains(p.WriterFeatures, f) {
				t.Errorf("%s is not a writer feature too", f)
			}
		}
	})
	t.Run("an end of the stream is there exactly if it was asked for", func(t *testing.T) {
		t.Parallel()
		for _, test := range []struct {
			body, capabilities string
			want, refresh      bool
		}{
			{`{}`, everything, false, false},
			{`{}`, everything + ";includeendstreamaction=true", true, false},
			{`{"includeRefreshToken":true}`, everything, true, true},
			{`{"maxFiles":100000}`, everything, true, false},
			{`{"includeRefreshToken":true}`, everything + ";includeendstreamaction=true", true, true},
		} {
			r := query(t, test.body, test.capabilities)
			lines := r.lines(t)
			end := lines[len(lines)-1].EndStream
			if (end != nil) != test.want {
				t.Errorf("%s with %s: end %v", test.body, test.capabilities, end != nil)
				continue
			}
			if promised := strings.Contains(r.header.Get(sharing.HeaderCapabilities), "includeendstreamaction=true"); promised != strings.Contains(test.capabilities, "includeendstreamaction") {
				t.Errorf("%s with %s: promised %v", test.body, test.capabilities, promised)
			}
			if end == nil {
				continue
			}
			if (end.RefreshToken != "") != test.refresh || end.ErrorMessage != "" || (end.MinURLExpirationTimestamp != nil) != (table.Files > 0) {
				t.Errorf("%s: %+v", test.body, end)
			}
			if strings.ContainsAny(end.RefreshToken, "+/= ") {
				t.Error("a token needs escaping in a URL")
			}
		}
	})
	t.Run("a refresh token gives the same files with new URLs", func(t *testing.T) {
		t.Parallel()
		first := query(t, `{"includeRefreshToken":true}`, everything).lines(t)
		token := first[len(first)-1].EndStream.RefreshToken
		again := query(t, `{"refreshToken":"`+token+`","includeRefreshToken":true}`, everything).lines(t)
		if len(again) != len(first) {
			t.Fatalf("%d lines, then %d", len(first), len(again))
		}
		for i, line := range first[2 : len(first)-1] {
			if got := again[i+2].File; got.ID != line.File.ID || got.DeletionVectorFileID != line.File.DeletionVectorFileID {
				t.Errorf("line %d is another file", i+2)
			}
		}
		if again[len(again)-1].EndStream.RefreshToken == "" {
			t.Error("no new token")
		}
		tampered := []byte(token)
		tampered[len(tampered)/2] ^= 1
		query(t, `{"refreshToken":"`+string(tampered)+`"}`, everything).fails(t, http.StatusBadRequest, sharing.CodeInvalidParameter)
		for _, other := range target.Tables {
			if other.Name != table.Name {
				target.do(t, request{method: http.MethodPost, path: other.path("/query"), body: `{"refreshToken":"` + token + `"}`, header: capable(everything)}).
					fails(t, http.StatusBadRequest, sharing.CodeInvalidParameter)
			}
		}
	})
	t.Run("a limit gives no fewer rows than asked for", func(t *testing.T) {
		t.Parallel()
		for _, body := range []string{`{"limitHint":1}`, `{"limitHint":"1"}`, `{"limit_hint":1}`} {
			if n := count(query(t, body, everything).lines(t)); table.Files > 0 && n < 1 || n > table.Files {
				t.Errorf("%s: %d files of %d", body, n, table.Files)
			}
		}
	})
	t.Run("every file says when its URLs expire, and the end says the earliest", func(t *testing.T) {
		t.Parallel()
		lines := query(t, `{"includeRefreshToken":true}`, everything).lines(t)
		earliest := int64(0)
		for _, line := range lines[2 : len(lines)-1] {
			at := line.File.ExpirationTimestamp
			if at == nil || *at <= time.Now().UnixMilli() {
				t.Fatal("a file has no expiry, or has expired")
			}
			if earliest == 0 || *at < earliest {
				earliest = *at
			}
		}
		if end := lines[len(lines)-1].EndStream; earliest > 0 && *end.MinURLExpirationTimestamp != earliest {
			t.Errorf("minUrlExpirationTimestamp %d, the files say %d", *end.MinURLExpirationTimestamp, earliest)
		}
	})
	t.Run("statistics of identity columns do not show", func(t *testing.T) {
		t.Parallel()
		for _, line := range query(t, "{}", everything).lines(t)[2:] {
			var stats struct {
				MinValues, MaxValues map[string]json.RawMessage
			}
			if s := line.File.Action.Add.Stats; s != "" {
				if err := json.Unmarshal([]byte(s), &stats); err != nil {
					t.Fatal(err)
				}
			}
			for _, column := range table.IdentityColumns {
				if stats.MinValues[column] != nil || stats.MaxValues[column] != nil {
					t.Errorf("the minimum or maximum of %s shows", column)
				}
			}
		}
	})
}
