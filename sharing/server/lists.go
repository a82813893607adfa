package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"delenda/sharing"
)

const (
	maxPage      = 500
	listTokenTTL = 24 * time.Hour
)

// list answers one page of shares, schemas or tables.
func (a *answer) list() error {
	if a.route.op == opShares {
		var granted []sharing.Share
		for _, s := range a.p.catalog.Shares() {
			if a.recipient.Granted(s.Name) {
				granted = append(granted, s)
			}
		}
		return page(a, granted, func(s sharing.Share) string { return s.Name })
	}
	if a.route.op == opSchemas {
		schemas, ok := a.p.catalog.Schemas(a.route.share)
		if !ok || !a.recipient.Granted(a.route.share) {
			return absent(a.route.share)
		}
		return page(a, schemas, func(s sharing.Schema) string { return s.Name })
	}
	refs, ok := a.p.catalog.AllTables(a.route.share)
	if a.route.op == opTables {
		refs, ok = a.p.catalog.Tables(a.route.share, a.route.schema)
	}
	if !ok || !a.recipient.Granted(a.route.share) {
		return absent(a.route.names()...)
	}
	tables := make([]sharing.Table, len(refs))
	for i, ref := range refs {
		tables[i] = ref.Table
	}
	// The mark between them sorts before all that names hold, as the list does.
	return page(a, tables, func(t sharing.Table) string { return t.Schema + " " + t.Name })
}

// page answers with the items after the page token, in their order.
func page[T any](a *answer, items []T, name func(T) string) error {
	query := a.r.URL.Query()
	most := maxPage
	if text := query.Get("maxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return invalid("maxResults: expected a number")
		}
		if n < 0 || n > maxPage {
			return invalid("maxResults must be from 0 to %d", maxPage)
		}
		most = n
	}
	scope := strings.ToLower(string(a.route.op) + "/" + strings.Join(a.route.names(), "/"))
	after := ""
	if text := query.Get("pageToken"); text != "" {
		c, err := unseal(a.p.keys, kindList, text, a.p.o.Now())
		if err != nil || c.Scope != scope || c.Recipient != a.recipient.Name {
			return invalid("invalid nextPageToken")
		}
		after = c.After
		for len(items) > 0 && strings.ToLower(name(items[0])) <= after {
			items = items[1:]
		}
	}
	var out sharing.Page[T]
	out.Items = items[:min(most, len(items))]
	if len(out.Items) < len(items) {
		if most > 0 {
			after = strings.ToLower(name(out.Items[most-1]))
		}
		token, err := newSealer(a.p.keys).seal(kindList, claims{
			ExpiresAt: a.p.o.Now().Add(listTokenTTL).UnixMilli(), Scope: scope, Recipient: a.recipient.Name, After: after,
		})
		if err != nil {
			return err
		}
		out.NextPageToken = token
	}
	writeJSON(a.w, http.StatusOK, out)
	return nil
}

func (a *answer) share() error {
	share, ok := a.p.catalog.Share(a.route.share)
	if !ok || !a.recipient.Granted(share.Name) {
		return absent(a.route.share)
	}
	writeJSON(a.w, http.StatusOK, struct {
		Share sharing.Share `json:"share"`
	}{share})
	return nil
}
