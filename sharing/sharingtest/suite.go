// Package sharingtest holds a Delta Sharing server to the protocol and to what
// real clients need of it. It speaks HTTP alone: the server may be in this
// process or anywhere. It is for tests only.
//
// Every MUST is a subtest whose name is a sentence. What a table is expected to
// hold is said by its Table; what is not said is not checked.
package sharingtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"delenda/sharing"
)

// Target is the server under test.
type Target struct {
	Endpoint string // with the prefix, without a trailing '/'
	Token    string
	Client   *http.Client // nil: http.DefaultClient
	Tables   []Table      // what the token may read: at least one
	// NotGranted is a share that exists and that the token may not read; empty
	// leaves out what needs one.
	NotGranted string
}

// Table is what a shared table is expected to serve.
type Table struct {
	Share, Schema, Name string
	Required            []string // reader features that a client must list, as the table's protocol spells them
	Files, Vectors      int64    // live files, and those of them with a deletion vector
	// IdentityColumns are the physical names of columns whose minimum and
	// maximum must not show.
	IdentityColumns []string
}

// founding is the header as the proposal of delta format sharing writes it.
const founding = "responseFormat=delta,readerfeatures=deletionVectors,columnMapping"

// everything that the features of a table can be, as clients list it.
const everything = "responseformat=delta;readerfeatures=deletionvectors,columnmapping,timestampntz,variantType,typeWidening,typeWidening-preview"

// Run runs all of the suite.
func Run(t *testing.T, target Target) {
	t.Helper()
	if len(target.Tables) == 0 {
		t.Fatal("a target needs a table")
	}
	t.Run("lists", func(t *testing.T) { t.Parallel(); lists(t, target) })
	t.Run("errors", func(t *testing.T) { t.Parallel(); failures(t, target) })
	t.Run("paths", func(t *testing.T) { t.Parallel(); paths(t, target) })
	t.Run("rules of a query", func(t *testing.T) { t.Parallel(); rules(t, target) })
	for _, table := range target.Tables {
		t.Run("table "+table.Name, func(t *testing.T) {
			t.Parallel()
			negotiation(t, target, table)
			answers(t, target, table)
			files(t, target, table)
		})
	}
}

// reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// request is what a test sends; the zero value is a GET with the token.
type request struct {
	method, path, body string
	header             http.Header
	anonymous          bool
}

func (target Target) do(t testing.TB, r request) reply {
	t.Helper()
	res, err := target.try(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func (target Target) try(ctx context.Context, r request) (reply, error) {
	if r.method == "" {
		r.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target.Endpoint+r.path, strings.NewReader(r.body))
	if err != nil {
		return reply{}, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if !r.anonymous && req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+target.Token)
	}
	return target.send(req)
}

func (target Target) send(req *http.Request) (reply, error) {
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if target.Client != nil {
		client.Transport = target.Client.Transport
	}
	res, err := client.Do(req) //nolint:gosec // the URL is the test's target
	if err != nil {
		return reply{}, err
	}
	body, err := io.ReadAll(res.Body)
	if cerr := res.Body.Close(); err == nil {
		err = cerr
	}
	return reply{res.StatusCode, res.Header, body}, err
}

// capable is a header with capabilities.
func capable(lines ...string) http.Header {
	return http.Header{http.CanonicalHeaderKey(sharing.HeaderCapabilities): lines}
}

func (table Table) path(rest string) string {
	return "/shares/" + table.Share + "/schemas/" + table.Schema + "/tables/" + table.Name + rest
}

// lines parses an answer of lines, and holds to its form: one JSON object per
// line, every line ended.
func (r reply) lines(t testing.TB) []sharing.Line {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %.300s", r.status, r.body)
	}
	if got := r.header.Get("Content-Type"); got != sharing.ContentTypeNDJSON {
		t.Errorf("content type %q", got)
	}
	if len(r.body) == 0 || r.body[len(r.body)-1] != '\n' || bytes.Contains(r.body, []byte("\n\n")) {
		t.Error("a line is not ended, or blank")
	}
	var all []sharing.Line
	dec := sharing.NewDecoder(bytes.NewReader(r.body), 0)
	for {
		line, err := dec.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	if dec.Skipped() > 0 || len(all) != bytes.Count(r.body, []byte("\n")) {
		t.Errorf("%d lines of an unknown kind", dec.Skipped())
	}
	if len(all) < 2 || all[0].Protocol == nil || all[1].MetaData == nil {
		t.Fatal("an answer does not begin with protocol and metaData")
	}
	return all
}

// fails holds to the form of an error.
func (r reply) fails(t testing.TB, status int, code string) {
	t.Helper()
	var body sharing.ErrorBody
	if err := json.Unmarshal(r.body, &body); err != nil {
		t.Errorf("status %d, and a body that is not JSON: %.200q", r.status, r.body)
		return
	}
	if r.status != status || body.Code != code || body.Message == "" {
		t.Errorf("status %d, %s: %q, want %d, %s", r.status, body.Code, body.Message, status, code)
	}
}
