package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"delenda/storage"
)

// SignChecks says what the store behind a Presigner verifies; test servers do
// less than clouds.
type SignChecks struct {
	Signature bool // a changed URL is refused
	Expiry    bool // an expired URL is refused
	Suffix    bool // the last n bytes can be asked for
}

// Presigner checks that URLs of b's objects work without credentials: whole,
// by range, for awkward keys, until they expire.
func Presigner(t *testing.T, b storage.Bucket, p storage.Presigner, checks SignChecks) {
	t.Helper()
	want := pattern(100_000)
	mustPut(t, b, "dir/object", want)
	mustPut(t, b, "dir/other", []byte("other"))

	t.Run("a signed URL reads the object by GET", func(t *testing.T) {
		u := sign(t, p, "dir/object", time.Hour)
		if status, got := get(t, u.Reveal(), http.MethodGet, ""); status != http.StatusOK || !bytes.Equal(got, want) {
			t.Errorf("status %d, %d bytes", status, len(got))
		}
	})
	t.Run("a signed URL reads a range", func(t *testing.T) {
		u := sign(t, p, "dir/object", time.Hour)
		ranges := map[string][]byte{
			"bytes=10-19":    want[10:20],
			"bytes=99990-":   want[99_990:],
			"bytes=0-199999": want,
		}
		if checks.Suffix {
			ranges["bytes=-8"] = want[99_992:]
		}
		for header, part := range ranges {
			status, got := get(t, u.Reveal(), http.MethodGet, header)
			if status != http.StatusPartialContent || !bytes.Equal(got, part) {
				t.Errorf("%s: status %d, %d bytes, want %d", header, status, len(got), len(part))
			}
		}
	})
	t.Run("keys are signed as they are", func(t *testing.T) {
		for _, key := range awkward {
			mustPut(t, b, key, []byte(key))
			u := sign(t, p, key, time.Hour)
			if status, got := get(t, u.Reveal(), http.MethodGet, ""); status != http.StatusOK || string(got) != key {
				t.Errorf("%q: status %d, got %.100q", key, status, got)
			}
		}
	})
	t.Run("the URL expires no later than ttl from now and no later than in seven days", func(t *testing.T) {
		const week = 7 * 24 * time.Hour
		for ttl, longest := range map[time.Duration]time.Duration{
			1500 * time.Millisecond: 1500 * time.Millisecond, time.Minute: time.Minute, week: week, 365 * 24 * time.Hour: week,
		} {
			before := time.Now()
			u := sign(t, p, "dir/object", ttl)
			if u.ExpiresAt.After(time.Now().Add(longest)) || u.ExpiresAt.Before(before.Add(longest-2*time.Second)) {
				t.Errorf("ttl %v: expires in %v", ttl, time.Until(u.ExpiresAt))
			}
		}
		if _, err := p.SignGet(t.Context(), "dir/object", 0); err == nil {
			t.Error("a ttl of nothing was taken")
		}
	})
	t.Run("a signed URL does not print", func(t *testing.T) {
		u := sign(t, p, "dir/object", time.Minute)
		if s := fmt.Sprintf("%v %+v %#v %s", u, u, u, u); strings.Contains(s, "http") {
			t.Errorf("it prints as %s", s)
		}
	})
	t.Run("a bad key is not signed", func(t *testing.T) {
		for _, key := range []string{"", "../x", "a//b"} {
			if _, err := p.SignGet(t.Context(), key, time.Minute); err == nil {
				t.Errorf("%q was signed", key)
			}
		}
	})
	if checks.Signature {
		t.Run("a signed URL reads nothing else", func(t *testing.T) {
			u := sign(t, p, "dir/object", time.Hour).Reveal()
			for name, changed := range map[string]string{
				"other key":    strings.Replace(u, "object", "other", 1),
				"no signature": u[:strings.IndexByte(u, '?')],
			} {
				if status, _ := get(t, changed, http.MethodGet, ""); status/100 != 4 {
					t.Errorf("%s: status %d", name, status)
				}
			}
			for _, method := range []string{http.MethodPut, http.MethodDelete} {
				if status, _ := get(t, u, method, ""); status/100 != 4 {
					t.Errorf("%s: status %d", method, status)
				}
			}
			if got := mustRead(t, b, "dir/object", 0, -1); !bytes.Equal(got, want) {
				t.Error("the object changed")
			}
		})
	}
	if checks.Expiry {
		t.Run("an expired URL is refused", func(t *testing.T) {
			u := sign(t, p, "dir/object", 2*time.Second)
			if status, _ := get(t, u.Reveal(), http.MethodGet, ""); status != http.StatusOK {
				t.Errorf("before: status %d", status)
			}
			ctx, cancel := context.WithDeadline(t.Context(), u.ExpiresAt.Add(2*time.Second))
			defer cancel()
			<-ctx.Done()
			if status, _ := get(t, u.Reveal(), http.MethodGet, ""); status/100 != 4 {
				t.Errorf("after: status %d", status)
			}
		})
	}
}

func sign(t *testing.T, p storage.Presigner, key string, ttl time.Duration) storage.SignedURL {
	t.Helper()
	u, err := p.SignGet(t.Context(), key, ttl)
	if err != nil {
		t.Fatalf("sign %q: %v", key, err)
	}
	return u
}

func get(t *testing.T, url, method, byteRange string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	p, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, p
}
