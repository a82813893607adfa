package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"delenda/events"
	"delenda/internal/service"
)

// TestAnAcceptedRequestOutlivesTheLossOfJetStream accepts a request while no
// deleter runs, throws NATS' storage away, and starts everything.
func TestAnAcceptedRequestOutlivesTheLossOfJetStream(t *testing.T) {
	t.Parallel()
	r := startRun(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = startOn(t, r.dir, service.Services{Ingest: true})
	status, answer := r.post(t, request("one", "customer_id", "1234"))
	if status != http.StatusAccepted {
		t.Fatalf("got %d %s", status, answer)
	}
	id := idOf(t, answer)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "nats")); err != nil {
		t.Fatal(err)
	}
	r = startOn(t, r.dir, everything)
	report := await(t, r.Bus, events.StreamStatus, func(e events.ErasureReported) bool { return e.Request == id })
	if report.State != "hidden" || report.Rows == 0 {
		t.Errorf("got %+v", report)
	}

	// The same request again is answered, and runs no second time.
	if status, answer := r.post(t, request("one", "customer_id", "1234")); status != http.StatusAccepted || idOf(t, answer) != id {
		t.Errorf("got %d %s", status, answer)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "nats")); err != nil {
		t.Fatal(err)
	}
	r = startOn(t, r.dir, everything)
	if status, _ := r.post(t, request("two", "customer_id", "1235")); status != http.StatusAccepted {
		t.Errorf("got %d", status)
	}
	report = await(t, r.Bus, events.StreamStatus, func(events.ErasureReported) bool { return true })
	if report.Request == id || report.Version != 3 {
		t.Errorf("a closed request ran again: got %+v", report)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}
