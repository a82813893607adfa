package pipelinetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"delenda/storage"
)

// Row is a row of a Table: text columns, null if absent.
type Row map[string]string

// Table is a small storage.Table over a bucket: commits are numbered objects,
// put if absent, that add rows or hide them. It serves tests of what is above
// a table; the conformance suite of tables is elsewhere.
type Table struct {
	Bucket  storage.Bucket
	Columns []string
	// BeforeDelete, when not nil, is called by Delete before anything else.
	BeforeDelete func(ctx context.Context, d storage.Deletion) error
	// BeforeCommit, when not nil, is called once the plan is approved.
	BeforeCommit func(ctx context.Context) error
}

type commit struct {
	Add     []Row                   `json:"add,omitempty"`
	Hide    []int                   `json:"hide,omitempty"` // row numbers over all commits
	App     string                  `json:"app,omitempty"`
	Number  int64                   `json:"number,omitempty"`
	Results []storage.SubjectResult `json:"results,omitempty"`
}

// State is a table at its newest version.
type State struct {
	Version storage.Version
	Rows    []Row
	Hidden  map[int]bool
	commits []commit
}

func commitKey(v storage.Version) string { return fmt.Sprintf("log/%020d", v) }

// Load reads the newest version.
func (t *Table) Load(ctx context.Context) (*State, error) {
	s := &State{Version: storage.NoVersion, Hidden: map[int]bool{}}
	for info, err := range t.Bucket.List(ctx, "log/", "") {
		if err != nil {
			return nil, err
		}
		p, err := storage.ReadObject(ctx, t.Bucket, info.Key, 1<<20)
		if err != nil {
			return nil, err
		}
		var c commit
		if err := json.Unmarshal(p, &c); err != nil {
			return nil, fmt.Errorf("%w: %s", storage.ErrCorrupt, info.Key)
		}
		s.Rows = append(s.Rows, c.Add...)
		for _, r := range c.Hide {
			s.Hidden[r] = true
		}
		s.commits = append(s.commits, c)
		s.Version++
	}
	if s.Version == storage.NoVersion {
		return nil, storage.ErrNoTable
	}
	return s, nil
}

func (t *Table) put(ctx context.Context, v storage.Version, c commit) error {
	p, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return t.Bucket.Put(ctx, commitKey(v), bytes.NewReader(p), storage.PutOptions{IfAbsent: true})
}

// Append adds rows in a commit of its own.
func (t *Table) Append(ctx context.Context, rows ...Row) error {
	for {
		next := storage.Version(0)
		s, err := t.Load(ctx)
		switch {
		case err == nil:
			next = s.Version + 1
		case !errors.Is(err, storage.ErrNoTable):
			return err
		}
		if err := t.put(ctx, next, commit{Add: rows}); !errors.Is(err, storage.ErrExists) {
			return err
		}
	}
}

// Commits counts the commits that hold a batch of app, per batch number.
func (s *State) Commits(app string) map[int64]int {
	n := map[int64]int{}
	for _, c := range s.commits {
		if c.App == app {
			n[c.Number]++
		}
	}
	return n
}

// Live counts the rows in sight whose column is value.
func (s *State) Live(column, value string) (n int64) { return s.count(column, value, false) }

// Gone counts the hidden rows whose column is value.
func (s *State) Gone(column, value string) (n int64) { return s.count(column, value, true) }

func (s *State) count(column, value string, hidden bool) (n int64) {
	for i, r := range s.Rows {
		if v, ok := r[column]; ok && v == value && s.Hidden[i] == hidden {
			n++
		}
	}
	return n
}

// Describe implements storage.Table.
func (t *Table) Describe(ctx context.Context) (storage.Description, error) {
	s, err := t.Load(ctx)
	if err != nil {
		return storage.Description{}, err
	}
	return storage.Description{
		Format: storage.Delta, Version: s.Version, Fragments: 1,
		LiveRows: int64(len(s.Rows) - len(s.Hidden)), DeletedRows: int64(len(s.Hidden)),
	}, nil
}

// Bind implements storage.Table.
func (t *Table) Bind(_ context.Context, columns []string) error {
	for _, c := range columns {
		found := false
		for _, have := range t.Columns {
			found = found || have == c
		}
		if !found {
			return storage.Refuse("unknown_column", "no column %q", c)
		}
	}
	return nil
}

// LastBatch implements storage.Table.
func (t *Table) LastBatch(ctx context.Context, app string) (int64, error) {
	s, err := t.Load(ctx)
	if err != nil {
		return 0, err
	}
	return s.last(app), nil
}

