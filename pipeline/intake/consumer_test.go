package intake_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"delenda/events"
	"delenda/pipeline/intake"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage/bucket/fault"
)

// encrypt does what a sender does with a key of GET /v1/keys.
func encrypt(t testing.TB, key jose.JSONWebKey, enc jose.ContentEncryption, compact bool, body string) string {
	t.Helper()
	c, err := jose.NewEncrypter(enc, jose.Recipient{Algorithm: jose.KeyAlgorithm(key.Algorithm), Key: key.Key, KeyID: key.KeyID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	jwe, err := c.Encrypt([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if !compact {
		return jwe.FullSerialize()
	}
	s, err := jwe.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type sender struct {
	*server
	keys jose.JSONWebKeySet
	c    *intake.Consumer
}

func newSender(t testing.TB) *sender {
	t.Helper()
	s := newPlainSender(t)
	keys, err := intake.LoadKeys(t.Context(), s.store)
	if err != nil {
		t.Fatal(err)
	}
	s.h = intake.Handler(s.in, nil, keys)
	r := s.do(t, http.MethodGet, "/v1/keys", "", "")
	if err := json.Unmarshal(r.Body.Bytes(), &s.keys); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.Body.String(), `"d":`) {
		t.Fatal("a private key is published")
	}
	s.c.Keys = keys
	return s
}

// newPlainSender has no keys: making them takes a while.
func newPlainSender(t testing.TB) *sender {
	t.Helper()
	s := &sender{server: newServer(t)}
	conn := &pipelinetest.Conn{Queue: s.w.Queue}
	s.c = &intake.Consumer{Intake: s.in, Publish: conn.Publish, Fetch: conn.Fetch(events.IntakeSubject("crm")), Sources: []string{"crm"}}
	return s
}

// run lets the consumer work until the intake subject is empty.
func (s *sender) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var run sync.WaitGroup
	run.Go(func() { _ = s.c.Run(ctx) })
	for {
		w, f := s.w.Queue.Intake()
		if w+f == 0 {
			break
		}
		select {
		case <-s.w.Queue.Changed():
		case <-t.Context().Done():
			t.Fatal("not done")
		}
	}
	cancel()
	run.Wait()
}

func (s *sender) outcomes(t testing.TB) []events.IntakeAnswered {
	t.Helper()
	var list []events.IntakeAnswered
	for _, e := range s.w.Queue.Kept(events.TypeIntakeAnswered) {
		if e.Subject != events.OutcomeSubject("crm") {
			t.Errorf("answered on %s", e.Subject)
		}
		a, err := events.Payload[events.IntakeAnswered](e)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b events.IntakeAnswered) int { return int(a.IntakeSequence) - int(b.IntakeSequence) })
	return list
}

func Test_a_message_is_decrypted_accepted_and_answered(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	if len(s.keys.Keys) != 2 {
		t.Fatalf("%d keys", len(s.keys.Keys))
	}
	const messageID = "0b7a5a5e-2c54-4d62-8c0e-6f4f6f4d2a11"
	var want []events.IntakeAnswered
	for _, key := range s.keys.Keys {
		for _, compact := range []bool{true, false} {
			n := s.w.Queue.Put(events.IntakeSubject("crm"), messageID, []byte(encrypt(t, key, jose.A256GCM, compact, valid())))
			want = append(want, events.IntakeAnswered{IntakeSequence: n, MessageID: messageID, Accepted: true, Status: 202})
		}
	}
	s.run(t)
	rec, err := s.in.Accept(t.Context(), "crm", []byte(valid()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i].Request = string(rec.ID) // HTTP and messages name one request alike
	}
	if diff := cmp.Diff(want, s.outcomes(t)); diff != "" {
		t.Error(diff)
	}
}

func Test_a_message_that_is_refused_is_answered_by_code_and_member(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	ec := s.keys.Keys[0]
	stranger := ec
	stranger.KeyID = "unknown"
	type refusal struct {
		status      int
		code, field string
	}
	var want []refusal
	put := func(message string, status int, code, field string) {
		s.w.Queue.Put(events.IntakeSubject("crm"), person, []byte(message))
		want = append(want, refusal{status, code, field})
	}
	put(encrypt(t, ec, jose.A256GCM, true, valid("tables", `["nothing"]`)), 422, "unknown_table", "tables[0]")
	put(encrypt(t, ec, jose.A128GCM, true, valid()), 400, "undecryptable", "")
	put(encrypt(t, stranger, jose.A256GCM, true, valid()), 400, "unknown_key", "")
	broken := encrypt(t, ec, jose.A256GCM, true, valid())
	put(broken[:len(broken)-4]+"AAAA", 400, "undecryptable", "")
	put("a.b.c.d.e", 400, "undecryptable", "")
	put(valid(), 415, "not_encrypted", "")
	put("", 415, "not_encrypted", "")
	put(strings.Repeat("x", 3*intake.MaxBody), 413, "too_large", "")
	put(encrypt(t, ec, jose.A256GCM, true, strings.Repeat(" ", intake.MaxBody+1)), 413, "too_large", "")
	s.run(t)
	var got []refusal
	for _, a := range s.outcomes(t) {
		got = append(got, refusal{a.Status, a.Code, a.Field})
		if a.Accepted || a.Request != "" || a.MessageID != "" {
			t.Errorf("%+v", a)
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(refusal{})); diff != "" {
		t.Error(diff)
	}
	if letters := s.w.Queue.Kept(events.TypeDeadLetter); len(letters) > 0 {
		t.Errorf("%d dead letters for what was answered", len(letters))
	}
}

func Test_plain_messages_are_taken_only_where_enabled(t *testing.T) {
	t.Parallel()
	s := newPlainSender(t)
	s.c.Plain = true
	s.w.Queue.Put(events.IntakeSubject("crm"), "", []byte(valid()))
	s.run(t)
	if got := s.outcomes(t); len(got) != 1 || !got[0].Accepted {
		t.Errorf("%+v", got)
	}
}

func Test_messages_that_cannot_be_answered_or_come_too_often_are_given_up(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	s.c.MaxDeliveries = 2
	s.c.Plain = true
	message := encrypt(t, s.keys.Keys[0], jose.A256GCM, true, valid())
	s.w.Queue.Put(events.IntakeSubject("crm"), "", []byte(message))
	s.w.Queue.Put(events.IntakeSubject("crm"), "", []byte(valid()))
	for range 2 { // workers that died with them
		if _, err := s.c.Fetch(t.Context(), 10, 0); err != nil {
			t.Fatal(err)
		}
		s.w.Queue.Redeliver()
	}
	s.run(t)
	for _, a := range s.outcomes(t) {
		if a.Accepted || a.Code != "gave_up" || a.Status != 500 {
			t.Errorf("%+v", a)
		}
	}
	payloads := map[string]int{}
	for _, e := range s.w.Queue.Kept(events.TypeDeadLetter) {
		d, err := events.Payload[events.DeadLetter](e)
		if err != nil {
			t.Fatal(err)
		}
		if d.Code != "too_many_deliveries" || d.Deliveries != 3 || d.Subject != events.IntakeSubject("crm") || d.Sequence == 0 {
			t.Errorf("%+v", d)
		}
		payloads[string(d.Payload)]++
	}
	if payloads[message] != 1 || payloads[""] != 1 {
		t.Errorf("a dead letter keeps ciphertext and only ciphertext: %d letters", len(payloads))
	}
}

func Test_a_message_is_not_given_up_for_trouble_that_passes(t *testing.T) {
	t.Parallel()
	s := newPlainSender(t)
	s.c.Plain, s.c.MaxDeliveries = true, 1
	conn := &pipelinetest.Conn{Queue: s.w.Queue}
	var tries atomic.Int32
	s.c.Intake = intake.New(s.store, tables(), func(ctx context.Context, e events.Event) error {
		if tries.Add(1) <= 3 {
			return errors.New("no bus")
		}
		return conn.Publish(ctx, e)
	}, nil)
	s.w.Queue.Put(events.IntakeSubject("crm"), "", []byte(valid()))
	s.run(t)
	if got := s.outcomes(t); len(got) != 1 || !got[0].Accepted {
		t.Errorf("%+v", got)
	}
}

func Test_what_only_looks_encrypted_is_not_kept_in_a_dead_letter(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	s.c.Sources = nil // nobody to answer
	sealed := encrypt(t, s.keys.Keys[0], jose.A256GCM, false, valid())
	for _, message := range []string{
		person + ".lives.in",
		`{"ciphertext":"x","value":"` + person + `"}`,
		`{"value":"` + person + `",` + sealed[1:],
	} {
		s.w.Queue.Put(events.IntakeSubject("crm"), "", []byte(message))
	}
	s.run(t)
	letters := s.w.Queue.Kept(events.TypeDeadLetter)
	if len(letters) != 3 {
		t.Errorf("%d letters", len(letters))
	}
	kept := 0
	for _, e := range letters {
		d, err := events.Payload[events.DeadLetter](e)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(d.Payload, []byte(person)) {
			t.Errorf("kept in clear: %d bytes", len(d.Payload))
		}
		if len(d.Payload) > 0 {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("%d letters can be replayed", kept)
	}
}

func Test_an_intake_message_survives_trouble_at_any_operation(t *testing.T) {
	t.Parallel()
	for _, mode := range fault.Modes() {
		for n, struck := 1, true; struck; n++ {
			s := newPlainSender(t)
			s.c.Plain = true // the sweep is about the bus
			seq := s.w.Queue.Put(events.IntakeSubject("crm"), "", []byte(valid()))
			ctx, cancel := context.WithCancel(t.Context())
			strike := pipelinetest.NewStrike(mode, n, cancel)
			conn := &pipelinetest.Conn{Queue: s.w.Queue, Around: strike.Around}
			first := &intake.Consumer{
				Intake: intake.New(s.store, tables(), conn.Publish, nil), Publish: conn.Publish,
				Fetch: conn.Fetch(events.IntakeSubject("crm")), Sources: s.c.Sources, Plain: true,
			}
			var run sync.WaitGroup
			run.Go(func() { _ = first.Run(ctx) })
			for ctx.Err() == nil && !strike.Struck() {
				if w, f := s.w.Queue.Intake(); w+f == 0 {
					break
				}
				select {
				case <-s.w.Queue.Changed():
				case <-ctx.Done():
				}
			}
			cancel()
			run.Wait()
			struck = strike.Struck()
			s.w.Queue.Redeliver()
			s.run(t)
			answers := s.outcomes(t)
			if len(answers) != 1 || !answers[0].Accepted || answers[0].IntakeSequence != seq {
				t.Fatalf("%s %d: %+v", mode, n, answers)
			}
			backlog, err := s.w.Queue.Backlog(t.Context(), "orders")
			if err != nil || backlog == 0 {
				t.Fatalf("%s %d: accepted without an item", mode, n)
			}
		}
	}
}
