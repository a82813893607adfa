package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/events"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func Example() {
	e, err := events.New("/delenda/acme/deleter", events.TypeTableChanged, events.TableSubject("customers"), "12",
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		events.TableChanged{Table: "customers", Version: 12, Kind: events.ChangeDelete, Batch: 3, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	if err != nil {
		panic(err)
	}
	p, err := e.Encode()
	if err != nil {
		panic(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, p, "", "  "); err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, indented.String())
	// Output:
	// {
	//   "specversion": "1.0",
	//   "id": "198edf2475ca26589945f05b0fca3766",
	//   "source": "/delenda/acme/deleter",
	//   "type": "dev.delenda.table.changed.v1",
	//   "subject": "delenda.tables.customers",
	//   "time": "2026-01-02T03:04:05Z",
	//   "datacontenttype": "application/json",
	//   "data": {
	//     "table": "customers",
	//     "version": 12,
	//     "kind": "delete",
	//     "batch": 3,
	//     "at": "2026-01-02T03:04:05Z"
	//   }
	// }
}

func TestAnEventComesBackWhole(t *testing.T) {
	t.Parallel()
	payload := events.ErasureRequested{Request: "r", Table: "t", AcceptedAt: at, Ciphertext: []byte{0, 1, 255}}
	local := at.In(time.FixedZone("east", 3600))
	e, err := events.New("/delenda/acme/ingest", events.TypeErasureRequested, events.RequestsSubject("t"), "r", local, payload)
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := events.Decode(p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Error(diff)
	}
	back, err := events.Payload[events.ErasureRequested](got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(payload, back); diff != "" {
		t.Error(diff)
	}
}

func TestAnIdSaysWhatAnEventSays(t *testing.T) {
	t.Parallel()
	id := func(typ events.Type, subject, key string, at time.Time) string {
		e, err := events.New("/delenda/acme/ingest", typ, subject, key, at, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		return e.ID
	}
	base := id("t", "s", "k", at)
	if id("t", "s", "k", at.Add(time.Hour)) != base {
		t.Error("the time is in the id")
	}
	for _, other := range []string{id("t2", "s", "k", at), id("t", "s2", "k", at), id("t", "s", "k2", at), id("ts", "", "k", at)} {
		if other == base {
			t.Error("two events have one id")
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const good = `{"specversion":"1.0","id":"i","source":"/s","type":"t","time":"2026-01-02T03:04:05Z","data":{}}`
	if _, err := events.Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"nothing":                  ``,
		"half an event":            good[:40],
		"a list":                   `[]`,
		"another version":          strings.Replace(good, `"1.0"`, `"0.3"`, 1),
		"no id":                    strings.Replace(good, `"id":"i"`, `"id":""`, 1),
		"no source":                strings.Replace(good, `"/s"`, `""`, 1),
		"no type":                  strings.Replace(good, `"t"`, `""`, 1),
		"a number for an id":       strings.Replace(good, `"i"`, `7`, 1),
		"a time that is none":      strings.Replace(good, `2026-01-02T03:04:05Z`, `jane@example.com`, 1),
		"something after the end":  good + `{}`,
		"a member of another type": strings.Replace(good, `"/s"`, `{"secret":"jane@example.com"}`, 1),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := events.Decode([]byte(text))
			if !errors.Is(err, events.ErrEnvelope) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(events.Event{}, e); diff != "" {
				t.Errorf("part of an event: %s", diff)
			}
			if err != nil && strings.Contains(err.Error(), "jane") {
				t.Errorf("content in the error: %v", err)
			}
		})
	}
}

func TestAPayloadOfAnotherFormIsRefusedWithoutItsContent(t *testing.T) {
	t.Parallel()
	for _, data := range []string{``, `null`, `"jane"`, `{"version":1}jane`, `[]`, `{"version":"jane"}`, `{"at":"jane"}`} {
		_, err := events.Payload[events.TableChanged](events.Event{Type: events.TypeTableChanged, Data: json.RawMessage(data)})
		if !errors.Is(err, events.ErrEnvelope) || strings.Contains(err.Error(), "jane") {
			t.Errorf("%q: got %v", data, err)
		}
	}
	got, err := events.Payload[events.TableChanged](events.Event{Data: json.RawMessage(`{"version":3,"new":true}`)})
	if err != nil || got.Version != 3 {
		t.Errorf("an unknown member: %+v, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "0", "customers", "customer-orders_2026", strings.Repeat("a", 128)} {
		if !events.ValidName(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "A", "-a", "_a", "a.b", "*", ">", "a b", "a\n", "ä", "a/b", "$js", strings.Repeat("a", 129)} {
		if events.ValidName(bad) {
			t.Errorf("%q passes", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, payload := range []any{
		events.ErasureRequested{Request: "r", Table: "t", AcceptedAt: at, Ciphertext: []byte("x")},
		events.TableChanged{Table: "t", Version: 7, Kind: events.ChangeForeign, At: at},
		events.DeadLetter{Subject: "s", Code: "c", Payload: []byte("{}"), At: at},
	} {
		e, err := events.New("/delenda/acme/ingest", events.TypeDeadLetter, "delenda.dead.intake", "k", at, payload)
		if err != nil {
			f.Fatal(err)
		}
		p, err := e.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Add([]byte(`{"specversion":"1.0","id":"i","source":"/s","type":"t"}`))
	f.Add([]byte(`{"specversion":"1.0","id":"i","source":"/s","type":"t","time":"0000-01-01T00:00:00+23:59","data":null}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		e, err := events.Decode(p)
		if err != nil {
			if !errors.Is(err, events.ErrEnvelope) || cmp.Diff(events.Event{}, e) != "" {
				t.Fatalf("got %+v, %v", e, err)
			}
			return
		}
		q, err := e.Encode()
		if err != nil {
			t.Fatalf("decoded but not encoded: %v", err)
		}
		again, err := events.Decode(q)
		if err != nil {
			t.Fatalf("encoded but not decoded: %v", err)
		}
		r, err := again.Encode()
		if err != nil || !bytes.Equal(q, r) {
			t.Fatalf("%s became %s: %v", q, r, err)
		}
		_, _ = events.Payload[events.DeadLetter](e)
		_, _ = events.Payload[events.ErasureRequested](e)
	})
}