func (s *State) last(app string) (n int64) {
	for _, c := range s.commits {
		if c.App == app {
			n = max(n, c.Number)
		}
	}
	return n
}

// Delete implements storage.Table.
func (t *Table) Delete(ctx context.Context, d storage.Deletion) (storage.Deleted, error) {
	if t.BeforeDelete != nil {
		if err := t.BeforeDelete(ctx, d); err != nil {
			return storage.Deleted{}, err
		}
	}
	for {
		s, err := t.Load(ctx)
		if err != nil {
			return storage.Deleted{}, err
		}
		if done, ok := s.committed(d.Batch); ok {
			return done, nil
		}
		if s.last(d.Batch.App) > d.Batch.Number {
			return storage.Deleted{}, storage.ErrBatchOrder
		}
		done, c, err := s.plan(ctx, d)
		if err != nil || len(c.Hide) == 0 {
			return done, err
		}
		if t.BeforeCommit != nil {
			if err := t.BeforeCommit(ctx); err != nil {
				return storage.Deleted{}, err
			}
		}
		if err := ctx.Err(); err != nil {
			return storage.Deleted{}, err
		}
		err = t.put(ctx, s.Version+1, c)
		if errors.Is(err, storage.ErrExists) {
			continue
		}
		return done, err
	}
}

func (s *State) plan(ctx context.Context, d storage.Deletion) (storage.Deleted, commit, error) {
	done := storage.Deleted{Version: s.Version, Subjects: make([]storage.SubjectResult, len(d.Subjects)), Kept: 1}
	matched := make([][]int, len(d.Subjects))
	m := storage.Matched{Rows: make([]int64, len(d.Subjects)), LiveRows: int64(len(s.Rows) - len(s.Hidden))}
	for i, subject := range d.Subjects {
		done.Subjects[i].State = storage.SubjectDone
		for _, k := range subject.Keys {
			if k.Value.Reveal() == "invalid" {
				done.Subjects[i] = storage.SubjectResult{State: storage.SubjectInvalid, Reason: "column " + k.Column}
			}
		}
		if done.Subjects[i].State == storage.SubjectInvalid {
			continue
		}
		for r, row := range s.Rows {
			if !s.Hidden[r] && matches(row, subject) {
				matched[i] = append(matched[i], r)
			}
		}
		m.Rows[i] = int64(len(matched[i]))
		done.Subjects[i].Rows = m.Rows[i]
	}
	held := make([]bool, len(d.Subjects))
	if d.Approve != nil {
		var err error
		if held, err = d.Approve(ctx, m); err != nil {
			return storage.Deleted{}, commit{}, err
		}
	}
	c := commit{App: d.Batch.App, Number: d.Batch.Number, Results: done.Subjects}
	hide := map[int]bool{}
	for i, rows := range matched {
		if held[i] {
			done.Subjects[i].State = storage.SubjectHeld
			continue
		}
		for _, r := range rows {
			if !hide[r] {
				hide[r] = true
				c.Hide = append(c.Hide, r)
			}
		}
	}
	if len(c.Hide) > 0 {
		done = deletedBy(c, s.Version+1)
	}
	return done, c, nil
}

func matches(row Row, s storage.Subject) bool {
	for _, k := range s.Keys {
		if v, ok := row[k.Column]; ok && v == k.Value.Reveal() {
			return true
		}
	}
	return false
}

func deletedBy(c commit, v storage.Version) storage.Deleted {
	n := int64(len(c.Hide))
	return storage.Deleted{
		Committed: true, Version: v, Subjects: c.Results,
		Fragments: []storage.FragmentResult{{Fragment: strconv.Itoa(0), Outcome: storage.Set, RowsDeleted: n, RowsHidden: n}},
	}
}

func (s *State) committed(b storage.Batch) (storage.Deleted, bool) {
	for v, c := range s.commits {
		if c.App == b.App && c.Number == b.Number && storage.Version(v) > b.Base {
			return deletedBy(c, storage.Version(v)), true
		}
	}
	return storage.Deleted{}, false
}

// Committed implements storage.Table.
func (t *Table) Committed(ctx context.Context, b storage.Batch) (storage.Deleted, bool, error) {
	s, err := t.Load(ctx)
	if err != nil {
		return storage.Deleted{}, false, err
	}
	d, ok := s.committed(b)
	return d, ok, nil
}
