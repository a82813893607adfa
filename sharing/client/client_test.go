package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/storage"
)

func TestListsWalkAllPages(t *testing.T) {
	t.Parallel()
	c := serve(t, foreign(t, "spark-dv-name")).client()
	var names []string
	for share, err := range c.Shares(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, share.Name)
	}
	for schema, err := range c.Schemas(t.Context(), "share") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, schema.Share+"."+schema.Name)
	}
	for table, err := range c.Tables(t.Context(), "share", "schema") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, table.Name)
	}
	for table, err := range c.AllTables(t.Context(), "share") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, table.Name)
	}
	if diff := cmp.Diff([]string{"share", "other", "third", "share.schema", "table", "table"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestVersionAndMetadata(t *testing.T) {
	t.Parallel()
	c := serve(t, foreign(t, "spark-dv-id")).client()
	version, err := c.Version(t.Context(), testTable)
	if err != nil || version != 5 {
		t.Errorf("got version %d, %v", version, err)
	}
	head, err := c.Metadata(t.Context(), testTable)
	if err != nil {
		t.Fatal(err)
	}
	if head.Version != 5 || head.Format != sharing.FormatDelta || head.Protocol.MinReaderVersion != 3 || head.Metadata.Configuration["delta.columnMapping.mode"] != "id" {
		t.Errorf("got %+v", head)
	}
}

func TestTheClientSaysWhatItCanRead(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	headers := make(chan string, 10)
	s.fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/query") {
			headers <- r.Header.Get(sharing.HeaderCapabilities)
		}
		return false
	}
	mustQuery(t, s.client(), nil)
	want := "responseformat=delta,parquet;readerfeatures=deletionvectors,columnmapping,timestampntz"
	if got := <-headers; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorsAreNamed(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	absent := sharing.Table{Share: "share", Schema: "schema", Name: "absent"}
	if _, err := s.client().Query(t.Context(), absent, nil); !errors.Is(err, client.ErrNotShared) {
		t.Errorf("an unknown table: got %v", err)
	}
	wrong := s.profile()
	wrong.BearerToken = sharing.NewToken("wrong")
	c, err := client.New(wrong, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context(), testTable); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("a wrong token: got %v", err)
	}
	expired := s.profile()
	expired.ExpiresAt = s.clock()
	if c, err = client.New(expired, &client.Options{Now: s.clock}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context(), testTable); !errors.Is(err, client.ErrUnauthorized) || !strings.Contains(err.Error(), "2026-01-01") {
		t.Errorf("an expired profile: got %v", err)
	}
	s.Close()
	_, err = s.client().Version(t.Context(), testTable)
	if err == nil {
		t.Fatal("a server that is gone answered")
	}
	mustNotLeak(t, errors.New(strings.ReplaceAll(err.Error(), strings.TrimPrefix(s.URL, "http://"), "host")))
}

func TestTheServersMessageIsMadeFitToPrint(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"no\r\nsuch table": "no  such table", "see https://h/?sig=1": "withheld", strings.Repeat("x", 5000): "xxx...",
	} {
		s := serve(t, foreign(t, "spark-dv-name"))
		s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
			s.fail(w, http.StatusBadRequest, sharing.CodeInvalidParameter, message)
			return true
		}
		_, err := s.client().Version(t.Context(), testTable)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "sig=") {
			t.Errorf("got %v", err)
		}
	}
}

func TestARedirectToAnotherHostIsNotFollowed(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- r.Header.Get("Authorization")
	}))
	defer other.Close()
	s := serve(t, foreign(t, "spark-dv-name"))
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		return true
	}
	if _, err := s.client().Version(t.Context(), testTable); err == nil {
		t.Error("the redirect was followed")
	}
	if len(reached) > 0 {
		t.Error("the other host was reached")
	}
}

// change returns an edit of the file lines.
func change(f func(*sharing.FileLine)) func([]sharing.Line) []sharing.Line {
	return func(lines []sharing.Line) []sharing.Line {
		for _, line := range lines {
			if line.File != nil {
				f(line.File)
			}
		}
		return lines
	}
}

func feature(name string) func([]sharing.Line) []sharing.Line {
	return func(lines []sharing.Line) []sharing.Line {
		p := lines[0].Protocol.DeltaProtocol
		p.ReaderFeatures = append(slices.Clone(p.ReaderFeatures), name)
		return lines
	}
}

