package server

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"delenda/sharing"
	"delenda/sharing/snapshot"
)

func errHistory(ref snapshot.Ref) error {
	return invalid("Reading table by version or timestamp is not supported because history sharing is not enabled on table: %s.%s.%s",
		ref.Share, ref.Schema, ref.Name)
}

// version answers the number of the newest version, in a header alone.
func (a *answer) version(ctx context.Context) error {
	text := a.r.URL.Query().Get("startingTimestamp")
	if text != "" && !isTimestamp(text) {
		return invalid("Invalid startingTimestamp: want ISO 8601 with a zone")
	}
	ref, err := a.table()
	if err != nil {
		return err
	}
	if text != "" {
		return errHistory(ref)
	}
	view, err := a.p.store.Current(ctx, ref)
	if err != nil {
		return err
	}
	a.w.Header().Set(sharing.HeaderTableVersion, strconv.FormatInt(int64(view.Head.Version), 10))
	a.w.Header().Set("Cache-Control", "no-store")
	a.w.Header().Set("Content-Type", contentTypeJSON)
	a.w.WriteHeader(http.StatusOK)
	return nil
}

// isTimestamp accepts ISO 8601 with a zone; without one it would be anyone's.
func isTimestamp(text string) bool {
	_, err := time.Parse(time.RFC3339Nano, text)
	return err == nil
}

// metadata answers protocol and metadata, exactly two lines.
func (a *answer) metadata(ctx context.Context) error {
	query := a.r.URL.Query()
	version, timestamp := query.Get("version"), query.Get("timestamp")
	if version != "" && timestamp != "" {
		return invalid("Please only provide one of: version,timestamp")
	}
	if version != "" {
		n, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			return invalid("version is not a valid number.")
		}
		if n < 0 {
			return invalid("version cannot be negative.")
		}
	}
	if timestamp != "" && !isTimestamp(timestamp) {
		return invalid("Invalid timestamp: want ISO 8601 with a zone")
	}
	ref, err := a.table()
	if err != nil {
		return err
	}
	if version != "" || timestamp != "" {
		return errHistory(ref)
	}
	view, err := a.p.store.Current(ctx, ref)
	if err != nil {
		return err
	}
	format, _, err := a.negotiate(view.Manifest)
	if err != nil {
		return err
	}
	a.head(view.Manifest, sharing.Capabilities{Formats: []sharing.ResponseFormat{format}})
	out := bufio.NewWriter(a.w)
	if err := writeHead(out, view.Manifest, format); err != nil {
		return err
	}
	return out.Flush()
}

// negotiate chooses the format of an answer from a manifest, and refuses what
// its reader could not read.
func (a *answer) negotiate(m *snapshot.Manifest) (sharing.ResponseFormat, sharing.Capabilities, error) {
	c := sharing.ParseCapabilities(a.r.Header.Values(sharing.HeaderCapabilities))
	if len(c.Formats) == 0 && c.UnknownFormat {
		return "", c, unsupported("none of the response formats is known: want parquet or delta")
	}
	format := sharing.FormatParquet
	if !c.Accepts(sharing.FormatParquet) || c.Accepts(sharing.FormatDelta) && len(m.Required) > 0 {
		format = sharing.FormatDelta
	}
	missing := m.Missing(format, c)
	switch {
	case len(missing) == 0:
		return format, c, nil
	case format == sharing.FormatParquet:
		return "", c, unsupported("the table cannot be read in parquet format, since it needs %s: ask for responseformat=delta with %s in readerfeatures",
			strings.Join(missing, ", "), strings.ToLower(strings.Join(missing, ",")))
	default:
		return "", c, unsupported("the table needs reader features that the request does not list: %s", strings.Join(missing, ", "))
	}
}

// head sets the headers of an answer of lines.
func (a *answer) head(m *snapshot.Manifest, granted sharing.Capabilities) {
	h := a.w.Header()
	h.Set("Content-Type", sharing.ContentTypeNDJSON)
	h.Set("Cache-Control", "no-store")
	h.Set(sharing.HeaderTableVersion, strconv.FormatInt(int64(m.Version), 10))
	h.Set(sharing.HeaderCapabilities, granted.String())
}

func writeHead(w *bufio.Writer, m *snapshot.Manifest, format sharing.ResponseFormat) error {
	lines := sharing.NewEncoder(w)
	if err := lines.Encode(m.ProtocolLine(format)); err != nil {
		return err
	}
	return lines.Encode(m.MetaDataLine(format))
}

// fileIDHash reads the header that chooses the hash of file ids; an empty
// answer leaves it to the response format.
func fileIDHash(h http.Header) (sharing.ResponseFormat, error) {
	values := h.Values(sharing.HeaderFileIDHash)
	if len(values) == 0 {
		return "", nil
	}
	f := sharing.ResponseFormat(strings.ToLower(strings.TrimSpace(values[0])))
	if !slices.Contains([]sharing.ResponseFormat{sharing.FormatParquet, sharing.FormatDelta}, f) {
		return "", invalid("fileidhash must be parquet or delta")
	}
	return f, nil
}
