package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"delenda/sharing"
	"delenda/storage"
	"delenda/storage/delta/log"
)

// capabilities says what this package can read: delta answers with these
// reader features, and parquet answers.
var capabilities = sharing.Capabilities{
	Formats:        []sharing.ResponseFormat{sharing.FormatDelta, sharing.FormatParquet},
	ReaderFeatures: []string{sharing.FeatureDeletionVectors, sharing.FeatureColumnMapping, sharing.FeatureTimestampNTZ},
}

// readable are the reader features of the Delta protocol that a reader of an
// answer honours. The last two concern the log, which is not shared.
var readable = map[string]bool{
	log.FeatureDeletionVectors: true, log.FeatureColumnMapping: true, "timestampNtz": true,
	"v2Checkpoint": true, "vacuumProtocolCheck": true,
}

// Head is what a server says of a table before its files.
type Head struct {
	Version   int64
	Format    sharing.ResponseFormat
	Protocol  log.Protocol
	Metadata  log.Metadata
	SizeBytes int64 // of all files, -1 if unknown
	NumFiles  int64 // -1 if unknown
}

// QueryOptions modify Query. The zero value asks for all of the newest version.
type QueryOptions struct {
	// Version asks for an older version, which only a share with history serves.
	Version *int64
	// LimitHint, if above 0, lets the server leave out files once those sent
	// hold as many rows.
	LimitHint int64
	// PredicateHints is JSON as the protocol's jsonPredicateHints; the server
	// may leave out files that hold no such row, and may not.
	PredicateHints string
	// ParquetOnly asks for parquet format: a delta answer is then an error.
	ParquetOnly bool
}

// Metadata asks for protocol and metadata of a table. A table that needs a
// reader feature which is not implemented is a *storage.Refusal.
func (c *Client) Metadata(ctx context.Context, table sharing.Table) (Head, error) {
	var head Head
	op := "metadata of " + tableName(table)
	err := c.call(ctx, call{
		op: op, method: http.MethodGet, path: tablePath(table, "metadata"), capabilities: capabilities.String(),
	}, func(h http.Header, body io.Reader) error {
		a, err := c.readAnswer(h, body, capabilities)
		if err != nil {
			return err
		}
		head = a.Head
		return nil
	})
	return head, err
}

// Query asks for the files of a table and returns them as a snapshot that can
// be read. Errors are those of Metadata.
func (c *Client) Query(ctx context.Context, table sharing.Table, o *QueryOptions) (*Snapshot, error) {
	if o == nil {
		o = &QueryOptions{}
	}
	a, err := c.query(ctx, table, *o, "")
	if err != nil {
		return nil, err
	}
	return newSnapshot(c, table, *o, a)
}

// answer is a query's result, all pages of it.
type answer struct {
	Head
	files        []File
	refreshToken string
}

// query runs a query, page by page if the server cuts the answer. With a
// refresh token the server renews the URLs of the version that the token pins.
func (c *Client) query(ctx context.Context, table sharing.Table, o QueryOptions, refreshToken string) (*answer, error) {
	body := sharing.QueryRequest{JSONPredicateHints: o.PredicateHints, RefreshToken: refreshToken}
	body.IncludeRefreshToken = o.Version == nil
	if o.LimitHint > 0 {
		body.LimitHint = ptr(sharing.Int64(o.LimitHint))
	}
	if o.Version != nil {
		body.Version = ptr(sharing.Int64(*o.Version))
	}
	asked := capabilities
	if o.ParquetOnly {
		asked = sharing.Capabilities{Formats: []sharing.ResponseFormat{sharing.FormatParquet}}
	}
	var whole *answer
	for range maxPages {
		page, next, err := c.queryPage(ctx, table, asked, body)
		if err != nil {
			return nil, err
		}
		op := "query " + tableName(table)
		if whole == nil {
			whole = page
		} else {
			if page.Version != whole.Version || page.Metadata.ID != whole.Metadata.ID {
				return nil, fmt.Errorf("%s: %w: pages of different versions", op, ErrProtocol)
			}
			whole.files = append(whole.files, page.files...)
		}
		if len(whole.files) > c.opts.MaxFiles {
			return nil, fmt.Errorf("%s: more than %d files", op, c.opts.MaxFiles)
		}
		if next == "" {
			return whole, nil
		}
		if next == body.PageToken {
			break
		}
		body.PageToken, body.IncludeRefreshToken, body.RefreshToken = next, false, ""
	}
	return nil, fmt.Errorf("query %s: %w: the pages do not end", tableName(table), ErrProtocol)
}

