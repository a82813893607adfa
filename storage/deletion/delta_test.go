package deletion

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"delenda/storage"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// goldens are sets whose encodings are kept in testdata.
func goldens() map[string]*Set {
	scattered, runs, dense := New(), New(), New()
	for i := range int64(3000) {
		scattered.Add(i * 997)
		runs.Add(i)
		runs.Add(100_000 + i)
	}
	for i := range int64(10_000) {
		dense.Add(i * 3)
	}
	return map[string]*Set{
		"empty": New(), "one-row": New(7), "two-blocks": New(1, 2, 65_536), "high": New(0, 1<<32, 1<<32+5, 1<<40),
		"scattered": scattered, "runs": runs, "dense": dense,
	}
}

func TestPayloadsMatchTheGoldenBytes(t *testing.T) {
	t.Parallel()
	for name, s := range goldens() {
		path := filepath.Join("testdata", name+".payload")
		got := EncodeDelta(s)
		if *update {
			if err := os.WriteFile(path, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s: the encoding changed", name)
		}
		back, err := DecodeDelta(want, s.Cardinality(), s.Max()+1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !back.Equal(s) {
			t.Errorf("%s: other rows come back", name)
		}
	}
}

func TestPayloadsMatchRoaring64(t *testing.T) {
	t.Parallel()
	for name, s := range goldens() {
		b := roaring64.New()
		for row := range s.All() {
			b.Add(uint64(row))
		}
		b.RunOptimize()
		var want bytes.Buffer
		want.Write([]byte{0xD1, 0xD3, 0x39, 0x64})
		if _, err := b.WriteTo(&want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Bytes(), EncodeDelta(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSparkGapBucketsAreRead(t *testing.T) {
	t.Parallel()
	p := binary.LittleEndian.AppendUint32(nil, magicPortable)
	p = binary.LittleEndian.AppendUint64(p, 3)
	for key, rows := range []*roaring.Bitmap{roaring.BitmapOf(4), roaring.New(), roaring.BitmapOf(9)} {
		p = binary.LittleEndian.AppendUint32(p, uint32(key))
		b, err := rows.ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		p = append(p, b...)
	}
	s, err := DecodeDelta(p, 2, -1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{4, 2<<32 + 9}, collect(s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBrokenPayloadsAreCorrupt(t *testing.T) {
	t.Parallel()
	good := EncodeDelta(New(1, 5, 9))
	patch := func(at int, b ...byte) []byte {
		p := bytes.Clone(good)
		copy(p[at:], b)
		return p
	}
	for name, c := range map[string]struct {
		payload     []byte
		cardinality int64
		rows        int64
		field       string
	}{
		"nothing":                         {nil, 0, -1, "magic"},
		"another magic":                   {patch(0, 1), 3, -1, "magic"},
		"the native magic":                {patch(0, 0xD0), 3, -1, "magic"},
		"a header cut short":              {good[:8], 3, -1, "bucket count"},
		"an absurd bucket count":          {patch(4, 0, 0, 0, 0, 0, 1), 3, -1, "bucket count"},
		"a negative bucket key":           {patch(15, 0x80), 3, -1, "bucket key"},
		"an unknown cookie":               {patch(16, 1), 3, -1, "cookie"},
		"an absurd container count":       {patch(20, 0xFF, 0xFF, 0xFF, 0xFF), 3, -1, "container count"},
		"more containers than bytes":      {patch(20, 0xFF, 0xFF), 3, -1, "container descriptors"},
		"a container offset elsewhere":    {patch(28, 1), 3, -1, "container offset"},
		"values out of order":             {patch(32, 6), 3, -1, "array value"},
		"a cardinality above the array's": {patch(26, 9), 3, -1, "array"},
		"another cardinality than said":   {good, 4, -1, "cardinality"},
		"a row past the end of the file":  {good, 3, 9, "row"},
		"bytes behind the last bucket":    {append(bytes.Clone(good), 0), 3, -1, "payload"},
		"an array that is cut short":      {good[:len(good)-1], 3, -1, "array"},
		"fewer buckets than promised":     {patch(4, 2), 3, -1, "bucket key"},
		"more bytes than no bucket needs": {patch(4, 0), 3, -1, "payload"},
	} {
		_, err := DecodeDelta(c.payload, c.cardinality, c.rows)
		var corrupt *storage.CorruptError
		if !errors.As(err, &corrupt) || !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
			continue
		}
		if corrupt.Field != c.field {
			t.Errorf("%s: field %q, want %q", name, corrupt.Field, c.field)
		}
	}
}

func TestZ85FollowsItsSpecification(t *testing.T) {
	t.Parallel()
	raw := []byte{0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B}
	text, err := EncodeZ85(raw)
	if err != nil || text != "HelloWorld" {
		t.Errorf("encoded %q, %v", text, err)
	}
	back, err := DecodeZ85("HelloWorld")
	if err != nil || !bytes.Equal(back, raw) {
		t.Errorf("decoded %x, %v", back, err)
	}
	for name, text := range map[string]string{
		"a cut block": "Hell", "a space": "Hell ", "a quote": `"ello`, "a block above 2^32-1": "##093", "the largest block": "#####",
	} {
		if _, err := DecodeZ85(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := EncodeZ85([]byte{1}); err == nil {
		t.Error("three bytes missing: no error")
	}
}

func TestDescriptorsResolveToKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		storageType, path, root, want string
		err                           error
	}{
		"a prefix before the UUID":        {"u", "ab^-aqEH.-t@S}K{vb[*k^", "", "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", nil},
		"a UUID alone":                    {"u", "^-aqEH.-t@S}K{vb[*k^", "", "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", nil},
		"too short for a UUID":            {"u", "abc", "", "", storage.ErrCorrupt},
		"a prefix that climbs":            {"u", "../x^-aqEH.-t@S}K{vb[*k^", "", "", storage.ErrCorrupt},
		"an absolute path inside":         {"p", "s3://b/t/x%20y.bin", "s3://b/t", "x y.bin", nil},
		"another spelling of the store":   {"p", "s3a://b/t/x.bin", "s3://b/t/", "x.bin", nil},
		"a file URL without a host":       {"p", "file:/data/t/x.bin", "/data/t", "x.bin", nil},
		"a file URL with an empty host":   {"p", "file:///data/t/x.bin", "file:///data/t", "x.bin", nil},
		"a path encoded once":             {"p", "file:///data/t/a%2520b.bin", "/data/t", "a%20b.bin", nil},
		"an absolute path outside":        {"p", "s3://b/other/x.bin", "s3://b/t", "", storage.ErrRefused},
		"a root that is only a prefix":    {"p", "s3://b/tt/x.bin", "s3://b/t", "", storage.ErrRefused},
		"an absolute path, root unknown":  {"p", "s3://b/t/x.bin", "", "", storage.ErrRefused},
		"an absolute path that climbs":    {"p", "s3://b/t/../x.bin", "s3://b/t", "", storage.ErrCorrupt},
		"an inline vector":                {"i", "xxx", "", "", nil},
		"a storage type of the future":    {"r", "x", "", "", storage.ErrRefused},
		"a storage type that is nothing":  {"", "x", "", "", storage.ErrRefused},
		"a UUID with a character outside": {"u", "^-aqEH.-t@S}K{vb[*k ", "", "", storage.ErrCorrupt},
	} {
		got, err := Descriptor{StorageType: c.storageType, PathOrInlineDV: c.path}.Resolve(c.root)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", name, got, err, c.want, c.err)
		}
	}
}

func TestDescriptorsNameTheFileThatWasWritten(t *testing.T) {
	t.Parallel()
	id := [16]byte{0xd2, 0xc6, 0x39, 0xaa, 0x88, 0x16, 0x43, 0x1a, 0xaa, 0xf6, 0xd3, 0xfe, 0x25, 0x12, 0xff, 0x61}
	d := NewDescriptor("ab", id, Placement{Offset: 1, SizeInBytes: 34}, 1)
	if key, ok := d.Key(); !ok || key != FileKey("ab", id) {
		t.Errorf("key %q", key)
	}
	p, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":1,"sizeInBytes":34,"cardinality":1}`
	if string(p) != want {
		t.Errorf("got %s\nwant %s", p, want)
	}
	if got := d.UniqueID(); got != "uab^-aqEH.-t@S}K{vb[*k^@1" {
		t.Errorf("unique id %q", got)
	}
	d.Offset = nil
	if got := d.UniqueID(); got != "uab^-aqEH.-t@S}K{vb[*k^" {
		t.Errorf("unique id without offset %q", got)
	}
}

func TestReadChecksTheFileAgainstTheDescriptor(t *testing.T) {
	t.Parallel()
	dir := directory(t.TempDir())
	var w FileWriter
	sets := []*Set{New(1, 2), New(3), New(5, 1<<33)}
	id := [16]byte{1}
	var ds []Descriptor
	for _, s := range sets {
		at, err := w.Append(s)
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, NewDescriptor("", id, at, s.Cardinality()))
	}
	name := filepath.Join(string(dir), FileKey("", id))
	if err := os.WriteFile(name, w.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, d := range ds {
		s, err := Read(t.Context(), dir, d, sets[i].Max()+1)
		if err != nil || !s.Equal(sets[i]) {
			t.Errorf("vector %d: %v", i, err)
		}
	}
	change := func(f func(*Descriptor)) Descriptor {
		d := ds[1]
		offset := *d.Offset
		d.Offset = &offset
		f(&d)
		return d
	}
	for name, d := range map[string]Descriptor{
		"another size":          change(func(d *Descriptor) { d.SizeInBytes-- }),
		"another cardinality":   change(func(d *Descriptor) { d.Cardinality++ }),
		"another offset":        change(func(d *Descriptor) { *d.Offset++ }),
		"the version byte":      change(func(d *Descriptor) { *d.Offset = 0 }),
		"an offset past it all": change(func(d *Descriptor) { *d.Offset = 1 << 30 }),
		"a negative size":       change(func(d *Descriptor) { d.SizeInBytes = -1 }),
		"an absurd size":        change(func(d *Descriptor) { d.SizeInBytes = 1<<31 - 1 }),
	} {
		if _, err := Read(t.Context(), dir, d, 4); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
	if s, err := Read(t.Context(), dir, change(func(d *Descriptor) { *d = ds[0]; d.Offset = nil }), 10); err != nil || !s.Equal(sets[0]) {
		t.Errorf("no offset: %v", err)
	}
	flipped := bytes.Clone(w.Bytes())
	flipped[*ds[1].Offset+4+30] ^= 1
	if err := os.WriteFile(name, flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), dir, ds[1], 4); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a flipped bit: got %v, want a checksum error", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), dir, ds[1], 4); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("no file: got %v, want ErrNotFound", err)
	}
}

func TestInlineVectorsAreRead(t *testing.T) {
	t.Parallel()
	payload := EncodeDelta(New(3, 4, 7))
	padded := append(bytes.Clone(payload), make([]byte, (4-len(payload)%4)%4)...)
	text, err := EncodeZ85(padded)
	if err != nil {
		t.Fatal(err)
	}
	d := Descriptor{StorageType: StorageInline, PathOrInlineDV: text, SizeInBytes: int32(len(payload)), Cardinality: 3}
	s, err := Read(t.Context(), nil, d, 8)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{3, 4, 7}, collect(s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	empty := Descriptor{StorageType: StorageInline}
	if s, err := Read(t.Context(), nil, empty, 8); err != nil || s.Cardinality() != 0 {
		t.Errorf("Spark's empty vector: %v", err)
	}
	d.SizeInBytes -= 8
	if _, err := Read(t.Context(), nil, d, 8); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("another size: %v", err)
	}
}

func FuzzDecodeDelta(f *testing.F) {
	for _, s := range goldens() {
		f.Add(EncodeDelta(s), s.Cardinality())
		f.Add(encodeDelta(s, false), s.Cardinality())
	}
	f.Fuzz(func(t *testing.T, payload []byte, cardinality int64) {
		s, err := DecodeDelta(payload, cardinality, -1)
		if err != nil {
			if s != nil || !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("got %v, %v", s, err)
			}
			return
		}
		n := int64(0)
		previous := int64(-1)
		for row := range s.All() {
			if row <= previous || !s.Contains(row) {
				t.Fatalf("row %d after %d", row, previous)
			}
			previous = row
			n++
		}
		if n != cardinality || previous != s.Max() {
			t.Fatalf("%d rows up to %d, want %d up to %d", n, previous, cardinality, s.Max())
		}
		back, err := DecodeDelta(EncodeDelta(s), n, -1)
		if err != nil || !back.Equal(s) {
			t.Fatalf("second decoding: %v", err)
		}
		u := s.Union(New(5)).Minus(New(5))
		if !u.IsSubset(s) {
			t.Fatal("union and minus left other rows")
		}
	})
}

func FuzzFrames(f *testing.F) {
	var w FileWriter
	for _, s := range goldens() {
		if _, err := w.Append(s); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(w.Bytes())
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, file []byte) {
		for frame, err := range Frames(file) {
			if err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatal(err)
			}
			if len(frame.Payload) > len(file) {
				t.Fatal("payload larger than the file")
			}
		}
	})
}

func FuzzZ85(f *testing.F) {
	f.Add("HelloWorld", []byte("abcd"))
	f.Add("##093", []byte{})
	f.Fuzz(func(t *testing.T, text string, raw []byte) {
		if p, err := DecodeZ85(text); err == nil {
			if back, err := EncodeZ85(p); err != nil || back != text {
				t.Fatalf("%q came back as %q", text, back)
			}
		}
		if s, err := EncodeZ85(raw); err == nil {
			if back, err := DecodeZ85(s); err != nil || !bytes.Equal(back, raw) {
				t.Fatalf("%s came back as %s", hex.EncodeToString(raw), hex.EncodeToString(back))
			}
		}
	})
}
