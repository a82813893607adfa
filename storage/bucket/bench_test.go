package bucket_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"delenda/storage"
	"delenda/storage/bucket"
)

// BenchmarkDirectory measures what a table's hot paths do to a directory.
func BenchmarkDirectory(b *testing.B) {
	dir, err := bucket.Open(b.Context(), b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := dir.Put(b.Context(), "data/part.parquet", bytes.NewReader(make([]byte, 8<<20)), storage.PutOptions{}); err != nil {
		b.Fatal(err)
	}
	const files = 5000
	for i := range files {
		if err := dir.Put(b.Context(), fmt.Sprintf("_delta_log/%020d.json", i), bytes.NewReader(nil), storage.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for _, size := range []int64{4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("read of %d KiB", size>>10), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				r, err := dir.Read(b.Context(), "data/part.parquet", 1<<20, size)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, r); err != nil || n != size {
					b.Fatal(n, err)
				}
				_ = r.Close()
			}
		})
	}
	b.Run("list of 5000", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, err := range dir.List(b.Context(), "_delta_log/", "") {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != files {
				b.Fatal(n)
			}
		}
	})
	b.Run("list of the last 10 of 5000", func(b *testing.B) {
		for b.Loop() {
			for _, err := range dir.List(b.Context(), "_delta_log/", fmt.Sprintf("_delta_log/%020d.json", files-11)) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("put if absent", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if err := dir.Put(b.Context(), fmt.Sprintf("new/%d", i), bytes.NewReader(make([]byte, 4<<10)), storage.PutOptions{IfAbsent: true}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
