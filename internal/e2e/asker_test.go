package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"delenda/internal/service"
	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/storage"
	"delenda/storage/delta/log"
)

var ordersTable = sharing.Table{Share: "sales", Schema: "shop", Name: "orders"}

// askEvery paces a recipient, so that others get their share of the machine.
const askEvery = 20 * time.Millisecond

type askerOptions struct {
	strict  bool          // the replica must serve always
	timeout time.Duration // of one attempt
}

// asker is a client of one replica that asks all the time, and whose every
// answer is judged.
type asker struct {
	askerOptions
	site     *site
	name     string
	endpoint string
	client   *client.Client
	http     http.Client
	rounds   chan answered
	cancel   context.CancelFunc
	done     chan struct{}
}

// answered is one round of questions.
type answered struct {
	floor  int64 // announced before the first
	served bool
}

// asker asks a replica until the test ends.
func (s *site) asker(p *process, o askerOptions) *asker {
	s.t.Helper()
	if o.timeout == 0 {
		o.timeout = 30 * time.Second
	}
	r := &asker{
		askerOptions: o, site: s, name: p.name, endpoint: service.Endpoint(p.PublisherURL),
		rounds: make(chan answered), done: make(chan struct{}),
	}
	p.ready(s.t)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	judge := &judge{r, transport}
	r.http = http.Client{Transport: judge, Timeout: o.timeout}
	var err error
	r.client, err = client.New(sharing.Profile{Endpoint: r.endpoint, BearerToken: s.token},
		&client.Options{Transport: judge, Retries: 1, RetryInterval: askEvery, Timeout: o.timeout})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	r.cancel = cancel
	s.t.Cleanup(r.leave)
	go func() {
		defer close(r.done)
		defer transport.CloseIdleConnections()
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			round := r.ask(ctx, n)
			select {
			case r.rounds <- round:
			default: // nobody waits
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return r
}

// ready returns when the process says that it serves.
func (p *process) ready(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.PublisherURL+"/readyz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := do(t, req); status == http.StatusOK {
			return
		}
		<-tick.C
	}
}

// leave ends the questions.
func (r *asker) leave() {
	r.cancel()
	<-r.done
}

// until returns at a round that is as wanted.
func (r *asker) until(what string, wanted func(answered) bool) {
	r.site.t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		select {
		case round := <-r.rounds:
			if wanted(round) {
				return
			}
		case <-deadline.C:
			r.site.t.Fatalf("never seen: %s %s", r.name, what)
		}
	}
}

// ask asks for version, files and rows, and for something old.
func (r *asker) ask(ctx context.Context, n int) answered {
	before := r.site.truth.now()
	round := answered{floor: before.floor}
	if stale := r.site.books.below(before.floor); len(stale) > 0 {
		old := stale[n%len(stale)]
		r.get(ctx, old.urls[n%len(old.urls)])
	}
	_, err := r.client.Version(ctx, ordersTable)
	var snapshot *client.Snapshot
	if err == nil {
		snapshot, err = r.client.Query(ctx, ordersTable, nil)
	}
	if err != nil {
		var status *client.Error
		unavailable := errors.As(err, &status) && status.Status == http.StatusServiceUnavailable || errors.Is(err, context.DeadlineExceeded)
		if ctx.Err() == nil && (r.strict || !unavailable) {
			r.site.t.Errorf("%s, floor %d: %v", r.name, before.floor, err)
		}
		return round
	}
	seen, err := customers(ctx, snapshot)
	// Files of a version that is replaced meanwhile may be refused, before that
	// is announced.
	if err != nil && r.strict && ctx.Err() == nil && r.site.newest(ctx) == snapshot.Version {
		r.site.t.Errorf("%s, floor %d: read version %d: %v", r.name, before.floor, snapshot.Version, err)
	}
	for _, gone := range before.erased {
		if slices.Contains(seen, gone) {
			r.site.t.Errorf("%s, floor %d: the recipient reads customer %s in version %d", r.name, before.floor, gone, snapshot.Version)
		}
	}
	round.served = err == nil
	return round
}

// customers reads the customers of a snapshot.
func customers(ctx context.Context, s *client.Snapshot) (seen []string, err error) {
	for batch, err := range s.Read(ctx, &client.ReadOptions{Columns: []string{"customer_id"}}) {
		if err != nil {
			return seen, err
		}
		for i := range int(batch.NumRows()) {
			seen = append(seen, batch.Column(0).ValueStr(i))
		}
	}
	return seen, nil
}

// get asks this replica for a URL that it or another one issued, and returns
// the status, 0 for no answer.
func (r *asker) get(ctx context.Context, issued string) int {
	u, err := url.Parse(issued)
	if err != nil {
		r.site.t.Error(err)
		return 0
	}
	here, err := url.Parse(r.endpoint)
	if err != nil {
		r.site.t.Error(err)
		return 0
	}
	u.Host = here.Host
	return r.send(ctx, http.MethodGet, u.String(), nil)
}

// query asks this replica for files.
func (r *asker) query(ctx context.Context, body []byte) int {
	return r.send(ctx, http.MethodPost, r.endpoint+"/shares/sales/schemas/shop/tables/orders/query", body)
}

