package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/file"

	"delenda/sharing"
	"delenda/storage"
	"delenda/storage/deletion"
)

// damaged are tables of real writers whose data files the tests damage: structs
// and all types in Parquet's plain and dictionary encodings, with and without nulls.
var damaged = []string{"spark-dv-id", "spark-no-dv", "deltars-plain"}

// sample returns the answer for the first file of a table of a real writer,
// with rows hidden, and the bytes of that file.
func sample(tb testing.TB, table string) (*Snapshot, []byte) {
	tb.Helper()
	dir := filepath.Join("..", "..", "storage", "delta", "testdata", table)
	commits, err := filepath.Glob(filepath.Join(dir, "_delta_log", "*.json"))
	if err != nil || len(commits) == 0 {
		tb.Fatal("no log", err)
	}
	var metadata json.RawMessage
	var path string
	for _, name := range commits {
		text, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var a struct {
				MetaData json.RawMessage
				Add      struct{ Path string }
			}
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				tb.Fatal(err)
			}
			if a.MetaData != nil {
				metadata = a.MetaData
			}
			if path == "" && a.Add.Path != "" {
				path, _ = url.PathUnescape(a.Add.Path)
			}
		}
	}
	p, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		tb.Fatal(err)
	}
	return snapshotOf(tb, metadata, len(p)), p
}

// snapshotOf returns the answer for a table of one file.
func snapshotOf(tb testing.TB, metadata json.RawMessage, size int) *Snapshot {
	tb.Helper()
	c, err := New(sharing.Profile{Endpoint: "https://h"}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	h := http.Header{}
	h.Set(sharing.HeaderTableVersion, "1")
	h.Set(sharing.HeaderCapabilities, "responseformat=delta")
	answer, err := c.readAnswer(h, strings.NewReader(fmt.Sprintf(`{"protocol":{"deltaProtocol":{"minReaderVersion":2,"minWriterVersion":5}}}
{"metaData":{"deltaMetadata":%s}}
{"file":{"id":"f","deltaSingleAction":{"add":{"path":"https://h/f","partitionValues":{},"size":%d,"modificationTime":1,"dataChange":true}}}}
`, metadata, size)), capabilities)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := newSnapshot(c, sharing.Table{}, QueryOptions{}, &answer.answer)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// hideSome hides rows 1 and 4, inline.
func hideSome(tb testing.TB) *deletion.Descriptor {
	tb.Helper()
	payload := deletion.EncodeDelta(deletion.New(1, 4))
	text, err := deletion.EncodeZ85(payload)
	if err != nil {
		tb.Fatal(err)
	}
	return &deletion.Descriptor{StorageType: "i", PathOrInlineDV: text, SizeInBytes: int32(len(payload)), Cardinality: 2}
}

// decode reads bytes as the snapshot's file, looks at every value, and returns
// how many rows there are.
func decode(tb testing.TB, s *Snapshot, p []byte, dv *deletion.Descriptor) (int64, error) {
	tb.Helper()
	r, err := s.newReader(&ReadOptions{BatchRows: 3, Limit: 1000})
	if err != nil {
		tb.Fatal(err)
	}
	f := s.files[0]
	f.Add.DeletionVector = dv
	object := &objectReader{ctx: context.Background(), size: int64(len(p)), tail: p}
	n := int64(0)
	err = r.object(tb.Context(), &f, object, func(batch arrow.RecordBatch, err error) bool {
		if err != nil {
			tb.Error(err)
		}
		n += batch.NumRows()
		for _, c := range batch.Columns() {
			for i := range c.Len() {
				_ = c.ValueStr(i)
			}
		}
		return true
	})
	if err != nil {
		for _, kind := range []error{storage.ErrCorrupt, storage.ErrRefused, errPhysicalType} {
			if errors.Is(err, kind) {
				return n, err
			}
		}
		tb.Fatalf("an error of no kind: %v", err)
	}
	return n, nil
}

func TestADamagedFileIsAnErrorAtMost(t *testing.T) {
	t.Parallel()
	step := 53
	if os.Getenv("DELENDA_LONG") != "" {
		step = 1
	}
	for _, table := range damaged {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s, p := sample(t, table)
			dv := hideSome(t)
			whole, err := decode(t, s, p, nil)
			if err != nil || whole < 5 {
				t.Fatalf("got %d rows, %v", whole, err)
			}
			if n, err := decode(t, s, p, dv); err != nil || n != whole-2 {
				t.Fatalf("with hidden rows: got %d of %d, %v", n, whole, err)
			}
			failed := 0
			footer := len(p) - 8 - int(binary.LittleEndian.Uint32(p[len(p)-8:]))
			for at := range p {
				masks := []byte{0x01, 0x10, 0x80, 0xff}
				if at%step != 0 {
					if at < footer || at%4 != 0 {
						continue
					}
					masks = masks[:1] // the sign of a number
				}
				for _, mask := range masks {
					q := slices.Clone(p)
					q[at] ^= mask
					if _, err := decode(t, s, q, dv); err != nil {
						failed++
					}
				}
				if at%step != 0 {
					continue
				}
				if _, err := decode(t, s, p[:at], nil); !errors.Is(err, storage.ErrCorrupt) {
					t.Fatalf("cut at %d: got %v", at, err)
				}
			}
			if failed == 0 {
				t.Error("no damage was noticed")
			}
		})
	}
}

