package erase_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/pipeline"
	"delenda/pipeline/audit"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
	"delenda/storage/delta"
)

const deltaSchema = `{"type":"struct","fields":[
	{"name":"id","type":"long","nullable":true,"metadata":{}},
	{"name":"mail","type":"string","nullable":true,"metadata":{}}]}`

// newDelta makes a Delta table: files of 40 rows, in which customer 42424201
// has some rows of each, all of the last, and none of the first.
func newDelta(t testing.TB, files int) storage.Bucket {
	t.Helper()
	b := bucket.NewMemory()
	t.Cleanup(func() { _ = b.Close() })
	table, err := delta.Create(t.Context(), b, delta.Definition{
		Schema: deltaSchema, Properties: map[string]string{"delta.checkpointInterval": "3"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for f := range files {
		var ids []int64
		for i := range 40 {
			id := int64(10_000_000 + f*1000 + i)
			if f > 0 && i%13 == 5 || f == files-1 {
				id = 42424201
			}
			ids = append(ids, id)
		}
		appendDelta(t, b, table, fmt.Sprintf("part-%d.parquet", f), ids)
	}
	return b
}

func mailOf(id int64) string { return fmt.Sprintf("customer.%d@example.net", id) }

func appendDelta(t testing.TB, b storage.Bucket, table *delta.Table, key string, ids []int64) {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "mail", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	rb := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer rb.Release()
	for i, id := range ids {
		rb.Field(0).(*array.Int64Builder).Append(id)
		if i%7 == 3 {
			rb.Field(1).(*array.StringBuilder).AppendNull()
		} else {
			rb.Field(1).(*array.StringBuilder).Append(mailOf(id))
		}
	}
	rec := rb.NewRecordBatch()
	defer rec.Release()
	var buf bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &buf, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteBuffered(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), key, &buf, storage.PutOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := table.AppendFiles(t.Context(), []delta.DataFile{{Key: key}}); err != nil {
		t.Fatal(err)
	}
}

func deltaTable(b storage.Bucket) []pipeline.Table {
	return []pipeline.Table{{
		Name: "orders", Identities: map[string]string{"customer_id": "id", "email": "mail"},
		Open: func(ctx context.Context) (storage.Table, error) {
			return delta.Open(ctx, b, &delta.Options{Workers: 1, IdentityColumns: []string{"id", "mail"}})
		},
	}}
}

// crashDelta is crash on a real table, judged by the auditor.
func crashDelta(t *testing.T, image map[string][]byte, mode fault.Mode, n int) bool {
	t.Helper()
	ctx := t.Context()
	b := bucket.NewMemory()
	defer func() { _ = b.Close() }()
	for key, p := range image {
		if err := b.Put(ctx, key, bytes.NewReader(p), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before, err := audit.Read(ctx, b, "id", "mail")
	if err != nil {
		t.Fatal(err)
	}
	w := pipelinetest.NewWorld(t)
	first := newProcess(t, w)
	f := fault.Wrap(b)
	f.OnKill(first.cancel)
	f.Arm(mode, n)
	first.tables = deltaTable(f)
	// The customer by number; and somebody who is in no file but the first, by mail.
	rec, err := first.accept(body("k", "42424201"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := first.accept(body("k2", mailOf(10_000_007)))
	if err != nil {
		t.Fatal(err)
	}
	_ = first.work()
	first.cancel()
	second := newProcess(t, w)
	second.tables = deltaTable(b)
	second.recover(t)

	after, err := audit.Read(ctx, b, "id", "mail")
	if err != nil {
		t.Fatal(err)
	}
	store := w.Store(t)
	keys := []storage.Key{
		{Column: "id", Value: storage.NewSecret("42424201")},
		{Column: "mail", Value: storage.NewSecret(mailOf(10_000_007))},
	}
	verdict, err := audit.Judge(before, after, store.App("orders"), keys...)
	if err != nil {
		t.Fatal(err)
	}
	if !verdict.OK() || verdict.RowsAdded != 0 || verdict.SubjectRowsBefore == 0 || verdict.OtherRowsBefore == 0 {
		t.Errorf("%+v", verdict)
	}
	var commits int
	for _, times := range after.Commits(store.App("orders")) {
		commits += times
	}
	if commits == 0 || commits > 2 {
		t.Errorf("%d commits for two requests", commits)
	}
	var rows int64
	for _, id := range []pipeline.RequestID{rec.ID, other.ID} {
		st, err := store.Status(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if st.State != pipeline.Hidden || st.ClosedAt == nil {
			t.Errorf("%s: %s", id, st.State)
		}
		rows += st.Tables[0].Rows
	}
	if rows != verdict.SubjectRowsBefore {
		t.Errorf("the requests say %d rows, the auditor %d", rows, verdict.SubjectRowsBefore)
	}
	scan, err := audit.NewScanner(storage.NewSecret("42424201"), storage.NewSecret(mailOf(10_000_007)))
	if err != nil {
		t.Fatal(err)
	}
	// Everything but the table's own data and what the table said of it before.
	if err := scan.Bucket(ctx, "table", b, func(key string) bool { return image[key] != nil || strings.Contains(key, "checkpoint") }); err != nil {
		t.Fatal(err)
	}
	if err := scan.Bucket(ctx, "state", w.State, nil); err != nil {
		t.Fatal(err)
	}
	if err := scan.Bytes(ctx, "logs", []byte(first.logs.String()+second.logs.String())); err != nil {
		t.Error(err)
	}
	for _, finding := range scan.Found() {
		t.Error(finding)
	}
	return f.Struck()
}

func Test_a_real_table_survives_trouble_at_any_of_its_operations(t *testing.T) {
	t.Parallel()
	b := newDelta(t, 4)
	image := map[string][]byte{}
	for info, err := range b.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		p, err := storage.ReadObject(t.Context(), b, info.Key, 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		image[info.Key] = p
	}
	step := 5
	if os.Getenv("DELENDA_LONG") != "" {
		step = 1
	}
	for _, mode := range fault.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			n := 1
			for struck := true; struck && !t.Failed(); n += step {
				t.Run(fmt.Sprintf("operation %d", n), func(t *testing.T) { struck = crashDelta(t, image, mode, n) })
			}
			t.Logf("%d operations", n)
		})
	}
}
