package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"delenda/sharing"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"

	"github.com/google/go-cmp/cmp"
)

var expiry = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func signTest(_ context.Context, key string) (storage.SignedURL, error) {
	at := expiry
	if strings.HasSuffix(key, ".bin") {
		at = expiry.Add(-time.Minute)
	}
	return storage.NewSignedURL("https://h/"+key+"?a=1&b=2", at), nil
}

func prepare(t *testing.T, state storage.Bucket, source Source) (*Manifests, *Manifest) {
	t.Helper()
	m := NewManifests(state, testKeys(t), 10)
	manifest, _, err := m.Prepare(t.Context(), "customers", source, storage.NoVersion)
	if err != nil {
		t.Fatal(err)
	}
	return m, manifest
}

func TestAManifestStreamsTheFilesOfItsVersion(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 3)
	tb.erase(t, 1)
	m, manifest := prepare(t, bucket.NewMemory(), tb.source())
	if manifest.NumFiles != 3 || manifest.Vectors != 1 || manifest.SizeBytes != 303 || !slices.Equal(manifest.Required, []string{"deletionVectors"}) {
		t.Errorf("got %+v", manifest)
	}
	var out bytes.Buffer
	streamed, err := m.Stream(t.Context(), &out, manifest, StreamOptions{Format: sharing.FormatDelta, Sign: signTest})
	if err != nil {
		t.Fatal(err)
	}
	if streamed.Files != 3 || !streamed.ExpiresAt.Equal(expiry.Add(-time.Minute)) {
		t.Errorf("got %+v", streamed)
	}
	byID := map[string]*sharing.FileLine{}
	dec := sharing.NewDecoder(&out, 0)
	for range 3 {
		line, err := dec.Next()
		if err != nil {
			t.Fatal(err)
		}
		byID[line.File.ID] = line.File
	}
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	plain, erased := byID[sum("part-00000.parquet")], byID[sum("part-00001.parquet")]
	if plain == nil || erased == nil {
		t.Fatalf("ids are not SHA-256 of the paths: %v", byID)
	}
	if plain.DeletionVectorFileID != "" || plain.Action.Add.DeletionVector != nil || plain.Action.Add.Path != "https://h/part-00000.parquet?a=1&b=2" {
		t.Errorf("got %+v", plain.Action.Add)
	}
	dv := deletion.NewDescriptor("", [16]byte{1, 1}, deletion.Placement{Offset: 1, SizeInBytes: 34}, 2)
	key, _ := dv.Key()
	if want := sum(dv.UniqueID()); erased.DeletionVectorFileID != want {
		t.Errorf("deletionVectorFileId %q, want %q", erased.DeletionVectorFileID, want)
	}
	if got := *erased.ExpirationTimestamp; got != expiry.Add(-time.Minute).UnixMilli() {
		t.Errorf("expirationTimestamp %d does not count the deletion vector's URL", got)
	}
	one := int32(1)
	want := &sharing.DeletionVector{StorageType: "p", PathOrInlineDV: "https://h/" + key + "?a=1&b=2", Offset: &one, SizeBytes: 34, Cardinality: 2}
	if d := cmp.Diff(want, erased.Action.Add.DeletionVector); d != "" {
		t.Error(d)
	}
}

func TestStatisticsOfIdentityColumnsTagsAndForeignPropertiesStayAtHome(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 1)
	secret := "tag-secret"
	add := testAdd(7)
	add.Tags = map[string]*string{"k": &secret}
	tb.commit(t, "WRITE", log.Action{Add: add})
	state := bucket.NewMemory()
	m, manifest := prepare(t, state, tb.source())
	var out bytes.Buffer
	for _, format := range []sharing.ResponseFormat{sharing.FormatDelta, sharing.FormatParquet} {
		enc := sharing.NewEncoder(&out)
		if err := errors.Join(enc.Encode(manifest.ProtocolLine(format)), enc.Encode(manifest.MetaDataLine(format))); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Stream(t.Context(), &out, manifest, StreamOptions{Format: format, Sign: signTest}); err != nil {
			t.Fatal(err)
		}
	}
	for _, secret := range []string{"alice", "zoe", "tag-secret", "hunter2", "my.password", "secret"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q left in\n%s", secret, out.String())
		}
	}
	for _, kept := range []string{`\"numRecords\":10`, `Aachen`, `\"nullCount\":{\"customer_id\":0,\"city\":1}`} {
		if !strings.Contains(out.String(), kept) {
			t.Errorf("%q is missing from\n%s", kept, out.String())
		}
	}
	// At rest nothing is in clear.
	for info, err := range state.List(t.Context(), manifestPrefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		p, err := storage.ReadObject(t.Context(), state, info.Key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(p, []byte("part-0000")) || bytes.Contains(p, []byte("Aachen")) {
			t.Errorf("%s is not encrypted", info.Key)
		}
	}
}

