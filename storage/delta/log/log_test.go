package log_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"
)

const (
	protocolLine = `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}`
	metadataLine = `{"metaData":{"id":"t","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}`
)

// put writes commit v with the given lines.
func put(t testing.TB, b storage.Bucket, v storage.Version, lines ...string) {
	t.Helper()
	putKey(t, b, log.CommitKey(v), strings.Join(lines, "\n")+"\n")
}

func putKey(t testing.TB, b storage.Bucket, key, text string) {
	t.Helper()
	if err := b.Put(t.Context(), key, strings.NewReader(text), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func add(path string, more ...string) string {
	return fmt.Sprintf(`{"add":{"path":%q,"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true%s}}`, path, strings.Join(append([]string{""}, more...), ","))
}

func remove(path string, more ...string) string {
	return fmt.Sprintf(`{"remove":{"path":%q,"deletionTimestamp":1,"dataChange":true%s}}`, path, strings.Join(append([]string{""}, more...), ","))
}

func vector(id string, offset string) string {
	s := `"deletionVector":{"storageType":"u","pathOrInlineDv":"` + id + `"`
	if offset != "" {
		s += `,"offset":` + offset
	}
	return s + `,"sizeInBytes":34,"cardinality":1}`
}

func paths(t testing.TB, s *log.Snapshot) []string {
	t.Helper()
	out := []string{}
	for a, err := range s.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		p := a.Path
		if a.DeletionVector != nil {
			p += " " + a.DeletionVector.UniqueID()
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func load(t testing.TB, b storage.Bucket) *log.Snapshot {
	t.Helper()
	s, err := log.Load(t.Context(), b, storage.NoVersion)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReplay(t *testing.T) {
	t.Parallel()
	const d1, d2 = "ab^-aqEH.-t@S}K{vb[*k^", "WYbkwCTB$gH)J7t?$/sK"
	for _, tt := range []struct {
		name    string
		commits [][]string
		want    []string
	}{
		{"the newest reference of a file wins", [][]string{{add("a"), add("b")}, {remove("a")}}, []string{"b"}},
		{"a file may come back", [][]string{{add("a")}, {remove("a")}, {add("a")}}, []string{"a"}},
		{"a vector update with the add first", [][]string{{add("a")}, {add("a", vector(d1, "1")), remove("a")}}, []string{"a u" + d1 + "@1"}},
		{"a vector update with the remove first", [][]string{{add("a")}, {remove("a"), add("a", vector(d1, "1"))}}, []string{"a u" + d1 + "@1"}},
		{
			"a remove takes away only the vector that it names",
			[][]string{{add("a", vector(d1, "1"))}, {add("a", vector(d2, "1")), remove("a", vector(d1, "1"))}, {remove("a", vector(d1, "1"))}},
			[]string{"a u" + d2 + "@1"},
		},
		{"an absent offset is not offset 0", [][]string{{add("a", vector(d1, ""))}, {remove("a", vector(d1, "0"))}}, []string{"a u" + d1}},
		{"paths are compared decoded", [][]string{{add("special%20p@%23h"), add("plain")}, {remove("special%20p%40%23h")}}, []string{"plain"}},
		{"plus is a plus", [][]string{{add("a+b"), add("a%2Bc")}, {remove("a%20b"), remove("a+c")}}, []string{"a+b"}},
		{"spellings of an absolute path are one", [][]string{{add("/x/a"), add("file:/x/b"), add("file:///x/c")}, {remove("file:///x/a"), remove("/x/b"), remove("file:/x/c")}}, []string{}},
		{"unknown actions and fields are ignored", [][]string{{`{"tomorrow":{"x":1}}`, add("a", `"tomorrow":{"y":[1]}`), ``, `{"cdc":{"path":"c","partitionValues":{},"size":1,"dataChange":false}}`}}, []string{"a"}},
		{"adding the same file again changes its metadata", [][]string{{add("a")}, {add("a", `"stats":"{}"`)}}, []string{"a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := bucket.NewMemory()
			for v, lines := range tt.commits {
				if v == 0 {
					lines = append([]string{protocolLine, metadataLine}, lines...)
				}
				put(t, b, storage.Version(v), lines...)
			}
			if diff := cmp.Diff(tt.want, paths(t, load(t, b))); diff != "" {
				t.Error(diff)
			}
			// The same from a checkpoint in the middle, and at the end.
			for v := range tt.commits {
				s, err := log.Load(t.Context(), b, storage.Version(v))
				if err != nil {
					t.Fatal(err)
				}
				if err := log.WriteCheckpoint(t.Context(), b, s, time.UnixMilli(0)); err != nil {
					t.Fatal(err)
				}
				if n := load(t, b); n.Checkpoint != storage.Version(v) {
					t.Fatalf("checkpoint %d is not used", v)
				} else if diff := cmp.Diff(tt.want, paths(t, n)); diff != "" {
					t.Errorf("from checkpoint %d: %s", v, diff)
				}
			}
		})
	}
}

func TestStateOfTheNewestVersion(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	put(t, b, 0, protocolLine, metadataLine, `{"txn":{"appId":"a","version":1}}`, `{"domainMetadata":{"domain":"x","configuration":"1","removed":false}}`,
		`{"domainMetadata":{"domain":"y","configuration":"1","removed":false}}`)
	put(t, b, 1, `{"commitInfo":{"operation":"WRITE","operationParameters":{"n":1,"l":[2]},"timestamp":"text","txnId":"id"}}`, `{"txn":{"appId":"a","version":5}}`, `{"txn":{"appId":"b","version":2}}`,
		`{"domainMetadata":{"domain":"x","configuration":"","removed":true}}`, strings.Replace(metadataLine, `"configuration":{}`, `"configuration":{"delta.checkpointInterval":"3"}`, 1))
	check := func(s *log.Snapshot) {
		t.Helper()
		if s.Version != 1 || s.Txns["a"].Version != 5 || s.Txns["b"].Version != 2 || len(s.Domains) != 1 || s.Domains["y"].Configuration != "1" {
			t.Errorf("%+v", s)
		}
		if s.Metadata.CheckpointInterval() != 3 || s.Info == nil || s.Info.TxnID != "id" || s.Info.OperationParameters["l"] != "[2]" {
			t.Errorf("%+v, %+v", s.Metadata, s.Info)
		}
	}
	s := load(t, b)
	check(s)
	if err := log.WriteCheckpoint(t.Context(), b, s, time.Now()); err != nil {
		t.Fatal(err)
	}
	check(load(t, b))
	old, err := log.Load(t.Context(), b, 0)
	if err != nil || old.Txns["a"].Version != 1 || len(old.Domains) != 2 {
		t.Errorf("time travel: %+v, %v", old, err)
	}
	if _, err := log.Load(t.Context(), b, 2); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a version to come: %v", err)
	}
	if same, err := s.Update(t.Context()); err != nil || same != s {
		t.Errorf("Update without news: %v", err)
	}
	put(t, b, 2, add("a"))
	if next, err := s.Update(t.Context()); err != nil || next.Version != 2 {
		t.Errorf("Update: %v", err)
	}
	if v, err := log.LatestVersion(t.Context(), b, 1); err != nil || v != 2 {
		t.Errorf("LatestVersion = %d, %v", v, err)
	}
}

func TestDamagedLogsAreNamedWithoutContent(t *testing.T) {
	t.Parallel()
	const secret = "q7x-secret"
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, b storage.Bucket)
		where  string
		line   int64
	}{
		{"a line cut off", func(t *testing.T, b storage.Bucket) { put(t, b, 1, add("a"), `{"add":{"path":"`+secret) }, "01.json", 1},
		{"a wrong type", func(t *testing.T, b storage.Bucket) {
			put(t, b, 1, strings.Replace(add("a"), `"size":1`, `"size":"`+secret+`"`, 1))
		}, "01.json", 0},
		{"a fraction for an integer", func(t *testing.T, b storage.Bucket) {
			put(t, b, 1, add("a"), add("b"), strings.Replace(add("c"), `"size":1`, `"size":1.5`, 1))
		}, "01.json", 2},
		{"a negative size", func(t *testing.T, b storage.Bucket) {
			put(t, b, 1, strings.Replace(add("a"), `"size":1`, `"size":-1`, 1))
		}, "01.json", 0},
		{"a path that is no URI", func(t *testing.T, b storage.Bucket) { put(t, b, 1, add("a%zz"+secret)) }, "01.json", 0},
		{"a file without path", func(t *testing.T, b storage.Bucket) { put(t, b, 1, `{"remove":{"dataChange":true}}`) }, "01.json", 0},
		{"two actions on a line", func(t *testing.T, b storage.Bucket) {
			put(t, b, 1, strings.TrimSuffix(add("a"), "}")+","+remove("b")[1:])
		}, "01.json", 0},
		{"two protocols in a commit", func(t *testing.T, b storage.Bucket) { put(t, b, 1, protocolLine, protocolLine) }, "01.json", 1},
		{"two transactions of one application", func(t *testing.T, b storage.Bucket) {
			put(t, b, 1, `{"txn":{"appId":"a","version":1}}`, `{"txn":{"appId":"a","version":2}}`)
		}, "01.json", 1},
		{"binary", func(t *testing.T, b storage.Bucket) { putKey(t, b, log.CommitKey(1), "\x00\x01\x02") }, "01.json", 0},
		{"a missing version", func(t *testing.T, b storage.Bucket) { put(t, b, 2, add("a")) }, "01.json", -1},
		{"a vector with a negative cardinality", func(t *testing.T, b storage.Bucket) {
			put(t, b, 1, add("a", strings.Replace(vector("x", "1"), `"cardinality":1`, `"cardinality":-1`, 1)))
		}, "01.json", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := bucket.NewMemory()
			put(t, b, 0, protocolLine, metadataLine)
			tt.damage(t, b)
			_, err := log.Load(t.Context(), b, storage.NoVersion)
			var c *storage.CorruptError
			if !errors.As(err, &c) || !strings.HasSuffix(c.Key, tt.where) || c.Offset != tt.line || c.Field == "" || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAnUnknownProtocolIsRefusedBeforeAnythingElseIsBelieved(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	put(t, b, 0, metadataLine, `{"add":["a format of tomorrow"]}`, `{"protocol":{"minReaderVersion":4,"minWriterVersion":8,"readerFeatures":["x"],"writerFeatures":["x"]}}`)
	_, err := log.Load(t.Context(), b, storage.NoVersion)
	if !errors.Is(err, storage.ErrRefused) {
		t.Errorf("got %v", err)
	}
	v, p, err := log.Peek(t.Context(), b)
	if err != nil || v != 0 || p.MinReaderVersion != 4 {
		t.Errorf("Peek = %d, %+v, %v", v, p, err)
	}
}

func TestNoTable(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	putKey(t, b, "data.parquet", "x")
	putKey(t, b, "_delta_log/_commits/00000000000000000000.x.json", "x")
	if _, err := log.Load(t.Context(), b, storage.NoVersion); !errors.Is(err, storage.ErrNoTable) {
		t.Errorf("got %v", err)
	}
	put(t, b, 0, metadataLine)
	if _, err := log.Load(t.Context(), b, storage.NoVersion); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("without protocol: %v", err)
	}
}

func TestBadHintsAndCheckpointsCostTimeOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, b storage.Bucket)
		uses   storage.Version // the checkpoint that is used
	}{
		{"a good hint", func(*testing.T, storage.Bucket) {}, 3},
		{"no hint", func(t *testing.T, b storage.Bucket) { del(t, b, "_delta_log/_last_checkpoint") }, 3},
		{"an empty hint", func(t *testing.T, b storage.Bucket) { putKey(t, b, "_delta_log/_last_checkpoint", "") }, 3},
		{"a hint that is no JSON", func(t *testing.T, b storage.Bucket) { putKey(t, b, "_delta_log/_last_checkpoint", `{"version":`) }, 3},
		{"a hint to another universe", func(t *testing.T, b storage.Bucket) {
			putKey(t, b, "_delta_log/_last_checkpoint", `{"version":12345678901}`)
		}, 3},
		{"a hint below zero", func(t *testing.T, b storage.Bucket) { putKey(t, b, "_delta_log/_last_checkpoint", `{"version":-4}`) }, 3},
		{"a stale hint", func(t *testing.T, b storage.Bucket) { putKey(t, b, "_delta_log/_last_checkpoint", `{"version":1}`) }, 3},
		{"a hint to a checkpoint that is gone", func(t *testing.T, b storage.Bucket) { del(t, b, log.CheckpointKey(3)) }, 1},
		{"a checkpoint cut off", func(t *testing.T, b storage.Bucket) {
			p, err := storage.ReadObject(t.Context(), b, log.CheckpointKey(3), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			putKey(t, b, log.CheckpointKey(3), string(p[:len(p)/2]))
		}, 1},
		{"an empty checkpoint", func(t *testing.T, b storage.Bucket) { putKey(t, b, log.CheckpointKey(3), "") }, 1},
		{"all checkpoints broken", func(t *testing.T, b storage.Bucket) {
			putKey(t, b, log.CheckpointKey(3), "PAR1 garbage PAR1")
			putKey(t, b, log.CheckpointKey(1), "garbage")
		}, storage.NoVersion},
		{"a part missing", func(t *testing.T, b storage.Bucket) {
			putKey(t, b, "_delta_log/00000000000000000004.checkpoint.0000000001.0000000002.parquet", "x")
		}, 3},
		{"foreign names", func(t *testing.T, b storage.Bucket) {
			for _, n := range []string{"00000000000000000004.tmp", "00000000000000000002.00000000000000000004.compacted.json", "00000000000000000004.crc", "99999999999999999999.json", "x.json", "00000000000000000004.checkpoint.x.parquet", "_last_vacuum_info"} {
				putKey(t, b, "_delta_log/"+n, "x")
			}
		}, 3},
		{"commits before the checkpoint are gone", func(t *testing.T, b storage.Bucket) {
			for v := range 4 {
				del(t, b, log.CommitKey(storage.Version(v)))
			}
		}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := bucket.NewMemory()
			put(t, b, 0, protocolLine, metadataLine, add("f0"))
			for v := range 4 {
				put(t, b, storage.Version(v+1), add(fmt.Sprintf("f%d", v+1)), remove(fmt.Sprintf("f%d", v-1)))
				if v == 0 || v == 2 {
					if err := log.WriteCheckpoint(t.Context(), b, load(t, b), time.UnixMilli(0)); err != nil {
						t.Fatal(err)
					}
				}
			}
			tt.damage(t, b)
			s := load(t, b)
			if diff := cmp.Diff([]string{"f3", "f4"}, paths(t, s)); diff != "" || s.Version != 4 || s.Checkpoint != tt.uses {
				t.Errorf("version %d from checkpoint %d: %s", s.Version, s.Checkpoint, diff)
			}
		})
	}
}

func del(t testing.TB, b storage.Bucket, key string) {
	t.Helper()
	if err := b.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func TestInCommitTimestamps(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	put(t, b, 0, `{"commitInfo":{"inCommitTimestamp":5000,"operation":"CREATE"}}`,
		`{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["inCommitTimestamp"]}}`,
		strings.Replace(metadataLine, `"configuration":{}`, `"configuration":{"delta.enableInCommitTimestamps":"true"}`, 1))
	s := load(t, b)
	if s.Timestamp.UnixMilli() != 5000 || s.NextTimestamp(time.UnixMilli(4000)) != 5001 || s.NextTimestamp(time.UnixMilli(6000)) != 6000 {
		t.Errorf("%v", s.Timestamp)
	}
}

func TestCheckpointKeepsEverything(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(10_000_000_000)
	offset, long, zero := int32(7), int64(9), int64(0)
	value, name := "v", "a table"
	dv := func(o *int32) *deletion.Descriptor {
		return &deletion.Descriptor{StorageType: "u", PathOrInlineDV: "ab^-aqEH.-t@S}K{vb[*k^", Offset: o, SizeInBytes: 40, Cardinality: 6}
	}
	fresh := now.Add(-time.Hour).UnixMilli()
	wantAdd := log.Add{
		Path: "a%20b", PartitionValues: map[string]*string{"p": &value, "q": nil}, SizeBytes: 5, ModificationTime: 6, Stats: `{"numRecords":3}`,
		Tags: map[string]*string{"t": &value}, DeletionVector: dv(&offset), BaseRowID: &zero, DefaultRowCommitVersion: &long, ClusteringProvider: &value,
	}
	wantRemoves := []log.Remove{
		{Path: "a%20b", DeletionTimestamp: fresh, ExtendedFileMetadata: true, PartitionValues: map[string]*string{"p": &value, "q": nil}, SizeBytes: &long, DeletionVector: dv(nil), BaseRowID: &zero},
		{Path: "old", DeletionTimestamp: fresh},
	}
	b := bucket.NewMemory()
	m := log.Metadata{
		ID: "id", Name: &name, Format: log.FileFormat{Provider: "parquet", Options: map[string]string{"o": "1"}}, SchemaString: `{"type":"struct","fields":[]}`,
		PartitionColumns: []string{"p", "q"}, CreatedTime: &long, Configuration: map[string]string{"k": "v"},
	}
	p := log.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"deletionVectors"}, WriterFeatures: []string{"deletionVectors", "domainMetadata"}}
	actions := []log.Action{
		{CommitInfo: &log.CommitInfo{Operation: "TEST"}},
		{Protocol: &p},
		{Metadata: &m},
		{Txn: &log.Txn{AppID: "a", Version: 3, LastUpdated: &long}},
		{DomainMetadata: &log.DomainMetadata{Domain: "d", Configuration: "c"}},
		{Add: &wantAdd},
		{Remove: &wantRemoves[0]},
		{Remove: &wantRemoves[1]},
		{Remove: &log.Remove{Path: "expired", DeletionTimestamp: 1}},
	}
	if err := log.PutCommit(t.Context(), b, 0, actions); err != nil {
		t.Fatal(err)
	}
	for round := range 3 { // each from the checkpoint before
		s := load(t, b)
		if round > 0 && s.Checkpoint != s.Version-1 {
			t.Fatalf("round %d: replay from %d", round, s.Checkpoint)
		}
		if err := log.WriteCheckpoint(t.Context(), b, s, now); err != nil {
			t.Fatal(err)
		}
		s = load(t, b)
		if s.Checkpoint != s.Version {
			t.Fatal("checkpoint not used")
		}
		if diff := cmp.Diff(m, s.Metadata); diff != "" {
			t.Error(diff)
		}
		if !p.Equal(s.Protocol) || s.Txns["a"].Version != 3 || *s.Txns["a"].LastUpdated != long || s.Domains["d"].Configuration != "c" {
			t.Errorf("%+v", s)
		}
		var adds []log.Add
		for a, err := range s.Files(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			adds = append(adds, a)
		}
		if diff := cmp.Diff([]log.Add{wantAdd}, adds); diff != "" {
			t.Error(diff)
		}
		var removes []log.Remove
		for r, err := range s.Tombstones(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			removes = append(removes, r)
		}
		if diff := cmp.Diff(wantRemoves, removes); diff != "" {
			t.Error(diff)
		}
		put(t, b, s.Version+1, `{"commitInfo":{"operation":"NOTHING"}}`)
	}
}

