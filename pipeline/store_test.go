package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/events"
	"delenda/pipeline"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
	"delenda/storage/bucket/fault"
)

var people = []pipeline.Identity{{Type: "email", Value: storage.NewSecret("zq.person@example.net")}}

func create(t testing.TB, s *pipeline.Store, key string, tables ...string) *pipeline.Record {
	t.Helper()
	r, err := s.Create(t.Context(), pipeline.Record{ID: s.RequestID("crm", key), Source: "crm", Tables: tables, BodyMAC: []byte("mac")}, people)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keys(t testing.TB, b storage.Bucket, prefix string) []string {
	t.Helper()
	var list []string
	for info, err := range b.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, info.Key)
	}
	return list
}

func item(id pipeline.RequestID, table string, batch int64, state pipeline.State, at time.Time) pipeline.Item {
	return pipeline.Item{Request: id, Table: table, Batch: batch, State: state, Rows: 10 * batch, Version: storage.Version(batch), At: at}
}

func Test_an_id_follows_from_installation_source_and_key(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	a, again := w.Store(t), w.Store(t)
	id := a.RequestID("crm", "k")
	if id != again.RequestID("crm", "k") {
		t.Error("not the same after a restart")
	}
	if got, ok := pipeline.ParseRequestID(string(id)); !ok || got != id || id[14] != '8' || !strings.ContainsRune("89ab", rune(id[19])) {
		t.Errorf("%s is not a UUID of version 8", id)
	}
	others := []pipeline.RequestID{
		a.RequestID("crm", "k2"), a.RequestID("shop", "k"), a.RequestID("cr", "mk"), pipelinetest.NewWorld(t).Store(t).RequestID("crm", "k"),
	}
	if slices.Contains(others, id) {
		t.Error("another request has the same id")
	}
}

func Test_only_canonical_text_is_an_id(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "x", "A7551968-D5D6-44B2-9831-815AC9017798", "{a7551968-d5d6-44b2-9831-815ac9017798}",
		"urn:uuid:a7551968-d5d6-44b2-9831-815ac9017798", "a7551968d5d644b29831815ac9017798", "../../keys/installation",
	} {
		if id, ok := pipeline.ParseRequestID(s); ok {
			t.Errorf("%q gives %s", s, id)
		}
	}
}

