package arrowfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"delenda/storage"
)

// object is a bucket of one object.
type object []byte

func (o object) Stat(_ context.Context, key string) (storage.Info, error) {
	return storage.Info{Key: key, SizeBytes: int64(len(o))}, nil
}

func (o object) Read(_ context.Context, _ string, offset, length int64) (io.ReadCloser, error) {
	p := o[min(offset, int64(len(o))):]
	if length >= 0 {
		p = p[:min(length, int64(len(p)))]
	}
	return io.NopCloser(bytes.NewReader(p)), nil
}

func (o object) List(context.Context, string, string) iter.Seq2[storage.Info, error] { panic("unused") }

func (o object) Put(context.Context, string, io.Reader, storage.PutOptions) error { panic("unused") }

func (o object) Delete(context.Context, string) error { panic("unused") }

// write returns a file of forty numbers in one column.
func write(tb testing.TB, repetition parquet.Repetition, props ...parquet.WriterProperty) []byte {
	tb.Helper()
	column := schema.NewInt64Node("n", repetition, -1)
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{column}, -1)
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	w := file.NewParquetWriter(&b, root, file.WithWriterProps(parquet.NewWriterProperties(props...)))
	group, err := w.AppendRowGroupChecked()
	if err != nil {
		tb.Fatal(err)
	}
	chunk, err := group.NextColumn()
	if err != nil {
		tb.Fatal(err)
	}
	values := slices.Repeat([]int64{7, 7, 7, 8, 7, 8, 9, 9, 9, 7}, 4)
	levels := slices.Repeat([]int16{1}, len(values))
	if _, err := chunk.(*file.Int64ColumnChunkWriter).WriteBatch(values, levels, make([]int16, len(values))); err != nil {
		tb.Fatal(err)
	}
	for _, c := range []io.Closer{chunk, group, w} {
		if err := c.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

// replace returns p with old, which is there once, replaced.
func replace(tb testing.TB, p []byte, old, by string) []byte {
	tb.Helper()
	if n := bytes.Count(p, []byte(old)); n != 1 || len(old) != len(by) {
		tb.Fatalf("%x is there %d times", old, n)
	}
	return bytes.Replace(p, []byte(old), []byte(by), 1)
}

func sum(tb testing.TB, p []byte) (rows int, total int64, err error) {
	tb.Helper()
	f, err := Open(tb.Context(), object(p), storage.Info{Key: "f", SizeBytes: int64(len(p))})
	if err != nil {
		return 0, 0, err
	}
	defer f.Close() //nolint:errcheck // nothing is written
	err = f.EachRow(tb.Context(), []int{0}, func(_ int64, cols []*Column) error {
		rows++
		for i := range cols[0].Len() {
			total += cols[0].Int(i)
		}
		return nil
	})
	return rows, total, err
}

func TestAPageWithFewerValuesThanItSaysIsCorrupt(t *testing.T) {
	t.Parallel()
	plain := []parquet.WriterProperty{parquet.WithDictionaryDefault(false), parquet.WithStats(false)}
	delta := append(slices.Clip(plain), parquet.WithEncoding(parquet.Encodings.DeltaBinaryPacked))
	dictionary := []parquet.WriterProperty{parquet.WithDictionaryDefault(true), parquet.WithStats(false)}
	for name, test := range map[string]struct {
		props    []parquet.WriterProperty
		old, new string
	}{
		// block of 128 values, 4 miniblocks, 40 values, the first is 7
		"delta, fewer values": {delta, "\x80\x01\x04\x28\x0e", "\x80\x01\x04\x05\x0e"},
		// indexes of 2 bits; 40 packed ones, or 5 times index 0 and the end
		"dictionary, fewer indexes": {dictionary, "\x02\x0b\x40\xa4", "\x02\x0a\x00\x00"},
		// index 3 of 3 entries
		"dictionary, an index out of bounds": {dictionary, "\x02\x0b\x40\xa4", "\x02\x0b\xff\xa4"},
	} {
		for _, repetition := range []parquet.Repetition{parquet.Repetitions.Required, parquet.Repetitions.Optional, parquet.Repetitions.Repeated} {
			t.Run(name+" "+repetition.String(), func(t *testing.T) {
				t.Parallel()
				p := write(t, repetition, test.props...)
				if rows, total, err := sum(t, p); rows != 40 || total != 312 || err != nil {
					t.Fatalf("undamaged: got %d rows, sum %d, %v", rows, total, err)
				}
				q := replace(t, p, test.old, test.new)
				rows, _, err := sum(t, q)
				var corrupt *storage.CorruptError
				if !errors.As(err, &corrupt) || corrupt.Key != "f" {
					t.Errorf("got %d rows, %v", rows, err)
				}
			})
		}
	}
}
