package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"delenda/sharing"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
)

// signer signs URLs as a store does, and counts them.
type signer struct {
	now  func() time.Time
	made atomic.Int64
}

func (s *signer) SignGet(_ context.Context, key string, ttl time.Duration) (storage.SignedURL, error) {
	return storage.NewSignedURL(fmt.Sprintf("https://h/%s?n=%d", key, s.made.Add(1)), s.now().Add(ttl)), nil
}

func streamed(t *testing.T, m *Manifests, manifest *Manifest, o StreamOptions) (string, Streamed) {
	t.Helper()
	var out bytes.Buffer
	got, err := m.Stream(t.Context(), &out, manifest, o)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), got
}

func TestAPresignedManifestSparesTheSigning(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 300)
	tb.erase(t, 7)
	m, manifest := prepare(t, bucket.NewMemory(), tb.source())
	now := time.Unix(1_800_000_000, 0)
	s := &signer{now: func() time.Time { return now }}
	ttl := time.Minute
	sign := func(ctx context.Context, key string) (storage.SignedURL, error) { return s.SignGet(ctx, key, ttl) }
	if err := m.Presign(t.Context(), refKey, manifest, sign, now); err != nil {
		t.Fatal(err)
	}
	if n := s.made.Load(); n != 301 {
		t.Errorf("%d URLs were signed, want 301", n)
	}
	o := StreamOptions{Format: sharing.FormatDelta, Sign: sign, Presigned: refKey, MinLife: 20 * time.Second, Now: now}
	text, got := streamed(t, m, manifest, o)
	if n := s.made.Load(); n != 301 || got.Files != 300 || !got.ExpiresAt.Equal(now.Add(ttl)) {
		t.Errorf("%d URLs were signed, %+v", n, got)
	}
	// But for the URLs it is the answer that the manifest gives.
	o.Presigned = ""
	plain, _ := streamed(t, m, manifest, o)
	cut := func(s string) string {
		var b strings.Builder
		for _, part := range strings.Split(s, "?n=") {
			b.WriteString(strings.TrimLeft(part, "0123456789"))
		}
		return b.String()
	}
	if cut(text) != cut(plain) {
		t.Error("the answers differ")
	}
	// URLs that have too little left are signed anew.
	before := s.made.Load()
	now = now.Add(41 * time.Second)
	o.Presigned, o.Now = refKey, now
	if _, got := streamed(t, m, manifest, o); s.made.Load() != before+301 || !got.ExpiresAt.Equal(now.Add(ttl)) {
		t.Errorf("%d URLs were signed, %+v", s.made.Load()-before, got)
	}
}

