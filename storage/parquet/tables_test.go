package parquet

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/google/go-cmp/cmp"
)

// tables returns the folder of foreign Delta tables, which is not part of this
// module, or skips the test.
func tables(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("DELENDA_TABLES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "tables", "delta")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no foreign Delta tables at %s: set DELENDA_TABLES to a folder of them", dir)
	}
	return dir
}

// TestForeignFilesScanAsArrowReadsThem reads every column of every foreign
// file with Arrow, takes its values for keys, and scans for them.
func TestForeignFilesScanAsArrowReadsThem(t *testing.T) {
	t.Parallel()
	var names []string
	err := filepath.WalkDir(tables(t), func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".parquet") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	columns, rows := 0, 0
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(data), magic) {
			continue // tables that test the log alone
		}
		f, _ := open(t, data)
		for i, c := range f.meta.Schema.Columns() {
			if c.MaxRepetitionLevel() > 0 {
				continue
			}
			leaf := Leaf{i, c}
			deltaType, texts := arrowValues(t, f, leaf)
			if deltaType == "" || len(texts) == 0 {
				continue
			}
			var keys []string
			for _, text := range texts {
				if text != nil && !slices.Contains(keys, *text) && len(keys) < 50 {
					keys = append(keys, *text)
				}
			}
			if len(keys) == 0 {
				continue
			}
			got, _ := scan(t, f, leaf, compile(t, deltaType, keys))
			if diff := cmp.Diff(want(texts, keys), got); diff != "" {
				t.Errorf("%s, column %s (-want +got):\n%s", filepath.Base(name), c.Path(), diff)
			}
			columns++
			rows += len(texts)
		}
	}
	t.Logf("%d files, %d columns, %d values", len(names), columns, rows)
	if columns < 500 {
		t.Errorf("only %d columns", columns)
	}
}

// arrowValues returns a type to compare the leaf as and its values as key
// texts, nil for null.
func arrowValues(t *testing.T, f *File, leaf Leaf) (deltaType string, rows []*string) {
	t.Helper()
	c := leaf.column
	var format func(v any) string
	number := func(v any) *big.Int {
		switch v := v.(type) {
		case int32:
			return big.NewInt(int64(v))
		case int64:
			return big.NewInt(v)
		case parquet.FixedLenByteArray:
			return fromTwosComplement(v)
		case parquet.ByteArray:
			return fromTwosComplement(v)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	instant := func(us int64) string { return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z") }
	switch l := c.LogicalType().(type) {
	case schema.DecimalLogicalType:
		deltaType = fmt.Sprintf("decimal(%d,%d)", l.Precision(), l.Scale())
		format = func(v any) string {
			sign := ""
			n := number(v)
			if n.Sign() < 0 {
				sign, n = "-", new(big.Int).Neg(n)
			}
			text := fmt.Sprintf("%0*s", l.Scale()+1, n.String())
			if l.Scale() == 0 {
				return sign + text
			}
			return sign + text[:len(text)-int(l.Scale())] + "." + text[len(text)-int(l.Scale()):]
		}
	case schema.DateLogicalType:
		deltaType = "date"
		format = func(v any) string {
			return time.Unix(int64(v.(int32))*86400, 0).UTC().Format("2006-01-02")
		}
	case schema.TimestampLogicalType:
		if l.TimeUnit() != schema.TimeUnitMicros {
			return "", nil
		}
		deltaType = "timestamp"
		format = func(v any) string { return instant(v.(int64)) }
	default:
		switch c.PhysicalType() {
		case parquet.Types.Boolean:
			deltaType, format = "boolean", func(v any) string { return strconv.FormatBool(v.(bool)) }
		case parquet.Types.Int32, parquet.Types.Int64:
			deltaType, format = "long", func(v any) string { return number(v).String() }
		case parquet.Types.Int96:
			deltaType, format = "timestamp", func(v any) string {
				b := v.(parquet.Int96)
				return instant(int96Micros(b[:]))
			}
		case parquet.Types.ByteArray:
			deltaType, format = "binary", func(v any) string { return hex.EncodeToString(v.(parquet.ByteArray)) }
		case parquet.Types.FixedLenByteArray:
			deltaType, format = "binary", func(v any) string { return hex.EncodeToString(v.(parquet.FixedLenByteArray)) }
		default:
			return "", nil
		}
	}
	src := &source{size: f.size, readAt: func(p []byte, off int64) error {
		b, err := f.read(t.Context(), off, int64(len(p)))
		copy(p, b)
		return err
	}}
	r, err := file.NewParquetReader(src)
	if err != nil {
		t.Fatal(err)
	}
	for g := range r.NumRowGroups() {
		column, err := r.RowGroup(g).Column(leaf.index)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, arrowColumn(t, column, r.RowGroup(g).NumRows(), format)...)
	}
	return deltaType, rows
}

func fromTwosComplement(p []byte) *big.Int {
	n := new(big.Int).SetBytes(p)
	if len(p) > 0 && p[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(p))))
	}
	return n
}

