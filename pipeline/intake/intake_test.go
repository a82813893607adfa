package intake_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/events"
	"delenda/pipeline"
	"delenda/pipeline/intake"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
	"delenda/storage/bucket/fault"
)

type server struct {
	w     *pipelinetest.World
	store *pipeline.Store
	in    *intake.Intake
	h     http.Handler
}

func tables() []pipeline.Table {
	return []pipeline.Table{
		{
			Name: "orders", Identities: map[string]string{"customer_id": "id", "email": "mail"},
			Check: func(_ context.Context, k storage.Key) error {
				if k.Column == "id" && strings.Contains(k.Value.Reveal(), "_") {
					return storage.Refuse("invalid_value", "the value for column %q is not a canonical long", k.Column)
				}
				return nil
			},
		},
		{Name: "visits", Identities: map[string]string{"email": "mail"}},
		{Name: "weather", Identities: map[string]string{"station": "id"}},
	}
}

func newServer(t testing.TB) *server {
	t.Helper()
	w := pipelinetest.NewWorld(t)
	return serverOn(t, w)
}

func serverOn(t testing.TB, w *pipelinetest.World) *server {
	t.Helper()
	s := &server{w: w, store: w.Store(t)}
	conn := &pipelinetest.Conn{Queue: w.Queue}
	s.in = intake.New(s.store, tables(), conn.Publish, nil)
	s.h = intake.Handler(s.in, []intake.Source{
		{Name: "crm", TokensSHA256: [][32]byte{sha256.Sum256([]byte("crm-old")), sha256.Sum256([]byte("crm-token"))}},
		{Name: "shop", TokensSHA256: [][32]byte{sha256.Sum256([]byte("shop-token"))}},
	}, nil)
	return s
}

func (s *server) do(t testing.TB, method, path, token, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	rec := httptest.NewRecorder()
	s.h.ServeHTTP(rec, r)
	return rec
}

func (s *server) post(t testing.TB, body string) *httptest.ResponseRecorder {
	t.Helper()
	return s.do(t, http.MethodPost, "/v1/erasures", "crm-token", body)
}

const person = "zq.person@example.net"

func valid(change ...string) string {
	m := map[string]string{
		"idempotency_key": `"k-1"`, "regulation": `"gdpr"`, "subject_request_id": `"A7551968-D5D6-44B2-9831-815AC9017798"`,
		"received_at": `"2026-02-27T10:00:00+01:00"`, "tables": `["orders"]`,
		"identities": `[{"type":"email","value":"` + person + `","format":"raw"}]`,
	}
	for i := 0; i < len(change); i += 2 {
		if change[i+1] == "" {
			delete(m, change[i])
		} else {
			m[change[i]] = change[i+1]
		}
	}
	var list []string
	for k, v := range m { // in random order
		list = append(list, fmt.Sprintf("%q : %s", k, v))
	}
	return "{" + strings.Join(list, " ,\n") + "}"
}

