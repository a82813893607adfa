package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
	"delenda/internal/cloud"
	"delenda/internal/config"
	"delenda/internal/service"
	"delenda/sharing"
	"delenda/sharing/recipients"
	"delenda/storage/bucket"
	"delenda/storage/delta"
)

// TestNoReplicaServesBelowAnAnnouncedFloorWhateverItsConnection runs two
// publishers over one state prefix while people are erased. One publisher's
// connection to NATS is cut, or frozen, before an erasure and in the middle of
// one, and healed; at last it is alone.
func TestNoReplicaServesBelowAnAnnouncedFloorWhateverItsConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, filepath.Join(t.TempDir(), "state"))
	link := s.nats.Link()
	steady := s.start("steady", service.Services{Publisher: true}, s.nats.Link(), s.state)
	shaky := s.start("shaky", service.Services{Publisher: true}, link, s.state)
	a := s.asker(steady, askerOptions{strict: true})
	b := s.asker(shaky, askerOptions{})
	served := func(r answered) bool { return r.served && r.floor >= s.truth.now().floor }
	current := func() { // both have answered, or said that they cannot
		t.Helper()
		a.until("serves the floor", served)
		b.until("answers", func(r answered) bool { return r.floor >= s.truth.now().floor })
		s.refused(a, b)
	}
	s.erase()
	current()
	for _, loss := range []struct {
		name string
		lose func()
	}{{"cut", link.Cut}, {"frozen", link.Freeze}} {
		loss.lose()
		s.erase()
		current()
		link.Heal()
		b.until("serves after it was "+loss.name, served)
		s.erase()
		current()

		announced := s.post()
		loss.lose()
		announced()
		current()
		announced = s.post()
		link.Heal()
		announced()
		b.until("serves after it was "+loss.name+" in the middle", served)
		current()
	}
	a.leave()
	if err := steady.stop(); err != nil {
		t.Error(err)
	}
	s.erase() // announced by the one that is left
	b.until("serves alone", served)
	s.refused(b)
}

// TestAReplicaThatCannotReadTheStatePrefixServesNothing takes the state prefix
// away from one of two publishers, in several ways, while NATS tells it
// everything.
func TestAReplicaThatCannotReadTheStatePrefixServesNothing(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	if err := backend.CreateBucket("state"); err != nil {
		t.Fatal(err)
	}
	store := gofakes3.New(backend).Server()
	faults := &stateFaults{store: store, healed: make(chan struct{})}
	at := func(h http.Handler) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return "s3://state/deep?anonymous=true&endpoint=" + url.QueryEscape(server.URL)
	}
	s := newSite(t, at(store))
	steady := s.start("steady", service.Services{Publisher: true}, s.nats.Link(), s.state)
	shaky := s.start("shaky", service.Services{Publisher: true}, s.nats.Link(), at(faults))
	t.Cleanup(func() { faults.set("") })
	a := s.asker(steady, askerOptions{strict: true})
	b := s.asker(shaky, askerOptions{timeout: 300 * time.Millisecond})
	served := func(r answered) bool { return r.served && r.floor >= s.truth.now().floor }
	s.erase()
	a.until("serves", served)
	b.until("serves", served)
	for _, mode := range []string{"refused", "unreadable", "silent"} {
		faults.set(mode)
		floor := s.erase()
		a.until("serves", served)
		b.until("says that it cannot answer, the state being "+mode, func(r answered) bool { return !r.served && r.floor >= floor })
		s.refused(a)
		faults.set("")
		b.until("serves after the state was "+mode, served)
		s.refused(a, b)
	}
}

// stateFaults is a store before which something goes wrong.
type stateFaults struct {
	store  http.Handler
	mu     sync.Mutex
	mode   string
	healed chan struct{} // closed when the mode changes
}

// set chooses what goes wrong: "" nothing, "refused" everything is forbidden,
// "unreadable" objects are, but not their names, "silent" no answer comes.
func (f *stateFaults) set(mode string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.healed)
	f.mode, f.healed = mode, make(chan struct{})
}