func arrowColumn(t *testing.T, column file.ColumnChunkReader, n int64, format func(any) string) []*string {
	t.Helper()
	switch r := column.(type) {
	case *file.BooleanColumnChunkReader:
		return arrowTyped(t, column, r, n, func(v bool) string { return format(v) })
	case *file.Int32ColumnChunkReader:
		return arrowTyped(t, column, r, n, func(v int32) string { return format(v) })
	case *file.Int64ColumnChunkReader:
		return arrowTyped(t, column, r, n, func(v int64) string { return format(v) })
	case *file.Int96ColumnChunkReader:
		return arrowTyped(t, column, r, n, func(v parquet.Int96) string { return format(v) })
	case *file.ByteArrayColumnChunkReader:
		return arrowTyped(t, column, r, n, func(v parquet.ByteArray) string { return format(v) })
	case *file.FixedLenByteArrayColumnChunkReader:
		return arrowTyped(t, column, r, n, func(v parquet.FixedLenByteArray) string { return format(v) })
	default:
		return nil
	}
}

func arrowTyped[T any](t *testing.T, column file.ColumnChunkReader, r typedReader[T], n int64, format func(T) string) (rows []*string) {
	t.Helper()
	values, levels := make([]T, n), make([]int16, n)
	for int64(len(rows)) < n {
		total, got, err := r.ReadBatch(n-int64(len(rows)), values, levels, nil)
		if err != nil || total == 0 {
			t.Fatal(total, err)
		}
		next := 0
		for _, level := range levels[:total] {
			if maxDef := column.Descriptor().MaxDefinitionLevel(); maxDef > 0 && level != maxDef {
				rows = append(rows, nil)
				continue
			}
			text := format(values[next])
			rows = append(rows, &text)
			next++
		}
		if next != got {
			t.Fatalf("%d values, %d levels", got, next)
		}
	}
	return rows
}

func TestWidenedForeignFilesMatchInEveryGeneration(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(tables(t), "type-widening", "*.parquet"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, c := range []struct{ column, deltaType, narrow, wide string }{
		{"byte_long", "long", "1", "9223372036854775807"},
		{"int_long", "long", "2", "9223372036854775807"},
		{"byte_decimal", "decimal(11,1)", "1", "123.4"},
		{"short_decimal", "decimal(11,1)", "2.0", "12345.6"},
		{"int_decimal", "decimal(11,1)", "3", "1234567890.1"},
		{"long_decimal", "decimal(21,1)", "4", "123456789012345678.9"},
		{"decimal_decimal_same_scale", "decimal(20,2)", "123.45", "12345678901234.56"},
		{"decimal_decimal_greater_scale", "decimal(20,5)", "67.89", "12345678901.23456"},
		{"date_timestamp_ntz", "timestamp_ntz", "2024-09-09T00:00:00", "2024-09-09T12:34:56.123456"},
	} {
		hits := [2]int{}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f, _ := open(t, data)
			leaf, err := f.LeafByName(c.column)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := scan(t, f, leaf, compile(t, c.deltaType, []string{c.narrow, c.wide}))
			for _, hit := range got {
				hits[hit.Subject]++
			}
		}
		if hits != [2]int{1, 1} {
			t.Errorf("%s: found %v times: want each generation once", c.column, hits)
		}
	}
}