func Test_a_request_is_accepted_stored_and_handed_on(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	r := s.post(t, valid())
	if r.Code != http.StatusAccepted {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	var got struct {
		ID     string   `json:"id"`
		Tables []string `json:"tables"`
	}
	if err := json.Unmarshal(r.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"orders"}, got.Tables); diff != "" {
		t.Error(diff)
	}
	if want := "/v1/erasures/" + got.ID; r.Header().Get("Location") != want {
		t.Errorf("Location %q", r.Header().Get("Location"))
	}
	rec, err := s.store.Record(t.Context(), pipeline.RequestID(got.ID))
	if err != nil {
		t.Fatal(err)
	}
	if rec.Source != "crm" || rec.Regulation != "gdpr" || rec.SubjectRequestID != "a7551968-d5d6-44b2-9831-815ac9017798" ||
		!rec.ReceivedAt.Equal(time.Date(2026, 2, 27, 9, 0, 0, 0, time.UTC)) {
		t.Errorf("record %+v", rec)
	}
	identities, err := s.store.Unseal(t.Context(), rec)
	if err != nil || len(identities) != 1 || identities[0].Type != "email" || identities[0].Value.Reveal() != person {
		t.Errorf("unsealed %v, %v", identities, err)
	}
	fetch, _ := (&pipelinetest.Conn{Queue: s.w.Queue}).Consume(t.Context(), "orders")
	messages, err := fetch(t.Context(), 10, 0)
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	e, err := events.Decode(messages[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	item, err := events.Payload[events.ErasureRequested](e)
	if err != nil || item.Request != got.ID || item.Table != "orders" || string(item.Ciphertext) != string(rec.Ciphertext) {
		t.Errorf("item %+v, %v", item, err)
	}
}

func Test_the_same_request_gets_the_same_answer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	first := s.post(t, valid())
	s.w.Clock.Advance(100 * 24 * time.Hour) // received_at would be judged otherwise by now
	for range 5 {
		if again := s.post(t, valid()); again.Code != first.Code || again.Body.String() != first.Body.String() {
			t.Fatalf("%d %s, before %d %s", again.Code, again.Body, first.Code, first.Body)
		}
	}
	// Nor does it matter that the configuration has changed.
	in := intake.New(s.store, nil, (&pipelinetest.Conn{Queue: s.w.Queue}).Publish, nil)
	rec, err := in.Accept(t.Context(), "crm", []byte(valid()))
	if err != nil || !strings.Contains(first.Body.String(), string(rec.ID)) {
		t.Errorf("%v, %v", rec, err)
	}
}

func Test_the_same_key_with_another_body_is_a_conflict(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]string{
		"identity": {"identities", `[{"type":"email","value":"other@example.net"}]`},
		"tables":   {"tables", `["visits"]`},
		"time":     {"received_at", `"2026-02-27T10:00:01+01:00"`},
		"member":   {"regulation", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.post(t, valid())
			r := s.post(t, valid(change...))
			wantProblem(t, r, http.StatusConflict, "idempotency_conflict", "idempotency_key")
			if r := s.do(t, http.MethodPost, "/v1/erasures", "shop-token", valid(change...)); r.Code != http.StatusAccepted {
				t.Errorf("another source's key: %d %s", r.Code, r.Body)
			}
		})
	}
}

func Test_racing_duplicates_are_one_request(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	var servers []*server
	for range 4 {
		servers = append(servers, serverOn(t, w))
	}
	bodies := [2]string{valid(), valid("identities", `[{"type":"email","value":"other@example.net"}]`)}
	var mu sync.Mutex
	answers := [2]map[string]int{{}, {}}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			r := servers[i%4].post(t, bodies[i/4%2])
			mu.Lock()
			defer mu.Unlock()
			answers[i/4%2][fmt.Sprint(r.Code, r.Body)]++
		})
	}
	all.Wait()
	if len(answers[0]) != 1 || len(answers[1]) != 1 {
		t.Fatalf("answers differ: %v", answers)
	}
	accepted := 0
	for _, a := range answers {
		for text := range a {
			if strings.HasPrefix(text, "202") {
				accepted++
			}
		}
	}
	if accepted != 1 {
		t.Errorf("%d bodies accepted", accepted)
	}
	for m, err := range servers[0].store.Open(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		rec, err := servers[0].store.Record(t.Context(), m.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := servers[0].store.Unseal(t.Context(), rec); err != nil {
			t.Error(err)
		}
	}
}

func wantProblem(t *testing.T, r *httptest.ResponseRecorder, status int, code, field string) {
	t.Helper()
	var p struct {
		Type, Title, Detail, Code, Field string
		Status                           int
	}
	if err := json.Unmarshal(r.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v: %s", err, r.Body)
	}
	if r.Code != status || p.Status != status || p.Code != code || p.Field != field || p.Title == "" ||
		p.Type != "urn:delenda:problem:"+code || r.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s, want %d %s of %q", r.Code, r.Body, status, code, field)
	}
}

