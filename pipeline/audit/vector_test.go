package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

// vector frames bitmaps as a 64-bit Roaring array.
func vector(t testing.TB, bitmaps map[uint32]*roaring.Bitmap) []byte {
	t.Helper()
	p := binary.LittleEndian.AppendUint32(nil, vectorMagic)
	p = binary.LittleEndian.AppendUint64(p, uint64(len(bitmaps)))
	for high := range uint32(8) {
		b := bitmaps[high]
		if b == nil {
			continue
		}
		raw, err := b.ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		p = append(binary.LittleEndian.AppendUint32(p, high), raw...)
	}
	return p
}

func Test_every_kind_of_container_is_read(t *testing.T) {
	t.Parallel()
	few, many, runs, mixed := roaring.New(), roaring.New(), roaring.New(), roaring.New()
	few.AddMany([]uint32{0, 7, 65_535, 65_536, 1<<32 - 1})
	for i := uint32(0); i < 20_000; i += 3 {
		many.Add(i)
	}
	runs.AddRange(10, 70_000)
	runs.RunOptimize()
	mixed.Or(few)
	mixed.Or(many)
	mixed.AddRange(200_000, 290_000)
	mixed.AddRange(1_000_000, 1_000_100)
	mixed.RunOptimize()
	bitmaps := map[uint32]*roaring.Bitmap{0: few, 1: many, 2: runs, 5: mixed}
	rows, err := decodeVector(vector(t, bitmaps))
	if err != nil {
		t.Fatal(err)
	}
	total := uint64(0)
	for high, b := range bitmaps {
		total += b.GetCardinality()
		for it := b.Iterator(); it.HasNext(); {
			if row := int64(high)<<32 | int64(it.Next()); !rows[row] {
				t.Fatalf("row %d is missing", row)
			}
		}
	}
	if uint64(len(rows)) != total {
		t.Errorf("%d rows, want %d", len(rows), total)
	}
}

func FuzzDecodeVector(f *testing.F) {
	b := roaring.New()
	b.AddMany([]uint32{1, 5, 70_000})
	f.Add(vector(f, map[uint32]*roaring.Bitmap{0: b}))
	b.AddRange(100, 9000)
	f.Add(vector(f, map[uint32]*roaring.Bitmap{3: b}))
	b.RunOptimize()
	f.Add(vector(f, map[uint32]*roaring.Bitmap{0: b, 1: b}))
	f.Fuzz(func(t *testing.T, p []byte) {
		rows, err := decodeVector(p)
		if err == nil {
			for row := range rows {
				if row < 0 {
					t.Errorf("row %d", row)
				}
			}
			return
		}
		if rows != nil || !errors.Is(err, errVector) {
			t.Errorf("%d rows and %v", len(rows), err)
		}
	})
}

func FuzzDecodeZ85(f *testing.F) {
	f.Add("HelloWorld")
	f.Add("#####")
	f.Add("%nSc0")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := decodeZ85(s)
		if err != nil {
			return
		}
		var back []byte
		for i := 0; i < len(p); i += 4 {
			v := binary.BigEndian.Uint32(p[i:])
			group := make([]byte, 5)
			for k := 4; k >= 0; k-- {
				group[k] = z85[v%85]
				v /= 85
			}
			back = append(back, group...)
		}
		if !bytes.Equal(back, []byte(s)) {
			t.Errorf("%q comes back as %q", s, back)
		}
	})
}
