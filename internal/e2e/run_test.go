package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"delenda/events"
	"delenda/events/bus"
	"delenda/internal/config"
	"delenda/internal/demo"
	"delenda/internal/service"
	"delenda/storage/bucket"
)

// run is everything embedded on a directory, with what it writes collected.
type run struct {
	*service.Running
	dir  string
	log  lockedBuffer
	stop func() error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

var everything = service.Services{Ingest: true, Deleter: true, Publisher: true}

// startRun runs everything on the demo's table in a new directory.
func startRun(t testing.TB) *run {
	t.Helper()
	return startOn(t, tableDir(t), everything)
}

// startAt runs everything with a NATS server of its own.
func startAt(t testing.TB, natsURL string) *run {
	t.Helper()
	return startWith(t, tableDir(t), everything, natsURL)
}

// tableDir makes a directory that holds the demo's table.
func tableDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	lake, err := bucket.Open(t.Context(), filepath.Join(dir, "lake", "orders"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := demo.WriteTable(t.Context(), lake, time.Now, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startOn runs services on a directory that holds the table, with NATS
// embedded.
func startOn(t testing.TB, dir string, services service.Services) *run {
	t.Helper()
	return startWith(t, dir, services, "")
}

func startWith(t testing.TB, dir string, services service.Services, natsURL string) *run {
	t.Helper()
	r := &run{dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", r.log.bytes())
		}
	})
	sum := sha256.Sum256([]byte(token))
	path := filepath.Join(r.dir, "delenda.yaml")
	role, nats := config.RoleUp, "{embedded: {dir: nats}}"
	if natsURL != "" {
		role, nats = config.RoleDeleter, fmt.Sprintf("{url: %q}", natsURL)
	}
	text := fmt.Sprintf(`installation: test
state: state
keeper: keeper.key
nats: %s
tables:
  - {name: orders, url: lake/orders, identities: {email: email, customer_id: customer_id}}
limits: {rows: 10000}
batch: {window: 10ms}
ingest:
  listen: 127.0.0.1:0
  plain_intake: true
  sources: [{name: shop, tokens_sha256: [%s]}]
deleter: {listen: "127.0.0.1:0"}
publisher:
  listen: 127.0.0.1:0
  shares: [{name: sales, schemas: [{name: shop, tables: [{name: orders}]}]}]
`, nats, hex.EncodeToString(sum[:]))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := config.Read(path, role, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan *service.Running, 1), make(chan error, 1)
	go func() {
		ended <- service.Run(ctx, service.Options{
			Name: "up", Config: conf, Services: services, Embedded: natsURL == "",
			Log: slog.New(slog.NewJSONHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Now: time.Now,
			Started: func(s *service.Running) { started <- s },
		})
	}()
	r.stop = func() error {
		cancel()
		return <-ended
	}
	select {
	case r.Running = <-started:
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	return r
}

// post sends a body to ingest and returns status and answer.
func (r *run) post(t testing.TB, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.IngestURL+"/v1/erasures", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	return do(t, req)
}

func (r *run) get(t testing.TB, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	_, body := do(t, req)
	return body
}

func do(t testing.TB, req *http.Request) (int, []byte) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// await returns the first event of a stream that is accepted.
func await[T any](t testing.TB, b *bus.Bus, stream string, accept func(T) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for u, err := range b.Follow(ctx, stream, bus.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Record == nil {
			continue
		}
		e, err := u.Record.Event()
		if err != nil {
			t.Fatal(err)
		}
		v, err := events.Payload[T](e)
		if err != nil {
			t.Fatal(err)
		}
		if accept(v) {
			return v
		}
	}
	t.Fatalf("nothing came on %s", stream)
	panic("unreachable")
}

// seal encrypts a request to ingest's published key, as a sender does.
func (r *run) seal(t testing.TB, body string) []byte {
	t.Helper()
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(r.get(t, r.IngestURL+"/v1/keys"), &keys); err != nil || len(keys.Keys) == 0 {
		t.Fatalf("keys: %v", err)
	}
	encrypter, err := jose.NewEncrypter(jose.A256GCM,
		jose.Recipient{Algorithm: jose.KeyAlgorithm(keys.Keys[0].Algorithm), Key: keys.Keys[0], KeyID: keys.Keys[0].KeyID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := encrypter.Encrypt([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := sealed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

func request(key, typ, value string) string {
	return fmt.Sprintf(`{"idempotency_key":%q,"regulation":"gdpr","identities":[{"type":%q,"value":%q}]}`, key, typ, value)
}

// idOf returns the id in an answer of ingest.
func idOf(t testing.TB, answer []byte) string {
	t.Helper()
	var a struct{ ID string }
	if err := json.Unmarshal(answer, &a); err != nil {
		t.Fatal(err)
	}
	return a.ID
}