func TestAPresignedManifestOfAnotherVersionOrABrokenOneIsNotUsed(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 3)
	state := bucket.NewMemory()
	m, before := prepare(t, state, tb.source())
	sign := func(_ context.Context, key string) (storage.SignedURL, error) {
		return storage.NewSignedURL("https://old/"+key, expiry), nil
	}
	if err := m.Presign(t.Context(), refKey, before, sign, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	tb.erase(t, 1)
	m, after := prepare(t, state, tb.source())
	o := StreamOptions{Format: sharing.FormatDelta, Sign: signTest, Presigned: refKey, Now: time.Unix(0, 0)}
	if text, got := streamed(t, m, after, o); got.Files != 3 || strings.Contains(text, "https://old/") {
		t.Error("URLs of the version before are shown")
	}
	if err := state.Put(t.Context(), presignedPrefix+refKey, strings.NewReader("garbage"), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, got := streamed(t, m, after, o); got.Files != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestPresignedManifestsAreMadeForTablesThatAreAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tb := newTable(t, 5)
		s := &signer{now: time.Now}
		source := tb.source()
		source.Presigner = s
		state := bucket.NewMemory()
		st := newTestStore(t, state, source, func(o *StoreOptions) { o.URLTTL, o.Poll = 16*time.Minute, time.Hour })
		var work sync.WaitGroup
		work.Go(func() { st.Run(ctx) })
		synctest.Wait()
		ask := func() (signed int64) {
			t.Helper()
			view, err := st.Current(ctx, st.o.Catalog.Refs()[0])
			if err != nil {
				t.Fatal(err)
			}
			before := s.made.Load()
			_, err = st.Stream(ctx, io.Discard, view, StreamOptions{Format: sharing.FormatDelta, Sign: func(ctx context.Context, key string) (storage.SignedURL, error) {
				return s.SignGet(ctx, key, 16*time.Minute)
			}})
			if err != nil {
				t.Fatal(err)
			}
			return s.made.Load() - before
		}
		wait := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // time is the test's own
			synctest.Wait()
		}
		wait(time.Hour)
		if n := s.made.Load(); n != 0 {
			t.Errorf("%d URLs were signed before anyone asked", n)
		}
		if n := ask(); n != 5 {
			t.Errorf("the first answer signed %d URLs", n)
		}
		wait(3 * time.Minute)
		for range 10 { // while it is asked for
			if n := ask(); n != 0 {
				t.Errorf("an answer signed %d URLs", n)
			}
			wait(5 * time.Minute)
		}
		tb.erase(t, 1)
		if err := st.Refresh(ctx, "customers"); err != nil {
			t.Fatal(err)
		}
		if n := ask(); n != 6 {
			t.Errorf("the first answer after an erasure signed %d URLs", n)
		}
		wait(time.Hour)
		before := s.made.Load()
		wait(time.Hour) // no one asks any more
		if n := s.made.Load() - before; n != 0 {
			t.Errorf("%d URLs were signed for no one", n)
		}
		cancel()
		work.Wait()
	})
}

func TestAPresignedManifestIsWholeOrIgnoredWhateverGoesWrong(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 40)
	for _, mode := range fault.Modes() {
		for n := 1; ; n++ {
			state := bucket.NewMemory()
			_, manifest := prepare(t, state, tb.source())
			f := fault.Wrap(state)
			f.Arm(mode, n)
			m := NewManifests(f, testKeys(t), 1)
			err := m.Presign(t.Context(), refKey, manifest, signTest, time.Unix(0, 0))
			fresh := NewManifests(state, testKeys(t), 1)
			if _, got := streamed(t, fresh, manifest, StreamOptions{Format: sharing.FormatDelta, Sign: signTest, Presigned: refKey}); got.Files != 40 {
				t.Errorf("%v at %d: %d files", mode, n, got.Files)
			}
			if !f.Struck() {
				if err != nil {
					t.Error(err)
				}
				break
			}
		}
	}
}

func FuzzReadPresigned(f *testing.F) {
	rec := record{path: "p", rows: 3, addTail: []byte("a")}
	plain := appendField(nil, `{"manifest":"m"}`)
	plain = rec.appendTo(plain)
	plain = appendField(plain, "u")
	plain = appendField(plain, "")
	f.Add(append(plain, 0, 0, 0, 0, 0, 0, 0, 1))
	f.Fuzz(func(t *testing.T, p []byte) {
		header, records, err := readPresigned(bytes.NewReader(sealed(t, "n", p)), testKeys(t), "n")
		if err != nil {
			return
		}
		_ = header
		for {
			var rec record
			var urls signed
			if err := records.next(&rec); err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, storage.ErrCorrupt) {
					t.Skip()
				}
				return
			}
			if records.urls(&urls) != nil {
				return
			}
		}
	})
}

func TestAFileThatCannotBeSignedDoesNotNameItsPartition(t *testing.T) {
	t.Parallel()
	refuse := func(_ context.Context, key string) (storage.SignedURL, error) {
		return storage.SignedURL{}, fmt.Errorf("sign %q: %w", key, storage.ErrDenied)
	}
	r := record{path: "email=jane.q9x%2540example.org/part-1.parquet"}
	_, err := r.sign(t.Context(), refuse)
	if !errors.Is(err, storage.ErrDenied) || strings.Contains(err.Error(), "q9x") || !strings.Contains(err.Error(), "part-1.parquet") {
		t.Errorf("%v", err)
	}
}
