package log_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta/log"
)

func TestRelativeKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, raw, root, want string }{
		{"decoded once", "_2=bar+%252521/part-0.parquet", "", "_2=bar+%2521/part-0.parquet"},
		{"plus stays", "a+b", "", "a+b"},
		{"unicode", "city=A%20Coru%C3%B1a/x", "", "city=A Coruña/x"},
		{"a colon is not a scheme", "t=11:22/x", "", "t=11:22/x"},
		{"absolute inside the root", "file:///lake/t/a%20b", "/lake/t", "a b"},
		{"a URL inside the root", "s3://b/t/a", "s3://b/t/", "a"},
		{"Hadoop's spelling of S3", "s3a://b/t/a", "s3://b/t/", "a"},
		{"absolute outside the root", "file:///lake/t2/a", "/lake/t", ""},
		{"absolute without a root", "/lake/t/a", "", ""},
		{"another bucket", "s3://c/t/a", "s3://b/t", ""},
		{"climbing", "a/../../b", "", ""},
		{"climbing in disguise", "%2e%2e/b", "", ""},
		{"the root itself", "/lake/t/", "/lake/t", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := log.RelativeKey(tt.raw, tt.root)
			if got != tt.want || (tt.want == "") != errors.Is(err, storage.ErrRefused) {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
			if tt.want == "" {
				return
			}
			if back, err := log.RelativeKey(log.EscapePath(got), ""); err != nil || back != got {
				t.Errorf("escaped and back: %q, %v", back, err)
			}
		})
	}
}

