package client_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta/log"
)

// testServer serves one Delta table of a directory by the protocol, as
// share.schema.table. Its URLs are signed, and really refused once expired.
type testServer struct {
	*httptest.Server
	t      *testing.T
	bucket *bucket.Bucket
	ttl    time.Duration

	mu      sync.Mutex
	now     time.Time
	version storage.Version // served by a query without a token

	format      sharing.ResponseFormat                            // delta unless set
	header      string                                            // the capabilities header unless empty
	edit        func(lines []sharing.Line) []sharing.Line         // changes an answer
	fault       func(w http.ResponseWriter, r *http.Request) bool // true: it answered
	noRange     bool
	queries     atomic.Int64
	dataReads   atomic.Int64
	dataRefused atomic.Int64
	leaks       atomic.Int64 // tokens seen on data URLs
}

const (
	testToken = "sesame"
	signKey   = "signing key"
)

var testTable = sharing.Table{Share: "share", Schema: "schema", Name: "table"}

func serve(t *testing.T, dir string) *testServer {
	t.Helper()
	b, err := bucket.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s := &testServer{
		t: t, bucket: b, ttl: time.Hour, version: storage.NoVersion, format: sharing.FormatDelta,
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.Close)
	return s
}

// advance moves the clock of server and client.
func (s *testServer) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *testServer) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *testServer) profile() sharing.Profile {
	return sharing.Profile{Version: 1, Endpoint: s.URL + "/delta-sharing", BearerToken: sharing.NewToken(testToken)}
}

func (s *testServer) client() *client.Client {
	s.t.Helper()
	c, err := client.New(s.profile(), &client.Options{Now: s.clock, RetryInterval: time.Millisecond, Retries: 3})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *testServer) handle(w http.ResponseWriter, r *http.Request) {
	if s.fault != nil && s.fault(w, r) {
		return
	}
	if key, ok := strings.CutPrefix(r.URL.Path, "/data/"); ok {
		s.data(w, r, key)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+testToken {
		s.fail(w, http.StatusUnauthorized, sharing.CodeUnauthenticated, "who are you")
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/delta-sharing/shares")
	switch path {
	case "":
		s.list(w, r, []any{sharing.Share{Name: "share"}, sharing.Share{Name: "other"}, sharing.Share{Name: "third"}})
	case "/share/schemas":
		s.list(w, r, []any{sharing.Schema{Name: "schema", Share: "share"}})
	case "/share/schemas/schema/tables", "/share/all-tables":
		s.list(w, r, []any{testTable})
	case "/share/schemas/schema/tables/table/version", "/share/schemas/schema/tables/table/metadata", "/share/schemas/schema/tables/table/query":
		s.table(w, r, path[strings.LastIndexByte(path, '/')+1:])
	default:
		s.fail(w, http.StatusNotFound, sharing.CodeDoesNotExist, "no such table")
	}
}

func (s *testServer) fail(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(sharing.ErrorBody{Code: code, Message: message})
}

// list sends one item a page, and an empty page in between.
func (s *testServer) list(w http.ResponseWriter, r *http.Request, items []any) {
	at, _ := strconv.Atoi(r.URL.Query().Get("pageToken"))
	page := sharing.Page[any]{}
	if at%2 == 1 {
		page.Items = items[at/2 : at/2+1]
	}
	if at < 2*len(items)-1 {
		page.NextPageToken = strconv.Itoa(at + 1)
	}
	_ = json.NewEncoder(w).Encode(page)
}

func (s *testServer) table(w http.ResponseWriter, r *http.Request, verb string) {
	s.mu.Lock()
	at := s.version
	s.mu.Unlock()
	var request sharing.QueryRequest
	if verb == "query" {
		s.queries.Add(1)
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			s.fail(w, http.StatusBadRequest, sharing.CodeMalformedRequest, "no JSON")
			return
		}
		if request.RefreshToken != "" {
			pinned, err := strconv.ParseInt(request.RefreshToken, 10, 64)
			if err != nil || at >= 0 && storage.Version(pinned) < at {
				s.fail(w, http.StatusBadRequest, sharing.CodeInvalidParameter, "restart the query")
				return
			}
			at = storage.Version(pinned)
		}
	}
	snapshot, err := log.Load(r.Context(), s.bucket, at)
	if err != nil {
		s.fail(w, http.StatusInternalServerError, sharing.CodeInternal, err.Error())
		return
	}
	w.Header().Set(sharing.HeaderTableVersion, strconv.FormatInt(int64(snapshot.Version), 10))
	if verb == "version" {
		return
	}
	header := s.header
	if header == "" {
		header = sharing.Capabilities{Formats: []sharing.ResponseFormat{s.format}}.String()
	}
	w.Header().Set(sharing.HeaderCapabilities, header)
	w.Header().Set("Content-Type", sharing.ContentTypeNDJSON)
	lines := s.head(snapshot)
	if verb == "query" {
		for add, err := range snapshot.Files(r.Context()) {
			if err != nil {
				s.t.Error(err)
				return
			}
			lines = append(lines, s.fileLine(add))
		}
		if request.IncludeRefreshToken {
			lines = append(lines, sharing.Line{EndStream: &sharing.EndStream{RefreshToken: strconv.FormatInt(int64(snapshot.Version), 10)}})
		}
	}
	if s.edit != nil {
		lines = s.edit(lines)
	}
	enc := sharing.NewEncoder(w)
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			return
		}
	}
}

