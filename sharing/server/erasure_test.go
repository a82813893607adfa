package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"delenda/events"
	"delenda/sharing"
	"delenda/sharing/server"
	"delenda/sharing/snapshot"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
	"delenda/storage/delta"
)

const allFeatures = "responseformat=delta,parquet;readerfeatures=deletionvectors,columnmapping,timestampntz"

// ask sends a request with the recipient's token.
func (f *fixture) ask(t *testing.T, method, path, body, capabilities string) (reply, []byte) {
	t.Helper()
	res, text, err := f.try(t.Context(), method, path, body, capabilities)
	if err != nil {
		t.Fatal(err)
	}
	return res, text
}

func (f *fixture) try(ctx context.Context, method, path, body, capabilities string) (reply, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, f.endpoint()+path, strings.NewReader(body))
	if err != nil {
		return reply{}, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+f.token.Reveal())
	if capabilities != "" {
		req.Header.Set(sharing.HeaderCapabilities, capabilities)
	}
	return f.send(req)
}

// reply is an answer without its body.
type reply struct {
	StatusCode int
	Header     http.Header
}

func (f *fixture) send(req *http.Request) (reply, []byte, error) {
	res, err := f.server.Client().Do(req)
	if err != nil {
		return reply{}, nil, err
	}
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header}, text, errors.Join(err, res.Body.Close())
}

func (f *fixture) get(t *testing.T, url string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, body, err := f.send(req)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

const main = "/shares/lake/schemas/main/tables/"

func (f *fixture) query(t *testing.T, body string) []sharing.Line {
	t.Helper()
	res, text := f.ask(t, http.MethodPost, main+"people/query", body, allFeatures)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %.300s", res.StatusCode, text)
	}
	var lines []sharing.Line
	dec := sharing.NewDecoder(bytes.NewReader(text), 0)
	for {
		line, err := dec.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
}

func urlsOf(lines []sharing.Line) (urls []string) {
	for _, line := range lines {
		switch {
		case line.File == nil:
		case line.File.Action == nil:
			urls = append(urls, line.File.URL)
		default:
			urls = append(urls, line.File.Action.Add.Path)
			if dv := line.File.Action.Add.DeletionVector; dv != nil && dv.StorageType == "p" {
				urls = append(urls, dv.PathOrInlineDV)
			}
		}
	}
	return urls
}

func erase(t *testing.T, b storage.Bucket, column, value string) storage.Deleted {
	t.Helper()
	table, err := delta.Open(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := table.Delete(t.Context(), storage.Deletion{
		Batch:    storage.Batch{App: "delenda/acme/customers", Number: 1, Base: 0},
		Subjects: []storage.Subject{{Keys: []storage.Key{{Column: column, Value: storage.NewSecret(value)}}}},
		Now:      time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A person is erased from a table that Spark wrote: the next answer comes with
// the deletion vectors, and nothing that was given out before works any more.
func TestAfterAnErasureNothingFromBeforeIsServed(t *testing.T) {
	t.Parallel()
	b := foreign(t, "spark-dv-name")
	f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: b}}, nil)
	before := f.query(t, `{"includeRefreshToken":true}`)
	for _, u := range urlsOf(before) {
		if status, _ := f.get(t, u); status != http.StatusOK {
			t.Fatalf("status %d before", status)
		}
	}
	d := erase(t, b, "customer_id", "1")
	if !d.Committed || d.Subjects[0].Rows == 0 {
		t.Fatalf("nothing was erased: %+v", d)
	}
	if err := f.HandleTableChanged(t.Context(), events.TableChanged{Table: "people", Version: int64(d.Version), Kind: events.ChangeDelete}); err != nil {
		t.Fatal(err)
	}
	after := f.query(t, `{}`)
	rows := func(lines []sharing.Line) (n int64) {
		for _, line := range lines {
			if line.File == nil {
				continue
			}
			var stats struct {
				NumRecords int64 `json:"numRecords"`
			}
			if err := json.Unmarshal([]byte(line.File.Action.Add.Stats), &stats); err != nil {
				t.Fatal(err)
			}
			n += stats.NumRecords
			if dv := line.File.Action.Add.DeletionVector; dv != nil {
				n -= dv.Cardinality
			}
		}
		return n
	}
	if got, want := rows(after), rows(before)-d.Subjects[0].Rows; got != want {
		t.Errorf("%d live rows after, want %d", got, want)
	}
	for _, u := range urlsOf(before) {
		if status, body := f.get(t, u); status != http.StatusGone {
			t.Errorf("a URL from before: status %d, %d bytes", status, len(body))
		}
	}
	for _, u := range urlsOf(after) {
		if status, _ := f.get(t, u); status != http.StatusOK {
			t.Errorf("a URL from after: status %d", status)
		}
	}
	token := before[len(before)-1].EndStream.RefreshToken
	if res, text := f.ask(t, http.MethodPost, main+"people/query", `{"refreshToken":"`+token+`"}`, allFeatures); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a refresh token from before: status %d, %.200s", res.StatusCode, text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.announced[len(f.announced)-1]
	if last.HideFloor != int64(d.Version) || last.Version != int64(d.Version) || last.Reason != events.ChangeDelete {
		t.Errorf("announced %+v", last)
	}
}

func TestAClientOfTheParquetFormatIsServedUntilAFileHasADeletionVector(t *testing.T) {
	t.Parallel()
	b := foreign(t, "deltars-partitioned")
	if _, err := delta.EnableDeletionVectors(t.Context(), b, nil); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: b}}, nil)
	res, text := f.ask(t, http.MethodPost, main+"people/query", `{}`, "")
	if res.StatusCode != http.StatusOK || !bytes.HasPrefix(text, []byte(`{"protocol":{"minReaderVersion":1}}`+"\n")) {
		t.Errorf("status %d, %.300s", res.StatusCode, text)
	}
	d := erase(t, b, "customer_id", "1")
	if err := f.HandleTableChanged(t.Context(), events.TableChanged{Table: "people"}); err != nil {
		t.Fatal(err)
	}
	for _, capabilities := range []string{"", "responseformat=parquet;readerfeatures=deletionvectors"} {
		res, text = f.ask(t, http.MethodPost, main+"people/query", `{}`, capabilities)
		if d.Committed && (res.StatusCode != http.StatusBadRequest || !bytes.Contains(text, []byte("deletionVectors"))) {
			t.Errorf("status %d, %.300s", res.StatusCode, text)
		}
	}
	if !d.Committed {
		t.Errorf("nothing was erased: %+v", d)
	}
}

