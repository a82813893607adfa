package snapshot

import (
	"encoding/json"
	"strings"
	"testing"

	"delenda/sharing"
	"delenda/storage/bucket"
	"delenda/storage/delta/log"

	"github.com/google/go-cmp/cmp"
)

func TestNamesAreFoundWhateverTheirCaseAndListedInOrder(t *testing.T) {
	t.Parallel()
	c, err := NewCatalog([]Share{
		{Name: "Zeta", Schemas: []Schema{{Name: "b", Tables: []SharedTable{{"Two", "x"}, {"one", "x"}}}, {Name: "A"}}},
		{Name: "alpha"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range c.Shares() {
		names = append(names, s.Name)
	}
	schemas, _ := c.Schemas("ZETA")
	for _, s := range schemas {
		names = append(names, s.Share+"."+s.Name)
	}
	tables, _ := c.AllTables("zeta")
	for _, ref := range tables {
		names = append(names, ref.Key())
	}
	want := []string{"alpha", "Zeta", "Zeta.A", "Zeta.b", "zeta.b.one", "zeta.b.two"}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	if ref, ok := c.Table("zEtA", "B", "tWO"); !ok || ref.Name != "Two" || ref.ID == "" {
		t.Errorf("got %+v, %v", ref, ok)
	}
	if _, ok := c.Tables("zeta", "c"); ok {
		t.Error("an unknown schema has tables")
	}
	if tables, ok := c.Tables("zeta", "a"); !ok || len(tables) != 0 {
		t.Error("an empty schema is unknown")
	}
}

func TestNamesThatCannotBeServedAreRefused(t *testing.T) {
	t.Parallel()
	table := func(names ...string) []Share {
		var tables []SharedTable
		for _, n := range names {
			tables = append(tables, SharedTable{n, "x"})
		}
		return []Share{{Name: "s", Schemas: []Schema{{Name: "d", Tables: tables}}}}
	}
	for name, config := range map[string][]Share{
		"a share with a space":                 {{Name: "a b"}},
		"a share with a dot":                   {{Name: "a.b"}},
		"no name":                              {{Name: ""}},
		"two shares that differ by case":       {{Name: "a"}, {Name: "A"}},
		"two schemas that differ by case":      {{Name: "s", Schemas: []Schema{{Name: "d"}, {Name: "D"}}}},
		"a schema with a slash":                {{Name: "s", Schemas: []Schema{{Name: "d/e"}}}},
		"two tables that differ by case":       table("t", "T"),
		"a table with a star":                  table("*"),
		"a name that is longer than a subject": table(strings.Repeat("x", 129)),
	} {
		if _, err := NewCatalog(config); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func field(name, typ string, metadata string) string {
	if metadata == "" {
		metadata = "{}"
	}
	if !strings.HasPrefix(typ, "{") {
		typ = `"` + typ + `"`
	}
	return `{"name":"` + name + `","type":` + typ + `,"nullable":true,"metadata":` + metadata + `}`
}

func structOf(fields ...string) string {
	return `{"type":"struct","fields":[` + strings.Join(fields, ",") + `]}`
}

func TestAReaderNeedsTheFeaturesThatTheAnswerUses(t *testing.T) {
	t.Parallel()
	three := func(features ...string) log.Protocol {
		return log.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: features, WriterFeatures: append([]string{"appendOnly"}, features...)}
	}
	array := `{"type":"array","elementType":"timestamp_ntz","containsNull":true}`
	for name, test := range map[string]struct {
		protocol log.Protocol
		schema   string
		mode     string
		vectors  int64
		want     sharing.DeltaProtocol
		required []string
	}{
		"deletion vectors that are enabled but not used": {
			three("deletionVectors"), structOf(field("a", "long", "")), "", 0, sharing.DeltaProtocol{MinReaderVersion: 1, MinWriterVersion: 2}, nil,
		},
		"deletion vectors that are used": {
			three("deletionVectors", "v2Checkpoint"), structOf(field("a", "long", "")), "", 1,
			sharing.DeltaProtocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"deletionVectors"}, WriterFeatures: []string{"appendOnly", "deletionVectors"}},
			[]string{"deletionVectors"},
		},
		"a time without zone deep in a type": {
			three("timestampNtz", "vacuumProtocolCheck"), structOf(field("a", structOf(field("b", array, "")), "")), "", 0,
			sharing.DeltaProtocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"timestampNtz"}, WriterFeatures: []string{"appendOnly", "timestampNtz"}},
			[]string{"timestampNtz"},
		},
		"a time without zone that is only a name": {
			three("timestampNtz"), structOf(field("timestamp_ntz", "long", "")), "", 0, sharing.DeltaProtocol{MinReaderVersion: 1, MinWriterVersion: 2}, nil,
		},
		"a widened column": {
			three("typeWidening"), structOf(field("a", "long", `{"delta.typeChanges":[{"fromType":"integer","toType":"long"}]}`)), "", 0,
			sharing.DeltaProtocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"typeWidening"}, WriterFeatures: []string{"appendOnly", "typeWidening"}},
			[]string{"typeWidening"},
		},
		"column mapping of a legacy protocol": {
			log.Protocol{MinReaderVersion: 2, MinWriterVersion: 5},
			structOf(field("a", "long", "")), "name", 0,
			sharing.DeltaProtocol{MinReaderVersion: 2, MinWriterVersion: 5},
			[]string{"columnMapping"},
		},
		"column mapping that is off": {
			log.Protocol{MinReaderVersion: 2, MinWriterVersion: 5},
			structOf(field("a", "long", "")), "none", 0,
			sharing.DeltaProtocol{MinReaderVersion: 1, MinWriterVersion: 2},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := log.Metadata{SchemaString: test.schema, Configuration: map[string]string{}}
			if test.mode != "" {
				m.Configuration["delta.columnMapping.mode"] = test.mode
			}
			schema, err := m.Schema()
			if err != nil {
				t.Fatal(err)
			}
			required := requiredFeatures(test.protocol, schema, test.vectors)
			if d := cmp.Diff(test.required, required); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(test.want, sharedProtocol(test.protocol, required)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestStatisticsAreRedactedAtThePathsOfIdentityColumns(t *testing.T) {
	t.Parallel()
	paths := [][]string{{"id"}, {"contact", "email"}}
	for name, test := range map[string]struct {
		stats, want string
		rows        int64
	}{
		"a top-level column and a member of a struct": {
			`{"numRecords":3,"minValues":{"id":1,"x":2,"contact":{"email":"a","city":"b"}},"maxValues":{"id":9,"contact":{"email":"z"}},"nullCount":{"id":0}}`,
			`{"numRecords":3,"minValues":{"contact":{"city":"b"},"x":2},"maxValues":{"contact":{}},"nullCount":{"id":0}}`, 3,
		},
		"numbers as they stand": {`{"numRecords":1,"minValues":{"x":12345678901234567890.123}}`, `{"numRecords":1,"minValues":{"x":12345678901234567890.123}}`, 1},
		"a struct that is none": {`{"minValues":{"contact":"a@b"}}`, `{}`, -1},
		"bounds that are wide":  {`{"numRecords":2,"tightBounds":false}`, `{"numRecords":2,"tightBounds":false}`, 2},
		"members not known":     {`{"numRecords":2,"surprise":{"id":"a"}}`, `{"numRecords":2}`, 2},
		"no JSON":               {`{"minValues":{"id":"a"`, ``, -1},
		"none":                  {``, ``, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, rows := redactStats(test.stats, paths)
			if got != test.want || rows != test.rows {
				t.Errorf("got %s and %d rows, want %s and %d", got, rows, test.want, test.rows)
			}
		})
	}
}

func FuzzRedactStats(f *testing.F) {
	f.Add(`{"numRecords":3,"minValues":{"id":"needle","contact":{"email":"needle"}},"maxValues":{"contact":["needle"]}}`)
	f.Fuzz(func(t *testing.T, stats string) {
		got, _ := redactStats(stats, [][]string{{"id"}, {"contact"}})
		if got == "" {
			return
		}
		var s statistics
		if err := json.Unmarshal([]byte(got), &s); err != nil {
			t.Fatal(err)
		}
		for _, values := range []map[string]json.RawMessage{s.MinValues, s.MaxValues} {
			if values["id"] != nil || values["contact"] != nil {
				t.Errorf("an identity is left in %s", got)
			}
		}
		if again, _ := redactStats(got, nil); again != got {
			t.Errorf("not stable: %s and %s", got, again)
		}
	})
}

func TestAnswersWaitForAManifestByTheRulesInForce(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 1)
	state := bucket.NewMemory()
	before := newTestStore(t, state, Source{Bucket: tb.bucket}, nil)
	if err := before.Refresh(t.Context(), "customers"); err != nil {
		t.Fatal(err)
	}
	after := newTestStore(t, state, tb.source(), nil) // customer_id is an identity now
	ref := after.o.Catalog.Refs()[0]
	if v, err := after.Current(t.Context(), ref); err == nil {
		t.Errorf("serves %s", v.Manifest.Key)
	}
	if err := after.Refresh(t.Context(), "customers"); err != nil {
		t.Fatal(err)
	}
	if _, err := after.Current(t.Context(), ref); err != nil {
		t.Error(err)
	}
}
