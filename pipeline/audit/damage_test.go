package audit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"delenda/storage"
)

// damaged are a data file with structs, one with none, and two checkpoints.
func damaged(tb testing.TB) [][]byte {
	tb.Helper()
	var files [][]byte
	for _, pattern := range []string{"spark-dv-id/*.parquet", "deltars-plain/*.parquet", "spark-dv-id/_delta_log/*.parquet", "deltars-plain/_delta_log/*.parquet"} {
		names, err := filepath.Glob(filepath.Join("..", "..", "storage", "delta", "testdata", filepath.FromSlash(pattern)))
		if err != nil || len(names) == 0 {
			tb.Fatalf("no file %s: %v", pattern, err)
		}
		p, err := os.ReadFile(names[0])
		if err != nil {
			tb.Fatal(err)
		}
		files = append(files, p)
	}
	return files
}

// decode looks at every value and every row of bytes that may be Parquet.
func decode(tb testing.TB, p []byte) error {
	tb.Helper()
	rows := 0
	err := eachRecord(tb.Context(), "f", p, func(rec arrow.RecordBatch) error {
		for _, c := range rec.Columns() {
			for i := range min(c.Len(), 1000) {
				_ = c.ValueStr(i)
			}
		}
		if rows += int(rec.NumRows()); rows > 10_000 {
			return errStop
		}
		return nil
	})
	if err == nil {
		err = eachRow(tb.Context(), "f", p, func([]byte) error { return nil })
	}
	if err != nil && !errors.Is(err, errStop) && !errors.Is(err, storage.ErrCorrupt) {
		tb.Fatalf("an error of no kind: %v", err)
	}
	return err
}

func Test_a_damaged_file_is_an_error_at_most(t *testing.T) {
	t.Parallel()
	step := 151
	if os.Getenv("DELENDA_LONG") != "" {
		step = 7
	}
	for _, p := range damaged(t) {
		if err := decode(t, p); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for at := 0; at < len(p); at += step {
			for _, mask := range []byte{0x01, 0x80, 0xff} {
				q := slices.Clone(p)
				q[at] ^= mask
				if decode(t, q) != nil {
					failed++
				}
			}
			if err := decode(t, p[:at]); !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("cut at %d: got %v", at, err)
			}
		}
		if failed == 0 {
			t.Error("no damage was noticed")
		}
	}
}

// FuzzEachRecord: whatever lies in a bucket under a Parquet file's name, the
// auditor reads it or says that it is corrupt.
func FuzzEachRecord(f *testing.F) {
	for _, p := range damaged(f) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) { _ = decode(t, p) })
}
