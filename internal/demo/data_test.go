package demo

import (
	"testing"
	"time"

	"delenda/storage"
	"delenda/storage/bucket"
)

func TestTheDemosTableIsWhatItSays(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	table, err := WriteTable(t.Context(), b, time.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := table.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.LiveRows != 200_000 || d.Fragments != 8 || d.DeletedRows != 0 || len(d.Refused) != 0 {
		t.Errorf("got %+v", d)
	}
	deleted, err := table.Delete(t.Context(), storage.Deletion{
		Batch:    storage.Batch{App: "demo", Number: 1, Base: d.Version},
		Subjects: []storage.Subject{{Keys: []storage.Key{{Column: "customer_id", Value: storage.NewSecret("4711")}}}},
		Now:      time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[storage.Outcome]int{storage.Kept: int(deleted.Kept)}
	for _, f := range deleted.Fragments {
		outcomes[f.Outcome]++
	}
	t.Log(deleted.Subjects[0].Rows, outcomes)
	for _, o := range []storage.Outcome{storage.Kept, storage.Set, storage.Bitmap, storage.Dropped} {
		if outcomes[o] == 0 {
			t.Errorf("no fragment is %s", o)
		}
	}
}
