package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"delenda/sharing"
	"delenda/sharing/server"
	"delenda/sharing/snapshot"
)

func TestPagesOfAllTablesGoThroughSchemasOfWhichOneBeginsWithAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil, func(o *server.Options) {
		var schemas []snapshot.Schema
		for _, name := range []string{"a", "a-b", "a_b", "a0"} {
			schemas = append(schemas, snapshot.Schema{Name: name, Tables: []snapshot.SharedTable{{Name: "t", Table: "t"}, {Name: "t-1", Table: "t"}}})
		}
		o.Shares = []snapshot.Share{{Name: "Lake", Schemas: schemas}}
	})
	var names []string
	token := ""
	for range 9 {
		_, text := f.ask(t, http.MethodGet, "/shares/lake/all-tables?maxResults=1&pageToken="+url.QueryEscape(token), "", "")
		var page sharing.Page[sharing.Table]
		if err := json.Unmarshal(text, &page); err != nil {
			t.Fatal(err)
		}
		for _, table := range page.Items {
			names = append(names, table.Schema+"."+table.Name)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if want := []string{"a.t", "a.t-1", "a-b.t", "a-b.t-1", "a0.t", "a0.t-1", "a_b.t", "a_b.t-1"}; !slices.Equal(names, want) || token != "" {
		t.Errorf("got %v", names)
	}
}