func (f *stateFaults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	mode, healed := f.mode, f.healed
	f.mu.Unlock()
	switch {
	case mode == "refused", mode == "unreadable" && !r.URL.Query().Has("list-type"):
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code></Error>")
		return
	case mode == "silent":
		select {
		case <-healed:
		case <-r.Context().Done():
			return
		}
	}
	f.store.ServeHTTP(w, r)
}

// site is an installation with its deleter, on a small table that another
// writer made, and the truth about it.
type site struct {
	t     *testing.T
	dir   string
	state string
	nats  *bustest.Server
	lake  *bucket.Bucket
	token sharing.Token
	truth truth
	books books

	ingest   string
	customer int // whose erasure was asked for last
}

// truth is what was announced, as a follower of the bus saw it.
type truth struct {
	mu      sync.Mutex
	known   announced
	pending string
	changed chan struct{} // closed at the next change
}

type announced struct {
	floor  int64
	erased []string // customers
}

func (t *truth) now() announced {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

// after returns once a floor above the given one was announced.
func (t *truth) after(ctx context.Context, floor int64) (int64, error) {
	for {
		t.mu.Lock()
		now, changed := t.known.floor, t.changed
		t.mu.Unlock()
		if now > floor {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// heed takes in an announcement.
func (t *truth) heed(e events.ShareChanged) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.HideFloor <= t.known.floor {
		return
	}
	t.known = announced{e.HideFloor, append(t.known.erased[:len(t.known.erased):len(t.known.erased)], t.pending)}
	close(t.changed)
	t.changed = make(chan struct{})
}

func newSite(t *testing.T, state string) *site {
	t.Helper()
	s := &site{
		t: t, dir: t.TempDir(), state: state, nats: bustest.StartServer(t),
		books: books{versions: map[string]int64{}, rows: map[int64]int64{}},
		truth: truth{known: announced{floor: -1}, changed: make(chan struct{})},
	}
	root := filepath.Join(s.dir, "lake", "orders")
	if err := os.CopyFS(root, os.DirFS("../../storage/delta/testdata/deltars-plain")); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.lake, err = bucket.Open(t.Context(), root, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := delta.EnableDeletionVectors(t.Context(), s.lake, nil); err != nil {
		t.Fatal(err)
	}
	s.ingest = s.start("eraser", service.Services{Ingest: true, Deleter: true}, s.nats.Link(), state).IngestURL
	prefix, err := bucket.Open(t.Context(), state, &bucket.Options{Drivers: cloud.Drivers(), Private: true})
	if err != nil {
		t.Fatal(err)
	}
	s.token, err = recipients.NewDirectory(prefix).Issue(t.Context(), "partner", []string{"sales"}, time.Time{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := prefix.Close(); err != nil {
		t.Error(err)
	}
	follower := s.nats.Connect(t, bus.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	t.Cleanup(func() { cancel(); work.Wait() })
	work.Go(func() {
		for u, err := range follower.Follow(ctx, events.StreamShares, bus.FollowOptions{}) {
			if err != nil {
				t.Error(err)
				return
			}
			if u.Record == nil {
				continue
			}
			e, err := u.Record.Event()
			if err != nil {
				t.Error(err)
				continue
			}
			change, err := events.Payload[events.ShareChanged](e)
			if err != nil {
				t.Error(err)
				continue
			}
			s.truth.heed(change)
		}
	})
	return s
}

// process is one process of the installation.
type process struct {
	*service.Running
	name string
	stop func() error
}

// start runs services in what stands for a process of its own, connected over
// the link, until the test ends.
func (s *site) start(name string, services service.Services, link *bustest.Link, state string) *process {
	s.t.Helper()
	sum := sha256.Sum256([]byte(token))
	path := filepath.Join(s.dir, name+".yaml")
	text := fmt.Sprintf(`installation: test
state: %q
keeper: keeper.key
nats: {url: %q}
tables:
  - {name: orders, url: lake/orders, identities: {customer_id: customer_id}}
limits: {rows: 10, share: 1}
batch: {window: 1ms}
ingest:
  listen: 127.0.0.1:0
  plain_intake: true
  sources: [{name: shop, tokens_sha256: [%s]}]
deleter: {listen: "127.0.0.1:0"}
publisher:
  listen: 127.0.0.1:0
  shares: [{name: sales, schemas: [{name: shop, tables: [{name: orders}]}]}]
`, state, "nats://"+throughTCP(s.t, link), hex.EncodeToString(sum[:]))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	role := config.RolePublisher
	if services.Deleter {
		role = config.RoleDeleter
	}
	conf, err := config.Read(path, role, func(string) (string, bool) { return "", false })
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{name: name}
	log := &lockedBuffer{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	started, ended := make(chan *service.Running, 1), make(chan error, 1)
	go func() {
		ended <- service.Run(ctx, service.Options{
			Name: name, Config: conf, Services: services,
			Log: slog.New(slog.NewJSONHandler(log, nil)), Now: time.Now,
			Started: func(r *service.Running) { started <- r },
		})
	}()
	p.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	s.t.Cleanup(func() {
		if err := p.stop(); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
		if s.t.Failed() {
			s.t.Logf("log of %s:\n%s", name, log.bytes())
		}
	})
	select {
	case p.Running = <-started:
	case err := <-ended:
		ended <- err
		s.t.Fatalf("%s: %v", name, err)
	}
	return p
}

// throughTCP listens for clients that reach the NATS server over the link.
func throughTCP(t *testing.T, link *bustest.Link) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer func() { _ = client.Close() }()
				server, err := link.InProcessConn()
				if err != nil {
					return // the link is cut
				}
				work.Go(func() {
					_, _ = io.Copy(server, client)
					_ = server.Close()
				})
				_, _ = io.Copy(client, server)
			})
		}
	})
	return listener.Addr().String()
}

// erase asks for the next customer's erasure, waits until it was announced to
// recipients, and returns the floor.
func (s *site) erase() int64 {
	s.t.Helper()
	return s.post()()
}

// post asks for the next customer's erasure. What it returns waits until it was
// announced to recipients.
func (s *site) post() (wait func() int64) {
	s.t.Helper()
	before := s.truth.now().floor
	s.customer++
	customer := fmt.Sprint(s.customer)
	s.truth.mu.Lock()
	s.truth.pending = customer
	s.truth.mu.Unlock()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.ingest+"/v1/erasures",
		strings.NewReader(request("erase "+customer, "customer_id", customer)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if status, answer := do(s.t, req); status != http.StatusAccepted {
		s.t.Fatalf("got %d %s", status, answer)
	}
	return func() int64 {
		s.t.Helper()
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		floor, err := s.truth.after(ctx, before)
		if err != nil {
			s.t.Fatalf("the erasure of %s was not announced: %v", customer, err)
		}
		return floor
	}
}

// refused asks replicas for everything that was issued below the floor, by
// whichever replica.
func (s *site) refused(replicas ...*asker) {
	s.t.Helper()
	floor, asked := s.truth.now().floor, 0
	for _, old := range s.books.below(floor) {
		for _, r := range replicas {
			for _, u := range old.urls {
				if status := r.get(s.t.Context(), u); status != http.StatusGone && (r.strict || !nothing(status)) {
					s.t.Errorf("%s, floor %d: a URL that %s issued for version %d: status %d", r.name, floor, old.replica, old.version, status)
				}
				asked++
			}
			body, err := json.Marshal(sharing.QueryRequest{RefreshToken: old.refresh})
			if err != nil {
				s.t.Fatal(err)
			}
			if status := r.query(s.t.Context(), body); status != http.StatusBadRequest && (r.strict || !nothing(status)) {
				s.t.Errorf("%s, floor %d: a refresh token that %s issued for version %d: status %d", r.name, floor, old.replica, old.version, status)
			}
		}
	}
	if asked == 0 && len(s.truth.now().erased) > 1 {
		s.t.Error("no URL was issued below the floor")
	}
}

// nothing reports whether a status is of a replica that serves nothing: it says
// so, or is still waiting for its state when the asker gives up (0).
func nothing(status int) bool { return status == http.StatusServiceUnavailable || status == 0 }