func (s *testServer) head(snapshot *log.Snapshot) []sharing.Line {
	m, p := snapshot.Metadata, snapshot.Protocol
	size := int64(1)
	if s.format == sharing.FormatParquet {
		return []sharing.Line{
			{Protocol: &sharing.ProtocolLine{MinReaderVersion: 1}},
			{MetaData: &sharing.MetaDataLine{
				ID: m.ID, Format: &sharing.DataFormat{Provider: "parquet"}, SchemaString: m.SchemaString,
				PartitionColumns: &m.PartitionColumns, SizeBytes: &size,
			}},
		}
	}
	return []sharing.Line{
		{Protocol: &sharing.ProtocolLine{DeltaProtocol: &sharing.DeltaProtocol{
			MinReaderVersion: int(p.MinReaderVersion), MinWriterVersion: int(p.MinWriterVersion),
			ReaderFeatures: p.ReaderFeatures, WriterFeatures: p.WriterFeatures,
		}}},
		{MetaData: &sharing.MetaDataLine{SizeBytes: &size, DeltaMetadata: &sharing.DeltaMetadata{
			ID: m.ID, Format: sharing.DataFormat{Provider: "parquet"}, SchemaString: m.SchemaString,
			PartitionColumns: m.PartitionColumns, Configuration: m.Configuration,
		}}},
	}
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (s *testServer) fileLine(add log.Add) sharing.Line {
	key, err := log.RelativeKey(add.Path, "")
	if err != nil {
		s.t.Errorf("path of an add: %v", err)
	}
	expires := s.clock().Add(s.ttl)
	ms := expires.UnixMilli()
	line := &sharing.FileLine{ID: hash(add.Path), ExpirationTimestamp: &ms}
	if s.format == sharing.FormatParquet {
		line.URL, line.SizeBytes, line.PartitionValues, line.Stats = s.sign(key, expires), &add.SizeBytes, &add.PartitionValues, add.Stats
		return sharing.Line{File: line}
	}
	file := &sharing.AddFile{
		Path: s.sign(key, expires), PartitionValues: add.PartitionValues, SizeBytes: add.SizeBytes,
		ModificationTime: add.ModificationTime, DataChange: true, Stats: add.Stats,
	}
	if dv := add.DeletionVector; dv != nil {
		file.DeletionVector = &sharing.DeletionVector{
			StorageType: dv.StorageType, PathOrInlineDV: dv.PathOrInlineDV, Offset: dv.Offset,
			SizeBytes: dv.SizeInBytes, Cardinality: dv.Cardinality,
		}
		if key, ok := dv.Key(); ok {
			line.DeletionVectorFileID = hash(dv.UniqueID())
			file.DeletionVector.StorageType, file.DeletionVector.PathOrInlineDV = "p", s.sign(key, expires)
		}
	}
	line.Action = &sharing.Action{Add: file}
	return sharing.Line{File: line}
}

func mac(key, expires string) string {
	h := hmac.New(sha256.New, []byte(signKey))
	h.Write([]byte(key + "\n" + expires))
	return hex.EncodeToString(h.Sum(nil))
}

func (s *testServer) sign(key string, expires time.Time) string {
	text := strconv.FormatInt(expires.UnixNano(), 10)
	u := url.URL{Path: "/data/" + key, RawQuery: url.Values{"e": {text}, "X-Amz-Signature": {mac(key, text)}}.Encode()}
	return s.URL + u.String()
}

func (s *testServer) data(w http.ResponseWriter, r *http.Request, key string) {
	s.dataReads.Add(1)
	if r.Header.Get("Authorization") != "" {
		s.leaks.Add(1)
	}
	text := r.URL.Query().Get("e")
	expires, _ := strconv.ParseInt(text, 10, 64)
	if !hmac.Equal([]byte(mac(key, text)), []byte(r.URL.Query().Get("X-Amz-Signature"))) || s.clock().UnixNano() >= expires {
		s.dataRefused.Add(1)
		http.Error(w, "<Error>AccessDenied</Error>", http.StatusForbidden)
		return
	}
	p, err := storage.ReadObject(r.Context(), s.bucket, key, 1<<30)
	if err != nil {
		http.Error(w, "gone", http.StatusNotFound)
		return
	}
	if s.noRange {
		_, _ = w.Write(p)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(p)))
}

// foreign returns a table that another writer made.
func foreign(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join("..", "..", "storage", "delta", "testdata", name)
}

// collected returns a table of the collection that lies beside a checkout.
func collected(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{os.Getenv("DELENDA_TABLES"), filepath.Join("..", "..", "..", "shared", "tables", "delta")} {
		if _, err := os.Stat(filepath.Join(dir, name, "_delta_log")); dir != "" && err == nil {
			return filepath.Join(dir, name)
		}
	}
	t.Skipf("the collection of tables is not here: %s", name)
	return ""
}

func mustQuery(t *testing.T, c *client.Client, o *client.QueryOptions) *client.Snapshot {
	t.Helper()
	s, err := c.Query(t.Context(), testTable, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func count(t *testing.T, s *client.Snapshot, o *client.ReadOptions) int64 {
	t.Helper()
	rows := int64(0)
	for batch, err := range s.Read(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		rows += batch.NumRows()
	}
	return rows
}
