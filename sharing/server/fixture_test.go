package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"delenda/events"
	"delenda/sharing"
	"delenda/sharing/recipients"
	"delenda/sharing/server"
	"delenda/sharing/sharingtest"
	"delenda/sharing/snapshot"
	"delenda/storage"
	"delenda/storage/bucket"
)

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is a publisher that serves share "Lake", schema "Main", to a
// recipient "reader", and share "Secret" to no one.
type fixture struct {
	*server.Publisher
	state  storage.Bucket
	dir    *recipients.Directory
	token  sharing.Token
	clock  *clock
	log    *bytes.Buffer // of the publisher, after it has stopped
	server *httptest.Server
	stop   func()

	mu        sync.Mutex
	announced []events.ShareChanged
	observed  []server.Observation
}

func (f *fixture) endpoint() string { return f.server.URL + server.DefaultPrefix }

func newFixture(t *testing.T, sources map[string]snapshot.Source, change func(*server.Options)) *fixture {
	t.Helper()
	f := &fixture{state: bucket.NewMemory(), clock: &clock{now: time.Now()}, log: &bytes.Buffer{}}
	f.dir = recipients.NewDirectory(f.state)
	var tables []snapshot.SharedTable
	for name := range sources {
		tables = append(tables, snapshot.SharedTable{Name: name, Table: name})
	}
	o := server.Options{
		Installation: "acme", State: f.state, Tables: sources,
		Shares: []snapshot.Share{
			{Name: "Lake", Schemas: []snapshot.Schema{{Name: "Main", Tables: tables}, {Name: "empty"}}},
			{Name: "Secret", Schemas: []snapshot.Schema{{Name: "Main", Tables: tables}}},
		},
		Key: bytes.Repeat([]byte{3}, 32),
		Publish: func(_ context.Context, e events.Event) error {
			if e.Type != events.TypeShareChanged {
				return nil
			}
			c, err := events.Payload[events.ShareChanged](e)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.announced = append(f.announced, c)
			return err
		},
		Observe: func(o server.Observation) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.observed = append(f.observed, o)
		},
		Now: f.clock.Now, Logger: slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Poll: time.Hour,
	}
	if change != nil {
		change(&o)
		f.dir = recipients.NewDirectory(o.State)
	}
	p, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	f.Publisher = p
	if f.token, err = f.dir.Issue(t.Context(), "reader", []string{"lake"}, time.Time{}, f.clock.Now()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() { _ = p.Run(ctx) })
	f.server = httptest.NewServer(p.Handler())
	f.stop = sync.OnceFunc(func() { f.server.Close(); cancel(); work.Wait() })
	t.Cleanup(f.stop)
	for name := range sources {
		if err := p.HandleTableChanged(t.Context(), events.TableChanged{Table: name}); err != nil && change == nil {
			t.Fatal(err)
		}
	}
	f.waitFor(t)
	return f
}

// waitFor returns when the recipient's token is known.
func (f *fixture) waitFor(t *testing.T) {
	t.Helper()
	for range 200 {
		if res, _, err := f.try(t.Context(), http.MethodGet, "/shares", "", ""); err == nil && res.StatusCode == http.StatusOK {
			return
		}
		f.NudgeRecipients()
		<-time.After(10 * time.Millisecond)
	}
	f.stop()
	t.Fatalf("the publisher does not start: %s", f.log)
}

// writeLog writes the log of a table whose files are not there.
func writeLog(t testing.TB, b storage.Bucket, files int) {
	t.Helper()
	var text bytes.Buffer
	text.WriteString(`{"commitInfo":{"operation":"WRITE"}}
{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"id":"1","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}
`)
	for i := range files {
		fmt.Fprintf(&text, `{"add":{"path":"part-%05d.parquet","partitionValues":{},"size":10,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":3}"}}`+"\n", i)
	}
	if err := b.Put(t.Context(), "_delta_log/00000000000000000000.json", &text, storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) target(tables ...sharingtest.Table) sharingtest.Target {
	return sharingtest.Target{Endpoint: f.endpoint(), Token: f.token.Reveal(), Client: f.server.Client(), Tables: tables, NotGranted: "Secret"}
}

func share(name string, files, vectors int64, required ...string) sharingtest.Table {
	return sharingtest.Table{Share: "Lake", Schema: "Main", Name: name, Files: files, Vectors: vectors, Required: required}
}

// foreign returns a bucket with a copy of a table of another writer: of those
// that lie in the repository, or of the collection beside a checkout.
func foreign(t *testing.T, name string) *bucket.Bucket {
	t.Helper()
	for _, dir := range []string{
		filepath.Join("..", "..", "storage", "delta", "testdata"), os.Getenv("DELENDA_TABLES"), filepath.Join("..", "..", "..", "shared", "tables", "delta"),
	} {
		if _, err := os.Stat(filepath.Join(dir, name, "_delta_log")); dir == "" || err != nil {
			continue
		}
		b, err := bucket.Open(t.Context(), copied(t, filepath.Join(dir, name)), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	t.Skipf("the collection of tables is not here: %s", name)
	return nil
}

func copied(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(from, path)
		if err := errors.Join(err, rerr); err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		}
		p, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), p, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
