package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"delenda/internal/cloud/keeper"
	"delenda/internal/daemon"
	"delenda/internal/demo"
	"delenda/pipeline"
	"delenda/storage/bucket"
)

func TestStatusTellsOfATableWhatItsDeleterSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"orders", "failing"} {
		lake, err := bucket.Open(t.Context(), filepath.Join(dir, "lake", name), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := demo.WriteTable(t.Context(), lake, time.Now, nil); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(dir, "delenda.yaml")
	if err := os.WriteFile(conf, []byte(`installation: test
state: state
keeper: keeper.key
nats: {embedded: {dir: nats}}
tables:
  - {name: orders, url: lake/orders, identities: {customer_id: customer_id}}
  - {name: far, url: elsewhere/far, identities: {customer_id: customer_id}}
  - {name: failing, url: lake/failing, identities: {customer_id: customer_id}}
  - {name: stuck, url: elsewhere/stuck, identities: {customer_id: customer_id}}
ingest: {listen: "127.0.0.1:0"}
deleter: {listen: "127.0.0.1:0"}
publisher: {listen: "127.0.0.1:0"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	k, _, err := keeper.Open(t.Context(), filepath.Join(dir, "keeper.key"))
	if err != nil {
		t.Fatal(err)
	}
	state, err := bucket.Open(t.Context(), filepath.Join(dir, "state"), nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := pipeline.OpenStore(t.Context(), state, k, "test", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for table, p := range map[string]pipeline.Parked{
		"failing": {Code: "delete_failed", Reason: "a batch fails and is tried again", Since: time.Unix(1_700_000_000, 0).UTC()},
		"stuck":   {Code: "append_only", Reason: "the table is append-only", Since: time.Unix(1_700_000_000, 0).UTC()},
	} {
		if err := store.Park(t.Context(), table, p); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	err = Delenda(t.Context(), daemon.Process{
		Args: []string{"status", "-config", conf}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: t.Output(),
		Env: func(string) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ok       table orders: ",
		"unknown  table far: cannot be looked at from here, and no deleter complains: ",
		"PARKED   table failing: a batch fails and is tried again (delete_failed), since 2023-11-14T22:13:20Z",
		"PARKED   table stuck: the table is append-only (append_only), since 2023-11-14T22:13:20Z",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}