func Test_bad_input_is_refused_by_the_name_of_the_member(t *testing.T) {
	t.Parallel()
	identity := func(s string) []string { return []string{"identities", `[` + s + `]`} }
	for name, c := range map[string]struct {
		body        string
		status      int
		code, field string
	}{
		"not JSON":                 {`{"idempotency_key": ` + person, 400, "malformed", ""},
		"cut off":                  {`{"idempotency_key":"`, 400, "malformed", ""},
		"a list":                   {`[]`, 400, "malformed", ""},
		"null":                     {`null`, 400, "malformed", ""},
		"two values":               {valid() + `{}`, 400, "malformed", ""},
		"not UTF-8":                {valid("idempotency_key", "\"\xff\""), 400, "malformed", ""},
		"half a surrogate":         {valid("idempotency_key", `"\ud83d"`), 400, "malformed", ""},
		"the other half":           {valid("idempotency_key", `"x\ude00"`), 400, "malformed", ""},
		"too deep":                 {valid("tables", strings.Repeat("[", 50)+strings.Repeat("]", 50)), 400, "malformed", "tables[0][0][0][0][0][0][0][0]"},
		"a member twice":           {`{"idempotency_key":"a","idempotency_key":"a"}`, 400, "duplicate_member", "idempotency_key"},
		"a nested member twice":    {valid(identity(`{"type":"email","type":"email","value":"x"}`)...), 400, "duplicate_member", "identities[0].type"},
		"an unknown member":        {valid("priority", `1`), 400, "unknown_member", "priority"},
		"a member in capitals":     {valid("Tables", `"all"`), 400, "unknown_member", "Tables"},
		"a person as member":       {valid(person, `1`), 400, "unknown_member", ""},
		"no key":                   {valid("idempotency_key", ""), 400, "missing_member", "idempotency_key"},
		"an empty key":             {valid("idempotency_key", `""`), 400, "malformed", "idempotency_key"},
		"a long key":               {valid("idempotency_key", `"`+strings.Repeat("x", 256)+`"`), 400, "malformed", "idempotency_key"},
		"a number as key":          {valid("idempotency_key", `1`), 400, "malformed", "idempotency_key"},
		"an unknown regulation":    {valid("regulation", `"`+person+`"`), 400, "malformed", "regulation"},
		"null as regulation":       {valid("regulation", `null`), 400, "malformed", "regulation"},
		"no UUID":                  {valid("subject_request_id", `"`+person+`"`), 400, "malformed", "subject_request_id"},
		"a UUID in braces":         {valid("subject_request_id", `"{a7551968-d5d6-44b2-9831-815ac9017798}"`), 400, "malformed", "subject_request_id"},
		"no time":                  {valid("received_at", `"yesterday"`), 400, "malformed", "received_at"},
		"a time without zone":      {valid("received_at", `"2026-02-27T10:00:00"`), 400, "malformed", "received_at"},
		"the future":               {valid("received_at", `"2026-03-01T12:06:00Z"`), 422, "out_of_bounds", "received_at"},
		"long ago":                 {valid("received_at", `"1999-01-01T00:00:00Z"`), 422, "out_of_bounds", "received_at"},
		"tables as text":           {valid("tables", `"orders"`), 400, "malformed", "tables"},
		"no table":                 {valid("tables", `[]`), 400, "malformed", "tables"},
		"a bad table name":         {valid("tables", `["orders","O r"]`), 400, "malformed", "tables[1]"},
		"a table twice":            {valid("tables", `["orders","orders"]`), 400, "malformed", "tables[1]"},
		"an unknown table":         {valid("tables", `["orders","nothing"]`), 422, "unknown_table", "tables[1]"},
		"a table that maps none":   {valid("tables", `["orders","weather"]`), 422, "not_mapped", "tables[1]"},
		"no identities":            {valid("identities", ""), 400, "missing_member", "identities"},
		"an empty list":            {valid(identity("")...), 400, "malformed", "identities"},
		"too many":                 {valid(identity(strings.Repeat(`{"type":"email","value":"x"},`, 100) + `{"type":"email","value":"x"}`)...), 400, "malformed", "identities"},
		"identity as text":         {valid(identity(`"x"`)...), 400, "malformed", "identities[0]"},
		"identity without type":    {valid(identity(`{"value":"x"}`)...), 400, "missing_member", "identities[0].type"},
		"identity without value":   {valid(identity(`{"type":"email"}`)...), 400, "missing_member", "identities[0].value"},
		"an unknown member inside": {valid(identity(`{"type":"email","value":"x","note":"y"}`)...), 400, "unknown_member", "identities[0].note"},
		"a bad type":               {valid(identity(`{"type":"` + person + `","value":"x"}`)...), 400, "malformed", "identities[0].type"},
		"a type nobody maps":       {valid("tables", `"all"`, "identities", `[{"type":"email","value":"x"},{"type":"passport","value":"`+person+`"}]`), 422, "not_mapped", "identities[1].type"},
		"a number as value":        {valid(identity(`{"type":"customer_id","value":17}`)...), 400, "malformed", "identities[0].value"},
		"an empty value":           {valid(identity(`{"type":"email","value":""}`)...), 400, "malformed", "identities[0].value"},
		"a long value":             {valid(identity(`{"type":"email","value":"` + strings.Repeat("x", 4097) + `"}`)...), 400, "malformed", "identities[0].value"},
		"an MD5":                   {valid(identity(`{"type":"email","value":"x","format":"md5"}`)...), 422, "unsupported_format", "identities[0].format"},
		"a SHA-1":                  {valid(identity(`{"type":"email","value":"x","format":"sha1"}`)...), 422, "unsupported_format", "identities[0].format"},
		"a SHA-256":                {valid(identity(`{"type":"email","value":"x","format":"sha256"}`)...), 422, "unsupported_format", "identities[0].format"},
		"an unknown format":        {valid(identity(`{"type":"email","value":"x","format":"rot13"}`)...), 400, "malformed", "identities[0].format"},
		"a value not canonical":    {valid(identity(`{"type":"customer_id","value":"1_000"}`)...), 422, "invalid_value", "identities[0].value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			r := s.post(t, c.body)
			wantProblem(t, r, c.status, c.code, c.field)
			for _, secret := range []string{person, "1_000", "rot13", "yesterday", "passport"} {
				if strings.Contains(r.Body.String(), secret) {
					t.Errorf("the answer repeats a value: %s", r.Body)
				}
			}
			for info, err := range s.w.State.List(t.Context(), "", "") {
				if err != nil {
					t.Fatal(err)
				}
				if info.Key != "keys/installation" {
					t.Errorf("a refused request left %s", info.Key)
				}
			}
		})
	}
}

