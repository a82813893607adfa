package bus_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

const documentURL = "asyncapi.json"

// document is docs/asyncapi.yaml.
type document map[string]any

func readDocument(t testing.TB) document {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("..", "..", "docs", "asyncapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var loose any
	if err := yaml.Unmarshal(p, &loose); err != nil {
		t.Fatal(err)
	}
	// Through JSON, so that values are what a JSON decoder makes.
	p, err = json.Marshal(loose)
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(p, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at returns the value under a path of members, references resolved.
func (d document) at(t testing.TB, path ...string) any {
	t.Helper()
	var v any = map[string]any(d)
	for i, p := range path {
		m, ok := v.(map[string]any)
		if !ok || m[p] == nil {
			t.Fatalf("asyncapi: %s is missing", strings.Join(path[:i+1], "/"))
		}
		v = m[p]
		if m, ok := v.(map[string]any); ok {
			if ref, ok := m["$ref"].(string); ok {
				v = d.at(t, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
		}
	}
	return v
}

func (d document) members(t testing.TB, path ...string) map[string]any {
	t.Helper()
	m, ok := d.at(t, path...).(map[string]any)
	if !ok {
		t.Fatalf("asyncapi: %s is no object", strings.Join(path, "/"))
	}
	return m
}

func (d document) compiler(t testing.TB) *jsonschema.Compiler {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	c.AssertFormat()
	c.AssertContent()
	if err := c.AddResource(documentURL, map[string]any(d)); err != nil {
		t.Fatal(err)
	}
	return c
}

func schemaOf(t testing.TB, c *jsonschema.Compiler, path ...string) *jsonschema.Schema {
	t.Helper()
	s, err := c.Compile(documentURL + "#/" + strings.Join(path, "/"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// samples are two payloads of each type, the second with every member.
var samples = map[events.Type][2]any{
	events.TypeErasureRequested: {
		events.ErasureRequested{Request: id, Table: "customers", AcceptedAt: clock, Ciphertext: []byte{1}},
		events.ErasureRequested{Request: id, Table: "customers", AcceptedAt: clock, Ciphertext: []byte{1, 2}},
	},
	events.TypeErasureReported: {
		events.ErasureReported{Request: id, Table: "customers", State: "failed", Version: -1, At: clock},
		events.ErasureReported{Request: id, Table: "customers", State: "held", Rows: 5, Version: 3, Batch: 2, Reason: "above the limit", At: clock},
	},
	events.TypeIntakeAnswered: {
		events.IntakeAnswered{IntakeSequence: 1, Accepted: true, Request: id, Status: 202},
		events.IntakeAnswered{IntakeSequence: 1, MessageID: id, Accepted: false, Request: id, Status: 400, Code: "malformed", Field: "identities[0].value"},
	},
	events.TypeTableChanged: {
		events.TableChanged{Table: "customers", Version: 0, Kind: events.ChangeForeign, At: clock},
		events.TableChanged{Table: "customers", Version: 9, Kind: events.ChangeDelete, Batch: 4, At: clock},
	},
	events.TypeShareChanged: {
		events.ShareChanged{Share: "Partners", Schema: "sales", Table: "customers", HideFloor: -1, PurgeFloor: -1, Reason: events.ChangePurge, At: clock},
		events.ShareChanged{Share: "Partners", Schema: "sales", Table: "customers", Version: 9, HideFloor: 9, PurgeFloor: 7, Reason: events.ChangeVacuum, At: clock},
	},
	events.TypeDeadLetter: {
		events.DeadLetter{Subject: "delenda.intake.web", Code: "malformed", At: clock},
		events.DeadLetter{
			Subject: "delenda.requests.customers", Stream: events.StreamRequests, Sequence: 3, Request: id,
			Table: "customers", Code: "poison", Deliveries: 5, Payload: []byte("{}"), At: clock,
		},
	},
}

const id = "6f1f4a3e-6d2a-5b1e-8f6e-0c8f6a1a2b3c"

// subjects are real subjects for the addresses of the document.
var subjects = map[string]string{
	"delenda.intake.{source}":                 events.IntakeSubject("web"),
	"delenda.outcome.{source}":                events.OutcomeSubject("web"),
	"delenda.requests.{table}":                events.RequestsSubject("customers"),
	"delenda.status.{table}":                  events.StatusSubject("customers"),
	"delenda.tables.{table}":                  events.TableSubject("customers"),
	"delenda.shares.{share}.{schema}.{table}": events.ShareSubject("partners", "sales", "customers"),
	"delenda.dead.{stage}":                    events.DeadSubject("requests"),
}

func TestEveryEventOnTheWireIsAsDocumented(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	compiler := doc.compiler(t)
	b, _ := bustest.Start(t, "customers")

	documented := map[events.Type]bool{}
	for name := range doc.members(t, "channels") {
		address := doc.at(t, "channels", name, "address").(string)
		stream := doc.at(t, "channels", name, "x-nats-stream", "name").(string)
		if subjects[address] == "" {
			t.Errorf("channel %s: address %s is no subject of package events", name, address)
			continue
		}
		for message := range doc.members(t, "channels", name, "messages") {
			payload := doc.members(t, "components", "messages", message, "payload")
			parts, ok := payload["allOf"].([]any)
			if !ok {
				continue // not an event: what outside senders publish
			}
			typ := events.Type(parts[1].(map[string]any)["properties"].(map[string]any)["type"].(map[string]any)["const"].(string))
			documented[typ] = true
			if samples[typ] == [2]any{} {
				t.Errorf("message %s: type %s is not one of package events", message, typ)
				continue
			}
			for n, sample := range samples[typ] {
				publish(t, b, event(t, typ, subjects[address], fmt.Sprint("sample", n), sample))
			}
			schema := schemaOf(t, compiler, "components", "messages", message, "payload")
			records := records(t, b, stream, subjects[address])
			if len(records) != 2 {
				t.Errorf("stream %s holds %d events of %s, want 2", stream, len(records), address)
			}
			for _, r := range records {
				v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(r.Data)))
				if err != nil {
					t.Fatal(err)
				}
				if err := schema.Validate(v); err != nil {
					t.Errorf("%s on %s: %v\n%s", typ, r.Subject, err, r.Data)
				}
				v.(map[string]any)["data"].(map[string]any)["request"] = 17
				v.(map[string]any)["time"] = "yesterday"
				if err := schema.Validate(v); err == nil {
					t.Errorf("%s: the schema lets anything pass", typ)
				}
			}
		}
	}
	for typ := range samples {
		if !documented[typ] {
			t.Errorf("type %s is in no channel", typ)
		}
	}
	for address := range subjects {
		if !slices.ContainsFunc(slices.Collect(maps.Values(doc.members(t, "channels"))), func(c any) bool {
			return c.(map[string]any)["address"] == address
		}) {
			t.Errorf("no channel has address %s", address)
		}
	}
}

// records returns what was published on a subject.
func records(t testing.TB, b *bus.Bus, stream, subject string) []*bus.Record {
	t.Helper()
	if stream != events.StreamRequests {
		return collect(t, b, stream, subject)
	}
	var list []*bus.Record
	for _, m := range fetch(t, consumer(t, b, "customers"), 2) {
		list = append(list, &m.Record)
	}
	return list
}

func TestTheDocumentsExamplesAreValid(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	compiler := doc.compiler(t)
	for name, m := range doc.members(t, "components", "messages") {
		examples, _ := m.(map[string]any)["examples"].([]any)
		schema := schemaOf(t, compiler, "components", "messages", name, "payload")
		for _, e := range examples {
			if err := schema.Validate(e.(map[string]any)["payload"]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	request := schemaOf(t, compiler, "components", "schemas", "Request")
	tests := map[string]bool{
		`{"idempotency_key":"k","identities":[{"type":"email","value":"a"}]}`:                            true,
		`{"idempotency_key":"k","identities":[{"type":"email","value":"a"}],"tables":"all"}`:             true,
		`{"idempotency_key":"k","identities":[{"type":"email","value":"a"}],"tables":["customers"]}`:     true,
		`{"idempotency_key":"k","identities":[{"type":"email","value":"a"}],"tables":[]}`:                false,
		`{"idempotency_key":"k","identities":[{"type":"email","value":7}]}`:                              false,
		`{"idempotency_key":"k","identities":[{"type":"email","value":"a"}],"regulation":"none at all"}`: false,
		`{"identities":[{"type":"email","value":"a"}]}`:                                                  false,
	}
	for body, valid := range tests {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := request.Validate(v); (err == nil) != valid {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestEveryMemberOfAPayloadIsDocumented(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	for typ, pair := range samples {
		of := reflect.TypeOf(pair[1])
		var want, mandatory []string
		for i := range of.NumField() {
			tag, option, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			want = append(want, tag)
			if option == "" {
				mandatory = append(mandatory, tag)
			}
			if option != "" && reflect.ValueOf(pair[1]).Field(i).IsZero() {
				t.Errorf("the full sample of %s lacks %s", typ, tag)
			}
		}
		slices.Sort(want)
		slices.Sort(mandatory)
		got := slices.Sorted(maps.Keys(doc.members(t, "components", "schemas", of.Name(), "properties")))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: members: %s", typ, diff)
		}
		var required []string
		for _, r := range doc.at(t, "components", "schemas", of.Name(), "required").([]any) {
			required = append(required, r.(string))
		}
		slices.Sort(required)
		if diff := cmp.Diff(mandatory, required); diff != "" {
			t.Errorf("%s: required members: %s", typ, diff)
		}
	}
}

// constants returns the string constants of package events by prefix of name.
func constants(t testing.TB, prefix string) []string {
	t.Helper()
	paths, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, s)
			}
			return true
		})
	}
	slices.Sort(list)
	return list
}

func TestEveryTypeStreamAndBucketIsDocumented(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	var types, streams, buckets, kinds []string
	for typ := range samples {
		types = append(types, string(typ))
	}
	for name := range doc.members(t, "channels") {
		streams = append(streams, doc.at(t, "channels", name, "x-nats-stream", "name").(string))
	}
	for _, kv := range doc.at(t, "x-nats-kv").([]any) {
		buckets = append(buckets, kv.(map[string]any)["bucket"].(string))
	}
	for _, k := range doc.at(t, "components", "schemas", "Kind", "enum").([]any) {
		kinds = append(kinds, k.(string))
	}
	for prefix, got := range map[string][]string{"Type": types, "Stream": streams, "KV": buckets, "Change": kinds} {
		slices.Sort(got)
		if diff := cmp.Diff(constants(t, prefix), got); diff != "" {
			t.Errorf("%s: %s", prefix, diff)
		}
	}
}

func TestStreamsAndConsumersAreAsDocumented(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	s := bustest.StartServer(t)
	b := s.Connect(t, bus.Options{})
	if err := b.Declare(t.Context(), bus.Topology{Tables: []string{"customers"}}); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	duration := func(v any) time.Duration {
		text, _ := v.(string)
		d, err := time.ParseDuration(text)
		if err != nil && text != "" {
			t.Error(err)
		}
		return d
	}
	retention := map[string]jetstream.RetentionPolicy{"workqueue": jetstream.WorkQueuePolicy, "limits": jetstream.LimitsPolicy}
	for name := range doc.members(t, "channels") {
		want := doc.members(t, "channels", name, "x-nats-stream")
		stream, err := js.Stream(t.Context(), want["name"].(string))
		if err != nil {
			t.Errorf("channel %s: %v", name, err)
			continue
		}
		got := stream.CachedInfo().Config
		size, _ := want["max_msg_size"].(float64)
		if size == 0 {
			size = -1
		}
		if got.Retention != retention[want["retention"].(string)] || got.MaxAge != duration(want["max_age"]) ||
			got.Duplicates != duration(want["duplicate_window"]) || got.MaxMsgSize != int32(size) ||
			fmt.Sprint(got.Subjects) != fmt.Sprint(want["subjects"]) || got.Storage != jetstream.FileStorage {
			t.Errorf("channel %s: documented is %v, declared is %+v", name, want, got)
		}
	}
	for name, op := range doc.members(t, "operations") {
		want, ok := op.(map[string]any)["x-nats-consumer"].(map[string]any)
		if !ok {
			continue
		}
		stream := doc.at(t, "operations", name, "channel", "x-nats-stream", "name").(string)
		fill := strings.NewReplacer("{table}", "customers")
		c, err := js.Consumer(t.Context(), stream, fill.Replace(want["durable"].(string)))
		if err != nil {
			t.Errorf("operation %s: %v", name, err)
			continue
		}
		got := c.CachedInfo().Config
		pin, _ := want["priority_policy"].(string)
		if got.FilterSubject != fill.Replace(want["filter"].(string)) || got.AckWait != duration(want["ack_wait"]) ||
			float64(got.MaxAckPending) != want["max_ack_pending"] || got.PinnedTTL != duration(want["priority_timeout"]) ||
			(got.PriorityPolicy == jetstream.PriorityPolicyPinned) != (pin == "pinned_client") {
			t.Errorf("operation %s: documented is %v, declared is %+v", name, want, got)
		}
	}
}
