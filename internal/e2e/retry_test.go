package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"delenda/events"
	"delenda/internal/cli"
	"delenda/internal/daemon"
	"delenda/internal/service"
)

// TestAFailedRequestIsTriedAgainThoughJetStreamAndItsDeadLetterAreLost lets a
// request fail for want of its key, as after a state prefix was restored in
// part, throws NATS' storage away, and asks for another try.
func TestAFailedRequestIsTriedAgainThoughJetStreamAndItsDeadLetterAreLost(t *testing.T) {
	t.Parallel()
	r := startOn(t, tableDir(t), service.Services{Ingest: true})
	status, answer := r.post(t, request("one", "customer_id", "1234"))
	if status != http.StatusAccepted {
		t.Fatalf("got %d %s", status, answer)
	}
	id := idOf(t, answer)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(r.dir, "state", "keys", id)
	if err := os.Rename(key, key+".elsewhere"); err != nil {
		t.Fatal(err)
	}
	r = startOn(t, r.dir, everything)
	report := await(t, r.Bus, events.StreamStatus, func(e events.ErasureReported) bool { return e.Request == id })
	if report.State != "failed" {
		t.Fatalf("got %+v", report)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(key+".elsewhere", key); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "nats")); err != nil {
		t.Fatal(err)
	}

	delenda := func(args ...string) (string, error) {
		var out, errs bytes.Buffer
		err := cli.Delenda(t.Context(), daemon.Process{
			Args: append(args, "-config", filepath.Join(r.dir, "delenda.yaml")), Stdin: strings.NewReader(""), Stdout: &out, Stderr: io.MultiWriter(&errs, t.Output()),
			Env: func(string) (string, bool) { return "", false },
		})
		return out.String(), err
	}
	if out, err := delenda("status", id); err != nil || !strings.Contains(out, "next: mend what failed, then delenda dlq replay --request "+id) {
		t.Errorf("%v %s", err, out)
	}
	for _, args := range [][]string{
		{},
		{"1", "--request", id},
		{"1", "--table", "orders"},
		{"--request", "x"},
		{"--request", "0b0e9e0a-3a53-8d3c-9c0e-5f0f7f0a7f11"},
		{"--request", id, "--table", "returns"},
	} {
		if out, err := delenda(append([]string{"dlq", "replay"}, args...)...); err == nil {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out, err := delenda("dlq", "replay", "--request", id, "--table", "orders"); err != nil || !strings.Contains(out, "replayed: request "+id+", on orders.") {
		t.Fatalf("%v %s", err, out)
	}
	r = startOn(t, r.dir, everything)
	report = await(t, r.Bus, events.StreamStatus, func(e events.ErasureReported) bool { return e.Request == id })
	if report.State != "hidden" || report.Rows == 0 {
		t.Errorf("got %+v", report)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}