func TestFileIDsFollowTheHashThatWasAskedFor(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 1)
	m, manifest := prepare(t, bucket.NewMemory(), tb.source())
	for _, c := range []struct {
		format, hash sharing.ResponseFormat
		length       int
	}{
		{sharing.FormatParquet, "", 32},
		{sharing.FormatDelta, "", 64},
		{sharing.FormatParquet, sharing.FormatDelta, 64},
		{sharing.FormatDelta, sharing.FormatParquet, 32},
	} {
		var out bytes.Buffer
		if _, err := m.Stream(t.Context(), &out, manifest, StreamOptions{Format: c.format, IDHash: c.hash, Sign: signTest}); err != nil {
			t.Fatal(err)
		}
		line, err := sharing.NewDecoder(&out, 0).Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(line.File.ID) != c.length {
			t.Errorf("%s by %q: id of %d characters, want %d", c.format, c.hash, len(line.File.ID), c.length)
		}
	}
}

func TestALimitEndsTheAnswerWhenEnoughLiveRowsAreCovered(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 5)
	tb.erase(t, 0) // its file comes first and has 8 live rows
	m, manifest := prepare(t, bucket.NewMemory(), tb.source())
	for limit, want := range map[int64]int64{0: 5, -1: 5, 1: 1, 8: 1, 9: 2, 18: 2, 19: 3, 1000: 5} {
		var out bytes.Buffer
		got, err := m.Stream(t.Context(), &out, manifest, StreamOptions{Format: sharing.FormatDelta, Limit: limit, Sign: signTest})
		if err != nil || got.Files != want || int64(len(lines(&out))) != want {
			t.Errorf("limit %d: %d files, %v, want %d", limit, got.Files, err, want)
		}
	}
}

func TestAFileWithADeletionVectorIsNeverShownInParquetFormat(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 2)
	tb.erase(t, 0)
	m, manifest := prepare(t, bucket.NewMemory(), tb.source())
	var out bytes.Buffer
	if _, err := m.Stream(t.Context(), &out, manifest, StreamOptions{Format: sharing.FormatParquet, Sign: signTest}); !errors.Is(err, ErrVectorInParquet) {
		t.Errorf("got %v and %s", err, out.String())
	}
}

func TestAnInlineDeletionVectorPassesThrough(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 0)
	add := testAdd(0)
	add.DeletionVector = &deletion.Descriptor{StorageType: "i", PathOrInlineDV: "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: 40, Cardinality: 6}
	tb.commit(t, "WRITE", log.Action{Add: add})
	m, manifest := prepare(t, bucket.NewMemory(), tb.source())
	var out bytes.Buffer
	if _, err := m.Stream(t.Context(), &out, manifest, StreamOptions{Format: sharing.FormatDelta, Sign: signTest}); err != nil {
		t.Fatal(err)
	}
	line, err := sharing.NewDecoder(&out, 0).Next()
	if err != nil {
		t.Fatal(err)
	}
	want := &sharing.DeletionVector{StorageType: "i", PathOrInlineDV: add.DeletionVector.PathOrInlineDV, SizeBytes: 40, Cardinality: 6}
	if d := cmp.Diff(want, line.File.Action.Add.DeletionVector); d != "" || line.File.DeletionVectorFileID != "" {
		t.Errorf("id %q, %s", line.File.DeletionVectorFileID, d)
	}
}

