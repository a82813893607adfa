package erase_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"delenda/pipeline"
	"delenda/pipeline/erase"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
)

func Test_a_data_file_that_cannot_be_read_does_not_name_the_person_whose_partition_it_is(t *testing.T) {
	t.Parallel()
	const key = "mail=jane.q9x%40example.org/part-1.parquet"
	for name, damage := range map[string]func(b storage.Bucket) error{
		"missing": func(b storage.Bucket) error { return b.Delete(t.Context(), key) },
		"corrupt": func(b storage.Bucket) error {
			return b.Put(t.Context(), key, strings.NewReader(strings.Repeat("no parquet", 500)), storage.PutOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bucket.NewMemory()
			table, err := delta.Create(t.Context(), b, delta.Definition{Schema: deltaSchema}, nil)
			if err != nil {
				t.Fatal(err)
			}
			appendDelta(t, b, table, key, []int64{1, 2, 3})
			if err := damage(b); err != nil {
				t.Fatal(err)
			}
			w := pipelinetest.NewWorld(t)
			p := newProcess(t, w)
			p.tables = deltaTable(b)
			r, err := p.accept(body("k", "2"))
			if err != nil {
				t.Fatal(err)
			}
			o := quick()
			o.Logger = slog.New(slog.NewTextHandler(p.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
			o.MaxFailures = 3
			parked := make(chan string, 1000)
			o.Metrics.Parked = func(_, code string) { parked <- code }
			d := erase.New(p.store, p.tables, p.conn.Consume, p.conn.Publish, o)
			ctx, cancel := context.WithCancel(p.ctx)
			done := make(chan error)
			go func() { done <- d.Run(ctx) }()
			for code := range parked {
				if code != "" {
					break
				}
			}
			state := d.Tables()[0]
			waitFor(t, w, "parked/orders")
			mark, err := w.Store(t).Parked(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(p.logs.String(), "part-1.parquet") {
				t.Errorf("logs do not name the file: %s", p.logs)
			}
			st, err := w.Store(t).Status(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			for what, text := range map[string]string{
				"log": p.logs.String(), "state": fmt.Sprintf("%+v", state), "mark": fmt.Sprintf("%+v", mark), "status": fmt.Sprintf("%+v", st),
			} {
				if strings.Contains(text, "q9x") || strings.Contains(text, "mail=") {
					t.Errorf("%s: %s", what, text)
				}
			}
			if st.State != pipeline.Received && st.State != pipeline.Partial {
				t.Errorf("%+v", st)
			}
		})
	}
}
