package parquet

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"delenda/storage"
	"delenda/storage/match"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// objects is a read-only bucket in memory that counts what is asked of it.
type objects struct {
	data  map[string][]byte
	reads atomic.Int64
	bytes atomic.Int64
}

func newObjects(key string, data []byte) *objects {
	return &objects{data: map[string][]byte{key: data}}
}

func (o *objects) Stat(_ context.Context, key string) (storage.Info, error) {
	p, ok := o.data[key]
	if !ok {
		return storage.Info{}, storage.ErrNotFound
	}
	return storage.Info{Key: key, SizeBytes: int64(len(p))}, nil
}

func (o *objects) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, ok := o.data[key]
	if !ok {
		return nil, storage.ErrNotFound
	}
	p = p[min(offset, int64(len(p))):]
	if length >= 0 {
		p = p[:min(length, int64(len(p)))]
	}
	o.reads.Add(1)
	o.bytes.Add(int64(len(p)))
	return io.NopCloser(bytes.NewReader(p)), nil
}

func (o *objects) Put(context.Context, string, io.Reader, storage.PutOptions) error {
	return storage.ErrDenied
}

func (o *objects) List(context.Context, string, string) iter.Seq2[storage.Info, error] {
	return func(func(storage.Info, error) bool) {}
}

func (o *objects) Delete(context.Context, string) error { return storage.ErrDenied }

// column is a kind of column that tests generate: how its Delta type looks in
// Parquet, and how canonical key texts become physical values.
type column struct {
	name      string
	deltaType string
	physical  parquet.Type
	logical   schema.LogicalType
	width     int
	pool      func(r *rand.Rand) string
	write     func(w file.ColumnChunkWriter, texts []string, levels []int16) error
	encodings []parquet.Encoding // beyond dictionary and PLAIN
}

func (c column) node(repetition parquet.Repetition) schema.Node {
	n, err := schema.NewPrimitiveNodeLogical("key", repetition, c.logical, c.physical, c.width, 7)
	if err != nil {
		panic(err)
	}
	return n
}

type batchWriter[T any] interface {
	WriteBatch(values []T, defLevels, repLevels []int16) (int64, error)
}

func writer[T any](conv func(string) T) func(file.ColumnChunkWriter, []string, []int16) error {
	return func(w file.ColumnChunkWriter, texts []string, levels []int16) error {
		values := make([]T, len(texts))
		for i, text := range texts {
			values[i] = conv(text)
		}
		_, err := w.(batchWriter[T]).WriteBatch(values, levels, nil)
		return err
	}
}

func integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func unscaled(text string, scale int) *big.Int {
	whole, fraction, _ := strings.Cut(text, ".")
	n, ok := new(big.Int).SetString(whole+fraction+strings.Repeat("0", scale-len(fraction)), 10)
	if !ok {
		panic(text)
	}
	return n
}

func twosComplement(n *big.Int, width int) []byte {
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*width)))
	}
	return n.FillBytes(make([]byte, width))
}

func micros(text string) int64 {
	t, err := time.Parse("2006-01-02T15:04:05.999999", strings.TrimSuffix(text, "Z"))
	if err != nil {
		panic(err)
	}
	return t.UnixMicro()
}

func randomDigits(r *rand.Rand, n int) string {
	b := []byte{byte('1' + r.IntN(9))}
	for range n - 1 {
		b = append(b, byte('0'+r.IntN(10)))
	}
	return string(b)
}

func randomDecimal(digits, scale int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		text := randomDigits(r, digits-scale) + "." + randomDigits(r, scale)
		if r.IntN(2) == 0 {
			return "-" + text
		}
		return text
	}
}

func randomTime(layout string, step time.Duration) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		d := time.Duration(r.Int64N(int64(80*365*24*time.Hour)/int64(step))) * step
		return time.Date(1940, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(layout)
	}
}

func randomUUID(r *rand.Rand) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, r.Uint64()), r.Uint64())
}

