package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"delenda/sharing"
	"delenda/sharing/snapshot"
	"delenda/storage"
)

const (
	maxBodyBytes    = 2 << 20
	refreshTokenTTL = time.Hour
)

// parseQuery reads the body of a query: int64 as numbers or numeric strings,
// members in camelCase or snake_case, unknown ones ignored.
func parseQuery(body []byte) (sharing.QueryRequest, error) {
	var members map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&members); err != nil || members == nil {
		return sharing.QueryRequest{}, malformed("the body is not a JSON object")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return sharing.QueryRequest{}, malformed("something follows the JSON object of the body")
	}
	for name, value := range members {
		if camel := camelCase(name); camel != name {
			if _, both := members[camel]; !both {
				members[camel] = value
			}
			delete(members, name)
		}
	}
	var q sharing.QueryRequest
	for name, into := range map[string]any{
		"predicateHints": &q.PredicateHints, "jsonPredicateHints": &q.JSONPredicateHints, "limitHint": &q.LimitHint,
		"version": &q.Version, "timestamp": &q.Timestamp, "startingVersion": &q.StartingVersion, "endingVersion": &q.EndingVersion,
		"maxFiles": &q.MaxFiles, "pageToken": &q.PageToken, "includeRefreshToken": &q.IncludeRefreshToken, "refreshToken": &q.RefreshToken,
	} {
		value, ok := members[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(value, into); err != nil {
			return sharing.QueryRequest{}, malformed(name + ": wrong type, or not a numeric value")
		}
	}
	return q, nil
}