func (c *Client) queryPage(ctx context.Context, table sharing.Table, asked sharing.Capabilities, body sharing.QueryRequest) (page *answer, next string, err error) {
	text, err := json.Marshal(body) //nolint:gosec // the refresh token is meant for the server
	if err != nil {
		return nil, "", fmt.Errorf("query %s: encode request: %w", tableName(table), err)
	}
	err = c.call(ctx, call{
		op: "query " + tableName(table), method: http.MethodPost, path: tablePath(table, "query"),
		capabilities: asked.String(), body: text,
	}, func(h http.Header, body io.Reader) error {
		a, err := c.readAnswer(h, body, asked)
		if err != nil {
			return err
		}
		page, next = &a.answer, a.end.NextPageToken
		page.refreshToken = a.end.RefreshToken
		return nil
	})
	return page, next, err
}

func ptr[T any](v T) *T { return &v }

// parsing collects the lines of one answer.
type parsing struct {
	answer
	format sharing.ResponseFormat // of the answer's header
	end    sharing.EndStream
	ended  bool
	max    int
}

// readAnswer reads the lines of an answer to a request that asked for the
// given capabilities.
func (c *Client) readAnswer(h http.Header, body io.Reader, asked sharing.Capabilities) (*parsing, error) {
	version, err := tableVersion(h)
	if err != nil {
		return nil, err
	}
	granted := sharing.ParseCapabilities(h.Values(sharing.HeaderCapabilities))
	p := &parsing{format: sharing.FormatParquet, max: c.opts.MaxFiles}
	switch {
	case len(granted.Formats) == 1:
		p.format = granted.Formats[0]
	case len(granted.Formats) > 1 || granted.UnknownFormat:
		return nil, fmt.Errorf("%w: the answer names no single known format", ErrProtocol)
	}
	if !asked.Accepts(p.format) {
		return nil, fmt.Errorf("%w: the answer is in %s format, which was not asked for", ErrProtocol, p.format)
	}
	p.Version, p.Format, p.SizeBytes, p.NumFiles = version, p.format, -1, -1
	lines := sharing.NewDecoder(body, 0)
	for n := 0; ; n++ {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = p.take(n, line)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case p.Metadata.Format.Provider == "":
		return nil, fmt.Errorf("%w: no protocol and metaData lines", ErrProtocol)
	case granted.IncludeEndStreamAction && !p.ended:
		return nil, &temporary{err: fmt.Errorf("%w: the answer breaks off before its end", ErrProtocol)}
	}
	return p, nil
}

// take adds line n, from 0: protocol, metaData, files, the end.
func (p *parsing) take(n int, line sharing.Line) error {
	if p.ended {
		return fmt.Errorf("%w: lines after endStreamAction", ErrProtocol)
	}
	// The end may stand anywhere, since it carries what went wrong.
	if line.EndStream != nil {
		p.end, p.ended = *line.EndStream, true
		if p.end.ErrorMessage != "" {
			return &temporary{err: fmt.Errorf("the server broke off: %s", printable(p.end.ErrorMessage))}
		}
		return nil
	}
	switch {
	case n == 0 && line.Protocol != nil:
		return p.takeProtocol(line.Protocol)
	case n == 1 && line.MetaData != nil:
		return p.takeMetadata(line.MetaData)
	case n >= 2 && line.File != nil:
		if len(p.files) >= p.max {
			return fmt.Errorf("%w: more than %d files", ErrProtocol, p.max)
		}
		f, err := newFile(line.File, p.format)
		if err != nil {
			return fmt.Errorf("file %d: %w", len(p.files)+1, err)
		}
		p.files = append(p.files, f)
		return nil
	}
	return fmt.Errorf("%w: line %d is not protocol, metaData or file in this order", ErrProtocol, n+1)
}

