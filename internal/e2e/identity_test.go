package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"delenda/events"
	"delenda/pipeline"
	"delenda/pipeline/audit"
	"delenda/storage"
)

// foreign is the commit by which another writer filled the table: its bounds
// of the columns are not ours.
const foreign = "lake/orders/_delta_log/00000000000000000001.json"

// TestNoIdentityIsLeftInAnyByteOutsideTheDataFiles sends requests in every way
// that there is, good and bad, and when all are done looks through every byte
// that was written or answered.
func TestNoIdentityIsLeftInAnyByteOutsideTheDataFiles(t *testing.T) {
	t.Parallel()
	r := startRun(t)
	identities := []string{
		"erika.mustermann@example.org",    // by HTTP: held, released, hidden
		"customer5000@example.org",        // by NATS, encrypted
		"customer5001@example.org",        // by NATS, in clear
		"somebody-not-there@example.org",  // matches nothing
		"needle-of-a-bad-type",            // refused: type
		"needle-of-a-bad-number",          // refused: not in canonical form
		"needle-in-broken-json",           // refused: not JSON
		"needle-as-idempotency-key@x.org", // a key that should not be one
		"needle-of-an-unknown-source",     // dead letter
		"needle-of-no-work-item-at-all",   // dead letter
		"needle-with-a-hashed-format",     // refused: format
	}
	var answers bytes.Buffer
	post := func(body string, want int) string {
		status, answer := r.post(t, body)
		answers.Write(answer)
		if status != want {
			t.Errorf("got %d %s, want %d", status, answer, want)
		}
		var a struct{ ID string }
		_ = json.Unmarshal(answer, &a)
		return a.ID
	}
	state := func(id, want string) {
		await(t, r.Bus, events.StreamStatus, func(e events.ErasureReported) bool { return e.Request == id && e.State == want })
		answers.Write(r.get(t, r.IngestURL+"/v1/erasures/"+id))
	}

	held := post(request("one", "email", identities[0]), http.StatusAccepted)
	state(held, "held")
	nobody := post(request(identities[7], "email", identities[3]), http.StatusAccepted)
	state(nobody, "hidden")
	post(request("two", "phone", identities[4]), http.StatusUnprocessableEntity)
	post(request("three", "customer_id", identities[5]), http.StatusUnprocessableEntity)
	post(`{"idempotency_key":"four","identities":[{"type":"email","value":"`+identities[6]+`"}`, http.StatusBadRequest)
	post(fmt.Sprintf(`{"idempotency_key":"five","identities":[{"type":"email","value":%q,"format":"sha256"}]}`, identities[10]), http.StatusUnprocessableEntity)
	post(request("one", "email", identities[1]), http.StatusConflict)

	for _, m := range []struct {
		subject string
		body    []byte
	}{
		{"delenda.intake.shop", r.seal(t, request("six", "email", identities[1]))},
		{"delenda.intake.shop", []byte(request("seven", "email", identities[2]))},
		{"delenda.intake.stranger", []byte(request("eight", "email", identities[8]))},
		{"delenda.requests.orders", []byte(identities[9])},
	} {
		if _, err := r.Bus.PublishRaw(t.Context(), m.subject, "", m.body); err != nil {
			t.Fatal(err)
		}
	}
	accepted := 0
	await(t, r.Bus, events.StreamOutcomes, func(e events.IntakeAnswered) bool {
		if e.Accepted {
			state(e.Request, "hidden")
			accepted++
		}
		return accepted == 2
	})
	await(t, r.Bus, events.StreamDead, func(d events.DeadLetter) bool { return d.Code == "unknown_source" })
	await(t, r.Bus, events.StreamDead, func(d events.DeadLetter) bool { return d.Code == "malformed" })

	if _, err := r.Store.Release(t.Context(), r.Bus.Publish, pipeline.RequestID(held)); err != nil {
		t.Fatal(err)
	}
	state(held, "hidden")
	answers.Write(r.get(t, r.IngestURL+"/metrics"))
	answers.Write(r.get(t, r.DeleterURL+"/readyz"))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	secrets := make([]storage.Secret, len(identities))
	for i, v := range identities {
		secrets[i] = storage.NewSecret(v)
	}
	scanner, err := audit.NewScanner(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	if err := scanner.Bytes(t.Context(), "answers", answers.Bytes()); err != nil {
		t.Error(err)
	}
	if err := scanner.Bytes(t.Context(), "logs", r.log.bytes()); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	err = scanner.Dir(t.Context(), "run", os.DirFS(r.dir), func(path string) bool {
		seen[strings.Split(path, "/")[0]] = true
		return strings.HasSuffix(path, ".parquet") || path == foreign
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range scanner.Found() {
		t.Errorf("%s (%s)", f, identities[f.Needle])
	}
	for _, prefix := range []string{"open", "keys"} {
		entries, err := os.ReadDir(filepath.Join(r.dir, "state", prefix))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if _, id := pipeline.ParseRequestID(e.Name()); id {
				t.Errorf("%s/%s is left", prefix, e.Name())
			}
		}
	}
	for _, dir := range []string{"nats", "state", "lake"} {
		if !seen[dir] {
			t.Errorf("%s was not looked through", dir)
		}
	}
	t.Logf("looked through %d bytes", scanner.Searched())

	// What must be there is found: the id of the request, in each place.
	control, err := audit.NewScanner(storage.NewSecret(held))
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Bytes(t.Context(), "logs", r.log.bytes()); err != nil {
		t.Error(err)
	}
	if err := control.Dir(t.Context(), "run", os.DirFS(r.dir), nil); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"logs", "run/state/requests/", "run/nats/"} {
		if !slices.ContainsFunc(control.Found(), func(f audit.Finding) bool { return strings.HasPrefix(f.Where, place) }) {
			t.Errorf("the scanner finds the request's id nowhere in %s", place)
		}
	}
}
