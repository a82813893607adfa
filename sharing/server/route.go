package server

import (
	"net/http"
	"net/url"
	"strings"
)

// operation is what a path asks for.
type operation string

const (
	opRoot        operation = "root"
	opShares      operation = "shares"
	opShare       operation = "share"
	opSchemas     operation = "schemas"
	opTables      operation = "tables"
	opAllTables   operation = "all-tables"
	opVersion     operation = "version"
	opTable       operation = "table"
	opMetadata    operation = "metadata"
	opQuery       operation = "query"
	opChanges     operation = "changes"
	opQueryStatus operation = "query-status"
	opCredentials operation = "credentials"
	opFile        operation = "file"
	opUnknown     operation = "unknown"
)

// route is a path taken apart.
type route struct {
	op                   operation
	share, schema, table string
}

// names returns those that the path has.
func (r route) names() []string {
	all := []string{r.share, r.schema, r.table}
	n := 0
	for n < len(all) && all[n] != "" {
		n++
	}
	return all[:n]
}

// methods that an operation answers.
func (o operation) methods() []string {
	switch o {
	case opQuery, opQueryStatus, opCredentials:
		return []string{http.MethodPost}
	case opTable:
		return []string{http.MethodHead, http.MethodGet}
	case opRoot:
		return []string{http.MethodPost, http.MethodGet, http.MethodHead}
	default:
		return []string{http.MethodGet, http.MethodHead}
	}
}

// parseRoute takes apart an escaped path below prefix. Clients escape names in
// different ways, and some repeat slashes: empty segments do not count, and no
// redirect is needed, which would turn a POST into a GET.
func parseRoute(escaped, prefix string) route {
	var parts []string
	for part := range strings.SplitSeq(escaped, "/") {
		if part == "" {
			continue
		}
		name, err := url.PathUnescape(part)
		if err != nil || name == "" {
			return route{op: opUnknown}
		}
		parts = append(parts, name)
	}
	for name := range strings.SplitSeq(strings.Trim(prefix, "/"), "/") {
		if name == "" {
			continue
		}
		if len(parts) == 0 || parts[0] != name {
			return route{op: opUnknown}
		}
		parts = parts[1:]
	}
	return match(parts)
}

func match(p []string) route {
	at := func(i int) string {
		if i < len(p) {
			return p[i]
		}
		return ""
	}
	r := route{share: at(1), schema: at(3), table: at(5)}
	shape := at(0)
	for i := 2; i < len(p) && i <= 4; i += 2 {
		shape += "/" + p[i]
	}
	switch {
	case len(p) == 0:
		return route{op: opRoot}
	case len(p) == 2 && shape == "files":
		return route{op: opFile}
	case len(p) == 1 && shape == "shares":
		return route{op: opShares}
	case len(p) == 2 && shape == "shares":
		r.op = opShare
	case len(p) == 3 && shape == "shares/schemas":
		r.op = opSchemas
	case len(p) == 3 && shape == "shares/all-tables":
		r.op = opAllTables
	case len(p) == 5 && shape == "shares/schemas/tables":
		r.op = opTables
	case len(p) == 6 && shape == "shares/schemas/tables":
		r.op = opTable
	case len(p) == 7 && shape == "shares/schemas/tables":
		r.op = tableOperation(p[6])
	case len(p) == 8 && shape == "shares/schemas/tables" && p[6] == "queries":
		r.op = opQueryStatus
	default:
		r.op = opUnknown
	}
	return r
}

func tableOperation(name string) operation {
	switch name {
	case "version":
		return opVersion
	case "metadata":
		return opMetadata
	case "query":
		return opQuery
	case "changes":
		return opChanges
	case "temporary-table-credentials":
		return opCredentials
	default:
		return opUnknown
	}
}