func uuidText(b []byte) string {
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func bytesOf(text string) parquet.ByteArray { return parquet.ByteArray(text) }

func unhex(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

var (
	intEncodings   = []parquet.Encoding{parquet.Encodings.DeltaBinaryPacked, parquet.Encodings.ByteStreamSplit}
	bytesEncodings = []parquet.Encoding{parquet.Encodings.DeltaLengthByteArray, parquet.Encodings.DeltaByteArray}
	fixedEncodings = []parquet.Encoding{parquet.Encodings.ByteStreamSplit}
)

func columns() []column {
	types, none := parquet.Types, schema.NoLogicalType{}
	short := func(r *rand.Rand) string { return strconv.Itoa(r.IntN(65536) - 32768) }
	micro := "2006-01-02T15:04:05.000000"
	timestamp := func(unit schema.TimeUnitType, utc bool) schema.LogicalType {
		return schema.NewTimestampLogicalType(utc, unit)
	}
	return []column{
		{
			name: "short in INT32", deltaType: "short", physical: types.Int32, logical: schema.NewIntLogicalType(16, true),
			pool: short, write: writer(func(s string) int32 { return int32(integer(s)) }), encodings: intEncodings,
		},
		{
			name: "integer in INT32", deltaType: "integer", physical: types.Int32, logical: none,
			pool: short, write: writer(func(s string) int32 { return int32(integer(s)) }), encodings: intEncodings,
		},
		{
			name: "long in INT64", deltaType: "long", physical: types.Int64, logical: none,
			pool:  func(r *rand.Rand) string { return strconv.FormatInt(int64(r.Uint64()), 10) },
			write: writer(integer), encodings: intEncodings,
		},
		{
			name: "long widened from INT32", deltaType: "long", physical: types.Int32, logical: none,
			pool: short, write: writer(func(s string) int32 { return int32(integer(s)) }), encodings: intEncodings,
		},
		{
			name: "boolean", deltaType: "boolean", physical: types.Boolean, logical: none,
			pool:  func(r *rand.Rand) string { return strconv.FormatBool(r.IntN(2) == 0) },
			write: writer(func(s string) bool { return s == "true" }), encodings: []parquet.Encoding{parquet.Encodings.RLE},
		},
		{
			name: "string", deltaType: "string", physical: types.ByteArray, logical: schema.StringLogicalType{},
			pool: func(r *rand.Rand) string {
				return strings.Repeat("é", r.IntN(20)) + strconv.Itoa(r.IntN(1<<20))
			},
			write: writer(bytesOf), encodings: bytesEncodings,
		},
		{
			name: "UUID as string", deltaType: "string", physical: types.ByteArray, logical: schema.StringLogicalType{},
			pool: func(r *rand.Rand) string { return uuidText(randomUUID(r)) }, write: writer(bytesOf), encodings: bytesEncodings,
		},
		{
			name: "binary in BYTE_ARRAY", deltaType: "binary", physical: types.ByteArray, logical: none,
			pool:  func(r *rand.Rand) string { return hex.EncodeToString(randomUUID(r)[:r.IntN(16)]) },
			write: writer(func(s string) parquet.ByteArray { return unhex(s) }), encodings: bytesEncodings,
		},
		{
			name: "UUID in FIXED", deltaType: "binary", physical: types.FixedLenByteArray, logical: schema.UUIDLogicalType{}, width: 16,
			pool:  func(r *rand.Rand) string { return hex.EncodeToString(randomUUID(r)) },
			write: writer(func(s string) parquet.FixedLenByteArray { return unhex(s) }), encodings: fixedEncodings,
		},
		{
			name: "date", deltaType: "date", physical: types.Int32, logical: schema.DateLogicalType{},
			pool:  randomTime("2006-01-02", 24*time.Hour),
			write: writer(func(s string) int32 { return int32(micros(s+"T00:00:00") / 86400_000_000) }), encodings: intEncodings,
		},
		{
			name: "timestamp in micros", deltaType: "timestamp", physical: types.Int64, logical: timestamp(schema.TimeUnitMicros, true),
			pool: randomTime(micro+"Z", time.Microsecond), write: writer(micros), encodings: intEncodings,
		},
		{
			name: "timestamp in millis", deltaType: "timestamp", physical: types.Int64, logical: timestamp(schema.TimeUnitMillis, true),
			pool:  randomTime("2006-01-02T15:04:05Z", time.Second),
			write: writer(func(s string) int64 { return floorDiv(micros(s), 1000) }), encodings: intEncodings,
		},
		{
			name: "timestamp in nanos", deltaType: "timestamp", physical: types.Int64, logical: timestamp(schema.TimeUnitNanos, true),
			pool:  randomTime(micro+"Z", time.Microsecond),
			write: writer(func(s string) int64 { return micros(s)*1000 + 7 }), encodings: intEncodings,
		},
		{
			name: "timestamp_ntz", deltaType: "timestamp_ntz", physical: types.Int64, logical: timestamp(schema.TimeUnitMicros, false),
			pool: randomTime(micro, time.Microsecond), write: writer(micros), encodings: intEncodings,
		},
		{
			name: "timestamp_ntz widened from date", deltaType: "timestamp_ntz", physical: types.Int32, logical: schema.DateLogicalType{},
			pool:  randomTime("2006-01-02T00:00:00", 24*time.Hour),
			write: writer(func(s string) int32 { return int32(floorDiv(micros(s), 86400_000_000)) }), encodings: intEncodings,
		},
		{
			name: "timestamp in INT96", deltaType: "timestamp", physical: types.Int96, logical: none,
			pool: randomTime(micro+"Z", time.Microsecond), write: writer(int96),
		},
		{
			name: "decimal in INT32", deltaType: "decimal(9,2)", physical: types.Int32, logical: schema.NewDecimalLogicalType(9, 2),
			pool:  randomDecimal(9, 2),
			write: writer(func(s string) int32 { return int32(unscaled(s, 2).Int64()) }), encodings: intEncodings,
		},
		{
			name: "decimal in INT64", deltaType: "decimal(18,4)", physical: types.Int64, logical: schema.NewDecimalLogicalType(18, 4),
			pool:  randomDecimal(18, 4),
			write: writer(func(s string) int64 { return unscaled(s, 4).Int64() }), encodings: intEncodings,
		},
		{
			name: "decimal in FIXED", deltaType: "decimal(18,4)", physical: types.FixedLenByteArray, logical: schema.NewDecimalLogicalType(18, 4), width: 8,
			pool:  randomDecimal(18, 4),
			write: writer(func(s string) parquet.FixedLenByteArray { return twosComplement(unscaled(s, 4), 8) }), encodings: fixedEncodings,
		},
		{
			name: "wide decimal in FIXED", deltaType: "decimal(38,6)", physical: types.FixedLenByteArray, logical: schema.NewDecimalLogicalType(38, 6), width: 16,
			pool:  randomDecimal(38, 6),
			write: writer(func(s string) parquet.FixedLenByteArray { return twosComplement(unscaled(s, 6), 16) }), encodings: fixedEncodings,
		},
		{
			name: "wide decimal in BYTE_ARRAY", deltaType: "decimal(20,2)", physical: types.ByteArray, logical: schema.NewDecimalLogicalType(20, 2),
			pool:  randomDecimal(20, 2),
			write: writer(func(s string) parquet.ByteArray { return twosComplement(unscaled(s, 2), 9) }), encodings: bytesEncodings,
		},
		{
			name: "decimal widened from INT32 of a smaller scale", deltaType: "decimal(12,4)", physical: types.Int32, logical: schema.NewDecimalLogicalType(6, 2),
			pool:  randomDecimal(6, 2),
			write: writer(func(s string) int32 { return int32(unscaled(s, 2).Int64()) }), encodings: intEncodings,
		},
		{
			name: "decimal widened from integer", deltaType: "decimal(22,2)", physical: types.Int32, logical: none,
			pool: short, write: writer(func(s string) int32 { return int32(integer(s)) }), encodings: intEncodings,
		},
		{
			name: "wide decimal widened from FIXED of a smaller scale", deltaType: "decimal(38,8)", physical: types.FixedLenByteArray, logical: schema.NewDecimalLogicalType(20, 3), width: 9,
			pool:  randomDecimal(20, 3),
			write: writer(func(s string) parquet.FixedLenByteArray { return twosComplement(unscaled(s, 3), 9) }), encodings: fixedEncodings,
		},
	}
}

func int96(text string) parquet.Int96 {
	us := micros(text)
	days := floorDiv(us, 86400_000_000)
	var v parquet.Int96
	binary.LittleEndian.PutUint64(v[:], uint64((us-days*86400_000_000)*1000+999))
	binary.LittleEndian.PutUint32(v[8:], uint32(days+2440588))
	return v
}

// layout is how a generated file is written.
type layout struct {
	props     []parquet.WriterProperty
	rows      int
	groupRows int
	nulls     int  // percent
	optional  bool // implied by nulls
	distinct  int
	sorted    bool
	depth     int // structs around the column
}

// generate writes rows of c and returns the file and each row's text, nil for null.
func generate(tb testing.TB, c column, l layout, seed uint64) (data []byte, rows []*string) {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	pool := make([]string, l.distinct)
	for i := range pool {
		pool[i] = c.pool(r)
	}
	repetition := parquet.Repetitions.Required
	if l.optional || l.nulls > 0 {
		repetition = parquet.Repetitions.Optional
	}
	node := c.node(repetition)
	for range l.depth {
		g, err := schema.NewGroupNode("parent", parquet.Repetitions.Optional, schema.FieldList{node}, -1)
		if err != nil {
			tb.Fatal(err)
		}
		node = g
	}
	root, err := schema.NewGroupNode("table", parquet.Repetitions.Required, schema.FieldList{
		schema.NewInt32Node("before", parquet.Repetitions.Required, 1), node,
	}, -1)
	if err != nil {
		tb.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(parquet.NewWriterProperties(l.props...)))
	for done := 0; done < l.rows; done += l.groupRows {
		n := min(l.groupRows, l.rows-done)
		g, err := w.AppendRowGroupChecked()
		if err != nil {
			tb.Fatal(err)
		}
		first, err := g.NextColumn()
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := first.(*file.Int32ColumnChunkWriter).WriteBatch(make([]int32, n), nil, nil); err != nil {
			tb.Fatal(err)
		}
		if err := first.Close(); err != nil {
			tb.Fatal(err)
		}
		var texts []string
		var levels []int16
		maxDef := int16(l.depth)
		if repetition == parquet.Repetitions.Optional {
			maxDef++
		}
		for i := range n {
			if maxDef > 0 && r.IntN(100) < l.nulls {
				rows = append(rows, nil)
				levels = append(levels, int16(r.IntN(int(maxDef))))
				continue
			}
			text := pool[r.IntN(len(pool))]
			if l.sorted {
				text = pool[(done+i)*len(pool)/l.rows]
			}
			rows = append(rows, &text)
			texts = append(texts, text)
			levels = append(levels, maxDef)
		}
		if maxDef == 0 {
			levels = nil
		}
		cw, err := g.NextColumn()
		if err != nil {
			tb.Fatal(err)
		}
		if err := c.write(cw, texts, levels); err != nil {
			tb.Fatal(err)
		}
		if err := cw.Close(); err != nil {
			tb.Fatal(err)
		}
		if err := g.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes(), rows
}

// compile makes a key set of one subject per text.
func compile(tb testing.TB, deltaType string, texts []string) *match.ColumnKeys {
	tb.Helper()
	subjects := make([]storage.Subject, len(texts))
	for i, text := range texts {
		subjects[i].Keys = []storage.Key{{Column: "key", Value: storage.NewSecret(text)}}
	}
	set, results, err := match.Compile(subjects, []match.Column{{Name: "key", Type: deltaType}})
	if err != nil {
		tb.Fatal(err)
	}
	for i, r := range results {
		if r.State != storage.SubjectDone {
			tb.Fatalf("subject %d: %s", i, r.Reason)
		}
	}
	return set.Column("key")
}

type found struct {
	Subject int
	Row     int64
}

func (m found) String() string { return fmt.Sprintf("%d@%d", m.Subject, m.Row) }
