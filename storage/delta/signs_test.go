package delta_test

import (
	"context"
	"sync/atomic"
	"testing"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
	"delenda/storage/storagetest"
)

func Test_a_delete_gives_a_sign_whenever_the_store_answers(t *testing.T) {
	t.Parallel()
	h := newPeople(t, bucket.NewMemory(), map[string]string{"delta.checkpointInterval": "1"})
	h.Append(t, storagetest.Row{ID: 1, Region: "n"}, storagetest.Row{ID: 2, Region: "n"})
	f := fault.Wrap(h.b)
	h.table, h.o.Workers = f, 1
	table := h.Open(t)
	var operations, signs atomic.Int64
	f.Before(func(context.Context, fault.Op) { operations.Add(1) })
	got, err := table.Delete(t.Context(), storage.Deletion{
		Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("id", "1")},
		Progress: func(storage.Progress) { signs.Add(1) },
	})
	if err != nil || !got.Committed {
		t.Fatalf("%+v, %v", got, err)
	}
	if operations.Load() < 5 || signs.Load() <= operations.Load() { // one is of the fragment
		t.Errorf("%d operations, %d signs", operations.Load(), signs.Load())
	}
}
