package sharingtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"delenda/sharing"
)

func lists(t *testing.T, target Target) {
	t.Helper()
	table := target.Tables[0]
	t.Run("shares, schemas and tables that were granted are listed", func(t *testing.T) {
		t.Parallel()
		for _, table := range target.Tables {
			if !has(all[sharing.Share](t, target, "/shares", 0), func(s sharing.Share) bool { return s.Name == table.Share }) {
				t.Errorf("share %s is not listed", table.Share)
			}
			if !has(all[sharing.Schema](t, target, "/shares/"+table.Share+"/schemas", 0), func(s sharing.Schema) bool { return s.Name == table.Schema && s.Share == table.Share }) {
				t.Errorf("schema %s is not listed", table.Schema)
			}
			for _, path := range []string{"/shares/" + table.Share + "/all-tables", "/shares/" + table.Share + "/schemas/" + table.Schema + "/tables"} {
				if !has(all[sharing.Table](t, target, path, 0), func(s sharing.Table) bool {
					return s.Name == table.Name && s.Schema == table.Schema && s.Share == table.Share
				}) {
					t.Errorf("%s does not list %s", path, table.Name)
				}
			}
		}
	})
	t.Run("pages of one give the same as one page", func(t *testing.T) {
		t.Parallel()
		path := "/shares/" + table.Share + "/all-tables"
		whole, one := all[sharing.Table](t, target, path, 0), all[sharing.Table](t, target, path, 1)
		if len(whole) != len(one) {
			t.Fatalf("%d tables at once, %d one by one", len(whole), len(one))
		}
		for i := range whole {
			if whole[i] != one[i] {
				t.Errorf("item %d: %v and %v", i, whole[i], one[i])
			}
		}
	})
	t.Run("a page of none has a token that goes on", func(t *testing.T) {
		t.Parallel()
		first := getPage[sharing.Share](t, target, "/shares?maxResults=0")
		if len(first.Items) != 0 || first.NextPageToken == "" {
			t.Fatalf("got %+v", first)
		}
		if next := getPage[sharing.Share](t, target, "/shares?pageToken="+url.QueryEscape(first.NextPageToken)); len(next.Items) == 0 {
			t.Error("nothing follows")
		}
	})
	t.Run("a page size that is out of range or no number is refused by name", func(t *testing.T) {
		t.Parallel()
		for _, n := range []string{"-1", "501", "x", "9999999999999999999"} {
			r := target.do(t, request{path: "/shares?maxResults=" + n})
			r.fails(t, http.StatusBadRequest, sharing.CodeInvalidParameter)
			if !strings.Contains(string(r.body), "maxResults") {
				t.Errorf("%s: %s", n, r.body)
			}
		}
		for _, n := range []string{"0", "1", "500"} {
			if r := target.do(t, request{path: "/shares?maxResults=" + n}); r.status != http.StatusOK {
				t.Errorf("%s: status %d", n, r.status)
			}
		}
	})
	t.Run("a page token that is garbage, or another list's, is refused", func(t *testing.T) {
		t.Parallel()
		foreign := getPage[sharing.Share](t, target, "/shares?maxResults=0").NextPageToken
		for _, token := range []string{"x", "%00", strings.Repeat("A", 100), url.QueryEscape(foreign)} {
			target.do(t, request{path: "/shares/" + table.Share + "/schemas?pageToken=" + token}).fails(t, http.StatusBadRequest, sharing.CodeInvalidParameter)
		}
	})
	t.Run("a share is shown by name", func(t *testing.T) {
		t.Parallel()
		r := target.do(t, request{path: "/shares/" + table.Share})
		var got struct {
			Share sharing.Share `json:"share"`
		}
		if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK || got.Share.Name != table.Share {
			t.Errorf("status %d, %s", r.status, r.body)
		}
	})
	t.Run("names are found whatever their case, and shown as configured", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{strings.ToUpper(table.Share), strings.ToLower(table.Share)} {
			if !has(all[sharing.Table](t, target, "/shares/"+name+"/all-tables", 0), func(s sharing.Table) bool { return s.Share == table.Share && s.Name == table.Name }) {
				t.Errorf("%s does not show %s.%s", name, table.Share, table.Name)
			}
		}
	})
}

