package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"delenda/events/bus/embedded"
	"delenda/pipeline"
)

// TestJetStreamWipedUnderRunningServicesIsDeclaredAndFedAgain takes the NATS
// server away from running services, throws its storage away, and brings it
// back.
func TestJetStreamWipedUnderRunningServicesIsDeclaredAndFedAgain(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "nats")
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	serve := func() *embedded.Server {
		s, err := embedded.Start(t.Context(), embedded.Options{Dir: store, Listen: addr})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	server := serve()
	r := startAt(t, "nats://"+addr)
	done := func(key string) {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		body, id := request(key, "customer_id", "1"+key), ""
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-tick.C {
			if id == "" {
				status, answer := r.post(t, body)
				if status == http.StatusAccepted {
					id = idOf(t, answer)
				} else if status != http.StatusServiceUnavailable {
					t.Fatalf("got %d %s", status, answer)
				}
				continue
			}
			var st pipeline.Status
			if err := json.Unmarshal(r.get(t, r.IngestURL+"/v1/erasures/"+id), &st); err != nil {
				t.Fatal(err)
			}
			if st.State == pipeline.Hidden {
				return
			}
		}
		t.Fatalf("request %s is not done", key)
	}
	done("200")
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What comes while there is no NATS is stored, not answered, and done later.
	if status, answer := r.post(t, request("201", "customer_id", "1201")); status != http.StatusServiceUnavailable {
		t.Errorf("got %d %s", status, answer)
	}
	if ready := string(r.get(t, r.DeleterURL+"/readyz")); !strings.Contains(ready, "not connected to nats://") {
		t.Errorf("readiness does not tell: %s", ready)
	}
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	server = serve()
	done("201")
	done("202")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
