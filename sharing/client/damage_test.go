package client

import (
	"context"
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
`, metadata, len(p))), capabilities)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := newSnapshot(c, sharing.Table{}, QueryOptions{}, &answer.answer)
	if err != nil {
		tb.Fatal(err)
	}
	return s, p
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
func decode(tb testing.TB, s *Snapshot, p []byte, dv *deletion.Descriptor, columns []string) (int64, error) {
	tb.Helper()
	r, err := s.newReader(&ReadOptions{BatchRows: 3, Columns: columns, Limit: 1000})
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
	step := 31
	if os.Getenv("DELENDA_LONG") != "" {
		step = 1
	}
	for _, table := range damaged {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s, p := sample(t, table)
			dv := hideSome(t)
			whole, err := decode(t, s, p, nil, nil)
			if err != nil || whole < 5 {
				t.Fatalf("got %d rows, %v", whole, err)
			}
			if n, err := decode(t, s, p, dv, nil); err != nil || n != whole-2 {
				t.Fatalf("with hidden rows: got %d of %d, %v", n, whole, err)
			}
			failed := 0
			for at := 0; at < len(p); at += step {
				for _, mask := range []byte{0x01, 0x10, 0x80, 0xff} {
					q := slices.Clone(p)
					q[at] ^= mask
					if _, err := decode(t, s, q, dv, nil); err != nil {
						failed++
					}
				}
				if _, err := decode(t, s, p[:at], nil, nil); !errors.Is(err, storage.ErrCorrupt) {
					t.Fatalf("cut at %d: got %v", at, err)
				}
			}
			if failed == 0 {
				t.Error("no damage was noticed")
			}
		})
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
		_, _ = decode(t, snapshots[max(i, 0)%len(snapshots)], p, dv, nil)
	})
}