func Test_all_tables_are_those_that_map_a_type(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body             string
		tables, notAppli []string
	}{
		"by default":  {valid("tables", ""), []string{"orders", "visits"}, []string{"weather"}},
		"by name":     {valid("tables", `"all"`), []string{"orders", "visits"}, []string{"weather"}},
		"of one type": {valid("tables", `"all"`, "identities", `[{"type":"customer_id","value":"7"}]`), []string{"orders"}, []string{"visits", "weather"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			rec, err := s.in.Accept(t.Context(), "crm", []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.tables, rec.Tables); diff != "" {
				t.Error(diff)
			}
			r := s.do(t, http.MethodGet, "/v1/erasures/"+string(rec.ID), "crm-token", "")
			var st pipeline.Status
			if err := json.Unmarshal(r.Body.Bytes(), &st); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.notAppli, st.NotApplicable); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func Test_a_sender_sees_its_own_requests_only(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	rec, err := s.in.Accept(t.Context(), "crm", []byte(valid()))
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/erasures/" + string(rec.ID)
	for _, token := range []string{"crm-token", "crm-old"} {
		r := s.do(t, http.MethodGet, path, token, "")
		var st pipeline.Status
		if err := json.Unmarshal(r.Body.Bytes(), &st); err != nil || r.Code != http.StatusOK {
			t.Fatalf("%d %s", r.Code, r.Body)
		}
		if st.State != pipeline.Received || len(st.Tables) != 1 || st.Tables[0].State != pipeline.Received || st.Tables[0].Version != -1 {
			t.Errorf("%+v", st)
		}
	}
	other := s.do(t, http.MethodGet, path, "shop-token", "")
	wantProblem(t, other, 404, "not_found", "")
	none := s.do(t, http.MethodGet, "/v1/erasures/a7551968-d5d6-44b2-9831-815ac9017798", "shop-token", "")
	if other.Body.String() != none.Body.String() {
		t.Errorf("another sender's request can be told from none: %s, %s", other.Body, none.Body)
	}
	wantProblem(t, s.do(t, http.MethodGet, "/v1/erasures/..%2F..%2Fkeys", "crm-token", ""), 404, "not_found", "")
}

func Test_what_is_no_request_is_refused_before_it_is_read(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, token := range []string{"", "wrong", "crm-token2"} {
		r := s.do(t, http.MethodPost, "/v1/erasures", token, valid())
		wantProblem(t, r, 401, "unauthorized", "")
		if r.Header().Get("WWW-Authenticate") == "" {
			t.Error("no WWW-Authenticate")
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/erasures", strings.NewReader(valid()))
	r.Header.Set("Authorization", "Bearer crm-token")
	r.Header.Set("Content-Type", "text/plain")
	rec := httptest.NewRecorder()
	s.h.ServeHTTP(rec, r)
	wantProblem(t, rec, 415, "unsupported_media_type", "")
	wantProblem(t, s.post(t, valid("tables", `"`+strings.Repeat("x", intake.MaxBody)+`"`)), 413, "too_large", "")
	get := s.do(t, http.MethodGet, "/v1/erasures", "crm-token", "")
	wantProblem(t, get, 405, "method_not_allowed", "")
	if get.Header().Get("Allow") != "POST" {
		t.Errorf("Allow %q", get.Header().Get("Allow"))
	}
	wantProblem(t, s.do(t, http.MethodDelete, "/v1/erasures/x", "crm-token", ""), 405, "method_not_allowed", "")
	wantProblem(t, s.do(t, http.MethodGet, "/v1/erasures/x/y", "crm-token", ""), 404, "not_found", "")
	wantProblem(t, s.do(t, http.MethodGet, "/v1/keys", "", ""), 404, "not_found", "")
}

func Test_a_body_that_does_not_come_and_a_bucket_that_does_not_answer_hold_no_connection(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	hang := func(ctx context.Context, _ events.Event) error {
		<-ctx.Done()
		return ctx.Err()
	}
	in := intake.New(s.store, tables(), hang, &intake.Options{Timeout: 50 * time.Millisecond})
	server := httptest.NewServer(intake.Handler(in, []intake.Source{{Name: "crm", TokensSHA256: [][32]byte{sha256.Sum256([]byte("crm-token"))}}}, nil))
	t.Cleanup(server.Close)
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	for name, body := range map[string]io.Reader{"no body": r, "no bus": strings.NewReader(valid())} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/erasures", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer crm-token")
		req.Header.Set("Content-Type", "application/json")
		resp, err := server.Client().Do(req)
		if ctx.Err() != nil {
			t.Errorf("%s: still waiting", name)
		}
		if err != nil {
			continue // cut
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode < 400 {
			t.Errorf("%s: %s, %v", name, resp.Status, err)
		}
	}
}

func Test_trouble_of_the_state_prefix_is_503_and_not_an_acceptance(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := serverOn(t, w)
	f := fault.Wrap(w.State)
	w.State = f
	broken := serverOn(t, w)
	f.Reset()
	f.ArmMatch(fault.Fail, 1, func(op fault.Op) bool { return strings.HasPrefix(op.Key, "requests/") && op.Name != "read" })
	r := broken.post(t, valid())
	wantProblem(t, r, 503, "unavailable", "")
	if r.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if r := s.post(t, valid()); r.Code != http.StatusAccepted {
		t.Errorf("asked again: %d %s", r.Code, r.Body)
	}
}

func Test_an_answer_waits_for_the_messages(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	down := errors.New("no bus")
	in := intake.New(s.store, tables(), func(context.Context, events.Event) error { return down }, nil)
	if _, err := in.Accept(t.Context(), "crm", []byte(valid())); !errors.Is(err, down) {
		t.Errorf("accepted without messages: %v", err)
	}
	if _, err := s.in.Accept(t.Context(), "crm", []byte(valid())); err != nil {
		t.Error(err)
	}
	if waiting, _ := s.w.Queue.Messages(); waiting != 1 {
		t.Errorf("%d messages", waiting)
	}
}
