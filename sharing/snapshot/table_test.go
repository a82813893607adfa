package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"delenda/events"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"
)

const testInstallation = "acme"

var testKey = bytes.Repeat([]byte{7}, 32)

// table is a Delta table of which only the log is real: nothing here reads
// data files.
type table struct {
	bucket  *bucket.Bucket
	version storage.Version
	batch   int64
}

func newTable(t testing.TB, files int) *table {
	t.Helper()
	tb := &table{bucket: bucket.NewMemory(), version: storage.NoVersion}
	actions := []log.Action{
		{Protocol: &log.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"deletionVectors"}, WriterFeatures: []string{"deletionVectors"}}},
		{Metadata: &log.Metadata{
			ID: "0b3f9b0e-0000-4000-8000-000000000001", Format: log.FileFormat{Provider: "parquet"},
			SchemaString: `{"type":"struct","fields":[` +
				`{"name":"customer_id","type":"string","nullable":true,"metadata":{"comment":"who","secret":"x"}},` +
				`{"name":"city","type":"string","nullable":true,"metadata":{}}]}`,
			PartitionColumns: []string{}, Configuration: map[string]string{"delta.enableDeletionVectors": "true", "my.password": "hunter2"},
		}},
	}
	for i := range files {
		actions = append(actions, log.Action{Add: testAdd(i)})
	}
	tb.commit(t, "WRITE", actions...)
	return tb
}

func testAdd(i int) *log.Add {
	return &log.Add{
		Path: fmt.Sprintf("part-%05d.parquet", i), PartitionValues: map[string]*string{}, SizeBytes: 100 + int64(i), ModificationTime: 1700000000000, DataChange: true,
		Stats: `{"numRecords":10,"minValues":{"customer_id":"alice","city":"Aachen"},"maxValues":{"customer_id":"zoe","city":"Zug"},"nullCount":{"customer_id":0,"city":1}}`,
	}
}

// commit writes the next version.
func (tb *table) commit(t testing.TB, operation string, actions ...log.Action) {
	t.Helper()
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	tb.version++
	info := log.Action{CommitInfo: &log.CommitInfo{Timestamp: 1700000000000 + int64(tb.version), Operation: operation}}
	for _, a := range append([]log.Action{info}, actions...) {
		if err := enc.Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := tb.bucket.Put(t.Context(), log.CommitKey(tb.version), &body, storage.PutOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
}

// erase commits what a delete of ours commits to file i.
func (tb *table) erase(t testing.TB, i int) {
	t.Helper()
	tb.batch++
	add := testAdd(i)
	dv := deletion.NewDescriptor("", [16]byte{byte(tb.batch), byte(i)}, deletion.Placement{Offset: 1, SizeInBytes: 34}, 2)
	with := *add
	with.DeletionVector = &dv
	tb.commit(t, "DELETE",
		log.Action{Txn: &log.Txn{AppID: "delenda/" + testInstallation + "/customers", Version: tb.batch}},
		log.Action{Remove: &log.Remove{Path: add.Path, DeletionTimestamp: 1, DataChange: true}},
		log.Action{Add: &with},
	)
}

func (tb *table) source() Source {
	return Source{Bucket: tb.bucket, IdentityColumns: []string{"customer_id"}}
}

// published collects announced events.
type published struct{ shares []events.ShareChanged }

func (p *published) publish(_ context.Context, e events.Event) error {
	if e.Type == events.TypeShareChanged {
		s, err := events.Payload[events.ShareChanged](e)
		if err != nil {
			return err
		}
		p.shares = append(p.shares, s)
	}
	return nil
}

func testCatalog(t testing.TB) *Catalog {
	t.Helper()
	c, err := NewCatalog([]Share{{Name: "Sales", Schemas: []Schema{{Name: "EU", Tables: []SharedTable{{Name: "Customers", Table: "customers"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func testKeys(t testing.TB) Keys {
	t.Helper()
	keys, err := NewKeys(testKey)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

const refKey = "sales.eu.customers"

func newTestStore(t testing.TB, state storage.Bucket, source Source, change func(*StoreOptions)) *Store {
	t.Helper()
	o := StoreOptions{
		Installation: testInstallation, State: state, Keys: testKeys(t), Catalog: testCatalog(t),
		Sources: map[string]Source{"customers": source}, Publish: (&published{}).publish,
		Poll: time.Second, URLTTL: 15 * time.Minute, Now: time.Now, Logger: discard,
	}
	if change != nil {
		change(&o)
	}
	return NewStore(o)
}

func lines(b *bytes.Buffer) []string {
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