func TestARefreshTokenPinsItsVersionWhenOthersCommit(t *testing.T) {
	t.Parallel()
	b := foreign(t, "deltars-plain")
	f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: b}}, nil)
	before := f.query(t, `{"includeRefreshToken":true}`)
	if _, err := delta.EnableDeletionVectors(t.Context(), b, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.HandleTableChanged(t.Context(), events.TableChanged{Table: "people"}); err != nil {
		t.Fatal(err)
	}
	token := before[len(before)-1].EndStream.RefreshToken
	res, _ := f.ask(t, http.MethodPost, main+"people/query", `{"refreshToken":"`+token+`"}`, allFeatures)
	now, _ := f.ask(t, http.MethodGet, main+"people/version", "", "")
	if res.StatusCode != http.StatusOK || res.Header.Get(sharing.HeaderTableVersion) == now.Header.Get(sharing.HeaderTableVersion) {
		t.Errorf("status %d, version %s of %s", res.StatusCode, res.Header.Get(sharing.HeaderTableVersion), now.Header.Get(sharing.HeaderTableVersion))
	}
	f.clock.add(2 * time.Hour)
	f.NudgeRecipients()
	for range 100 {
		res, text := f.ask(t, http.MethodPost, main+"people/query", `{"refreshToken":"`+token+`"}`, allFeatures)
		if res.StatusCode == http.StatusBadRequest && bytes.Contains(text, []byte("expired")) {
			return
		}
		if res.StatusCode != http.StatusServiceUnavailable { // recipients were not read since the clock moved
			t.Fatalf("status %d, %.200s", res.StatusCode, text)
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Error("an expired token is not refused")
}

func TestTheURLsOfARecipientEndWithTheGrant(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: foreign(t, "deltars-plain")}}, nil)
	urls := urlsOf(f.query(t, `{}`))
	if err := f.dir.SetShares(t.Context(), "reader", []string{"secret"}); err != nil {
		t.Fatal(err)
	}
	f.NudgeRecipients()
	for range 200 {
		if status, _ := f.get(t, urls[0]); status == http.StatusForbidden {
			if res, _ := f.ask(t, http.MethodGet, main+"people/version", "", ""); res.StatusCode != http.StatusNotFound {
				t.Errorf("the table answers %d", res.StatusCode)
			}
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Error("the URL still works")
}

func TestAURLEndsWithItsTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: foreign(t, "deltars-plain")}}, func(o *server.Options) { o.URLTTL = 10 * time.Second })
	urls := urlsOf(f.query(t, `{}`))
	if status, _ := f.get(t, urls[0]); status != http.StatusOK {
		t.Errorf("status %d in time", status)
	}
	f.clock.add(10 * time.Second)
	if status, _ := f.get(t, urls[0]); status != http.StatusForbidden {
		t.Errorf("status %d after", status)
	}
}