func TestQueryRefusesBadAnswers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit    func([]sharing.Line) []sharing.Line
		header  string
		parquet bool // the server answers in parquet lines
		options *client.QueryOptions
		want    error
		text    string
	}{
		"an unknown reader feature is fatal and named":   {edit: feature("variantType"), want: storage.ErrRefused, text: "variantType"},
		"a feature that is not listed is fatal":          {edit: feature("typeWidening"), want: storage.ErrRefused, text: "typeWidening"},
		"a delta answer to a parquet request is refused": {options: &client.QueryOptions{ParquetOnly: true}, want: client.ErrProtocol, text: "not asked for"},
		"a header that says parquet over delta lines":    {header: "responseformat=parquet", want: client.ErrProtocol},
		"a header that says delta over parquet lines":    {header: "responseformat=delta", parquet: true, want: client.ErrProtocol},
		"a header with an unknown format":                {header: "responseformat=avro", want: client.ErrProtocol},
		"a promised end that is missing":                 {header: "responseformat=delta;includeendstreamaction=true", edit: func(l []sharing.Line) []sharing.Line { return l[:len(l)-1] }, want: client.ErrProtocol, text: "breaks off"},
		"no lines at all":                                {edit: func([]sharing.Line) []sharing.Line { return nil }, want: client.ErrProtocol},
		"no metadata":                                    {edit: func(l []sharing.Line) []sharing.Line { return l[:1] }, want: client.ErrProtocol},
		"files before the metadata":                      {edit: func(l []sharing.Line) []sharing.Line { l[1], l[2] = l[2], l[1]; return l }, want: client.ErrProtocol},
		"lines after the end":                            {edit: func(l []sharing.Line) []sharing.Line { return append(l, l[2]) }, want: client.ErrProtocol},
		"the same file twice":                            {edit: func(l []sharing.Line) []sharing.Line { l[3] = l[2]; return l }, want: client.ErrProtocol, text: "one id"},
		"a file without id":                              {edit: change(func(f *sharing.FileLine) { f.ID = "" }), want: client.ErrProtocol},
		"a file without action":                          {edit: change(func(f *sharing.FileLine) { f.Action = nil }), want: client.ErrProtocol},
		"a path that is no URL":                          {edit: change(func(f *sharing.FileLine) { f.Action.Add.Path = "file:///etc/passwd" }), want: client.ErrProtocol},
		"a file of no size":                              {edit: change(func(f *sharing.FileLine) { f.Action.Add.SizeBytes = 0 }), want: client.ErrProtocol},
		"a relative deletion vector": {edit: change(func(f *sharing.FileLine) {
			f.Action.Add.DeletionVector = &sharing.DeletionVector{StorageType: "u", PathOrInlineDV: "ab^-aqEH.-t@S}K{vb[*k^"}
		}), want: storage.ErrRefused},
		"a schema that is none": {edit: func(l []sharing.Line) []sharing.Line { l[1].MetaData.DeltaMetadata.SchemaString = "{"; return l }, want: storage.ErrCorrupt},
		"a partition column that is none": {edit: func(l []sharing.Line) []sharing.Line {
			l[1].MetaData.DeltaMetadata.PartitionColumns = []string{"x"}
			return l
		}, want: client.ErrProtocol},
		"a reader version from the future":           {edit: func(l []sharing.Line) []sharing.Line { l[0].Protocol.DeltaProtocol.MinReaderVersion = 4; return l }, want: storage.ErrRefused},
		"an error that comes after the first lines":  {edit: func(l []sharing.Line) []sharing.Line { l[len(l)-1].EndStream.ErrorMessage = "out of paper"; return l }, text: "out of paper"},
		"a parquet answer that needs a newer reader": {parquet: true, edit: func(l []sharing.Line) []sharing.Line { l[0].Protocol.MinReaderVersion = 3; return l }, want: storage.ErrRefused},
		"a parquet file without partition values":    {parquet: true, edit: change(func(f *sharing.FileLine) { f.PartitionValues = nil }), want: client.ErrProtocol},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, foreign(t, "spark-dv-name"))
			if test.parquet {
				s = serve(t, foreign(t, "deltars-plain"))
				s.format = sharing.FormatParquet
			}
			s.edit, s.header = test.edit, test.header
			_, err := s.client().Query(t.Context(), testTable, test.options)
			if err == nil {
				t.Fatal("the answer was accepted")
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %q", err, test.text)
			}
			mustNotLeak(t, err)
		})
	}
}

func TestADeletionVectorIsNeverIgnored(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*sharing.FileLine){
		"of another size":      func(f *sharing.FileLine) { f.Action.Add.DeletionVector.SizeBytes++ },
		"of other rows":        func(f *sharing.FileLine) { f.Action.Add.DeletionVector.Cardinality++ },
		"at another place":     func(f *sharing.FileLine) { *f.Action.Add.DeletionVector.Offset += 4 },
		"that is another file": func(f *sharing.FileLine) { f.Action.Add.DeletionVector.PathOrInlineDV = f.Action.Add.Path },
		"inline and broken": func(f *sharing.FileLine) {
			f.Action.Add.DeletionVector = &sharing.DeletionVector{StorageType: "i", PathOrInlineDV: "00000", SizeBytes: 4, Cardinality: 1}
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, foreign(t, "spark-dv-bitmap"))
			s.edit = change(spoil)
			err := firstError(t, mustQuery(t, s.client(), nil))
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v", err)
			}
			mustNotLeak(t, err)
		})
	}
}

func TestPagesOfAnAnswerAreJoined(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	pages := 0
	s.edit = func(lines []sharing.Line) []sharing.Line {
		// Two files a page, whatever the client asked.
		var files []sharing.Line
		for _, line := range lines {
			if line.File != nil {
				files = append(files, line)
			}
		}
		end := sharing.EndStream{}
		if pages < 2 {
			end.NextPageToken = string(rune('a' + pages))
		}
		out := append(slices.Clone(lines[:2]), files[2*pages:2*pages+2]...)
		pages++
		return append(out, sharing.Line{EndStream: &end})
	}
	if n := len(mustQuery(t, s.client(), nil).Files()); n != 6 {
		t.Errorf("got %d files", n)
	}
}

func TestAServerThatIsBusyIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	asked := 0
	s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
		asked++
		if asked > 2 {
			return false
		}
		w.Header().Set("Retry-After", s.clock().Add(10*time.Millisecond).Format(http.TimeFormat))
		s.fail(w, http.StatusTooManyRequests, "", "later")
		return true
	}
	if _, err := s.client().Version(t.Context(), testTable); err != nil {
		t.Error(err)
	}
	asked = -100
	if _, err := s.client().Version(t.Context(), testTable); err == nil || asked != -96 {
		t.Errorf("got %v after %d attempts", err, asked+100)
	}
}
