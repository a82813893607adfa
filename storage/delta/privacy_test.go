package delta_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
	"delenda/storage/storagetest"
)

// contents maps the objects of a directory to their bytes.
func contents(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p, err := os.ReadFile(path)
		out[path] = p
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// plainText gives the values of a Parquet checkpoint as text, so that
// compression hides nothing.
func plainText(t testing.TB, name string, p []byte) []byte {
	t.Helper()
	if !strings.HasSuffix(name, ".parquet") {
		return p
	}
	r, err := file.NewParquetReader(bytes.NewReader(p))
	if err != nil {
		t.Fatal(err)
	}
	fr, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: 1024}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	rr, err := fr.GetRecordReader(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rr.Release()
	for rr.Next() {
		text, err := rr.RecordBatch().MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		p = append(p, text...)
	}
	return p
}

func TestNothingThatADeleteWritesHoldsAnIdentity(t *testing.T) {
	t.Parallel()
	const email, phone, id = "aaa-first@example.org", "+31205550147", "4815162342"
	for _, tt := range []struct {
		name       string
		properties map[string]string
	}{
		{"commits only", nil},
		{"commits and checkpoints", map[string]string{"delta.checkpointInterval": "1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			h := newPeople(t, openDir(t, dir), tt.properties)
			text := func(s string) *string { return &s }
			// The subject's values are minimum and maximum of two files.
			h.Append(t, storagetest.Row{ID: 4815162342, Email: text(email), Phone: text(phone), Region: "north"}, storagetest.Row{ID: 5, Email: text("bob@example.org"), Region: "north"})
			h.Append(t, storagetest.Row{ID: 6, Email: text("eve@example.org"), Region: "north"}, storagetest.Row{ID: 4815162342, Email: text(email), Region: "north"})
			h.Append(t, storagetest.Row{ID: 4815162342, Email: text(email), Region: "south"})
			before := contents(t, dir)
			d := storage.Deletion{Batch: storage.Batch{App: "delenda/test/people", Number: 3, Base: h.version(t)}, Subjects: []storage.Subject{
				{Keys: append(subject("email", email).Keys, append(subject("contact.phone", phone).Keys, subject("id", id).Keys...)...)},
			}}
			got, err := h.Open(t).Delete(t.Context(), d)
			if err != nil || got.Subjects[0].Rows != 3 {
				t.Fatalf("%+v, %v", got, err)
			}
			written := 0
			for name, p := range contents(t, dir) {
				if old, ok := before[name]; ok && bytes.Equal(old, p) {
					continue
				}
				written++
				p = plainText(t, name, p)
				for _, identity := range []string{email, phone, id} {
					if bytes.Contains(p, []byte(identity)) {
						t.Errorf("%s holds an identity", filepath.Base(name))
					}
				}
			}
			if written < 2 {
				t.Errorf("only %d objects written", written)
			}
		})
	}
}

func TestErrorsDoNotQuoteKeys(t *testing.T) {
	t.Parallel()
	h := newPeople(t, bucket.NewMemory(), nil)
	const secret = "q9x-secret"
	got, err := h.Open(t).Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("id", secret)}})
	if err != nil || got.Subjects[0].State != storage.SubjectInvalid || strings.Contains(got.Subjects[0].Reason, secret) {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = h.Open(t).Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("score", secret)}})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
}

func TestConfiguredIdentityColumnsHaveNoBoundsInOurAdds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newPeople(t, openDir(t, dir), nil)
	h.o.IdentityColumns = []string{"email"}
	text := func(s string) *string { return &s }
	h.Append(t, storagetest.Row{ID: 1, Email: text("a@example.org"), Region: "n"}, storagetest.Row{ID: 2, Email: text("b@example.org"), Region: "n"})
	got, err := h.Open(t).Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("id", "2")}})
	if err != nil {
		t.Fatal(err)
	}
	stats := statsOf(t, dir, got.Version)
	if stats["minValues"] != nil || stats["maxValues"] != nil {
		t.Errorf("bounds of identity columns: %v", stats)
	}
	nulls := stats["nullCount"].(map[string]any)
	if stats["numRecords"] != float64(2) || nulls["email"] != float64(0) {
		t.Errorf("%v", stats)
	}
}

