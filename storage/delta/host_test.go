package delta_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/uuid"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/deletion"
	"delenda/storage/delta"
	"delenda/storage/storagetest"
)

const peopleSchema = `{"type":"struct","fields":[` +
	`{"name":"id","type":"long","nullable":true,"metadata":{}},` +
	`{"name":"email","type":"string","nullable":true,"metadata":{}},` +
	`{"name":"contact","type":{"type":"struct","fields":[{"name":"phone","type":"string","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},` +
	`{"name":"region","type":"string","nullable":true,"metadata":{}},` +
	`{"name":"score","type":"double","nullable":true,"metadata":{}}]}`

// peopleHost is a table of the conformance suite. Its other writers write
// Parquet with Arrow, deletion vectors with the roaring library, and commits by
// hand.
type peopleHost struct {
	b     storage.Bucket // of the other writers
	table storage.Bucket // of the table under test
	o     delta.Options
	// statless lets Append write no statistics.
	statless bool

	mu     sync.Mutex
	dir    string
	copied map[string]bool
}

func newPeople(t testing.TB, b storage.Bucket, properties map[string]string) *peopleHost {
	t.Helper()
	_, err := delta.Create(context.Background(), b, delta.Definition{Schema: peopleSchema, PartitionColumns: []string{"region"}, Properties: properties}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &peopleHost{b: b, table: b, o: delta.Options{Attempts: 4, Workers: 2}}
}

func (h *peopleHost) Open(t testing.TB) storage.Table {
	t.Helper()
	table, err := delta.Open(context.Background(), h.table, &h.o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// dump copies the table to a directory, for the independent reader. Objects do
// not change, so that those that were copied before are not copied again.
func (h *peopleHost) dump(t testing.TB) string {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.copied == nil {
		h.copied = map[string]bool{}
		h.dir = t.TempDir()
	}
	dir := h.dir
	for info, err := range h.b.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if h.copied[info.Key] {
			continue
		}
		h.copied[info.Key] = true
		p, err := storage.ReadObject(context.Background(), h.b, info.Key, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(info.Key))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (h *peopleHost) Rows(t testing.TB) []storagetest.Row {
	t.Helper()
	dir := h.dump(t)
	var out []storagetest.Row
	for _, f := range replayJSON(t, dir) {
		hidden := hiddenRows(t, dir, f.add)
		for i, m := range fileRows(t, filepath.Join(dir, f.path)) {
			if !hidden.Contains(uint64(i)) {
				out = append(out, peopleRow(m, f.add))
			}
		}
	}
	return out
}

func peopleRow(m, add map[string]any) storagetest.Row {
	p, _ := json.Marshal(m)
	var v struct {
		ID      int64
		Email   *string
		Contact *struct{ Phone *string }
	}
	_ = json.Unmarshal(p, &v)
	r := storagetest.Row{ID: v.ID, Email: v.Email}
	if v.Contact != nil {
		r.Phone = v.Contact.Phone
	}
	r.Region, _ = add["partitionValues"].(map[string]any)["region"].(string)
	return r
}

func (h *peopleHost) Append(t testing.TB, rows ...storagetest.Row) {
	t.Helper()
	h.commit(t, "WRITE", func(string) []map[string]any { return h.write(t, rows) })
}

// write puts one file per region and returns the adds.
func (h *peopleHost) write(t testing.TB, rows []storagetest.Row) []map[string]any {
	t.Helper()
	byRegion := map[string][]storagetest.Row{}
	for _, r := range rows {
		byRegion[r.Region] = append(byRegion[r.Region], r)
	}
	var out []map[string]any
	for _, region := range slices.Sorted(maps.Keys(byRegion)) {
		part := byRegion[region]
		p := peopleFile(t, part)
		key := "region=" + url.PathEscape(region) + "/part-" + uuid.NewString() + ".parquet"
		if err := h.b.Put(context.Background(), key, bytes.NewReader(p), storage.PutOptions{IfAbsent: true}); err != nil {
			t.Fatal(err)
		}
		add := map[string]any{
			"path": (&url.URL{Path: key}).EscapedPath(), "partitionValues": map[string]any{"region": region}, "size": len(p),
			"modificationTime": 1_700_000_000_000, "dataChange": true, "tags": map[string]any{"writer": "another"},
		}
		if !h.statless {
			add["stats"] = peopleStats(part)
		}
		out = append(out, map[string]any{"add": add})
	}
	return out
}

func peopleStats(rows []storagetest.Row) string {
	low, high := rows[0].ID, rows[0].ID
	var emails []string
	for _, r := range rows {
		low, high = min(low, r.ID), max(high, r.ID)
		if r.Email != nil {
			emails = append(emails, *r.Email)
		}
	}
	s := map[string]any{
		"numRecords": len(rows), "minValues": map[string]any{"id": low}, "maxValues": map[string]any{"id": high},
		"nullCount": map[string]any{"id": 0, "email": len(rows) - len(emails)},
	}
	if len(emails) > 0 {
		s["minValues"].(map[string]any)["email"] = slices.Min(emails)
		s["maxValues"].(map[string]any)["email"] = slices.Max(emails)
	}
	p, _ := json.Marshal(s)
	return string(p)
}

func peopleFile(t testing.TB, rows []storagetest.Row) []byte {
	t.Helper()
	opt := func(name string, dt arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: dt, Nullable: true}
	}
	sc := arrow.NewSchema([]arrow.Field{
		opt("id", arrow.PrimitiveTypes.Int64), opt("email", arrow.BinaryTypes.String),
		opt("contact", arrow.StructOf(opt("phone", arrow.BinaryTypes.String))), opt("score", arrow.PrimitiveTypes.Float64),
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	defer b.Release()
	text := func(sb *array.StringBuilder, s *string) {
		if s == nil {
			sb.AppendNull()
		} else {
			sb.Append(*s)
		}
	}
	for _, r := range rows {
		b.Field(0).(*array.Int64Builder).Append(r.ID)
		text(b.Field(1).(*array.StringBuilder), r.Email)
		st := b.Field(2).(*array.StructBuilder)
		st.Append(true)
		text(st.FieldBuilder(0).(*array.StringBuilder), r.Phone)
		b.Field(3).(*array.Float64Builder).Append(float64(r.ID) / 2)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	var buf bytes.Buffer
	w, err := pqarrow.NewFileWriter(sc, &buf, parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(1000)), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteBuffered(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func (h *peopleHost) Hide(t testing.TB, id int64) {
	t.Helper()
	h.vectors(t, func(hidden *roaring64.Bitmap, rows []map[string]any, add map[string]any) {
		for i, m := range rows {
			if peopleRow(m, add).ID == id {
				hidden.Add(uint64(i))
			}
		}
	})
}

func (h *peopleHost) Restore(t testing.TB) {
	t.Helper()
	h.vectors(t, func(hidden *roaring64.Bitmap, _ []map[string]any, _ map[string]any) { hidden.Clear() })
}

// vectors gives files other deletion vectors in one commit; adds come before
// removes, in the file, as some writers have it.
func (h *peopleHost) vectors(t testing.TB, change func(hidden *roaring64.Bitmap, rows []map[string]any, add map[string]any)) {
	t.Helper()
	h.commit(t, "DELETE", func(dir string) []map[string]any {
		var out []map[string]any
		for _, f := range replayJSON(t, dir) {
			rows := fileRows(t, filepath.Join(dir, f.path))
			old := hiddenRows(t, dir, f.add)
			now := old.Clone()
			change(now, rows, f.add)
			if now.Equals(old) {
				continue
			}
			if int(now.GetCardinality()) < len(rows) {
				add := maps.Clone(f.add)
				delete(add, "deletionVector")
				if !now.IsEmpty() {
					add["deletionVector"] = h.putVector(t, now)
					add["stats"] = fmt.Sprintf(`{"numRecords":%d,"tightBounds":false}`, len(rows))
				}
				out = append(out, map[string]any{"add": add})
			}
			out = append(out, map[string]any{"remove": removeAction(f.add)})
		}
		return out
	})
}

func removeAction(add map[string]any) map[string]any {
	r := map[string]any{
		"path": add["path"], "deletionTimestamp": 1_800_000_000_000, "dataChange": true, "extendedFileMetadata": true,
		"partitionValues": add["partitionValues"], "size": add["size"],
	}
	if add["deletionVector"] != nil {
		r["deletionVector"] = add["deletionVector"]
	}
	return r
}

func (h *peopleHost) putVector(t testing.TB, rows *roaring64.Bitmap) map[string]any {
	t.Helper()
	var bm bytes.Buffer
	if _, err := rows.WriteTo(&bm); err != nil {
		t.Fatal(err)
	}
	payload := binary.LittleEndian.AppendUint32(nil, 1681511377)
	payload = append(payload, bm.Bytes()...)
	file := []byte{1}
	file = binary.BigEndian.AppendUint32(file, uint32(len(payload)))
	file = append(file, payload...)
	file = binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(payload))
	id := uuid.New()
	if err := h.b.Put(context.Background(), "deletion_vector_"+id.String()+".bin", bytes.NewReader(file), storage.PutOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
	z, err := deletion.EncodeZ85(id[:])
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"storageType": "u", "pathOrInlineDv": z, "offset": 1, "sizeInBytes": len(payload), "cardinality": rows.GetCardinality()}
}

func (h *peopleHost) Compact(t testing.TB) {
	t.Helper()
	h.commit(t, "OPTIMIZE", func(dir string) []map[string]any {
		var rows []storagetest.Row
		var out []map[string]any
		for _, f := range replayJSON(t, dir) {
			hidden := hiddenRows(t, dir, f.add)
			for i, m := range fileRows(t, filepath.Join(dir, f.path)) {
				if !hidden.Contains(uint64(i)) {
					rows = append(rows, peopleRow(m, f.add))
				}
			}
			r := removeAction(f.add)
			r["dataChange"] = false
			out = append(out, map[string]any{"remove": r})
		}
		for _, a := range h.write(t, rows) {
			a["add"].(map[string]any)["dataChange"] = false
			out = append(out, a)
		}
		return out
	})
}

// commit puts the actions as the next version, again if another was faster.
func (h *peopleHost) commit(t testing.TB, operation string, build func(dir string) []map[string]any) {
	t.Helper()
	for {
		dir := h.dump(t)
		commits, err := filepath.Glob(filepath.Join(dir, "_delta_log", strings.Repeat("[0-9]", 20)+".json"))
		if err != nil {
			t.Fatal(err)
		}
		version := len(commits)
		actions := append([]map[string]any{{"commitInfo": map[string]any{
			"timestamp": 1_700_000_000_000, "inCommitTimestamp": 1_700_000_000_000 + version, "operation": operation,
			"operationParameters": map[string]any{"mode": "Append", "nested": []int{1}}, "txnId": uuid.NewString(),
		}}}, build(dir)...)
		var buf bytes.Buffer
		for _, a := range actions {
			p, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			buf.Write(append(p, '\n'))
		}
		err = h.b.Put(context.Background(), fmt.Sprintf("_delta_log/%020d.json", version), &buf, storage.PutOptions{IfAbsent: true})
		if errors.Is(err, storage.ErrExists) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

func memoryPeople(t testing.TB) storagetest.Host {
	t.Helper()
	return newPeople(t, bucket.NewMemory(), nil)
}

func filePeople(t testing.TB) storagetest.Host {
	t.Helper()
	return newPeople(t, openDir(t, t.TempDir()), nil)
}
