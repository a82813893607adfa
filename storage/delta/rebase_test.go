package delta_test

import (
	"context"
	"maps"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/storagetest"
)

func peopleRows(emails ...string) []storagetest.Row {
	var out []storagetest.Row
	for i, email := range emails {
		out = append(out, storagetest.Row{ID: int64(i + 1), Email: &email, Region: "n"})
	}
	return out
}

// approveOnce approves all, and lets another writer win before the first commit.
func approveOnce(other func()) func(context.Context, storage.Matched) ([]bool, error) {
	return func(_ context.Context, m storage.Matched) ([]bool, error) {
		if other != nil {
			other()
			other = nil
		}
		return make([]bool, len(m.Rows)), nil
	}
}

// A file whose statistics rule a subject out, because they speak of its live
// rows only, may show other rows when another writer has brought them back.
func Test_on_a_lost_race_a_file_that_its_statistics_ruled_out_is_looked_at_again_when_they_change(t *testing.T) {
	t.Parallel()
	h := newPeople(t, bucket.NewMemory(), nil)
	rows := peopleRows("ann@example.org", "ann@example.org", "bob@example.org", "cat@example.org")
	h.Append(t, rows...)
	var original map[string]any
	h.commit(t, "DELETE", func(dir string) []map[string]any {
		f := replayJSON(t, dir)[0]
		original = f.add
		add := maps.Clone(f.add)
		add["deletionVector"] = h.putVector(t, roaring64.BitmapOf(0, 1))
		add["stats"] = `{"numRecords":4,"tightBounds":true,"minValues":{"id":3,"email":"bob@example.org"},"maxValues":{"id":4,"email":"cat@example.org"},"nullCount":{"id":0,"email":0}}`
		return []map[string]any{{"remove": removeAction(f.add)}, {"add": add}}
	})
	restore := func() {
		h.commit(t, "RESTORE", func(dir string) []map[string]any {
			return []map[string]any{{"remove": removeAction(replayJSON(t, dir)[0].add)}, {"add": original}}
		})
	}
	got, err := h.Open(t).Delete(t.Context(), storage.Deletion{
		Batch: storage.Batch{App: "a", Number: 1}, Approve: approveOnce(restore),
		Subjects: []storage.Subject{subject("email", "ann@example.org"), subject("id", "3")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Subjects[0].Rows != 2 || got.Subjects[1].Rows != 1 {
		t.Errorf("%+v, want 2 rows and 1", got.Subjects)
	}
	if left := h.Rows(t); len(left) != 1 || left[0].ID != 4 {
		t.Errorf("rows left: %v, want %v", left, rows[3])
	}
}
