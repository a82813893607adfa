package log_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta/log"
)

// seedLines adds the commit lines of the tables in testdata.
func seedLines(f *testing.F, use func(line []byte)) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join("..", "testdata", "*", "_delta_log", "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		p, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(p) {
			use(bytes.TrimSpace(line))
		}
	}
}

func FuzzParseAction(f *testing.F) {
	seedLines(f, func(line []byte) { f.Add(line) })
	f.Add([]byte(`{"add":{"path":"a%20b","partitionValues":{"p":null},"size":1,"modificationTime":1,"dataChange":true,"deletionVector":{"storageType":"i","pathOrInlineDv":"wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L","sizeInBytes":40,"cardinality":6}}}`))
	f.Add([]byte(`{"commitInfo":{"operationParameters":{"a":{"b":[1]}},"tags":null}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := log.ParseAction(line)
		if err != nil && a != nil {
			t.Fatal("a partial action beside an error")
		}
		if a == nil {
			return
		}
		p, err := log.Encode([]log.Action{*a})
		if err != nil {
			t.Fatal(err)
		}
		b, err := log.ParseAction(bytes.TrimSpace(p))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		q, err := log.Encode([]log.Action{*b})
		if err != nil || !bytes.Equal(p, q) {
			t.Fatalf("parse, format, parse is not the identity: %v", err)
		}
	})
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(nested))
	f.Add([]byte(`{"type":"struct","fields":[{"name":"a","type":"decimal(10,2)","nullable":true,"metadata":{"x":{}}}]}`))
	seedLines(f, func(line []byte) {
		if a, err := log.ParseAction(line); err == nil && a != nil && a.Metadata != nil {
			f.Add([]byte(a.Metadata.SchemaString))
		}
	})
	f.Fuzz(func(t *testing.T, p []byte) {
		s, err := log.ParseSchema(p)
		if err != nil {
			if s != nil {
				t.Fatal("a partial schema beside an error")
			}
			return
		}
		schema := log.Schema{Fields: s.Fields, Mode: log.MappingName}
		for i := range s.Fields {
			name := s.Fields[i].Name
			c, err := schema.Resolve(name)
			if err == nil && c.Leaf().Name != name && len(c.Path) == 1 {
				t.Fatal("another column was found")
			}
			s.Fields[i].ID()
			_ = s.Fields[i].Type.String()
		}
	})
}

func FuzzProtocol(f *testing.F) {
	f.Add(int32(3), int32(7), "deletionVectors", "deletionVectors")
	f.Add(int32(1), int32(2), "", "")
	f.Add(int32(2), int32(6), "", "columnMapping")
	f.Fuzz(func(t *testing.T, reader, writer int32, rf, wf string) {
		p := log.Protocol{MinReaderVersion: reader, MinWriterVersion: writer, ReaderFeatures: []string{rf}, WriterFeatures: []string{wf}}
		if p.CheckRead() != nil || writer > 7 {
			return
		}
		up := p.WithDeletionVectors()
		if err := up.CheckRead(); err != nil || !up.Has(log.FeatureDeletionVectors) {
			t.Fatalf("%v", err)
		}
		for _, feature := range p.Features() {
			if !up.Has(feature) {
				t.Fatal("a feature got lost")
			}
		}
		q, err := json.Marshal(up)
		if err != nil {
			t.Fatal(err)
		}
		var back log.Protocol
		if err := json.Unmarshal(q, &back); err != nil || (utf8.ValidString(rf) && utf8.ValidString(wf) && !back.Equal(up)) {
			t.Fatalf("%v: %s", err, cmp.Diff(up, back))
		}
	})
}

func FuzzStats(f *testing.F) {
	f.Add(`{"numRecords":10,"minValues":{"a":1,"s":{"b":"x"}},"maxValues":{"a":9},"nullCount":{"a":0,"s":{"b":2}},"tightBounds":false}`, "s", "b")
	f.Add(`{"numRecords":-1}`, "a", "")
	seedLines(f, func(line []byte) {
		if a, err := log.ParseAction(line); err == nil && a != nil && a.Add != nil {
			f.Add(a.Add.Stats, "customer_id", "")
		}
	})
	f.Fuzz(func(t *testing.T, text, first, second string) {
		s, err := log.ParseStats(text)
		if err != nil {
			if s != nil {
				t.Fatal("partial statistics beside an error")
			}
			return
		}
		for _, path := range [][]string{{first}, {first, second}} {
			if raw := log.Lookup(s.MinValues, path); raw != nil && !json.Valid(raw) {
				t.Fatal("a value that is no JSON")
			}
		}
	})
}

// FuzzCheckpoint loads a table whose checkpoint is the fuzzer's.
func FuzzCheckpoint(f *testing.F) {
	names, err := filepath.Glob(filepath.Join("..", "testdata", "*", "_delta_log", "*.checkpoint.parquet"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		p, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		b := bucket.NewMemory()
		putKey(t, b, log.CheckpointKey(0), string(p))
		s, err := log.Load(t.Context(), b, storage.NoVersion)
		if err != nil {
			return
		}
		for _, err := range s.Files(t.Context()) {
			if err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatal(err)
			}
		}
		for _, err := range s.Tombstones(t.Context()) {
			if err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}
