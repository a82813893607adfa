package delta_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/deletion"
)

// The reader of these tests shares nothing with the engine but Z85: it replays
// the JSON commits of a directory from version 0, decodes deletion vectors with
// the roaring library, and reads whole files with Arrow.

type liveFile struct {
	path, dv string
	add      map[string]any
}

func replayJSON(t testing.TB, dir string) []liveFile {
	t.Helper()
	commits, err := filepath.Glob(filepath.Join(dir, "_delta_log", strings.Repeat("[0-9]", 20)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(commits)
	if len(commits) == 0 || !strings.HasSuffix(commits[0], strings.Repeat("0", 20)+".json") {
		t.Fatalf("the log of %s does not start at version 0", filepath.Base(dir))
	}
	live := map[[2]string]liveFile{}
	for _, c := range commits {
		var adds, removes []map[string]any
		for _, line := range lines(t, c) {
			var a map[string]map[string]any
			if err := json.Unmarshal(line, &a); err != nil {
				t.Fatal(err)
			}
			if a["add"] != nil {
				adds = append(adds, a["add"])
			}
			if a["remove"] != nil {
				removes = append(removes, a["remove"])
			}
		}
		for _, r := range removes {
			delete(live, testKey(t, r))
		}
		for _, a := range adds {
			k := testKey(t, a)
			live[k] = liveFile{k[0], k[1], a}
		}
	}
	var out []liveFile
	for _, f := range live {
		out = append(out, f)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].path < out[j].path })
	return out
}

func lines(t testing.TB, name string) [][]byte {
	t.Helper()
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	sc := bufio.NewScanner(bytes.NewReader(p))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		if len(bytes.TrimSpace(sc.Bytes())) > 0 {
			out = append(out, bytes.Clone(sc.Bytes()))
		}
	}
	return out
}

func testKey(t testing.TB, a map[string]any) [2]string {
	t.Helper()
	path, err := url.PathUnescape(a["path"].(string))
	if err != nil {
		t.Fatal(err)
	}
	dv := ""
	if d, ok := a["deletionVector"].(map[string]any); ok {
		dv = fmt.Sprint(d["storageType"], d["pathOrInlineDv"], "@", d["offset"])
	}
	return [2]string{strings.TrimPrefix(path, "file:"), dv}
}

func hiddenRows(t testing.TB, dir string, a map[string]any) *roaring64.Bitmap {
	t.Helper()
	out := roaring64.New()
	d, ok := a["deletionVector"].(map[string]any)
	if !ok {
		return out
	}
	text := d["pathOrInlineDv"].(string)
	size := int(d["sizeInBytes"].(float64))
	var payload []byte
	switch d["storageType"] {
	case "i":
		p, err := deletion.DecodeZ85(text)
		if err != nil {
			t.Fatal(err)
		}
		payload = p[:size]
	case "u":
		raw, err := deletion.DecodeZ85(text[len(text)-20:])
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("deletion_vector_%x-%x-%x-%x-%x.bin", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
		payload = framed(t, filepath.Join(dir, text[:len(text)-20], name), int(d["offset"].(float64)), size)
	case "p":
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		payload = framed(t, u.Path, int(d["offset"].(float64)), size)
	}
	if binary.LittleEndian.Uint32(payload) != 1681511377 {
		t.Fatal("deletion vector magic")
	}
	if _, err := out.ReadFrom(bytes.NewReader(payload[4:])); err != nil {
		t.Fatal(err)
	}
	if want := uint64(d["cardinality"].(float64)); out.GetCardinality() != want {
		t.Fatalf("deletion vector has %d rows, its descriptor says %d", out.GetCardinality(), want)
	}
	return out
}

func framed(t testing.TB, name string, offset, size int) []byte {
	t.Helper()
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := int(binary.BigEndian.Uint32(p[offset:])); got != size {
		t.Fatalf("deletion vector frame of %d bytes, descriptor says %d", got, size)
	}
	return p[offset+4 : offset+4+size]
}

// readRows returns the live rows of the table in dir, each as JSON with
// physical names and partition values, sorted.
func readRows(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	for _, f := range replayJSON(t, dir) {
		hidden := hiddenRows(t, dir, f.add)
		for i, row := range fileRows(t, filepath.Join(dir, f.path)) {
			if hidden.Contains(uint64(i)) {
				continue
			}
			for k, v := range f.add["partitionValues"].(map[string]any) {
				row[k] = v
			}
			p, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(p))
		}
	}
	slices.Sort(out)
	return out
}

func fileRows(t testing.TB, name string) []map[string]any {
	t.Helper()
	r, err := file.OpenParquetFile(name, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	fr, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: 1024}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	rr, err := fr.GetRecordReader(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rr.Release()
	var out []map[string]any
	for rr.Next() {
		rec := rr.RecordBatch()
		for i := range int(rec.NumRows()) {
			row := map[string]any{}
			for c, f := range rec.Schema().Fields() {
				row[f.Name] = rec.Column(c).GetOneForMarshal(i)
			}
			out = append(out, row)
		}
	}
	if err := rr.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// realTable copies a table of another writer and opens its directory.
func realTable(t testing.TB, name string) (string, *bucket.Bucket) {
	t.Helper()
	root := filepath.Join("..", "..", "..", "shared", "tables", "delta")
	if own := filepath.Join("testdata", name); exists(own) {
		root = "testdata"
	} else if !exists(root) {
		t.Skipf("the folder of real tables is not beside this checkout: %s", root)
	} else if !exists(filepath.Join(root, name)) {
		t.Skipf("no table %s in %s", name, root)
	}
	dir := t.TempDir()
	copyTree(t, filepath.Join(root, name), dir)
	return dir, openDir(t, dir)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func openDir(t testing.TB, dir string) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func copyTree(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		p, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), p, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func subject(column string, values ...string) storage.Subject {
	var s storage.Subject
	for _, v := range values {
		s.Keys = append(s.Keys, storage.Key{Column: column, Value: storage.NewSecret(v)})
	}
	return s
}
