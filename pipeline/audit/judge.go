package audit

import (
	"context"
	"fmt"
	"slices"

	"delenda/storage"
)

// Place is where a row lies.
type Place struct {
	File   string
	Offset int64
}

// State is what a reader sees of a table, with the values that count.
type State struct {
	Version storage.Version
	Columns []string
	Rows    map[Place][]*string // live rows
	Hidden  map[Place][]*string // rows of live files that deletion vectors hide
	batches map[string]map[int64]int
}

// Read takes the newest version into memory.
func Read(ctx context.Context, b storage.Bucket, columns ...string) (*State, error) {
	l, err := readLog(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	s := &State{
		Version: l.version, Columns: columns, batches: l.batches,
		Rows: map[Place][]*string{}, Hidden: map[Place][]*string{},
	}
	var failed error
	l.rows(ctx, b, columns, func(r Row, err error) bool {
		if err != nil {
			failed = err
			return false
		}
		to := s.Rows
		if r.Hidden {
			to = s.Hidden
		}
		to[Place{r.File, r.Offset}] = r.Values
		return true
	})
	if failed != nil {
		return nil, fmt.Errorf("audit: %w", failed)
	}
	return s, nil
}

// Commits returns how often each batch of an application was committed, by the
// commits that are still in the log.
func (s *State) Commits(app string) map[int64]int { return s.batches[app] }

// Verdict is what became of a table.
type Verdict struct {
	SubjectRowsBefore int64
	SubjectRowsLeft   int64 // rows of the subject that a reader still sees: must be none
	OtherRowsBefore   int64
	OtherRowsMissing  int64 // rows of others that a reader no longer sees: must be none
	RowsAdded         int64 // rows that were not there before
	RowsResurrected   int64 // rows hidden before that a reader sees again: must be none
	// CommittedTwice lists batches that were committed more than once: must be none.
	CommittedTwice []int64
}

// OK reports whether nothing is wrong.
func (v *Verdict) OK() bool {
	return v.SubjectRowsLeft == 0 && v.OtherRowsMissing == 0 && v.RowsResurrected == 0 && len(v.CommittedTwice) == 0
}

// Judge compares a table with what it was before an erasure by deletion
// vectors, under which rows keep their places. A row is the subject's if it
// equals a key, column by column as text; null equals nothing. app names the
// batches to count.
func Judge(before, after *State, app string, keys ...storage.Key) (Verdict, error) {
	var v Verdict
	if !slices.Equal(before.Columns, after.Columns) {
		return v, fmt.Errorf("judge: the two states hold other columns")
	}
	for _, k := range keys {
		if !slices.Contains(before.Columns, k.Column) {
			return v, fmt.Errorf("judge: column %s is not among those read", k.Column)
		}
	}
	subject := func(values []*string) bool {
		for _, k := range keys {
			if value := values[slices.Index(before.Columns, k.Column)]; value != nil && *value == k.Value.Reveal() {
				return true
			}
		}
		return false
	}
	for place, values := range before.Rows {
		_, live := after.Rows[place]
		switch {
		case subject(values):
			v.SubjectRowsBefore++
		default:
			v.OtherRowsBefore++
			if !live {
				v.OtherRowsMissing++
			}
		}
	}
	for place, values := range after.Rows {
		if subject(values) {
			v.SubjectRowsLeft++
		}
		_, was := before.Rows[place]
		_, hidden := before.Hidden[place]
		switch {
		case hidden:
			v.RowsResurrected++
		case !was:
			v.RowsAdded++
		}
	}
	for n, times := range after.Commits(app) {
		if times > 1 {
			v.CommittedTwice = append(v.CommittedTwice, n)
		}
	}
	slices.Sort(v.CommittedTwice)
	return v, nil
}
