package delta_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
	"delenda/storage/delta/log"
)

const ordersSchema = `{"type":"struct","fields":[{"name":"customer","type":"string","nullable":true,"metadata":{}},` +
	`{"name":"order","type":"long","nullable":true,"metadata":{}},{"name":"amount","type":"double","nullable":true,"metadata":{}}]}`

// ordersFile is n rows of shuffled customers, so that statistics rule out no
// file.
func ordersFile(tb testing.TB, first, n int) []byte {
	tb.Helper()
	sc := arrow.NewSchema([]arrow.Field{
		{Name: "customer", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "order", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "amount", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	defer b.Release()
	for i := range n {
		b.Field(0).(*array.StringBuilder).Append(fmt.Sprintf("%08x-customer", (first+i)*2654435761%(1<<32)))
		b.Field(1).(*array.Int64Builder).Append(int64(first + i))
		b.Field(2).(*array.Float64Builder).Append(float64(i) / 7)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	var buf bytes.Buffer
	w, err := pqarrow.NewFileWriter(sc, &buf, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy)), pqarrow.DefaultWriterProps())
	if err != nil {
		tb.Fatal(err)
	}
	if err := w.WriteBuffered(rec); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// ordersTable is a table of files times rows.
func ordersTable(tb testing.TB, b storage.Bucket, files, rows int) *delta.Table {
	tb.Helper()
	table, err := delta.Create(context.Background(), b, delta.Definition{Schema: ordersSchema}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	var list []delta.DataFile
	for i := range files {
		key := fmt.Sprintf("part-%05d.parquet", i)
		if err := b.Put(context.Background(), key, bytes.NewReader(ordersFile(tb, i*rows, rows)), storage.PutOptions{}); err != nil {
			tb.Fatal(err)
		}
		list = append(list, delta.DataFile{Key: key})
	}
	if _, err := table.AppendFiles(context.Background(), list); err != nil {
		tb.Fatal(err)
	}
	return table
}

// BenchmarkDelete is one erasure end to end: replay, plan, scan, vectors,
// commit, read-back. Customers are random strings: no file can be skipped.
func BenchmarkDelete(b *testing.B) {
	for _, size := range []struct{ files, rows int }{{8, 25_000}, {16, 250_000}} {
		b.Run(fmt.Sprintf("%d files of %d rows", size.files, size.rows), func(b *testing.B) {
			mem := bucket.NewMemory()
			table := ordersTable(b, mem, size.files, size.rows)
			n := 0
			for b.Loop() {
				n++
				one, two := n*2654435761%(1<<32), (n+size.rows)*2654435761%(1<<32)
				got, err := table.Delete(b.Context(), storage.Deletion{
					Batch:    storage.Batch{App: "bench", Number: int64(n)},
					Subjects: []storage.Subject{subject("customer", fmt.Sprintf("%08x-customer", one), fmt.Sprintf("%08x-customer", two))},
				})
				if err != nil || got.Subjects[0].Rows == 0 {
					b.Fatalf("%+v, %v", got, err)
				}
			}
			b.ReportMetric(float64(n*size.files*size.rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkOpen replays logs: many commits without a checkpoint, and a
// checkpoint of many files, of which all adds are read.
func BenchmarkOpen(b *testing.B) {
	const head = `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}` + "\n" +
		`{"metaData":{"id":"t","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}` + "\n"
	line := func(i int) string {
		return `{"add":{"path":"part-` + strconv.Itoa(i) + `-c000.snappy.parquet","partitionValues":{},"size":1000,"modificationTime":1,"dataChange":true,` +
			`"stats":"{\"numRecords\":1000,\"minValues\":{\"id\":1,\"name\":\"a\"},\"maxValues\":{\"id\":9,\"name\":\"z\"},\"nullCount\":{\"id\":0,\"name\":0}}"}}` + "\n"
	}
	run := func(name string, prepare func(b *testing.B, mem storage.Bucket), files int) {
		b.Run(name, func(b *testing.B) {
			mem := bucket.NewMemory()
			prepare(b, mem)
			for b.Loop() {
				s, err := log.Load(b.Context(), mem, storage.NoVersion)
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for _, err := range s.Files(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != files {
					b.Fatalf("%d files", n)
				}
			}
			b.ReportMetric(float64(files)*float64(b.N)/b.Elapsed().Seconds(), "files/s")
		})
	}
	put := func(b *testing.B, mem storage.Bucket, v int, text string) {
		b.Helper()
		if err := mem.Put(context.Background(), log.CommitKey(storage.Version(v)), strings.NewReader(text), storage.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	run("5000 commits", func(b *testing.B, mem storage.Bucket) {
		put(b, mem, 0, head+line(0))
		for v := 1; v < 5000; v++ {
			put(b, mem, v, `{"commitInfo":{"operation":"WRITE"}}`+"\n"+line(v))
		}
	}, 5000)
	run("checkpoint of 100000 files", func(b *testing.B, mem storage.Bucket) {
		var text strings.Builder
		text.WriteString(head)
		for i := range 100_000 {
			text.WriteString(line(i))
		}
		put(b, mem, 0, text.String())
		s, err := log.Load(b.Context(), mem, storage.NoVersion)
		if err != nil {
			b.Fatal(err)
		}
		if err := log.WriteCheckpoint(b.Context(), mem, s, s.Timestamp); err != nil {
			b.Fatal(err)
		}
	}, 100_000)
}