func TestRealCheckpointsSurviveARewrite(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..", "..", "shared", "tables", "delta")
	tables, err := os.ReadDir(root)
	if err != nil {
		t.Skipf("the folder of real tables is not beside this checkout: %s", root)
	}
	for _, table := range tables {
		t.Run(table.Name(), func(t *testing.T) {
			t.Parallel()
			src, err := bucket.Open(t.Context(), filepath.Join(root, table.Name()), nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := log.Load(t.Context(), src, storage.NoVersion)
			if errors.Is(err, storage.ErrRefused) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range s.Files(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				break // a consumer may stop
			}
			for _, err := range s.Tombstones(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			to := bucket.NewMemory()
			if err := log.WriteCheckpoint(t.Context(), to, s, time.UnixMilli(0)); err != nil {
				t.Fatal(err)
			}
			again := load(t, to)
			if diff := cmp.Diff(s.Metadata, again.Metadata); diff != "" || !s.Protocol.Equal(again.Protocol) {
				t.Error(diff)
			}
			if diff := cmp.Diff(files(t, s), files(t, again)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(s.Txns, again.Txns); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func files(t testing.TB, s *log.Snapshot) map[string]log.Add {
	t.Helper()
	out := map[string]log.Add{}
	for a, err := range s.Files(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		a.DataChange = false
		if _, ok := out[a.Path]; ok {
			t.Errorf("a path twice")
		}
		out[a.Path] = a
	}
	return out
}
