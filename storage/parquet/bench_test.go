package parquet

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"delenda/storage/match"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// The files of the benchmarks: a key column between two others, nullable,
// pages of 1 MiB, row groups of 500,000 rows. DELENDA_BENCH_ROWS sets the
// rows, and DELENDA_BENCH_DIR a folder to keep files and keys in, for other
// engines to read in the same run.
const (
	benchGroup = 500_000
	benchKeys  = 10_000
)

type benchFile struct {
	name     string
	column   string // of columns()
	codec    compress.Compression
	dict     bool
	distinct int // 0: as many as rows
	miss     bool
	sqlType  string
}

func benchFiles() []benchFile {
	snappy, z := compress.Codecs.Snappy, compress.Codecs.Zstd
	return []benchFile{
		{name: "int64-snappy", column: "long in INT64", codec: snappy, sqlType: "BIGINT"},
		{name: "int64-zstd", column: "long in INT64", codec: z, sqlType: "BIGINT"},
		{name: "int64-snappy-dictionary", column: "long in INT64", codec: snappy, dict: true, distinct: 50_000, sqlType: "BIGINT"},
		{name: "int64-snappy-dictionary-miss", column: "long in INT64", codec: snappy, dict: true, distinct: 50_000, miss: true, sqlType: "BIGINT"},
		{name: "int32-snappy", column: "integer in INT32", codec: snappy, sqlType: "INTEGER"},
		{name: "uuid-snappy", column: "UUID as string", codec: snappy, sqlType: "VARCHAR"},
		{name: "uuid-zstd", column: "UUID as string", codec: z, sqlType: "VARCHAR"},
		{name: "decimal-fixed-snappy", column: "decimal in FIXED", codec: snappy, sqlType: "DECIMAL(18,4)"},
	}
}

func benchRows() int {
	if n, err := strconv.Atoi(os.Getenv("DELENDA_BENCH_ROWS")); err == nil {
		return n
	}
	return 1_000_000
}

func (bf benchFile) data(b *testing.B) (data []byte, c column, texts []string) {
	b.Helper()
	for _, candidate := range columns() {
		if candidate.name == bf.column {
			c = candidate
		}
	}
	rows := benchRows()
	distinct := bf.distinct
	if distinct == 0 {
		distinct = rows
	}
	if strings.HasPrefix(bf.name, "int") { // customer numbers
		c.pool = func(r *rand.Rand) string { return strconv.Itoa(r.IntN(2_000_000)) }
	}
	l := layout{rows: rows, groupRows: benchGroup, optional: true, distinct: distinct, props: []parquet.WriterProperty{
		parquet.WithCompression(bf.codec), parquet.WithDictionaryDefault(bf.dict), parquet.WithDataPageSize(1 << 20),
	}}
	data, present := generate(b, c, l, 11)
	r := rand.New(rand.NewPCG(12, 12))
	for range benchKeys / 2 {
		if !bf.miss {
			texts = append(texts, *present[r.IntN(rows)])
		}
		texts = append(texts, c.pool(r))
	}
	if dir := os.Getenv("DELENDA_BENCH_DIR"); dir != "" {
		bf.keep(b, dir, data, texts)
	}
	return data, c, texts
}

