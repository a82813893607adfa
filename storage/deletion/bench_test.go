package deletion

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// scattered returns n distinct rows of a fragment of `of` rows.
func scattered(n int, of int64) *Set {
	r := rand.New(rand.NewPCG(uint64(n), uint64(of)))
	rows := make([]int64, 0, n)
	s := New()
	for int(s.Cardinality()) < n {
		rows = rows[:0]
		for range n - int(s.Cardinality()) {
			rows = append(rows, r.Int64N(of))
		}
		slices.Sort(rows)
		s.AddSorted(rows)
	}
	return s
}

// fragment is the size of the fragment that n rows are deleted from.
func fragment(n int) int64 { return max(1_000_000, 10*int64(n)) }

var benchmarkRows = []int{10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000}

func BenchmarkEncodeDelta(b *testing.B) {
	for _, n := range benchmarkRows {
		s := scattered(n, fragment(n))
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			size := 0
			for b.Loop() {
				size = len(EncodeDelta(s))
			}
			report(b, n, size)
		})
	}
}

func BenchmarkDecodeDelta(b *testing.B) {
	for _, n := range benchmarkRows {
		p := EncodeDelta(scattered(n, fragment(n)))
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := DecodeDelta(p, int64(n), fragment(n)); err != nil {
					b.Fatal(err)
				}
			}
			report(b, n, len(p))
		})
	}
}

func BenchmarkUnion(b *testing.B) {
	for _, n := range benchmarkRows {
		x, y := scattered(n, fragment(n)), scattered(n, fragment(n)+1)
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			for b.Loop() {
				x.Union(y)
			}
			report(b, 2*n, 0)
		})
	}
}

func BenchmarkBuildFromSortedRows(b *testing.B) {
	for _, n := range benchmarkRows {
		rows := slices.Collect(scattered(n, fragment(n)).All())
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			for b.Loop() {
				New().AddSorted(rows)
			}
			report(b, n, 0)
		})
	}
}

// BenchmarkSetSize shows the bytes of an index set beside those of a bitmap, in
// a fragment of a million rows, and so sets DefaultThreshold.
func BenchmarkSetSize(b *testing.B) {
	for _, n := range []int{1, 10, 30, 50, 60, 64, 70, 80, 100, 1_000, 10_000, 50_000, 100_000, 500_000} {
		s := scattered(n, 1_000_000)
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			for b.Loop() {
				s.Contains(500_000)
			}
			low := s.low()
			b.ReportMetric(float64(4*n), "set-bytes")
			b.ReportMetric(float64(low.GetSerializedSizeInBytes()), "bitmap-bytes")
			b.ReportMetric(float64(len(EncodeDelta(s))), "delta-bytes")
			b.ReportMetric(float64(n)/10_000, "%deleted")
		})
	}
}

func report(b *testing.B, rows, size int) {
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
	if size > 0 {
		b.ReportMetric(float64(size), "bytes")
	}
}