// presigner signs as a cloud store does.
type presigner struct{ now func() time.Time }

func (p presigner) SignGet(_ context.Context, key string, ttl time.Duration) (storage.SignedURL, error) {
	return storage.NewSignedURL("https://store.example/"+key+"?X-Amz-Signature=s", p.now().Add(min(ttl, time.Minute))), nil
}

func TestAStoreThatSignsIsReadDirectlyAndItsExpiryIsTold(t *testing.T) {
	t.Parallel()
	b := foreign(t, "spark-dv-bitmap")
	now := time.Now()
	f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: b, Presigner: presigner{func() time.Time { return now }}}}, nil)
	lines := f.query(t, `{}`)
	for _, u := range urlsOf(lines) {
		if !strings.HasPrefix(u, "https://store.example/") {
			t.Error("a URL is not the store's")
		}
	}
	if got := *lines[2].File.ExpirationTimestamp; got != now.Add(time.Minute).UnixMilli() {
		t.Errorf("expiry %d is not the store's", got)
	}
}

// broken is a state prefix whose manifests break off in the middle.
type broken struct {
	storage.Bucket
	after int64
}

func (b *broken) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := b.Bucket.Read(ctx, key, offset, length)
	if err != nil || !strings.Contains(key, "/files-") {
		return r, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, b.after), failing{}), r}, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, fault.ErrInjected }

func TestAFailureInTheMiddleOfAnAnswerIsNeverTakenForItsEnd(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	writeLog(t, b, 5000)
	for name, after := range map[string]int64{"at the start": 0, "in the first chunk": 1000, "later": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: b}}, func(o *server.Options) { o.State = &broken{o.State, after} })
			res, text, err := f.try(t.Context(), http.MethodPost, main+"people/query", `{}`, "responseformat=delta")
			if err == nil && res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("status %d and a body of %d bytes that ends well", res.StatusCode, len(text))
			}
			if err == nil && res.Header.Get(sharing.HeaderCapabilities) != "" {
				t.Error("an error with the headers of an answer")
			}
			res, text, err = f.try(t.Context(), http.MethodPost, main+"people/query", `{}`, "responseformat=delta;includeendstreamaction=true")
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
			last := lines[len(lines)-1]
			if res.StatusCode == http.StatusOK && !bytes.Contains(last, []byte(`{"endStreamAction":{"errorMessage":`)) {
				t.Errorf("the answer ends with %.200s", last)
			}
		})
	}
}