func has[T any](items []T, is func(T) bool) bool {
	for _, item := range items {
		if is(item) {
			return true
		}
	}
	return false
}

func getPage[T any](t testing.TB, target Target, path string) sharing.Page[T] {
	t.Helper()
	r := target.do(t, request{path: path})
	var page sharing.Page[T]
	if err := json.Unmarshal(r.body, &page); err != nil || r.status != http.StatusOK {
		t.Fatalf("%s: status %d, %s", path, r.status, r.body)
	}
	if got := r.header.Get("Content-Type"); got != "application/json; charset=utf-8" {
		t.Errorf("%s: content type %q", path, got)
	}
	return page
}

// all follows the pages of a list, each of most items unless that is 0.
func all[T any](t testing.TB, target Target, path string, most int) []T {
	t.Helper()
	var items []T
	query := url.Values{}
	if most > 0 {
		query.Set("maxResults", "1")
	}
	for range 1000 {
		page := getPage[T](t, target, path+"?"+query.Encode())
		items = append(items, page.Items...)
		if page.NextPageToken == "" {
			return items
		}
		query.Set("pageToken", page.NextPageToken)
	}
	t.Fatalf("%s does not end", path)
	return nil
}

func failures(t *testing.T, target Target) {
	t.Helper()
	table := target.Tables[0]
	everywhere := []request{
		{path: "/shares"},
		{path: "/shares/" + table.Share},
		{path: "/shares/" + table.Share + "/schemas"},
		{path: "/shares/" + table.Share + "/all-tables"},
		{path: "/shares/" + table.Share + "/schemas/" + table.Schema + "/tables"},
		{path: table.path("/version")},
		{path: table.path("/metadata")},
		{path: table.path("/query"), method: http.MethodPost, body: "{}"},
		{path: table.path("/changes?startingVersion=0")},
	}
	t.Run("nothing is answered without a token that is known", func(t *testing.T) {
		t.Parallel()
		for _, r := range everywhere {
			for _, value := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic dTpw", target.Token, "Bearer " + target.Token + "x", "Bearer " + target.Token[:len(target.Token)-1]} {
				r.anonymous, r.header = true, http.Header{}
				if value != "" {
					r.header.Set("Authorization", value)
				}
				got := target.do(t, r)
				if got.status != http.StatusUnauthorized {
					t.Errorf("%s %s with %d characters of authorization: status %d", r.method, r.path, len(value), got.status)
				}
			}
		}
	})
	t.Run("what is absent and what is not granted look the same", func(t *testing.T) {
		t.Parallel()
		names := []string{"no-such-share"}
		if target.NotGranted != "" {
			names = append(names, target.NotGranted, strings.ToUpper(target.NotGranted))
		}
		for _, name := range names {
			for _, r := range everywhere[1:] {
				r.path = strings.Replace(r.path, "/shares/"+table.Share, "/shares/"+name, 1)
				got := target.do(t, r)
				got.fails(t, http.StatusNotFound, sharing.CodeDoesNotExist)
				want := target.do(t, request{method: r.method, body: r.body, path: strings.Replace(r.path, name, "no-such-share", 1)})
				if strings.ReplaceAll(string(got.body), name, "no-such-share") != string(want.body) {
					t.Errorf("%s: %s and %s", r.path, got.body, want.body)
				}
			}
		}
		if target.NotGranted != "" && has(all[sharing.Share](t, target, "/shares", 0), func(s sharing.Share) bool { return strings.EqualFold(s.Name, target.NotGranted) }) {
			t.Error("a share that was not granted is listed")
		}
	})
	t.Run("an unknown schema, table or path is not found", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{
			"/shares/" + table.Share + "/schemas/nope/tables", "/shares/" + table.Share + "/schemas/" + table.Schema + "/tables/nope/version",
			"/shares/" + table.Share + "/schemas/nope/tables/" + table.Name + "/metadata", "/nope", table.path("/nope"), "/shares/" + table.Share + "/..", "/%zz/shares",
		} {
			if strings.Contains(path, "%zz") {
				continue // clients cannot send it
			}
			target.do(t, request{path: path}).fails(t, http.StatusNotFound, sharing.CodeDoesNotExist)
		}
	})
	t.Run("the form that clients with basic authentication post to the endpoint is answered", func(t *testing.T) {
		t.Parallel()
		h := http.Header{"Authorization": {"Basic dTpw"}, "Content-Type": {"application/x-www-form-urlencoded"}}
		for _, path := range []string{"", "/"} {
			if r := target.do(t, request{method: http.MethodPost, path: path, body: "grant_type=client_credentials", header: h}); r.status >= http.StatusInternalServerError {
				t.Errorf("status %d", r.status)
			}
		}
	})
	t.Run("a method that a path does not have is refused", func(t *testing.T) {
		t.Parallel()
		for _, r := range []request{{method: http.MethodDelete, path: "/shares"}, {path: table.path("/query")}, {method: http.MethodPut, path: table.path("/metadata")}} {
			if got := target.do(t, r); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") == "" {
				t.Errorf("%s %s: status %d, allow %q", r.method, r.path, got.status, got.header.Get("Allow"))
			}
		}
	})
}