// statsOf returns the statistics of the only add of a commit.
func statsOf(t testing.TB, dir string, v storage.Version) map[string]any {
	t.Helper()
	for _, a := range commitActions(t, dir, v) {
		if add := a["add"]; add != nil {
			var stats map[string]any
			if err := json.Unmarshal([]byte(add["stats"].(string)), &stats); err != nil {
				t.Fatal(err)
			}
			return stats
		}
	}
	t.Fatal("no add")
	return nil
}

func commitActions(t testing.TB, dir string, v storage.Version) []map[string]map[string]any {
	t.Helper()
	var out []map[string]map[string]any
	for _, line := range lines(t, filepath.Join(dir, "_delta_log", commitName(v))) {
		var a map[string]map[string]any
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

func TestAddsAndRemovesKeepWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newPeople(t, openDir(t, dir), nil)
	upgrade(t, h, []string{"deletionVectors"}, []string{"deletionVectors", "rowTracking", "domainMetadata", "clustering", "inCommitTimestamp"},
		map[string]string{"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"},
		map[string]any{"domainMetadata": map[string]any{"domain": "delta.clustering", "configuration": `{"clusteringColumns":[["email"],["id"]]}`, "removed": false}})
	text := func(s string) *string { return &s }
	h.commit(t, "WRITE", func(string) []map[string]any {
		out := h.write(t, []storagetest.Row{
			{ID: 1, Email: text("aaa@example.org"), Region: "n"},
			{ID: 2, Email: text("bob@example.org"), Region: "n"},
			{ID: 3, Email: text("eve@example.org"), Region: "n"},
			{ID: 4, Email: text("zoe@example.org"), Region: "n"},
		})
		add := out[0]["add"].(map[string]any)
		add["baseRowId"], add["defaultRowCommitVersion"], add["clusteringProvider"] = 100, 2, "liquid"
		return out
	})
	clock := time.UnixMilli(1_000) // behind the commits that are there
	got, err := h.Open(t).Delete(t.Context(), storage.Deletion{
		Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("email", "aaa@example.org", "zoe@example.org")},
		Now: func() time.Time { return clock },
	})
	if err != nil {
		t.Fatal(err)
	}
	actions := commitActions(t, dir, got.Version)
	if ict := actions[0]["commitInfo"]["inCommitTimestamp"]; ict != float64(1_700_000_000_000+2+1) {
		t.Errorf("inCommitTimestamp %v is not one above the commit before", ict)
	}
	for _, a := range actions {
		for _, kind := range []string{"add", "remove"} {
			if f := a[kind]; f != nil && (f["baseRowId"] != float64(100) || f["defaultRowCommitVersion"] != float64(2)) {
				t.Errorf("%s lost its row tracking: %v", kind, f)
			}
		}
		if f := a["add"]; f != nil && (f["clusteringProvider"] != "liquid" || f["tags"].(map[string]any)["writer"] != "another" || f["modificationTime"] != float64(1_700_000_000_000)) {
			t.Errorf("add: %v", f)
		}
	}
	stats := statsOf(t, dir, got.Version)
	low, high := stats["minValues"].(map[string]any), stats["maxValues"].(map[string]any)
	if low["email"] != "bob@example.org" || high["email"] != "eve@example.org" || low["id"] != float64(1) || high["id"] != float64(4) {
		t.Errorf("bounds of clustering columns: %v %v", low, high)
	}
	if !bytes.Contains(mustJSON(t, actions), []byte(`"operationParameters":{}`)) {
		t.Error("operationParameters are not empty")
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	p, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// upgrade commits another protocol and properties.
func upgrade(t testing.TB, h *peopleHost, readers, writers []string, properties map[string]string, more ...map[string]any) {
	t.Helper()
	h.commit(t, "UPGRADE", func(dir string) []map[string]any {
		var m map[string]any
		for _, a := range commitActions(t, dir, 0) {
			if a["metaData"] != nil {
				m = a["metaData"]
			}
		}
		for k, v := range properties {
			m["configuration"].(map[string]any)[k] = v
		}
		return append([]map[string]any{
			{"protocol": map[string]any{"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": writers}},
			{"metaData": m},
		}, more...)
	})
}

func TestWhatATableForbidsIsRefusedByName(t *testing.T) {
	t.Parallel()
	dv := []string{"deletionVectors"}
	for _, tt := range []struct {
		name             string
		readers, writers []string
		properties       map[string]string
		code, text       string
	}{
		{"append-only", dv, []string{"deletionVectors", "appendOnly"}, map[string]string{"delta.appendOnly": "true"}, "append_only", "delta.appendOnly"},
		{"append-only set but not supported does not count", dv, dv, map[string]string{"delta.appendOnly": "true"}, "", ""},
		{"vectors supported but not enabled", dv, dv, map[string]string{"delta.enableDeletionVectors": "false"}, "deletion_vectors_disabled", "delta.enableDeletionVectors"},
		{"UniForm", dv, []string{"deletionVectors", "icebergCompatV3"}, map[string]string{"delta.universalFormat.enabledFormats": "hudi, iceberg"}, "universal_format", "Iceberg"},
		{"Iceberg compatibility", dv, []string{"deletionVectors", "icebergCompatV2"}, map[string]string{"delta.enableIcebergCompatV2": "true"}, "iceberg_compat", "icebergCompatV2"},
		{"coordinated commits", dv, []string{"deletionVectors", "coordinatedCommits-preview"}, nil, "catalog_managed", "coordinatedCommits-preview"},
		{"redirect", []string{"deletionVectors", "redirectReaderWriter-preview"}, []string{"deletionVectors", "redirectReaderWriter-preview"}, nil, "redirected", "redirectReaderWriter-preview"},
		{"adaptive metadata", []string{"adaptiveMetadata"}, []string{"adaptiveMetadata"}, nil, "adaptive_metadata", "adaptiveMetadata"},
		{"unknown reader feature", []string{"deletionVectors", "tomorrow"}, []string{"deletionVectors", "tomorrow"}, nil, "unsupported_reader_feature", "tomorrow"},
		{"unknown writer feature", dv, []string{"deletionVectors", "tomorrow"}, nil, "unsupported_writer_feature", "tomorrow"},
		{
			"everything that needs nothing",
			[]string{"deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "timestampNtz", "typeWidening", "columnMapping"},
			[]string{"deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "timestampNtz", "typeWidening", "columnMapping", "invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults", "identityColumns", "changeDataFeed", "rowTracking", "domainMetadata", "checkpointProtection", "materializePartitionColumns", "collations"},
			map[string]string{"delta.enableChangeDataFeed": "true"},
			"", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newPeople(t, bucket.NewMemory(), nil)
			h.Append(t, storagetest.Row{ID: 1, Region: "n"}, storagetest.Row{ID: 2, Region: "n"})
			upgrade(t, h, tt.readers, tt.writers, tt.properties)
			before := len(h.objects(t))
			table := h.Open(t)
			_, err := table.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("id", "1")}})
			if tt.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, err := range []error{err, table.Bind(t.Context(), []string{"id"})} {
				var r *storage.Refusal
				if !asRefusal(err, &r) || r.Code != tt.code || !strings.Contains(r.Reason, tt.text) {
					t.Errorf("got %v", err)
				}
			}
			if len(h.objects(t)) != before {
				t.Error("a refused table changed")
			}
		})
	}
}