func (p *parsing) takeProtocol(line *sharing.ProtocolLine) error {
	if p.format == sharing.FormatParquet {
		if line.DeltaProtocol != nil || line.MinReaderVersion == 0 {
			return fmt.Errorf("%w: protocol line is not of parquet format", ErrProtocol)
		}
		if line.MinReaderVersion > 1 {
			return storage.Refuse("unsupported_reader_version", "the answer needs reader version %d of the parquet format, known is 1", line.MinReaderVersion)
		}
		p.Protocol = log.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}
		return nil
	}
	d := line.DeltaProtocol
	if d == nil {
		return fmt.Errorf("%w: protocol line is not of delta format", ErrProtocol)
	}
	if d.MinReaderVersion < 1 || d.MinReaderVersion > 3 {
		return storage.Refuse("unsupported_reader_version", "the table needs reader version %d, known are 1 to 3", d.MinReaderVersion)
	}
	if d.MinReaderVersion == 3 {
		for _, f := range d.ReaderFeatures {
			if !readable[f] {
				return storage.Refuse("unsupported_reader_feature", "the table needs the reader feature %s", printable(f))
			}
		}
	}
	p.Protocol = log.Protocol{
		MinReaderVersion: int32(d.MinReaderVersion), MinWriterVersion: int32(min(max(d.MinWriterVersion, 0), 1<<30)),
		ReaderFeatures: d.ReaderFeatures, WriterFeatures: d.WriterFeatures,
	}
	return nil
}

func (p *parsing) takeMetadata(line *sharing.MetaDataLine) error {
	if line.SizeBytes != nil {
		p.SizeBytes = *line.SizeBytes
	}
	if line.NumFiles != nil {
		p.NumFiles = *line.NumFiles
	}
	m := &p.Metadata
	switch {
	case (line.DeltaMetadata != nil) != (p.format == sharing.FormatDelta):
		return fmt.Errorf("%w: metaData line is not of %s format", ErrProtocol, p.format)
	case line.DeltaMetadata != nil:
		d := line.DeltaMetadata
		*m = log.Metadata{
			ID: d.ID, SchemaString: d.SchemaString, PartitionColumns: d.PartitionColumns,
			CreatedTime: d.CreatedTime, Configuration: d.Configuration,
			Format: log.FileFormat{Provider: d.Format.Provider, Options: d.Format.Options},
		}
		named(m, d.Name, d.Description)
	default:
		*m = log.Metadata{ID: line.ID, SchemaString: line.SchemaString}
		if line.Format != nil {
			m.Format = log.FileFormat{Provider: line.Format.Provider, Options: line.Format.Options}
		}
		if line.PartitionColumns != nil {
			m.PartitionColumns = *line.PartitionColumns
		}
		named(m, line.Name, line.Description)
	}
	if m.Format.Provider != "parquet" {
		return fmt.Errorf("%w: metaData: format.provider is not parquet", ErrProtocol)
	}
	if m.PartitionColumns == nil {
		m.PartitionColumns = []string{}
	}
	if m.Configuration == nil {
		m.Configuration = map[string]string{}
	}
	if m.Format.Options == nil {
		m.Format.Options = map[string]string{}
	}
	if _, err := tableSchema(m); err != nil {
		return err
	}
	return nil
}

func named(m *log.Metadata, name, description string) {
	if name != "" {
		m.Name = &name
	}
	if description != "" {
		m.Description = &description
	}
}