const nested = `{"type":"struct","fields":[
 {"name":"id","type":"long","nullable":false,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}},
 {"name":"contact","type":{"type":"struct","fields":[
   {"name":"email","type":"string","nullable":true,"metadata":{"delta.columnMapping.id":3,"delta.columnMapping.physicalName":"col-3"}},
   {"name":"Phone","type":"string","nullable":true,"metadata":{}},{"name":"phone","type":"string","nullable":true,"metadata":{}}]},
  "nullable":true,"metadata":{"delta.columnMapping.id":2,"delta.columnMapping.physicalName":"col-2"}},
 {"name":"a.b","type":"string","nullable":true,"metadata":{}},
 {"name":"tags","type":{"type":"array","elementType":"string","containsNull":true},"nullable":true,"metadata":{}},
 {"name":"props","type":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":[]},"valueContainsNull":true},"nullable":true,"metadata":{}}]}`

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, mode, physical, code string
	}{
		{"id", "name", "col-1", ""},
		{"id", "id", "col-1", ""},
		{"id", "none", "id", ""},
		{"contact.email", "name", "col-2/col-3", ""},
		{"contact.email", "none", "contact/email", ""},
		{"a.b", "none", "a.b", ""},
		{"contact.phone", "none", "", "ambiguous_column"},
		{"ID", "none", "", "unknown_column"},
		{"contact", "none", "contact", ""},
		{"contact.", "none", "", "unknown_column"},
		{"tags.element", "none", "", "unknown_column"},
		{"props.key", "none", "", "unknown_column"},
		{"", "none", "", "unknown_column"},
	} {
		t.Run(tt.path+" "+tt.mode, func(t *testing.T) {
			t.Parallel()
			m := log.Metadata{SchemaString: nested, Configuration: map[string]string{"delta.columnMapping.mode": tt.mode}}
			s, err := m.Schema()
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Resolve(tt.path)
			var r *storage.Refusal
			if tt.code != "" {
				if !errors.As(err, &r) || r.Code != tt.code {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || strings.Join(c.Physical, "/") != tt.physical {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func TestSchemasThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "{", `"string"`, `{"type":"array","elementType":"long"}`, `{"type":"struct","fields":[{"name":"a"}]}`,
		`{"type":"struct","fields":[{"type":"long"}]}`, `{"type":"struct","fields":[{"name":"a","type":{"type":"list"}}]}`,
		`{"type":"struct","fields":[{"name":"a","type":"struct"}]}`, `{"type":"struct","fields":[{"name":"a","type":{"type":"map","keyType":"long"}}]}`,
		`{"type":"struct","fields":[{"name":"a","type":` + strings.Repeat(`{"type":"array","elementType":`, 200) + `"long"` + strings.Repeat("}", 202),
	} {
		if _, err := log.ParseSchema([]byte(text)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	m := log.Metadata{Configuration: map[string]string{"delta.columnMapping.mode": "tomorrow"}}
	if _, err := m.Schema(); !errors.Is(err, storage.ErrRefused) {
		t.Errorf("mapping mode: %v", err)
	}
}

func TestProtocolFeatures(t *testing.T) {
	t.Parallel()
	legacy := log.Protocol{MinReaderVersion: 2, MinWriterVersion: 5}
	if got := strings.Join(legacy.Features(), " "); got != "appendOnly changeDataFeed checkConstraints columnMapping generatedColumns invariants" {
		t.Errorf("features of (2,5): %s", got)
	}
	up := legacy.WithDeletionVectors()
	if up.MinReaderVersion != 3 || up.MinWriterVersion != 7 || strings.Join(up.ReaderFeatures, " ") != "columnMapping deletionVectors" ||
		strings.Join(up.WriterFeatures, " ") != "appendOnly changeDataFeed checkConstraints columnMapping deletionVectors generatedColumns invariants" {
		t.Errorf("%+v", up)
	}
	if err := up.CheckRead(); err != nil || !up.Equal(up.WithDeletionVectors()) {
		t.Errorf("%v", err)
	}
	seven := log.Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{"appendOnly"}}
	if seven.Has("invariants") || !seven.Has("appendOnly") || slices.Contains(seven.WithDeletionVectors().WriterFeatures, "invariants") {
		t.Error("writer version 7 implies nothing")
	}
	if old := (log.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}).WithDeletionVectors(); strings.Join(old.ReaderFeatures, " ") != "deletionVectors" {
		t.Errorf("%+v", old)
	}
	if got := log.Protocol.CheckRead(log.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"a\nb"}}); got == nil || strings.Contains(got.Error(), "\n") {
		t.Errorf("a feature's name is printed raw: %v", got)
	}
}

func TestInterval(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"interval 1 week": 168 * time.Hour, "INTERVAL 30 days": 720 * time.Hour, "2 hours 5 minutes": 125 * time.Minute, "interval 0 seconds": 0,
	} {
		if got, ok := log.Interval(text); !ok || got != want {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "interval", "1", "interval 1 month", "interval x days", "interval -1 days"} {
		if _, ok := log.Interval(text); ok {
			t.Errorf("%q was understood", text)
		}
	}
}

func TestCommitsThatBreakTheRulesAreNotWritten(t *testing.T) {
	t.Parallel()
	info := log.Action{CommitInfo: &log.CommitInfo{Operation: "X"}}
	file := log.Add{Path: "a"}
	other := log.Add{Path: "%61"}
	for name, actions := range map[string][]log.Action{
		"without commitInfo":                  {{Add: &file}},
		"commitInfo not first":                {{Add: &file}, info},
		"a path added twice":                  {info, {Add: &file}, {Add: &other}},
		"a file added and removed":            {info, {Add: &file}, {Remove: &log.Remove{Path: "a"}}},
		"a transaction twice":                 {info, {Txn: &log.Txn{AppID: "a", Version: 1}}, {Txn: &log.Txn{AppID: "a", Version: 2}}},
		"a file without a path":               {info, {Add: &log.Add{}}},
		"nothing":                             {},
		"a negative size":                     {info, {Add: &log.Add{Path: "a", SizeBytes: -1}}},
		"a path removed twice, two spellings": {info, {Remove: &log.Remove{Path: "a"}}, {Remove: &log.Remove{Path: "%61"}}},
	} {
		b := bucket.NewMemory()
		if err := log.PutCommit(t.Context(), b, 0, actions); err == nil {
			t.Errorf("%s: written", name)
		}
	}
}