func (h *peopleHost) objects(t testing.TB) []string {
	t.Helper()
	var out []string
	for info, err := range h.b.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, info.Key)
	}
	return out
}

func TestDeletionVectorsAreEnabledOnlyOnRequest(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"spark-no-dv", "deltars-plain", "deltars-partitioned", "table-with-columnmapping-mode-id", "table-with-columnmapping-mode-name", "cdf-table", "app-txn-checkpoint"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, b := realTable(t, name)
			rows := readRows(t, dir)
			v, err := delta.EnableDeletionVectors(t.Context(), b, nil)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := delta.EnableDeletionVectors(t.Context(), b, nil); err != nil || again != v {
				t.Errorf("again: %d, %v; want %d", again, err, v)
			}
			if left, _ := minus(rows, readRows(t, dir)); len(left) != 0 {
				t.Error("rows changed")
			}
			column := map[string]string{"table-with-columnmapping-mode-id": "LongType", "table-with-columnmapping-mode-name": "LongType", "cdf-table": "id", "app-txn-checkpoint": "value"}[name]
			value := "1"
			if column == "" {
				column = "customer_id"
			}
			table, err := delta.Open(t.Context(), b, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := table.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1, Base: v}, Subjects: []storage.Subject{subject(column, value)}})
			if err != nil || got.Subjects[0].Rows == 0 {
				t.Fatalf("%+v, %v", got, err)
			}
			gone, contained := minus(rows, readRows(t, dir))
			if !contained || int64(len(gone)) != got.Subjects[0].Rows {
				t.Errorf("%d rows gone, %+v", len(gone), got)
			}
		})
	}
}