func Test_identities_open_under_their_own_request_only(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	a, b := create(t, s, "a", "orders"), create(t, s, "b", "orders")
	got, err := s.Unseal(t.Context(), a)
	if err != nil || len(got) != 1 || got[0].Value.Reveal() != people[0].Value.Reveal() {
		t.Fatalf("%v, %v", got, err)
	}
	mixed := *a
	mixed.Ciphertext = b.Ciphertext
	if _, err := s.Unseal(t.Context(), &mixed); !errors.Is(err, pipeline.ErrSealed) {
		t.Errorf("another request's ciphertext: %v", err)
	}
	for i := range a.Ciphertext {
		mixed.Ciphertext = bytes.Clone(a.Ciphertext)
		mixed.Ciphertext[i] ^= 1
		if _, err := s.Unseal(t.Context(), &mixed); !errors.Is(err, pipeline.ErrSealed) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		mixed.Ciphertext = a.Ciphertext[:i]
		if _, err := s.Unseal(t.Context(), &mixed); !errors.Is(err, pipeline.ErrSealed) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if err := w.State.Delete(t.Context(), "keys/"+string(a.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unseal(t.Context(), a); !errors.Is(err, pipeline.ErrShredded) {
		t.Errorf("shredded: %v", err)
	}
}

func Test_no_key_lies_unwrapped(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	create(t, s, "a", "orders")
	derived, err := s.DeriveKey("x")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.DeriveKey("y")
	if err != nil || bytes.Equal(derived, other) {
		t.Errorf("labels do not matter: %v", err)
	}
	for _, key := range keys(t, w.State, "keys/") {
		p, err := storage.ReadObject(t.Context(), w.State, key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := w.Keeper.Decrypt(t.Context(), p)
		if err != nil || len(plain) != 32 || bytes.Contains(p, plain) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := pipeline.OpenStore(t.Context(), w.State, pipelinetest.NewKeeper(t), "test", w.Clock.Now); err == nil {
		t.Error("opened with another keeper")
	}
}

func Test_a_request_is_closed_when_every_table_is_hidden(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	r := create(t, s, "a", "orders", "visits")
	day := time.Date(2026, 4, 30, 23, 0, 0, 0, time.UTC)
	steps := []struct {
		item  pipeline.Item
		state pipeline.State
	}{
		{item(r.ID, "orders", 3, pipeline.Held, day), pipeline.Held},
		{item(r.ID, "visits", 7, pipeline.Failed, day), pipeline.Partial},
		{item(r.ID, "orders", 5, pipeline.Hidden, day.Add(time.Hour)), pipeline.Partial},
		{item(r.ID, "visits", 9, pipeline.Hidden, day.Add(2*time.Hour)), pipeline.Hidden},
	}
	for i, step := range steps {
		for range 2 { // twice is once
			if err := s.PutItem(t.Context(), step.item); err != nil {
				t.Fatal(err)
			}
		}
		st, err := s.Status(t.Context(), r.ID)
		if err != nil || st.State != step.state || st.ClosedAt != nil {
			t.Fatalf("step %d: %+v, %v", i, st, err)
		}
		for range 2 {
			closed, err := s.Close(t.Context(), r)
			if err != nil || closed != (i == len(steps)-1) {
				t.Fatalf("step %d: closed %v, %v", i, closed, err)
			}
		}
	}
	changed := steps[0].item
	changed.Rows++
	if err := s.PutItem(t.Context(), changed); err == nil {
		t.Error("a result was replaced")
	}
	st, err := s.Status(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	last := day.Add(2 * time.Hour)
	first := day.Add(time.Hour)
	want := &pipeline.Status{
		ID: r.ID, Source: "crm", State: pipeline.Hidden, AcceptedAt: r.AcceptedAt, ClosedAt: &last,
		Tables: []pipeline.TableStatus{
			{Table: "orders", State: pipeline.Hidden, Rows: 50, Version: 5, Batch: 5, At: &first},
			{Table: "visits", State: pipeline.Hidden, Rows: 90, Version: 9, Batch: 9, At: &last},
		},
	}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Error(diff)
	}
	if got := keys(t, w.State, "closed/"); !slices.Equal(got, []string{"closed/2026-05/" + string(r.ID)}) {
		t.Errorf("%v", got)
	}
	if open := keys(t, w.State, "open/"); len(open) != 0 {
		t.Errorf("%v", open)
	}
	if got := keys(t, w.State, "keys/"); !slices.Equal(got, []string{"keys/installation"}) {
		t.Errorf("%v", got)
	}
}

func sweeper(w *pipelinetest.World, s *pipeline.Store) *pipeline.Sweeper {
	return &pipeline.Sweeper{
		Store: s, Publish: (&pipelinetest.Conn{Queue: w.Queue}).Publish, Logger: slog.New(slog.DiscardHandler),
	}
}

func sweep(t testing.TB, w *pipeline.Sweeper, want pipeline.Swept) {
	t.Helper()
	got, err := w.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func Test_without_knowledge_of_the_backlog_the_sweep_feeds_ever_more_rarely(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	create(t, s, "a", "orders", "visits")
	sw := sweeper(w, s)
	var fed []int
	for minute := range 60 {
		n, err := sw.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n.Fed > 0 {
			fed = append(fed, minute)
			if n.Fed != 2 {
				t.Errorf("minute %d: %d items", minute, n.Fed)
			}
		}
		w.Clock.Advance(time.Minute)
	}
	if diff := cmp.Diff([]int{2, 6, 14, 24, 34, 44, 54}, fed); diff != "" {
		t.Error(diff)
	}
}

func Test_with_knowledge_of_the_backlog_the_sweep_feeds_what_was_lost_at_once(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	sw := sweeper(w, s)
	sw.Backlog = w.Queue.Backlog
	r := create(t, s, "a", "orders", "visits")
	if _, err := s.Feed(t.Context(), sw.Publish, r); err != nil {
		t.Fatal(err)
	}
	sweep(t, sw, pipeline.Swept{Open: 1})
	w.Queue.Wipe()
	sweep(t, sw, pipeline.Swept{Open: 1, Fed: 2})
	sweep(t, sw, pipeline.Swept{Open: 1})
	if err := s.PutItem(t.Context(), item(r.ID, "visits", 1, pipeline.Held, w.Clock.Now())); err != nil {
		t.Fatal(err)
	}
	w.Queue.Wipe()
	sweep(t, sw, pipeline.Swept{Open: 1, Fed: 1})
	if err := s.PutItem(t.Context(), item(r.ID, "orders", 1, pipeline.Failed, w.Clock.Now())); err != nil {
		t.Fatal(err)
	}
	w.Queue.Wipe()
	sweep(t, sw, pipeline.Swept{Open: 1, Waiting: 1}) // a person must decide
	if err := s.Retry(t.Context(), sw.Publish, r.ID, "orders"); err != nil {
		t.Fatal(err)
	}
	w.Queue.Wipe()
	sweep(t, sw, pipeline.Swept{Open: 1, Fed: 1})
}

func Test_an_item_that_others_hide_in_the_backlog_is_fed_in_the_end_and_not_without_end(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	sw := sweeper(w, s)
	sw.Backlog = w.Queue.Backlog
	a := create(t, s, "a", "orders")
	create(t, s, "b", "orders") // its process died before it published
	for range 2 {
		if _, err := s.Feed(t.Context(), sw.Publish, a); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t, sw, pipeline.Swept{Open: 2})
	w.Clock.Advance(11 * time.Minute)
	sweep(t, sw, pipeline.Swept{Open: 2, Fed: 2})
	for range 10 {
		w.Clock.Advance(11 * time.Minute)
		sweep(t, sw, pipeline.Swept{Open: 2})
	}
}

func Test_what_was_done_since_it_was_looked_at_is_not_fed(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	sw := sweeper(w, s)
	r := create(t, s, "a", "orders", "visits")
	sw.Backlog = func(ctx context.Context, table string) (int64, error) { // its batch is settled just now
		return 0, s.PutItem(ctx, item(r.ID, table, 1, pipeline.Hidden, w.Clock.Now()))
	}
	sweep(t, sw, pipeline.Swept{Open: 1})
}

func Test_an_item_that_cannot_be_published_does_not_stop_the_sweep(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	sw := sweeper(w, s)
	sw.Backlog = w.Queue.Backlog
	create(t, s, "b", "orders")
	create(t, s, "c", "orders")
	publish, calls := sw.Publish, 0
	sw.Publish = func(ctx context.Context, e events.Event) error {
		if calls++; calls == 1 {
			return errors.New("maximum payload exceeded")
		}
		return publish(ctx, e)
	}
	sweep(t, sw, pipeline.Swept{Open: 2, Fed: 1, Troubled: 1})
}

func Test_the_sweep_finishes_a_request_that_a_crash_left_before_its_end(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		w := pipelinetest.NewWorld(t)
		s := w.Store(t)
		r := create(t, s, "a", "orders")
		if err := s.PutItem(t.Context(), item(r.ID, "orders", 1, pipeline.Hidden, w.Clock.Now())); err != nil {
			t.Fatal(err)
		}
		f := fault.Wrap(w.State)
		broken, err := pipeline.OpenStore(t.Context(), f, w.Keeper, "test", w.Clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		f.Reset()
		f.Arm(fault.Kill, n)
		_, _ = broken.Close(t.Context(), r)
		w.Clock.Advance(40 * 24 * time.Hour) // another month
		sw := sweeper(w, s)
		if _, err := sw.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := append(keys(t, w.State, "closed/"), keys(t, w.State, "open/")...); len(got) != 1 || len(keys(t, w.State, "keys/")) != 1 {
			t.Errorf("operation %d: %v", n, got)
		}
		if !f.Struck() {
			return
		}
	}
}

func Test_what_an_attempt_without_a_record_left_is_removed_after_a_day(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		w := pipelinetest.NewWorld(t)
		s := w.Store(t)
		f := fault.Wrap(w.State)
		broken, err := pipeline.OpenStore(t.Context(), f, w.Keeper, "test", w.Clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		f.Reset()
		f.Arm(fault.Kill, n)
		id := s.RequestID("crm", "a")
		_, err = broken.Create(t.Context(), pipeline.Record{ID: id, Tables: []string{"orders"}}, people)
		if !f.Struck() {
			return
		}
		if err == nil {
			t.Fatalf("operation %d: created by a dead process", n)
		}
		_, err = s.Record(t.Context(), id)
		recorded := err == nil
		sw := sweeper(w, s)
		if _, err := sw.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		young := len(keys(t, w.State, "open/"))
		w.Clock.Advance(time.Since(w.Clock.Now()) + 25*time.Hour) // markers bear the bucket's time
		if _, err := sw.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		open, left := keys(t, w.State, "open/"), keys(t, w.State, "keys/")
		switch {
		case recorded && (len(open) != 1 || len(left) != 2):
			t.Errorf("operation %d: a recorded request lost %v %v", n, open, left)
		case !recorded && (len(open) != 0 || len(left) != 1):
			t.Errorf("operation %d: left %v %v", n, open, left)
		case n > 1 && young != 1:
			t.Errorf("operation %d: removed at once", n)
		}
		// The sender asks again, sooner or later.
		r, err := s.Create(t.Context(), pipeline.Record{ID: id, Tables: []string{"orders"}}, people)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Unseal(t.Context(), r); err != nil {
			t.Errorf("operation %d: %v", n, err)
		}
	}
}

func Test_a_sweep_that_takes_a_slow_attempt_for_a_dead_one_loses_nothing(t *testing.T) {
	t.Parallel()
	// The slow attempt stands still before each of its operations in turn,
	// and meanwhile a sweep removes its marker and key.
	for n := 1; ; n++ {
		w := pipelinetest.NewWorld(t)
		w.Clock.Advance(time.Since(w.Clock.Now()) + 48*time.Hour)
		s := w.Store(t)
		f := fault.Wrap(w.State)
		slow, err := pipeline.OpenStore(t.Context(), f, w.Keeper, "test", w.Clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		f.Reset()
		met := false
		f.Before(func(ctx context.Context, op fault.Op) {
			if op.N == n {
				met = true
				if _, err := sweeper(w, s).Sweep(ctx); err != nil {
					t.Error(err)
				}
			}
		})
		r, err := slow.Create(t.Context(), pipeline.Record{ID: s.RequestID("crm", "a"), Tables: []string{"orders"}}, people)
		if err != nil {
			t.Fatal(err)
		}
		if !met {
			return
		}
		if open, err := s.IsOpen(t.Context(), r.ID); err != nil || !open {
			t.Errorf("operation %d: not open, %v", n, err)
		}
		if _, err := s.Unseal(t.Context(), r); err != nil {
			t.Errorf("operation %d: %v", n, err)
		}
	}
}

func Test_a_trouble_of_one_request_does_not_stop_the_sweep(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	a := create(t, s, "a", "orders")
	create(t, s, "b", "orders")
	if err := w.State.Put(t.Context(), "requests/"+string(a.ID), strings.NewReader("{"), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	sw := sweeper(w, s)
	sw.Backlog = w.Queue.Backlog
	sweep(t, sw, pipeline.Swept{Open: 2, Fed: 1, Troubled: 1})
}

func Test_limits_hold_more_than_they_say_and_no_less(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits     pipeline.Limits
		rows, live int64
		want       bool
	}{
		{pipeline.Limits{}, 1e9, 1e9, false},
		{pipeline.Limits{Rows: 10}, 10, 1e9, false},
		{pipeline.Limits{Rows: 10}, 11, 1e9, true},
		{pipeline.Limits{Share: 0.1}, 10, 100, false},
		{pipeline.Limits{Share: 0.1}, 11, 100, true},
		{pipeline.Limits{Share: 0.1}, 0, 0, false},
		{pipeline.Limits{Rows: 1000, Share: 0.5}, 600, 1000, true},
		{pipeline.Limits{Share: 1}, 1000, 1000, false},
	} {
		if got := c.limits.Exceeded(c.rows, c.live); got != c.want {
			t.Errorf("%+v, %d of %d: %v", c.limits, c.rows, c.live, got)
		}
	}
}

func Test_a_dead_letter_that_names_no_request_is_not_replayed_here(t *testing.T) {
	t.Parallel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	r := create(t, s, "a", "orders")
	publish := (&pipelinetest.Conn{Queue: w.Queue}).Publish
	for _, d := range []events.DeadLetter{
		{}, {Request: "x", Table: "orders"}, {Request: string(r.ID), Table: "../x"}, {Request: string(r.ID), Table: "orders"},
	} {
		if err := s.Replay(t.Context(), publish, d); !errors.Is(err, pipeline.ErrNotWaiting) {
			t.Errorf("%+v: %v", d, err)
		}
	}
	if err := s.Replay(t.Context(), publish, events.DeadLetter{Request: string(s.RequestID("x", "y")), Table: "orders"}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if n, _ := w.Queue.Messages(); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func ExampleParseRequestID() {
	_, ok := pipeline.ParseRequestID("not an id")
	fmt.Println(ok)
	// Output: false
}
