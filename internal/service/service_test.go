package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/internal/config"
	"delenda/internal/demo"
	"delenda/internal/service"
	"delenda/storage/bucket"
)

// start runs everything embedded on a temporary directory until the test ends.
// extra is added to the list of tables.
func start(t *testing.T, extra string) (*service.Running, func() error) {
	t.Helper()
	dir := t.TempDir()
	lake, err := bucket.Open(t.Context(), filepath.Join(dir, "lake", "orders"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := demo.WriteTable(t.Context(), lake, time.Now, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "delenda.yaml")
	text := `installation: test
state: state
keeper: keeper.key
nats: {embedded: {dir: nats}}
tables:
  - {name: orders, url: lake/orders, identities: {customer_id: customer_id}}
` + extra + `ingest: {listen: "127.0.0.1:0"}
deleter: {listen: "127.0.0.1:0"}
publisher:
  listen: "127.0.0.1:0"
  shares: [{name: s, schemas: [{name: s, tables: [{name: orders}` + also(extra) + `]}]}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := config.Read(path, config.RoleUp, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan *service.Running, 1), make(chan error, 1)
	go func() {
		ended <- service.Run(ctx, service.Options{
			Name: "up", Config: conf, Services: service.Services{Ingest: true, Deleter: true, Publisher: true}, Embedded: true,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now,
			Started: func(r *service.Running) { started <- r },
		})
	}()
	stop := func() error {
		cancel()
		return <-ended
	}
	select {
	case r := <-started:
		return r, stop
	case err := <-ended:
		cancel()
		t.Fatalf("ended: %v", err)
		return nil, nil
	}
}

// also shares a table that extra adds.
func also(extra string) string {
	if strings.Contains(extra, "name: nowhere") {
		return ", {name: nowhere}"
	}
	return ""
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestATableThatCannotBeServedIsRefusedByNameWhileTheRestRuns(t *testing.T) {
	t.Parallel()
	r, stop := start(t, `  - {name: nowhere, url: lake/nowhere, identities: {customer_id: customer_id}}
  - {name: orders_by_phone, url: lake/other/../phone, identities: {phone: phone}}
`)
	tables := map[string]string{}
	for len(tables) < 3 { // until every table has been looked at once
		_, body := get(t, r.DeleterURL+"/readyz")
		var ready service.Readiness
		if err := json.Unmarshal([]byte(body), &ready); err != nil {
			t.Fatal(err)
		}
		for _, h := range ready.Tables {
			if h.Reason != "not opened yet" {
				tables[h.Table] = strings.TrimSpace(h.State + " " + h.Code)
			}
		}
	}
	want := map[string]string{"orders": "served", "nowhere": "refused no_table", "orders_by_phone": "refused no_table"}
	if d := cmp.Diff(want, tables); d != "" {
		t.Errorf("tables (-want +got):\n%s", d)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAShareOfATableThatCannotBeServedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r, stop := start(t, "  - {name: nowhere, url: lake/nowhere, identities: {customer_id: customer_id}}\n")
	var ready service.Readiness
	for !ready.Ready {
		_, body := get(t, r.PublisherURL+"/readyz")
		ready = service.Readiness{}
		if err := json.Unmarshal([]byte(body), &ready); err != nil {
			t.Fatal(err)
		}
	}
	served := map[string]bool{}
	for _, h := range ready.Shares {
		served[h.Table] = h.Served
	}
	if d := cmp.Diff(map[string]bool{"orders": true, "nowhere": false}, served); d != "" {
		t.Errorf("served (-want +got):\n%s", d)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestTheDrainIsQuickWhenNothingIsInFlight(t *testing.T) {
	t.Parallel()
	_, stop := start(t, "")
	begin := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 4*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestEveryListenerTellsHealthAndMetrics(t *testing.T) {
	t.Parallel()
	r, stop := start(t, "")
	for _, url := range []string{r.IngestURL, r.DeleterURL, r.PublisherURL} {
		for path, want := range map[string]string{"/healthz": "ok", "/readyz": `"service": "up"`, "/metrics": "delenda_bus_seconds"} {
			_, body := get(t, url+path)
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q:\n%.300s", path, want, body)
			}
		}
	}
	if status, _ := get(t, r.IngestURL+"/v1/nothing"); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAnotherInstallationsKeyStopsTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf := func(key string) *config.Config {
		c, err := config.Parse(filepath.Join(dir, "c.yaml"), []byte(fmt.Sprintf(`installation: test
state: state
keeper: %s
nats: {embedded: {dir: nats}}
tables: [{name: t, url: t, identities: {id: id}}]
ingest: {listen: "127.0.0.1:0"}
deleter: {listen: "127.0.0.1:0"}
publisher: {listen: "127.0.0.1:0"}
`, key)), config.RoleUp, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	run := func(key string) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return service.Run(ctx, service.Options{
			Name: "up", Config: conf(key), Services: service.Services{Ingest: true}, Embedded: true,
			Log: slog.New(slog.DiscardHandler), Now: time.Now, Started: func(*service.Running) { cancel() },
		})
	}
	if err := run("one.key"); err != nil {
		t.Fatal(err)
	}
	err := run("other.key")
	if err == nil || !strings.Contains(err.Error(), "not the one that sealed this state") {
		t.Errorf("got %v", err)
	}
}
