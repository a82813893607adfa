package storagetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"delenda/storage"
)

// Memory is the second implementation of storage.Table: a table in memory that
// does everything in the plainest way. It is its own Host, and the model that
// random operations on other implementations are compared with.
type Memory struct {
	mu        sync.Mutex
	version   storage.Version
	fragments []memoryFragment
	next      int
	batches   map[string]int64                  // newest by application
	commits   map[storage.Batch]storage.Deleted // without Base
}

type memoryFragment struct {
	name   string
	rows   []Row
	hidden map[int]bool
}

const (
	memoryAttempts  = 4
	memoryThreshold = 64
)

var (
	_ storage.Table = (*Memory)(nil)
	_ Host          = (*Memory)(nil)
)

// NewMemory returns a table without rows.
func NewMemory() *Memory {
	return &Memory{batches: map[string]int64{}, commits: map[storage.Batch]storage.Deleted{}}
}

// Open implements Host.
func (m *Memory) Open(testing.TB) storage.Table { return m }

// Append implements Host.
func (m *Memory) Append(_ testing.TB, rows ...Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.append(rows)
	m.version++
}

func (m *Memory) append(rows []Row) {
	byRegion := map[string][]Row{}
	for _, r := range rows {
		byRegion[r.Region] = append(byRegion[r.Region], r)
	}
	for _, region := range slices.Sorted(maps.Keys(byRegion)) {
		m.fragments = append(m.fragments, memoryFragment{name: fmt.Sprintf("fragment-%06d", m.next), rows: byRegion[region]})
		m.next++
	}
}

// Hide implements Host.
func (m *Memory) Hide(_ testing.TB, id int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []memoryFragment
	for _, f := range m.fragments {
		hidden := maps.Clone(f.hidden)
		for i, r := range f.rows {
			if r.ID == id {
				if hidden == nil {
					hidden = map[int]bool{}
				}
				hidden[i] = true
			}
		}
		if f.hidden = hidden; len(hidden) < len(f.rows) {
			out = append(out, f)
		}
	}
	m.fragments = out
	m.version++
}

// Restore implements Host.
func (m *Memory) Restore(testing.TB) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fragments = slices.Clone(m.fragments)
	for i := range m.fragments {
		m.fragments[i].hidden = nil
	}
	m.version++
}

// Compact implements Host.
func (m *Memory) Compact(testing.TB) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := m.live()
	m.fragments = nil
	m.append(rows)
	m.version++
}

// Rows implements Host.
func (m *Memory) Rows(testing.TB) []Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live()
}

func (m *Memory) live() []Row {
	var out []Row
	for _, f := range m.fragments {
		for i, r := range f.rows {
			if !f.hidden[i] {
				out = append(out, r)
			}
		}
	}
	return out
}

// Describe implements storage.Table.
func (m *Memory) Describe(ctx context.Context) (storage.Description, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := storage.Description{Format: "memory", Version: m.version, Features: []string{}, Refused: []storage.RefusedOperation{}}
	for _, f := range m.fragments {
		d.Fragments++
		d.DeletedRows += int64(len(f.hidden))
		d.LiveRows += int64(len(f.rows) - len(f.hidden))
	}
	return d, ctx.Err()
}

// Bind implements storage.Table.
func (m *Memory) Bind(ctx context.Context, columns []string) error {
	for _, c := range columns {
		switch c {
		case "id", "email", "contact.phone", "region":
		case "contact", "score":
			return storage.Refuse("uncomparable_column", "column %s cannot be compared", c)
		default:
			return storage.Refuse("unknown_column", "the table has no column %s", c)
		}
	}
	return ctx.Err()
}

// LastBatch implements storage.Table.
func (m *Memory) LastBatch(ctx context.Context, app string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.batches[app], ctx.Err()
}

// Committed implements storage.Table.
func (m *Memory) Committed(ctx context.Context, b storage.Batch) (storage.Deleted, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.commits[storage.Batch{App: b.App, Number: b.Number}]
	return clone(d), ok, ctx.Err()
}

func clone(d storage.Deleted) storage.Deleted {
	d.Subjects, d.Fragments = slices.Clone(d.Subjects), slices.Clone(d.Fragments)
	return d
}

// Delete implements storage.Table.
func (m *Memory) Delete(ctx context.Context, d storage.Deletion) (storage.Deleted, error) {
	for _, s := range d.Subjects {
		for _, k := range s.Keys {
			if err := m.Bind(ctx, []string{k.Column}); err != nil {
				return storage.Deleted{}, err
			}
		}
	}
	for range memoryAttempts {
		out, done, err := m.attempt(ctx, d)
		if done || err != nil {
			return out, err
		}
	}
	return storage.Deleted{}, storage.ErrConflict
}