func (r *asker) send(ctx context.Context, method, target string, body []byte) int {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		r.site.t.Error(err)
		return 0
	}
	if method == http.MethodPost {
		req.Header.Set("Authorization", "Bearer "+r.site.token.Reveal())
		req.Header.Set(sharing.HeaderCapabilities, "responseformat=delta;readerfeatures=deletionvectors,timestampntz")
	}
	res, err := r.http.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

// judge looks at every answer that a recipient gets.
type judge struct {
	*asker
	inner http.RoundTripper
}

// RoundTrip implements http.RoundTripper. An answer to a question that was
// asked after a floor was announced must not come from below it.
func (j *judge) RoundTrip(req *http.Request) (*http.Response, error) {
	floor := j.site.truth.now().floor
	res, err := j.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	res.Header.Del("Retry-After") // this recipient has no patience
	t := j.site.t
	if text := res.Header.Get(sharing.HeaderTableVersion); text != "" {
		version, err := strconv.ParseInt(text, 10, 64)
		if err != nil || version < floor {
			t.Errorf("%s: %s answers version %q below floor %d", j.name, req.URL.Path, text, floor)
		}
		if res.StatusCode == http.StatusOK && strings.HasSuffix(req.URL.Path, "/query") {
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			res.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), broken{err}))
			if err == nil {
				j.lines(version, body)
			}
		}
	}
	if version, ok := j.site.books.version(req.URL.RawQuery); ok && res.StatusCode < 300 && version < floor {
		t.Errorf("%s: a URL of version %d works below floor %d", j.name, version, floor)
	}
	return res, nil
}

// broken ends a body as it ended.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) {
	if b.err == nil {
		return 0, io.EOF
	}
	return 0, b.err
}

// lines holds the files of an answer to what the table's log says of the
// version, and keeps what was issued.
func (j *judge) lines(version int64, body []byte) {
	got, old := int64(0), issued{replica: j.name, version: version}
	lines := sharing.NewDecoder(bytes.NewReader(body), 0)
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			j.site.t.Errorf("%s: %v", j.name, err)
			return
		}
		if line.EndStream != nil {
			if line.EndStream.ErrorMessage != "" {
				return // it was fenced in the middle
			}
			old.refresh = line.EndStream.RefreshToken
		}
		if line.File == nil {
			continue
		}
		add := line.File.Action.Add
		rows, urls := int64(0), []string{add.Path}
		if rows, err = physicalRows(add.Stats); err != nil {
			j.site.t.Errorf("%s: %v", j.name, err)
		}
		if dv := add.DeletionVector; dv != nil {
			rows -= dv.Cardinality
			if dv.StorageType == "p" {
				urls = append(urls, dv.PathOrInlineDV)
			}
		}
		got += rows
		old.urls = append(old.urls, urls...)
	}
	if want := j.site.liveRows(version); got != want {
		j.site.t.Errorf("%s: the files of version %d show %d rows, want %d", j.name, version, got, want)
	}
	j.site.books.enter(old)
}

func physicalRows(stats string) (int64, error) {
	var s struct {
		NumRecords *int64 `json:"numRecords"`
	}
	if err := json.Unmarshal([]byte(stats), &s); err != nil || s.NumRecords == nil {
		return 0, fmt.Errorf("a file tells no number of rows: %w", err)
	}
	return *s.NumRecords, nil
}

// books hold what replicas issued.
type books struct {
	mu       sync.Mutex
	versions map[string]int64 // of URLs, by their query
	first    []issued         // of each version by each replica
	rows     map[int64]int64  // by version, from the table's log
}

// issued is what one answer gave out.
type issued struct {
	replica string
	version int64
	urls    []string
	refresh string
}

func (b *books) enter(i issued) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range i.urls {
		if u, err := url.Parse(text); err == nil {
			b.versions[u.RawQuery] = i.version
		}
	}
	if i.refresh != "" && !slices.ContainsFunc(b.first, func(o issued) bool { return o.replica == i.replica && o.version == i.version }) {
		b.first = append(b.first, i)
	}
}

func (b *books) version(query string) (int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, ok := b.versions[query]
	return v, ok
}

// below returns what was issued for versions below the floor.
func (b *books) below(floor int64) (list []issued) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range b.first {
		if i.version < floor {
			list = append(list, i)
		}
	}
	return list
}

// newest is the table's version.
func (s *site) newest(ctx context.Context) int64 {
	v, err := log.LatestVersion(ctx, s.lake, 0)
	if err != nil && ctx.Err() == nil {
		s.t.Error(err)
	}
	return int64(v)
}

// liveRows is what the table's own log says of a version.
func (s *site) liveRows(version int64) int64 {
	s.books.mu.Lock()
	defer s.books.mu.Unlock()
	if n, ok := s.books.rows[version]; ok {
		return n
	}
	ctx := context.WithoutCancel(s.t.Context())
	snap, err := log.Load(ctx, s.lake, storage.Version(version))
	if err != nil {
		s.t.Error(err)
		return 0
	}
	total := int64(0)
	for add, err := range snap.Files(ctx) {
		rows, statsErr := physicalRows(add.Stats)
		if err = errors.Join(err, statsErr); err != nil {
			s.t.Error(err)
			return 0
		}
		if add.DeletionVector != nil {
			rows -= add.DeletionVector.Cardinality
		}
		total += rows
	}
	s.books.rows[version] = total
	return total
}
