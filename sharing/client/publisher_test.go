package client_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/events"
	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/sharing/recipients"
	"delenda/sharing/server"
	"delenda/sharing/snapshot"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
)

// publish serves copies of tables by the publisher itself, as main.lake.{name},
// and returns a profile for all of them.
func publish(t *testing.T, dirs map[string]string, now func() time.Time) (*server.Publisher, sharing.Profile) {
	t.Helper()
	state := bucket.NewMemory()
	sources := map[string]snapshot.Source{}
	var tables []snapshot.SharedTable
	for name, dir := range dirs {
		b, err := bucket.Open(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		sources[name] = snapshot.Source{Bucket: b}
		tables = append(tables, snapshot.SharedTable{Name: name, Table: name})
	}
	p, err := server.New(server.Options{
		Installation: "test", State: state, Tables: sources,
		Shares:  []snapshot.Share{{Name: "main", Schemas: []snapshot.Schema{{Name: "lake", Tables: tables}}}},
		Key:     []byte(strings.Repeat("k", 32)),
		Publish: func(context.Context, events.Event) error { return nil },
		Now:     now, Poll: time.Hour, URLTTL: 15 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	token, err := recipients.NewDirectory(state).Issue(t.Context(), "reader", []string{"main"}, time.Time{}, now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	for name := range dirs {
		if err := p.HandleTableChanged(t.Context(), events.TableChanged{Table: name}); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewServer(p.Handler())
	t.Cleanup(s.Close)
	return p, sharing.Profile{Version: 1, Endpoint: s.URL + server.DefaultPrefix, BearerToken: token}
}

// copied returns a copy of a foreign table that may be written to.
func copied(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(from, path)
		if err != nil || rerr != nil {
			return errors.Join(err, rerr)
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestThePublisherIsReadBeforeAndAfterAnErasure(t *testing.T) {
	t.Parallel()
	time0 := &clock{now: time.Now()}
	names := []string{"spark-dv-name", "spark-dv-id", "spark-no-dv", "deltars-partitioned"}
	dirs := map[string]string{}
	for _, name := range names {
		dirs[name] = copied(t, foreign(t, name))
	}
	p, profile := publish(t, dirs, time0.Now)
	c, err := client.New(profile, &client.Options{Now: time0.Now, RetryInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		table := sharing.Table{Share: "main", Schema: "lake", Name: name}
		snapshot, err := c.Query(t.Context(), table, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantRows(t, name), sorted(rows(t, snapshot, nil))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	// Everyone keeps reading an old snapshot with URLs that have expired.
	table := sharing.Table{Share: "main", Schema: "lake", Name: "spark-dv-id"}
	old, err := c.Query(t.Context(), table, nil)
	if err != nil {
		t.Fatal(err)
	}
	time0.advance(20 * time.Minute)
	if n := count(t, old, nil); n != 17 {
		t.Errorf("with renewed URLs: got %d rows", n)
	}

	b, err := bucket.Open(t.Context(), dirs["spark-dv-id"], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	lake, err := delta.Open(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	done, err := lake.Delete(t.Context(), storage.Deletion{
		Batch:    storage.Batch{App: "delenda/test/spark-dv-id", Number: 1, Base: 5},
		Subjects: []storage.Subject{{Keys: []storage.Key{{Column: "e-mail address", Value: storage.NewSecret("person04@example.org")}}}},
		Now:      time0.Now,
	})
	if err != nil || !done.Committed || done.Subjects[0].Rows != 1 {
		t.Fatalf("erasure: %+v, %v", done, err)
	}
	if err := p.HandleTableChanged(t.Context(), events.TableChanged{Table: "spark-dv-id", Version: int64(done.Version)}); err != nil {
		t.Fatal(err)
	}
	var want []map[string]any
	for _, row := range wantRows(t, "spark-dv-id") {
		if row["e-mail address"] != "person04@example.org" {
			want = append(want, row)
		}
	}
	after, err := c.Query(t.Context(), table, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, sorted(rows(t, after, nil))); diff != "" || len(want) != 16 {
		t.Error(diff)
	}
	time0.advance(20 * time.Minute)
	if err := firstError(t, old); !errors.Is(err, client.ErrChanged) {
		t.Errorf("the snapshot from before the erasure: got %v", err)
	}
}