// attempt plans on the newest version, asks, and commits if no other did.
func (m *Memory) attempt(ctx context.Context, d storage.Deletion) (storage.Deleted, bool, error) {
	m.mu.Lock()
	version, fragments, last := m.version, m.fragments, m.batches[d.Batch.App]
	before, ok := m.commits[storage.Batch{App: d.Batch.App, Number: d.Batch.Number}]
	m.mu.Unlock()
	switch {
	case last > d.Batch.Number:
		return storage.Deleted{}, false, storage.ErrBatchOrder
	case ok:
		return clone(before), true, nil
	}
	matched := storage.Matched{Rows: make([]int64, len(d.Subjects))}
	for i, f := range fragments {
		for j, r := range f.rows {
			if f.hidden[j] {
				continue
			}
			matched.LiveRows++
			for s := range d.Subjects {
				if owns(d.Subjects[s], r) {
					matched.Rows[s]++
				}
			}
		}
		if d.Progress != nil {
			d.Progress(storage.Progress{FragmentsDone: int64(i + 1), FragmentsTotal: int64(len(fragments))})
		}
	}
	held := make([]bool, len(d.Subjects))
	if d.Approve != nil {
		var err error
		if held, err = d.Approve(ctx, matched); err != nil {
			return storage.Deleted{}, false, err
		}
	}
	out, after := apply(d, fragments, matched, held)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return storage.Deleted{}, false, err
	}
	if len(out.Fragments) == 0 {
		out.Version = version
		return out, true, nil
	}
	if m.version != version {
		return storage.Deleted{}, false, nil
	}
	m.version++
	m.fragments = after
	out.Committed, out.Version = true, m.version
	m.batches[d.Batch.App] = d.Batch.Number
	m.commits[storage.Batch{App: d.Batch.App, Number: d.Batch.Number}] = out
	return clone(out), true, nil
}

// apply hides the approved subjects' rows in a copy of the fragments.
func apply(d storage.Deletion, fragments []memoryFragment, matched storage.Matched, held []bool) (storage.Deleted, []memoryFragment) {
	var out storage.Deleted
	for i, s := range d.Subjects {
		r := storage.SubjectResult{State: storage.SubjectDone, Rows: matched.Rows[i]}
		if column := invalid(s); column != "" {
			r = storage.SubjectResult{State: storage.SubjectInvalid, Reason: "column " + column + ": not a long"}
		} else if held[i] {
			r.State = storage.SubjectHeld
		}
		out.Subjects = append(out.Subjects, r)
	}
	var after []memoryFragment
	for _, f := range fragments {
		hidden := map[int]bool{}
		maps.Copy(hidden, f.hidden)
		for j, r := range f.rows {
			for s := range d.Subjects {
				if !held[s] && owns(d.Subjects[s], r) {
					hidden[j] = true
				}
			}
		}
		added := len(hidden) - len(f.hidden)
		if added == 0 {
			out.Kept++
			after = append(after, f)
			continue
		}
		res := storage.FragmentResult{
			Fragment: f.name, Outcome: storage.Set, RowsDeleted: int64(added), RowsHidden: int64(len(hidden)), PhysicalRows: int64(len(f.rows)),
		}
		switch {
		case len(hidden) == len(f.rows):
			res.Outcome = storage.Dropped
		case len(hidden) > memoryThreshold:
			res.Outcome = storage.Bitmap
		}
		if res.Outcome != storage.Dropped {
			after = append(after, memoryFragment{name: f.name, rows: f.rows, hidden: hidden})
		}
		out.Fragments = append(out.Fragments, res)
	}
	sortFragments(out.Fragments)
	return out, after
}

// invalid returns the column of a key that is not in canonical form.
func invalid(s storage.Subject) string {
	for _, k := range s.Keys {
		if k.Column != "id" {
			continue
		}
		n, err := strconv.ParseInt(k.Value.Reveal(), 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != k.Value.Reveal() {
			return k.Column
		}
	}
	return ""
}

// owns reports whether a row equals a key of a valid subject.
func owns(s storage.Subject, r Row) bool {
	if invalid(s) != "" {
		return false
	}
	is := func(v *string, k storage.Key) bool { return v != nil && *v == k.Value.Reveal() }
	for _, k := range s.Keys {
		var hit bool
		switch k.Column {
		case "id":
			hit = strconv.FormatInt(r.ID, 10) == k.Value.Reveal()
		case "email":
			hit = is(r.Email, k)
		case "contact.phone":
			hit = is(r.Phone, k)
		case "region":
			hit = r.Region == k.Value.Reveal()
		}
		if hit {
			return true
		}
	}
	return false
}