func TestWhatLiesOutsideTheTableIsRefused(t *testing.T) {
	t.Parallel()
	absolute := testAdd(0)
	absolute.Path = "file:///elsewhere/part.parquet"
	vector := testAdd(1)
	vector.DeletionVector = &deletion.Descriptor{StorageType: "p", PathOrInlineDV: "s3://other/dv.bin", SizeInBytes: 4, Cardinality: 1}
	for name, add := range map[string]*log.Add{"a data file": absolute, "a deletion vector": vector} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tb := newTable(t, 0)
			tb.commit(t, "WRITE", log.Action{Add: add})
			_, _, err := NewManifests(bucket.NewMemory(), testKeys(t), 1).Prepare(t.Context(), "customers", tb.source(), storage.NoVersion)
			if !errors.Is(err, storage.ErrRefused) {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}

func TestATableWithoutAnIdentityColumnIsRefused(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 1)
	source := tb.source()
	source.IdentityColumns = []string{"email"}
	_, _, err := NewManifests(bucket.NewMemory(), testKeys(t), 1).Prepare(t.Context(), "customers", source, storage.NoVersion)
	if !errors.Is(err, storage.ErrRefused) {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestOtherIdentityColumnsNeverFindAnOlderManifest(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 1)
	state := bucket.NewMemory()
	_, before := prepare(t, state, Source{Bucket: tb.bucket})
	_, after := prepare(t, state, tb.source())
	if before.Key == after.Key {
		t.Errorf("both are at %s", before.Key)
	}
}

// Fields of a manifest survive the store, so that a replica that did not build
// it gives byte for byte the same answer.
func TestALoadedManifestIsTheOneThatWasBuilt(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 3)
	tb.erase(t, 0)
	state := bucket.NewMemory()
	_, built := prepare(t, state, tb.source())
	loaded, err := NewManifests(state, testKeys(t), 1).Load(t.Context(), built.Key)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(built, loaded); d != "" {
		t.Error(d)
	}
	text, err := json.Marshal(loaded.MetaDataLine(sharing.FormatDelta))
	if err != nil || !strings.Contains(string(text), `"format":{"provider":"parquet","options":{}}`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestAManifestIsWholeOrAbsentWhateverGoesWrong(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 40)
	for _, mode := range fault.Modes() {
		for n := 1; ; n++ {
			state := bucket.NewMemory()
			f := fault.Wrap(state)
			f.Arm(mode, n)
			_, _, err := NewManifests(f, testKeys(t), 1).Prepare(t.Context(), "customers", tb.source(), storage.NoVersion)
			if !f.Struck() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			// A restart ends well, and sees all files.
			m, manifest := prepare(t, state, tb.source())
			var out bytes.Buffer
			got, err := m.Stream(t.Context(), &out, manifest, StreamOptions{Format: sharing.FormatDelta, Sign: signTest})
			if err != nil || got.Files != 40 {
				t.Errorf("%v at %d: %d files, %v", mode, n, got.Files, err)
			}
		}
	}
}

func TestATableThatCannotBeReadLeavesNoManifest(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 3)
	f := fault.Wrap(tb.bucket)
	for n := 1; n < 100; n++ {
		state := bucket.NewMemory()
		f.Reset()
		f.Arm(fault.Fail, n)
		source := tb.source()
		source.Bucket = f
		_, _, err := NewManifests(state, testKeys(t), 1).Prepare(t.Context(), "customers", source, storage.NoVersion)
		if !f.Struck() {
			return
		}
		if err == nil {
			continue // a hint that cannot be read is no loss
		}
		for info, err := range state.List(t.Context(), manifestPrefix, "") {
			t.Fatalf("%s was written, %v", info.Key, err)
		}
	}
	t.Error("the sweep did not end")
}

func BenchmarkStream(b *testing.B) {
	for _, files := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("%d files", files), func(b *testing.B) {
			tb := newTable(b, files)
			m := NewManifests(bucket.NewMemory(), testKeys(b), 1)
			manifest, _, err := m.Prepare(b.Context(), "customers", tb.source(), storage.NoVersion)
			if err != nil {
				b.Fatal(err)
			}
			var out bytes.Buffer
			for b.Loop() {
				out.Reset()
				if _, err := m.Stream(b.Context(), &out, manifest, StreamOptions{Format: sharing.FormatDelta, Sign: signTest}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(files)/b.Elapsed().Seconds(), "files/s")
		})
	}
}