func paths(t *testing.T, target Target) {
	t.Helper()
	table := target.Tables[0]
	encoded := func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			b.WriteString("%")
			b.WriteString(strings.ToUpper(string("0123456789abcdef"[c>>4])))
			b.WriteString(strings.ToUpper(string("0123456789abcdef"[c&15])))
		}
		return b.String()
	}
	styles := map[string]string{
		"plain":             table.path(""),
		"repeated slashes":  "//" + strings.ReplaceAll(strings.TrimPrefix(table.path(""), "/"), "/", "//"),
		"escaped names":     "/shares/" + encoded(table.Share) + "/schemas/" + encoded(table.Schema) + "/tables/" + encoded(table.Name),
		"upper case":        "/shares/" + strings.ToUpper(table.Share) + "/schemas/" + strings.ToUpper(table.Schema) + "/tables/" + strings.ToUpper(table.Name),
		"a trailing slash":  table.path("/"),
		"lower case escape": "/shares/" + strings.ToLower(encoded(table.Share)) + "/schemas/" + table.Schema + "/tables/" + table.Name,
	}
	for name, path := range styles {
		t.Run(name+" reach the table without a redirect", func(t *testing.T) {
			t.Parallel()
			want := target.do(t, request{path: table.path("/version")}).header.Get(sharing.HeaderTableVersion)
			for _, r := range []request{
				{method: http.MethodHead, path: strings.TrimSuffix(path, "/")},
				{path: strings.TrimSuffix(path, "/") + "/version"},
				{path: strings.TrimSuffix(path, "/") + "/metadata", header: capable(everything)},
				{method: http.MethodPost, path: strings.TrimSuffix(path, "/") + "/query", body: `{"predicateHints":[""],"limitHint":0}`, header: capable(everything)},
			} {
				got := target.do(t, r)
				if got.status != http.StatusOK || got.header.Get(sharing.HeaderTableVersion) != want {
					t.Errorf("%s %s: status %d, version %q, want %q", r.method, r.path, got.status, got.header.Get(sharing.HeaderTableVersion), want)
				}
			}
		})
	}
	t.Run("HEAD of an unknown table is not found, without a body", func(t *testing.T) {
		t.Parallel()
		r := target.do(t, request{method: http.MethodHead, path: table.path("x")})
		if r.status != http.StatusNotFound || len(r.body) > 0 {
			t.Errorf("status %d, %d bytes", r.status, len(r.body))
		}
	})
	t.Run("the version stands in a header, and the body is empty", func(t *testing.T) {
		t.Parallel()
		r := target.do(t, request{path: table.path("/version")})
		if r.status != http.StatusOK || len(r.body) > 0 || r.header.Get(sharing.HeaderTableVersion) == "" {
			t.Errorf("status %d, %q, version %q", r.status, r.body, r.header.Get(sharing.HeaderTableVersion))
		}
	})
}
