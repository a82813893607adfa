package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// Delete implements storage.Table.
func (t *Table) Delete(ctx context.Context, d storage.Deletion) (storage.Deleted, error) {
	if d.Batch.App == "" || d.Batch.Number < 1 {
		return storage.Deleted{}, errors.New("delete rows: the batch has no application or number")
	}
	if d.Now == nil {
		d.Now = t.o.Now
	}
	p := &planner{t: t, d: &d}
	if d.Progress != nil {
		lively := *t
		lively.bucket = &signs{Bucket: t.bucket, sign: p.sign}
		t, p.t = &lively, &lively
	}
	out, err := commitLoop(ctx, t, func(s *log.Snapshot, txnID string) (storage.Deleted, error) {
		return t.deleteOnce(ctx, p, s, txnID)
	})
	if err != nil {
		return storage.Deleted{}, fmt.Errorf("delete rows of batch %d: %w", d.Batch.Number, err)
	}
	return out, nil
}

// deleteOnce plans and commits the delete on one snapshot.
func (t *Table) deleteOnce(ctx context.Context, p *planner, s *log.Snapshot, txnID string) (storage.Deleted, error) {
	d := p.d
	if last := s.Txns[d.Batch.App].Version; last > d.Batch.Number {
		return storage.Deleted{}, fmt.Errorf("%w: %d", storage.ErrBatchOrder, last)
	}
	done, ok, err := t.committed(ctx, s, d.Batch)
	if err != nil || ok {
		return done, err
	}
	if err := mayDelete(s); err != nil {
		return storage.Deleted{}, err
	}
	pl, err := p.plan(ctx, s)
	if err != nil {
		return storage.Deleted{}, err
	}
	held, err := approve(ctx, d, pl.matched)
	if err != nil {
		return storage.Deleted{}, err
	}
	changes := pl.changes(held)
	out := storage.Deleted{Version: s.Version, Subjects: p.results(pl, held), Kept: pl.files - int64(len(changes))}
	if len(changes) == 0 {
		return out, nil
	}
	if err := t.writeVectors(ctx, s, d.Batch, changes); err != nil {
		return storage.Deleted{}, err
	}
	for _, c := range changes {
		if err := t.restate(ctx, p.identity, c); err != nil {
			return storage.Deleted{}, err
		}
	}
	now := d.Now()
	actions, err := deleteActions(s, d, now, txnID, changes, &out)
	if err != nil {
		return storage.Deleted{}, err
	}
	v := s.Version + 1
	c, err := t.attempt(ctx, v, txnID, actions)
	if err != nil {
		return storage.Deleted{}, err
	}
	// An earlier try of this loop, with another plan, may be what landed.
	out, err = fromCommit(&c)
	if err != nil {
		return storage.Deleted{}, err
	}
	for i := range out.Subjects {
		out.Subjects[i].Reason = p.subjects[i].Reason
	}
	t.checkpoint(ctx, s, v, now)
	return out, nil
}

// approve asks whoever started the delete.
func approve(ctx context.Context, d *storage.Deletion, m storage.Matched) ([]bool, error) {
	if d.Approve == nil {
		return make([]bool, len(d.Subjects)), nil
	}
	held, err := d.Approve(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("approve: %w", err)
	}
	if len(held) != len(d.Subjects) {
		return nil, fmt.Errorf("approve: %d answers for %d subjects", len(held), len(d.Subjects))
	}
	return held, nil
}

// results states what the plan does for each subject.
func (p *planner) results(pl *plan, held []bool) []storage.SubjectResult {
	out := make([]storage.SubjectResult, len(p.subjects))
	for i, s := range p.subjects {
		out[i] = s
		if s.State == storage.SubjectInvalid {
			continue
		}
		out[i].State, out[i].Rows = storage.SubjectDone, pl.matched.Rows[i]
		if held[i] {
			out[i].State = storage.SubjectHeld
		}
	}
	return out
}

// restate prepares the statistics of a change's new add.
func (t *Table) restate(ctx context.Context, d *identity, c *change) error {
	if c.hidden == nil {
		return nil
	}
	keep, err := t.survivors(ctx, d, c.hit, c.hidden)
	if err != nil {
		return err
	}
	c.restate, err = restate(c.hit.stats, c.hit.physical, c.hit.old.Cardinality(), d.paths(), keep)
	return err
}

// deleteActions builds the commit after s.
func deleteActions(s *log.Snapshot, d *storage.Deletion, now time.Time, txnID string, changes []*change, out *storage.Deleted) ([]log.Action, error) {
	ci := info(s, now, txnID, "DELETE")
	blind := false
	ci.IsBlindAppend, ci.IsolationLevel = &blind, "Serializable"
	updated := ci.Timestamp
	actions := []log.Action{
		{CommitInfo: ci},
		{Txn: &log.Txn{AppID: d.Batch.App, Version: d.Batch.Number, LastUpdated: &updated}},
	}
	var rows, dropped, added, removed int64
	for _, c := range changes {
		out.Fragments = append(out.Fragments, c.result)
		rows += c.result.RowsDeleted
		if c.hit.add.DeletionVector != nil {
			removed++
		}
		actions = append(actions, log.Action{Remove: removeOf(&c.hit.add, ci.Timestamp)})
		if c.hidden == nil {
			dropped++
			continue
		}
		added++
		actions = append(actions, log.Action{Add: addOf(c)})
	}
	ci.OperationMetrics = map[string]string{
		"numDeletedRows":            strconv.FormatInt(rows, 10),
		"numRemovedFiles":           strconv.FormatInt(dropped, 10),
		"numAddedFiles":             "0",
		"numDeletionVectorsAdded":   strconv.FormatInt(added, 10),
		"numDeletionVectorsRemoved": strconv.FormatInt(removed, 10),
	}
	var err error
	ci.Delenda, err = json.Marshal(recordOf(d.Batch, out))
	return actions, err
}

// removeOf cancels an add: the same file with exactly its deletion vector. It
// carries no statistics.
func removeOf(a *log.Add, ms int64) *log.Remove {
	size := a.SizeBytes
	return &log.Remove{
		Path: a.Path, DeletionTimestamp: ms, DataChange: true, ExtendedFileMetadata: true,
		PartitionValues: a.PartitionValues, SizeBytes: &size, Tags: a.Tags, DeletionVector: a.DeletionVector,
		BaseRowID: a.BaseRowID, DefaultRowCommitVersion: a.DefaultRowCommitVersion,
	}
}

// addOf is the file with its new deletion vector and otherwise as it was.
func addOf(c *change) *log.Add {
	a := c.hit.add
	a.DataChange = true
	a.Stats = c.restate
	a.DeletionVector = c.vector
	if a.PartitionValues == nil {
		a.PartitionValues = map[string]*string{}
	}
	return &a
}
