package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/storage"
)

func TestURLsAreRenewedBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name")) // six files, three vectors
	snapshot := mustQuery(t, s.client(), nil)
	total := int64(0)
	for batch, err := range snapshot.Read(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		total += batch.NumRows()
		s.advance(s.ttl - time.Minute)
	}
	if total != 17 {
		t.Errorf("got %d rows", total)
	}
	if s.dataRefused.Load() != 0 {
		t.Error("an expired URL was used")
	}
	if n := s.queries.Load(); n != 6 {
		t.Errorf("got %d queries, want one and five renewals", n)
	}
}

func TestURLsAreRenewedOnceWhenTheStoreRefusesThem(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	s.edit = func(lines []sharing.Line) []sharing.Line {
		for _, line := range lines {
			if line.File != nil {
				line.File.ExpirationTimestamp = nil // the client cannot know
			}
		}
		return lines
	}
	snapshot := mustQuery(t, s.client(), nil)
	s.advance(2 * s.ttl)
	if n := count(t, snapshot, nil); n != 17 {
		t.Errorf("got %d rows", n)
	}
	if s.dataRefused.Load() != 1 || s.queries.Load() != 2 {
		t.Errorf("refused %d times, %d queries", s.dataRefused.Load(), s.queries.Load())
	}
}

func TestURLsThatAreRefusedAfterARenewalAreAnError(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	snapshot := mustQuery(t, s.client(), nil)
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/data/") {
			s.dataReads.Add(1)
			http.Error(w, "no", http.StatusForbidden)
			return true
		}
		return false
	}
	err := firstError(t, snapshot)
	if !errors.Is(err, storage.ErrDenied) {
		t.Errorf("got %v", err)
	}
	if s.dataReads.Load() != 2 {
		t.Errorf("tried %d times", s.dataReads.Load())
	}
	mustNotLeak(t, err)
}

func firstError(t *testing.T, snapshot *client.Snapshot) error {
	t.Helper()
	for _, err := range snapshot.Read(t.Context(), nil) {
		if err != nil {
			return err
		}
	}
	t.Fatal("the read succeeded")
	return nil
}

func mustNotLeak(t *testing.T, err error) {
	t.Helper()
	for _, secret := range []string{"://", "Signature", testToken, "127.0.0.1:", "person"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error carries %q: %v", secret, err)
		}
	}
}

// TestAnErasureDuringARead: version 2 of the table has no deletion vectors,
// version 3 has. Once the server serves version 3, URLs of version 2 must not
// be renewed: the rows would come back.
func TestAnErasureDuringAReadEndsIt(t *testing.T) {
	t.Parallel()
	for name, dropToken := range map[string]bool{"the pinned version is refused": false, "the newest version has another vector": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, foreign(t, "spark-dv-name"))
			s.version = 2
			if dropToken {
				s.edit = func(lines []sharing.Line) []sharing.Line { return lines[:len(lines)-1] }
			}
			snapshot := mustQuery(t, s.client(), nil)
			if n := count(t, snapshot, nil); n != 20 {
				t.Fatalf("got %d rows before", n)
			}
			s.mu.Lock()
			s.version = 3
			s.mu.Unlock()
			s.advance(s.ttl)
			err := firstError(t, snapshot)
			if !errors.Is(err, client.ErrChanged) {
				t.Errorf("got %v", err)
			}
			mustNotLeak(t, err)
			if n := count(t, mustQuery(t, s.client(), nil), nil); n != 17 {
				t.Errorf("got %d rows after", n)
			}
		})
	}
}

func TestAPinnedVersionIsReadToItsEndBesideNewerOnes(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	s.version = 1 // version 2 only adds files
	s.edit = func(lines []sharing.Line) []sharing.Line { return lines[:len(lines)-1] }
	snapshot := mustQuery(t, s.client(), nil)
	s.mu.Lock()
	s.version = 2
	s.mu.Unlock()
	s.advance(s.ttl)
	if n := count(t, snapshot, nil); n != 12 {
		t.Errorf("got %d rows", n)
	}
}

func TestOldURLsServeWhileARenewalFails(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	snapshot := mustQuery(t, s.client(), nil)
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/query") {
			http.Error(w, "", http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	s.advance(s.ttl - time.Minute)
	if n := count(t, snapshot, nil); n != 17 {
		t.Errorf("got %d rows", n)
	}
	s.advance(time.Minute)
	var status *client.Error
	if err := firstError(t, snapshot); !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable {
		t.Errorf("got %v", err)
	}
}

func TestManyReadersRenewOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	snapshot := mustQuery(t, s.client(), nil)
	s.advance(s.ttl)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if n := count(t, snapshot, nil); n != 17 {
				t.Errorf("got %d rows", n)
			}
		})
	}
	wg.Wait()
	if n := s.queries.Load(); n != 2 {
		t.Errorf("got %d queries", n)
	}
}

func TestBrokenReadsAreTriedAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-id"))
	var mu sync.Mutex
	seen := map[string]int{}
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path+r.Header.Get("Range")]++
		switch seen[r.URL.Path+r.Header.Get("Range")] {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
			return true
		case 2:
			w.Header().Set("Content-Length", "100000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write([]byte("P"))
			panic(http.ErrAbortHandler)
		}
		return false
	}
	if n := count(t, mustQuery(t, s.client(), nil), nil); n != 17 {
		t.Errorf("got %d rows", n)
	}
}

func TestARemovedFileIsAChangedTable(t *testing.T) {
	t.Parallel()
	s := serve(t, foreign(t, "spark-dv-name"))
	snapshot := mustQuery(t, s.client(), nil)
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/data/") {
			return false
		}
		http.NotFound(w, r)
		return true
	}
	if err := firstError(t, snapshot); !errors.Is(err, client.ErrChanged) || !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestACancelledReadEnds(t *testing.T) {
	t.Parallel()
	snapshot := mustQuery(t, serve(t, foreign(t, "spark-dv-name")).client(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range snapshot.Read(ctx, nil) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("got %v", last)
	}
}
