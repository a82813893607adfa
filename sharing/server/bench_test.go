package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"delenda/events"
	"delenda/sharing/recipients"
	"delenda/sharing/server"
	"delenda/sharing/snapshot"
	"delenda/storage/bucket"
)

// BenchmarkQuery measures whole queries over HTTP, and the time to the first
// byte, which does not depend on the number of files.
func BenchmarkQuery(b *testing.B) {
	for _, files := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("%d files", files), func(b *testing.B) {
			table, state := bucket.NewMemory(), bucket.NewMemory()
			writeLog(b, table, files)
			p, err := server.New(server.Options{
				Installation: "acme", State: state, Tables: map[string]snapshot.Source{"people": {Bucket: table}},
				Shares:  []snapshot.Share{{Name: "lake", Schemas: []snapshot.Schema{{Name: "main", Tables: []snapshot.SharedTable{{Name: "people", Table: "people"}}}}}},
				Key:     bytes.Repeat([]byte{3}, 32),
				Publish: func(context.Context, events.Event) error { return nil },
				Poll:    time.Hour,
			})
			if err != nil {
				b.Fatal(err)
			}
			token, err := recipients.NewDirectory(state).Issue(b.Context(), "reader", []string{"lake"}, time.Time{}, time.Now())
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			var work sync.WaitGroup
			defer work.Wait()
			defer cancel()
			work.Go(func() { _ = p.Run(ctx) })
			if err := p.HandleTableChanged(b.Context(), events.TableChanged{Table: "people"}); err != nil {
				b.Fatal(err)
			}
			s := httptest.NewServer(p.Handler())
			defer s.Close()
			var first time.Duration
			for b.Loop() {
				started := time.Now()
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL+server.DefaultPrefix+main+"people/query", strings.NewReader("{}"))
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+token.Reveal())
				res, err := s.Client().Do(req)
				if err != nil || res.StatusCode != http.StatusOK {
					b.Fatal(res.StatusCode, err)
				}
				one := make([]byte, 1)
				if _, err := io.ReadFull(res.Body, one); err != nil {
					b.Fatal(err)
				}
				first += time.Since(started)
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					b.Fatal(err)
				}
				_ = res.Body.Close()
			}
			b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs-to-first-byte")
			b.ReportMetric(float64(files)*float64(b.N)/b.Elapsed().Seconds(), "files/s")
		})
	}
}
