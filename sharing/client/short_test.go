package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"delenda/storage"
)

// written returns a file of forty values in one column n, by the given writer.
// The library writes no dictionaries of INT96, which are those of byte arrays of
// the same length: such columns are named INT96 afterwards.
func written(tb testing.TB, physical parquet.Type, repetition parquet.Repetition, write func(file.ColumnChunkWriter, []int16) error, props ...parquet.WriterProperty) []byte {
	tb.Helper()
	length := -1
	if physical == parquet.Types.FixedLenByteArray {
		length = parquet.Int96SizeBytes
	}
	column, err := schema.NewPrimitiveNode("n", repetition, physical, -1, int32(length))
	if err != nil {
		tb.Fatal(err)
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{column}, -1)
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	w := file.NewParquetWriter(&b, root, file.WithWriterProps(parquet.NewWriterProperties(append(props, parquet.WithStats(false))...)))
	group, err := w.AppendRowGroupChecked()
	if err != nil {
		tb.Fatal(err)
	}
	chunk, err := group.NextColumn()
	if err == nil {
		err = write(chunk, slices.Repeat([]int16{1}, 40))
	}
	if err != nil {
		tb.Fatal(err)
	}
	for _, c := range []io.Closer{chunk, group, w} {
		if err := c.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	p := b.Bytes()
	for _, place := range [][2]string{{"\x15\x0e\x15\x18", "\x15\x06\x15\x18"}, {"\x1c\x15\x0e\x19", "\x1c\x15\x06\x19"}} { // schema, chunk
		p = bytes.Replace(p, []byte(place[0]), []byte(place[1]), 1)
	}
	return p
}

func TestAPageWithFewerValuesThanItSaysIsCorrupt(t *testing.T) {
	t.Parallel()
	numbers := slices.Repeat([]int64{7, 7, 7, 8, 7, 8, 9, 9, 9, 7}, 4)
	texts := make([]parquet.FixedLenByteArray, len(numbers))
	times := make([]parquet.Int96, len(numbers))
	for i, n := range numbers {
		times[i] = parquet.Int96{byte(n)}
		texts[i] = times[i][:]
	}
	writeTimes := func(w file.ColumnChunkWriter, levels []int16) error {
		_, err := w.(*file.Int96ColumnChunkWriter).WriteBatch(times, levels, nil)
		return err
	}
	writeTexts := func(w file.ColumnChunkWriter, levels []int16) error {
		_, err := w.(*file.FixedLenByteArrayColumnChunkWriter).WriteBatch(texts, levels, nil)
		return err
	}
	writeNumbers := func(w file.ColumnChunkWriter, levels []int16) error {
		_, err := w.(*file.Int64ColumnChunkWriter).WriteBatch(numbers, levels, nil)
		return err
	}
	plain := []parquet.WriterProperty{parquet.WithDictionaryDefault(false)}
	for name, test := range map[string]struct {
		physical parquet.Type
		logical  string
		write    func(file.ColumnChunkWriter, []int16) error
		props    []parquet.WriterProperty
		old, new string
	}{
		// indexes of 2 bits; 40 packed ones, or 5 times index 0 and the end
		"INT96, fewer indexes":          {parquet.Types.FixedLenByteArray, "timestamp", writeTexts, nil, "\x02\x0b\x40\xa4", "\x02\x0a\x00\x00"},
		"INT96, an index out of bounds": {parquet.Types.FixedLenByteArray, "timestamp", writeTexts, nil, "\x02\x0b\x40\xa4", "\x02\x0b\xff\xa4"},
		// 40 values in the page's header, or 20
		"INT96, fewer values":  {parquet.Types.Int96, "timestamp", writeTimes, plain, "\x2c\x15\x50\x15\x00", "\x2c\x15\x28\x15\x00"},
		"INT64, fewer indexes": {parquet.Types.Int64, "long", writeNumbers, nil, "\x02\x0b\x40\xa4", "\x02\x0a\x00\x00"},
	} {
		for _, repetition := range []parquet.Repetition{parquet.Repetitions.Required, parquet.Repetitions.Optional} {
			t.Run(name+" "+repetition.String(), func(t *testing.T) {
				t.Parallel()
				p := written(t, test.physical, repetition, test.write, test.props...)
				metadata, err := json.Marshal(map[string]any{
					"id": "t", "format": map[string]any{"provider": "parquet", "options": map[string]string{}}, "partitionColumns": []string{}, "configuration": map[string]string{},
					"schemaString": `{"type":"struct","fields":[{"name":"n","type":"` + test.logical + `","nullable":true,"metadata":{}}]}`,
				})
				if err != nil {
					t.Fatal(err)
				}
				s := snapshotOf(t, metadata, len(p))
				if n, err := decode(t, s, p, nil); n != 40 || err != nil {
					t.Fatalf("undamaged: got %d rows, %v", n, err)
				}
				if n := bytes.Count(p, []byte(test.old)); n != 1 {
					t.Fatalf("%x is there %d times", test.old, n)
				}
				n, err := decode(t, s, bytes.Replace(p, []byte(test.old), []byte(test.new), 1), nil)
				if !errors.Is(err, storage.ErrCorrupt) {
					t.Errorf("got %d rows, %v", n, err)
				}
			})
		}
	}
}