// nested returns a Parquet file without rows, whose schema nests n groups.
func nested(n int) []byte {
	footer := binary.AppendUvarint([]byte{0x15, 2, 0x19, 0xfc}, uint64(n+1)) // version, count of elements
	for range n {
		footer = append(footer, 0x35, 0, 0x18, 1, 'a', 0x15, 2, 0) // required group of one
	}
	footer = append(footer, 0x15, 2, 0x25, 0, 0x18, 1, 'a', 0, 0x16, 0, 0x19, 0x0c, 0) // column, no rows, no row groups
	p := append([]byte("PAR1"), footer...)
	return append(binary.LittleEndian.AppendUint32(p, uint32(len(footer))), "PAR1"...)
}

func TestASchemaThatNestsTooDeepIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := sample(t, "spark-no-dv")
	if _, err := decode(t, s, nested(255), nil); err != nil {
		t.Error(err)
	}
	for _, n := range []int{256, 250_000} {
		if _, err := decode(t, s, nested(n), nil); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%d groups: got %v", n, err)
		}
	}
	var refusal *storage.Refusal
	for _, n := range []int{7 << 20, 9 << 20} { // within the footer's bound, and out of it
		if _, err := decode(t, s, nested(n), nil); !errors.As(err, &refusal) || refusal.Code != "footer_too_large" {
			t.Errorf("%d groups: got %v", n, err)
		}
	}
}

func TestAFooterOfManyMegabytesIsRead(t *testing.T) {
	t.Parallel()
	s, p := sample(t, "spark-no-dv")
	r, err := file.NewParquetReader(bytes.NewReader(p))
	if err != nil {
		t.Fatal(err)
	}
	meta := r.MetaData() // the same row groups again and again
	n := 20 << 20 / int(binary.LittleEndian.Uint32(p[len(p)-8:]))
	meta.RowGroups = slices.Repeat(meta.RowGroups, n)
	meta.NumRows *= int64(n)
	footer, err := meta.Serialize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(footer) < 9<<20 {
		t.Fatalf("only %d bytes", len(footer))
	}
	q := append(slices.Clip(p), footer...)
	q = append(binary.LittleEndian.AppendUint32(q, uint32(len(footer))), "PAR1"...)
	if n, err := decode(t, s, q, nil); err != nil || n != 1000 {
		t.Errorf("got %d rows, %v", n, err)
	}
}

// FuzzDecodeFile: whatever a store sends as a data file, the reader returns an
// error of a kind or batches whose values can be looked at.
func FuzzDecodeFile(f *testing.F) {
	var snapshots []*Snapshot
	for i, table := range damaged {
		s, p := sample(f, table)
		snapshots = append(snapshots, s)
		f.Add(i, p)
	}
	dv := hideSome(f)
	f.Fuzz(func(t *testing.T, i int, p []byte) {
		_, _ = decode(t, snapshots[max(i, 0)%len(snapshots)], p, dv)
	})
}
