package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// record is commitInfo.delenda: what Committed answers from. It names no
// column, no key and no file.
type record struct {
	Batch     int64            `json:"batch"`
	Kept      int64            `json:"kept"`
	Subjects  []subjectRecord  `json:"subjects"`
	Fragments []fragmentRecord `json:"fragments"` // in ascending order of the removes' paths
}

type subjectRecord struct {
	State storage.SubjectState `json:"state"`
	Rows  int64                `json:"rows"`
}

type fragmentRecord struct {
	Outcome  storage.Outcome `json:"outcome"`
	Deleted  int64           `json:"deleted"`
	Hidden   int64           `json:"hidden"`
	Physical int64           `json:"physical"`
}

func recordOf(b storage.Batch, d *storage.Deleted) record {
	r := record{Batch: b.Number, Kept: d.Kept, Subjects: []subjectRecord{}, Fragments: []fragmentRecord{}}
	for _, s := range d.Subjects {
		r.Subjects = append(r.Subjects, subjectRecord{State: s.State, Rows: s.Rows})
	}
	for _, f := range d.Fragments {
		r.Fragments = append(r.Fragments, fragmentRecord{Outcome: f.Outcome, Deleted: f.RowsDeleted, Hidden: f.RowsHidden, Physical: f.PhysicalRows})
	}
	return r
}

// Committed implements storage.Table.
func (t *Table) Committed(ctx context.Context, b storage.Batch) (storage.Deleted, bool, error) {
	s, err := log.Load(ctx, t.bucket, storage.NoVersion)
	if err != nil {
		return storage.Deleted{}, false, fmt.Errorf("look for batch %d: %w", b.Number, err)
	}
	d, ok, err := t.committed(ctx, s, b)
	if err != nil {
		return storage.Deleted{}, false, fmt.Errorf("look for batch %d: %w", b.Number, err)
	}
	return d, ok, nil
}

// committed looks for the commit of b in the log up to s.
func (t *Table) committed(ctx context.Context, s *log.Snapshot, b storage.Batch) (storage.Deleted, bool, error) {
	last, known := s.Txns[b.App]
	_, expires := s.Metadata.Property("delta.setTransactionRetentionDuration")
	if last.Version < b.Number && !expires {
		return storage.Deleted{}, false, nil // no commit of b: the table would name it, or a later one
	}
	for v := s.Version; v > b.Base && v >= 0; v-- {
		c, err := log.ReadCommit(ctx, t.bucket, v)
		if errors.Is(err, storage.ErrNotFound) {
			break // cleaned up from here down
		}
		if err != nil {
			return storage.Deleted{}, false, err
		}
		if txn, ok := c.Txn(b.App); ok && txn.Version == b.Number {
			d, err := fromCommit(&c)
			return d, err == nil, err
		}
	}
	if known && last.Version == b.Number {
		return storage.Deleted{}, false, storage.Refuse("batch_commit_gone",
			"the table has committed batch %d, but the commit above version %d that did so is no longer in the log", b.Number, b.Base)
	}
	return storage.Deleted{}, false, nil
}

// fromCommit reads what a commit of ours did.
func fromCommit(c *log.Commit) (storage.Deleted, error) {
	bad := func(reason string) error {
		return &storage.CorruptError{Key: log.CommitKey(c.Version), Offset: 0, Field: "commitInfo.delenda", Reason: reason}
	}
	if c.Info == nil || c.Info.Delenda == nil {
		return storage.Deleted{}, bad("missing")
	}
	var r record
	if json.Unmarshal(c.Info.Delenda, &r) != nil {
		return storage.Deleted{}, bad("not its JSON form")
	}
	if len(r.Fragments) != len(c.Removes) {
		return storage.Deleted{}, bad("as many fragments as removes expected")
	}
	slices.SortFunc(c.Removes, func(a, b log.Remove) int { return strings.Compare(a.Path, b.Path) })
	d := storage.Deleted{Committed: true, Version: c.Version, Kept: r.Kept}
	for _, s := range r.Subjects {
		d.Subjects = append(d.Subjects, storage.SubjectResult{State: s.State, Rows: s.Rows})
	}
	for i, f := range r.Fragments {
		d.Fragments = append(d.Fragments, storage.FragmentResult{
			Fragment: path.Base(c.Removes[i].Path), Outcome: f.Outcome, RowsDeleted: f.Deleted, RowsHidden: f.Hidden, PhysicalRows: f.Physical,
		})
	}
	return d, nil
}