func camelCase(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	var b strings.Builder
	up := false
	for _, r := range name {
		switch {
		case r == '_':
			up = b.Len() > 0
		case up:
			b.WriteRune(unicode.ToUpper(r))
			up = false
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// checkQuery holds to the rules of the protocol about members that exclude each
// other, in the order in which other servers do.
func checkQuery(q sharing.QueryRequest) error {
	positions := 0
	for _, given := range []bool{q.Version != nil, q.Timestamp != "", q.StartingVersion != nil} {
		if given {
			positions++
		}
	}
	switch {
	case positions > 1:
		return invalid("Please only provide one of: version,timestamp,startingVersion")
	case q.Version != nil && *q.Version < 0:
		return invalid("table version cannot be negative.")
	case q.StartingVersion != nil && *q.StartingVersion < 0:
		return invalid("startingVersion cannot be negative.")
	case q.MaxFiles != nil && *q.MaxFiles <= 0:
		return invalid("maxFiles must be positive.")
	case positions > 0 && q.IncludeRefreshToken:
		return invalid("includeRefreshToken cannot be used when querying a specific version.")
	case q.PageToken != "" && q.IncludeRefreshToken:
		return invalid("includeRefreshToken must be used in the first page request.")
	case positions > 0 && q.RefreshToken != "":
		return invalid("refreshToken cannot be used when querying a specific version.")
	case q.PageToken != "" && q.RefreshToken != "":
		return invalid("refreshToken must be used in the first page request.")
	case q.Timestamp != "" && !isTimestamp(q.Timestamp):
		return invalid("Invalid timestamp: want ISO 8601 with a zone")
	}
	return nil
}

func checkRange(q sharing.QueryRequest) error {
	if q.StartingVersion != nil && q.EndingVersion != nil && *q.EndingVersion < *q.StartingVersion {
		return invalid("startingVersion(%d) must be smaller than or equal to endingVersion(%d).", *q.StartingVersion, *q.EndingVersion)
	}
	return nil
}

// query answers the files of the newest snapshot, or of the one that a refresh
// token names.
func (a *answer) query(ctx context.Context) error {
	_ = a.w.control.SetReadDeadline(time.Now().Add(bodyTimeout)) // not every connection has one
	body, err := io.ReadAll(http.MaxBytesReader(a.w, a.r.Body, maxBodyBytes))
	_ = a.w.control.SetReadDeadline(time.Time{})
	if err != nil {
		if tooLarge(err) {
			return errBodyTooLarge
		}
		return malformed("the body could not be read")
	}
	q, err := parseQuery(body)
	if err != nil {
		return err
	}
	if err := checkQuery(q); err != nil {
		return err
	}
	hash, err := fileIDHash(a.r.Header)
	if err != nil {
		return err
	}
	ref, err := a.table()
	if err != nil {
		return err
	}
	if q.Version != nil || q.Timestamp != "" || q.StartingVersion != nil {
		if err := checkRange(q); err != nil {
			return err
		}
		return errHistory(ref)
	}
	if q.PageToken != "" {
		return invalid("Error decoding the page token")
	}
	view, err := a.p.store.Current(ctx, ref)
	if err != nil {
		return err
	}
	if q.RefreshToken != "" {
		if view.Manifest, err = a.refreshed(ctx, view, q.RefreshToken); err != nil {
			return err
		}
	}
	return a.stream(ctx, view, q, hash)
}

// refreshed returns the manifest that a refresh token pins.
func (a *answer) refreshed(ctx context.Context, view snapshot.View, token string) (*snapshot.Manifest, error) {
	c, err := unseal(a.p.keys, kindRefresh, token, a.p.o.Now())
	switch {
	case errors.Is(err, errExpired):
		return nil, invalid("The refresh token has expired. Please restart the query.")
	case err != nil || c.Recipient != a.recipient.Name:
		return nil, invalid("Error decoding refresh token")
	case c.Scope != view.Ref.Key():
		return nil, invalid("The table specified in the refresh token does not match the table being queried.")
	case storage.Version(c.Version) < view.Head.HideFloor:
		return nil, errRestart
	}
	manifest, err := a.p.store.Manifest(ctx, view.Ref, c.Key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, errRestart
	}
	return manifest, err
}

var errRestart = invalid("The version of the refresh token is no longer served. Please restart the query.")

// stream writes an answer of lines. What fails before the first file is an
// answer of its own; after it, the answer ends with the error if the client
// asked to be told so, and otherwise breaks off.
func (a *answer) stream(ctx context.Context, view snapshot.View, q sharing.QueryRequest, hash sharing.ResponseFormat) error {
	m := view.Manifest
	format, asked, err := a.negotiate(m)
	if err != nil {
		return err
	}
	granted := sharing.Capabilities{Formats: []sharing.ResponseFormat{format}, IncludeEndStreamAction: asked.IncludeEndStreamAction}
	sealer := newSealer(a.p.keys)
	sign, err := a.signer(view, sealer)
	if err != nil {
		return err
	}
	a.head(m, granted)
	if hash != "" {
		a.w.Header().Set(sharing.HeaderFileIDHash, string(hash))
	}
	out := bufio.NewWriterSize(a.w, 32<<10)
	first := &flushFirst{out: out, control: a.w.control}
	if err := writeHead(out, m, format); err != nil {
		return err
	}
	streamed, err := a.p.store.Stream(ctx, first, view, snapshot.StreamOptions{Format: format, IDHash: hash, Limit: limitOf(q), Sign: sign})
	a.files = streamed.Files
	end := sharing.EndStream{}
	if err != nil {
		if a.w.status == 0 || !granted.IncludeEndStreamAction {
			a.unhead()
			return err
		}
		end.ErrorMessage = "the answer could not be completed: query the table again"
		return a.finish(out, &end)
	}
	if !streamed.ExpiresAt.IsZero() {
		ms := streamed.ExpiresAt.UnixMilli()
		end.MinURLExpirationTimestamp = &ms
	}
	if q.IncludeRefreshToken {
		end.RefreshToken, err = sealer.seal(kindRefresh, claims{
			ExpiresAt: a.p.o.Now().Add(refreshTokenTTL).UnixMilli(), Scope: view.Ref.Key(), Recipient: a.recipient.Name,
			Version: int64(m.Version), Key: m.Key,
		})
		if err != nil {
			return err
		}
	}
	if !granted.IncludeEndStreamAction && !q.IncludeRefreshToken && q.MaxFiles == nil {
		return out.Flush()
	}
	return a.finish(out, &end)
}

// unhead takes back the headers of lines for an answer that is an error.
func (a *answer) unhead() {
	for _, name := range []string{sharing.HeaderTableVersion, sharing.HeaderCapabilities, sharing.HeaderFileIDHash} {
		a.w.Header().Del(name)
	}
}

func (a *answer) finish(out *bufio.Writer, end *sharing.EndStream) error {
	if err := sharing.NewEncoder(out).Encode(sharing.Line{EndStream: end}); err != nil {
		return err
	}
	return out.Flush()
}

// flushFirst sends what there is with the first file.
type flushFirst struct {
	out     *bufio.Writer
	control *http.ResponseController
	sent    bool
}

func (f *flushFirst) Write(p []byte) (int, error) {
	n, err := f.out.Write(p)
	if err != nil || f.sent {
		return n, err
	}
	f.sent = true
	if err := f.out.Flush(); err != nil {
		return n, fmt.Errorf("send the first file: %w", err)
	}
	_ = f.control.Flush() // not every writer can
	return n, nil
}

// limitOf returns how many rows an answer needs to hold, 0 for all: with
// predicates the rows that count are not known.
func limitOf(q sharing.QueryRequest) int64 {
	predicates := q.JSONPredicateHints != "" || slices.ContainsFunc(q.PredicateHints, func(s string) bool { return s != "" })
	if q.LimitHint == nil || predicates {
		return 0
	}
	return max(0, int64(*q.LimitHint))
}
