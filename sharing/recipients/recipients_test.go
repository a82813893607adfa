package recipients_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"delenda/sharing"
	"delenda/sharing/recipients"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func issue(t *testing.T, d *recipients.Directory, name string, expires time.Time, shares ...string) sharing.Token {
	t.Helper()
	token, err := d.Issue(t.Context(), name, shares, expires, start)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func registry(t *testing.T, d *recipients.Directory, now func() time.Time) *recipients.Registry {
	t.Helper()
	g := recipients.NewRegistry(d, time.Minute, now)
	if err := g.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

func always() time.Time { return start }

func lets(t *testing.T, g *recipients.Registry, token string) (recipients.Recipient, bool) {
	t.Helper()
	r, ok, err := g.Authenticate(token)
	if err != nil {
		t.Fatal(err)
	}
	return r, ok
}

func TestATokenLetsItsRecipientInAndNoOtherDoes(t *testing.T) {
	t.Parallel()
	d := recipients.NewDirectory(bucket.NewMemory())
	a, b := issue(t, d, "a", time.Time{}, "Sales"), issue(t, d, "b", time.Time{}, "Other").Reveal()
	g := registry(t, d, always)
	r, ok := lets(t, g, a.Reveal())
	if !ok || r.Name != "a" || !r.Granted("SALES") || r.Granted("other") {
		t.Errorf("got %+v, %v", r, ok)
	}
	text := a.Reveal()
	for _, wrong := range []string{"", "delenda_", text[:len(text)-1], text + "x", strings.ToUpper(text), text[:20] + b[20:], "Bearer " + text} {
		if _, ok := lets(t, g, wrong); ok {
			t.Errorf("a token of %d bytes that was not issued lets in", len(wrong))
		}
	}
}

func TestOnlyTheHashOfATokenIsKept(t *testing.T) {
	t.Parallel()
	state := bucket.NewMemory()
	token := issue(t, recipients.NewDirectory(state), "a", time.Time{}, "s").Reveal()
	for info, err := range state.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		p, err := storage.ReadObject(t.Context(), state, info.Key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(p), token[len(token)-20:]) {
			t.Errorf("%s holds the token", info.Key)
		}
	}
}

func TestTokensOverlapExpireAndAreRevoked(t *testing.T) {
	t.Parallel()
	d := recipients.NewDirectory(bucket.NewMemory())
	now := start
	older := issue(t, d, "a", start.Add(time.Hour), "s")
	newer := issue(t, d, "a", time.Time{}, "t")
	g := recipients.NewRegistry(d, 100*time.Hour, func() time.Time { return now })
	if err := g.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, token := range []sharing.Token{older, newer} {
		if r, ok := lets(t, g, token.Reveal()); !ok || !r.Granted("s") || !r.Granted("t") {
			t.Errorf("got %+v, %v", r, ok)
		}
	}
	now = start.Add(time.Hour)
	if _, ok := lets(t, g, older.Reveal()); ok {
		t.Error("an expired token lets in")
	}
	all, err := d.All(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Tokens) != 2 {
		t.Fatalf("got %+v, %v", all, err)
	}
	if err := d.Revoke(t.Context(), "a", all[0].Tokens[1].ID); err != nil {
		t.Fatal(err)
	}
	if err := g.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := lets(t, g, newer.Reveal()); ok {
		t.Error("a revoked token lets in")
	}
	for _, err := range []error{
		d.Revoke(t.Context(), "a", "nope"), d.Revoke(t.Context(), "nope", "x"), d.SetShares(t.Context(), "nope", nil), d.Remove(t.Context(), "nope"),
	} {
		if !errors.Is(err, recipients.ErrUnknown) {
			t.Errorf("got %v", err)
		}
	}
}

func TestARemovedRecipientIsOutAndMayComeBackWithNothing(t *testing.T) {
	t.Parallel()
	d := recipients.NewDirectory(bucket.NewMemory())
	before := issue(t, d, "a", time.Time{}, "s")
	if err := d.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	g := registry(t, d, always)
	if _, ok := lets(t, g, before.Reveal()); ok {
		t.Error("a removed recipient is let in")
	}
	if all, err := d.All(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got %+v, %v", all, err)
	}
	again := issue(t, d, "a", time.Time{}, "t")
	if err := g.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, ok := lets(t, g, again.Reveal())
	if _, old := lets(t, g, before.Reveal()); !ok || old || r.Granted("s") {
		t.Errorf("got %+v, %v, the old token %v", r, ok, old)
	}
}

func TestChangesAtTheSameTimeAreAllKept(t *testing.T) {
	t.Parallel()
	state := bucket.NewMemory()
	var work sync.WaitGroup
	var mu sync.Mutex
	var tokens []sharing.Token
	for i := range 10 {
		work.Go(func() {
			token, err := recipients.NewDirectory(state).Issue(t.Context(), "a", []string{fmt.Sprint("s", i)}, time.Time{}, start)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			tokens = append(tokens, token)
		})
	}
	work.Wait()
	g := registry(t, recipients.NewDirectory(state), always)
	for _, token := range tokens {
		if r, ok := lets(t, g, token.Reveal()); !ok || len(r.Shares) != 10 {
			t.Errorf("%v with %d shares", ok, len(r.Shares))
		}
	}
}

func TestNamesThatCannotBeKeysAreRefused(t *testing.T) {
	t.Parallel()
	d := recipients.NewDirectory(bucket.NewMemory())
	for _, name := range []string{"", "../a", "a/b", " a", "-", strings.Repeat("a", 200), "ü"} {
		if _, err := d.Issue(t.Context(), name, nil, time.Time{}, start); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestNobodyIsLetInOnAViewThatIsTooOld(t *testing.T) {
	t.Parallel()
	d := recipients.NewDirectory(bucket.NewMemory())
	token := issue(t, d, "a", time.Time{}, "s")
	now := start
	g := recipients.NewRegistry(d, time.Minute, func() time.Time { return now })
	if _, _, err := g.Authenticate(token.Reveal()); !errors.Is(err, recipients.ErrStale) {
		t.Errorf("before the first reading: %v", err)
	}
	if err := g.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Minute)
	if _, _, err := g.Authenticate(token.Reveal()); !errors.Is(err, recipients.ErrStale) {
		t.Errorf("after two minutes: %v", err)
	}
	if _, err := g.Granted("a", "s"); !errors.Is(err, recipients.ErrStale) {
		t.Errorf("a grant after two minutes: %v", err)
	}
}

func TestChangesArriveWithinTheIntervalOrAtANudge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := recipients.NewDirectory(bucket.NewMemory())
		g := recipients.NewRegistry(d, time.Minute, time.Now)
		var work sync.WaitGroup
		work.Go(func() { g.Run(ctx, 2*time.Second, slog.New(slog.DiscardHandler)) })
		synctest.Wait()
		first := issue(t, d, "a", time.Time{}, "s")
		if _, ok := lets(t, g, first.Reveal()); ok {
			t.Error("known at once")
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // time is the test's own
		synctest.Wait()
		if _, ok := lets(t, g, first.Reveal()); !ok {
			t.Error("not known after the interval")
		}
		second := issue(t, d, "b", time.Time{}, "s")
		g.Nudge()
		synctest.Wait()
		if _, ok := lets(t, g, second.Reveal()); !ok {
			t.Error("not known after a nudge")
		}
		cancel()
		work.Wait()
	})
}

func TestARefreshReadsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	state := fault.Wrap(bucket.NewMemory())
	d := recipients.NewDirectory(state)
	for i := range 20 {
		issue(t, d, fmt.Sprint("r", i), time.Time{}, "s")
	}
	g := registry(t, d, always)
	issue(t, d, "r7", time.Time{}, "t")
	before := state.Count()
	if err := g.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := state.Count() - before; n > 3 { // two listings and one read
		t.Errorf("%d operations", n)
	}
}

func TestAnIssueThatFailedIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	for _, mode := range fault.Modes() {
		for n := 1; ; n++ {
			state := bucket.NewMemory()
			d := recipients.NewDirectory(state)
			first := issue(t, d, "a", time.Time{}, "s")
			f := fault.Wrap(state)
			f.Arm(mode, n)
			second, err := recipients.NewDirectory(f).Issue(t.Context(), "a", []string{"t"}, time.Time{}, start)
			g := registry(t, d, always)
			if _, ok := lets(t, g, first.Reveal()); !ok {
				t.Errorf("%v at %d: a token that was there is gone", mode, n)
			}
			if err == nil {
				if _, ok := lets(t, g, second.Reveal()); !ok {
					t.Errorf("%v at %d: an issued token is not known", mode, n)
				}
			}
			third := issue(t, d, "a", time.Time{}, "t")
			if err := g.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r, ok := lets(t, g, third.Reveal()); !ok || !r.Granted("s") || !r.Granted("t") {
				t.Errorf("%v at %d: %+v, %v", mode, n, r, ok)
			}
			if !f.Struck() {
				break
			}
		}
	}
}