func TestWithoutTheStatePrefixNothingIsServed(t *testing.T) {
	t.Parallel()
	faults := fault.Wrap(bucket.NewMemory())
	faulty := newFixture(t, map[string]snapshot.Source{"people": {Bucket: foreign(t, "deltars-plain")}}, func(o *server.Options) { o.State = faults })
	urls := urlsOf(faulty.query(t, `{}`))
	faults.ArmMatch(fault.Kill, 1, func(fault.Op) bool { return true })
	for _, r := range [][2]string{{http.MethodGet, "/version"}, {http.MethodGet, "/metadata"}, {http.MethodPost, "/query"}} {
		res, text := faulty.ask(t, r[0], main+"people"+r[1], "{}", allFeatures)
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !bytes.Contains(text, []byte(sharing.CodeUnavailable)) && r[0] != http.MethodHead {
			t.Errorf("%s: status %d, %.200s", r[1], res.StatusCode, text)
		}
	}
	if status, _ := faulty.get(t, urls[0]); status != http.StatusServiceUnavailable {
		t.Errorf("a file: status %d", status)
	}
}

// What goes wrong after the head was confirmed and before the first file is
// nobody's mistake, and passes.
func TestAnAnswerThatCannotBeginIsToBeAskedForAgain(t *testing.T) {
	t.Parallel()
	listsFiles := func(op fault.Op) bool {
		return op.Name == "read" && strings.HasPrefix(op.Key, "manifests/") && strings.Contains(op.Key, "/files-")
	}
	for name, goWrong := range map[string]func(t *testing.T, b storage.Bucket, f *fixture, faults *fault.Faults){
		"the state prefix cannot be read any more": func(_ *testing.T, _ storage.Bucket, _ *fixture, faults *fault.Faults) {
			faults.ArmMatch(fault.Fail, 1, listsFiles)
		},
		"an erasure comes in between": func(t *testing.T, b storage.Bucket, f *fixture, faults *fault.Faults) {
			t.Helper()
			intervene := sync.OnceFunc(func() {
				d := erase(t, b, "customer_id", "1")
				if err := f.HandleTableChanged(t.Context(), events.TableChanged{Table: "people", Version: int64(d.Version), Kind: events.ChangeDelete}); err != nil {
					t.Error(err)
				}
			})
			faults.Before(func(_ context.Context, op fault.Op) {
				if listsFiles(op) {
					intervene()
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, faults := foreign(t, "spark-dv-name"), fault.Wrap(bucket.NewMemory())
			f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: b}}, func(o *server.Options) { o.State = faults })
			goWrong(t, b, f, faults)
			res, text := f.ask(t, http.MethodPost, main+"people/query", `{}`, allFeatures)
			if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !bytes.Contains(text, []byte(sharing.CodeUnavailable)) {
				t.Errorf("status %d, %.200s", res.StatusCode, text)
			}
			f.query(t, `{}`)
		})
	}
}

func TestLogsAndObservationsCarryNoTokenURLOrPredicate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]snapshot.Source{"people": {Bucket: foreign(t, "spark-dv-bitmap")}}, nil)
	lines := f.query(t, `{"jsonPredicateHints":"alice@example.com","predicateHints":["email = 'alice@example.com'"]}`)
	urls := urlsOf(lines)
	for _, u := range urls {
		f.get(t, u)
		f.get(t, u[:len(u)-5]+"AAAAA")
	}
	f.ask(t, http.MethodPost, main+"people/query", `{"refreshToken":"garbled"`, allFeatures)
	f.ask(t, http.MethodGet, "/shares/alice@example.com", "", "")
	f.stop()
	for _, secret := range []string{f.token.Reveal(), "alice", "garbled", "X-Databricks-Signature", urls[0][len(urls[0])-40:]} {
		if strings.Contains(f.log.String(), secret) {
			t.Errorf("the log shows %d bytes that it must not", len(secret))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string]bool{}
	for _, o := range f.observed {
		seen[o.Operation] = true
		if o.Operation == "query" && o.Status == http.StatusOK && o.Files != 1 {
			t.Errorf("observed %+v", o)
		}
	}
	if !seen["query"] || !seen["file"] || !seen["lists"] {
		t.Errorf("observed %v", seen)
	}
}