// keep writes the file and its keys for other engines.
func (bf benchFile) keep(b *testing.B, dir string, data []byte, texts []string) {
	b.Helper()
	keys := []byte(bf.sqlType + "\n" + strings.Join(texts, "\n") + "\n")
	if err := os.WriteFile(filepath.Join(dir, bf.name+".parquet"), data, 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, bf.name+".keys"), keys, 0o600); err != nil {
		b.Fatal(err)
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure reports rows per second of CPU time: other work on the machine
// shows in elapsed time.
func measure(b *testing.B, rows int, scan func() int) {
	b.Helper()
	found := 0
	start := cpu()
	for b.Loop() {
		found = scan()
	}
	b.ReportMetric(float64(rows)*float64(b.N)/(cpu()-start).Seconds()/1e6, "Mrows/cpu-s")
	b.ReportMetric(float64(found), "hits")
}

func BenchmarkKeyScan(b *testing.B) {
	for _, bf := range benchFiles() {
		b.Run(bf.name, func(b *testing.B) {
			data, c, texts := bf.data(b)
			rows := benchRows()
			keys := compile(b, c.deltaType, texts)
			f, err := Open(b.Context(), newObjects("f", data), "f", int64(len(data)))
			if err != nil {
				b.Fatal(err)
			}
			leaf, err := f.LeafByName("key")
			if err != nil {
				b.Fatal(err)
			}
			p, err := f.newProbe(leaf, keys)
			if err != nil {
				b.Fatal(err)
			}
			b.Run("delenda", func(b *testing.B) {
				measure(b, rows, func() int { return scanDelenda(b, f, leaf, keys) })
			})
			b.Run("arrow-ReadBatch", func(b *testing.B) {
				measure(b, rows, func() int { return scanArrow(b, f, leaf, p) })
			})
			b.Run("arrow-pqarrow", func(b *testing.B) {
				measure(b, rows, func() int { return scanPqarrow(b, data, p) })
			})
			b.Run("bound-decompress", func(b *testing.B) {
				measure(b, rows, func() int { return decompressOnly(b, f, leaf) })
			})
		})
	}
}

func scanDelenda(b *testing.B, f *File, leaf Leaf, keys *match.ColumnKeys) int {
	n := 0
	if _, err := f.Scan(b.Context(), []Key{{leaf, keys}}, func(int, int64) { n++ }); err != nil {
		b.Fatal(err)
	}
	return n
}

func scanArrow(b *testing.B, f *File, leaf Leaf, p *probe) int {
	n := 0
	var st Stats
	for rg := range f.meta.RowGroups {
		err := f.fallback(b.Context(), rg, leaf, p, 0, &st, func(id int32, _ int64) { n += len(p.keys.Subjects(int(id))) })
		if err != nil {
			b.Fatal(err)
		}
	}
	return n
}

func scanPqarrow(b *testing.B, data []byte, p *probe) int {
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		b.Fatal(err)
	}
	fr, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: 64 << 10}, memory.DefaultAllocator)
	if err != nil {
		b.Fatal(err)
	}
	rr, err := fr.GetRecordReader(context.Background(), []int{1}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer rr.Release()
	n := 0
	for rr.Next() {
		column := rr.RecordBatch().Column(0)
		for i := range column.Len() {
			if column.IsNull(i) {
				continue
			}
			if id := findArrow(p, column, i); id != noKey {
				n += len(p.keys.Subjects(int(id)))
			}
		}
	}
	return n
}

func findArrow(p *probe, column arrow.Array, i int) int32 {
	switch a := column.(type) {
	case *array.Int64:
		return p.findInt(a.Value(i))
	case *array.Int32:
		return p.findInt(int64(a.Value(i)))
	case *array.String:
		return p.findBytes([]byte(a.Value(i)))
	case *array.Decimal128:
		return p.findKeyInt(int64(a.Value(i).LowBits()))
	default:
		panic(fmt.Sprintf("%T", column))
	}
}

// decompressOnly walks the pages and does nothing but decompress them: the
// bound of any scan that cannot skip.
func decompressOnly(b *testing.B, f *File, leaf Leaf) int {
	var dst []byte
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	defer z.Close()
	var st Stats
	for rg := range f.meta.RowGroups {
		m := f.chunkMeta(rg, leaf)
		p, err := f.span(b.Context(), m.start, m.length, "chunk", &st)
		if err != nil {
			b.Fatal(err)
		}
		for len(p) > 0 {
			h, n, err := parsePageHeader(p)
			if err != nil {
				b.Fatal(err)
			}
			page := p[n : n+int(h.compressed)]
			p = p[n+int(h.compressed):]
			if m.codec == codecSnappy {
				dst, err = s2.Decode(dst[:cap(dst)], page)
			} else {
				dst, err = z.DecodeAll(page, dst[:0])
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	return 0
}
