package delta

import (
	"context"
	"errors"
	"maps"
	"slices"

	"delenda/storage/deletion"
	"delenda/storage/delta/log"
	"delenda/storage/match"
	"delenda/storage/parquet"
)

// find returns what the rows of a data file match, hidden rows included. The
// file is opened only if partition values and statistics leave a question.
func (p *planner) find(ctx context.Context, a *log.Add, key string, stats *log.Stats) (*scanned, error) {
	id := idOf(key)
	p.mu.Lock()
	known := p.scanned[id]
	p.mu.Unlock()
	candidates := p.candidates(stats)
	if known != nil && known.covers(candidates) {
		return known, nil
	}
	whole, err := p.byPartition(a)
	if err != nil {
		return nil, err
	}
	out := &scanned{}
	for _, c := range candidates {
		out.columns = append(out.columns, c.column)
	}
	if stats.NumRecords != nil {
		out.physical = *stats.NumRecords
	}
	rows := map[int]*deletion.Set{}
	if len(candidates) > 0 || stats.NumRecords == nil {
		f, err := parquet.Open(ctx, p.t.bucket, key, a.SizeBytes)
		if err != nil {
			return nil, err
		}
		out.physical = f.NumRows() // the file decides
		if err := p.scan(ctx, f, candidates, rows); err != nil {
			return nil, err
		}
	}
	for _, s := range whole {
		delete(rows, s)
		out.matches = append(out.matches, subjectRows{subject: s, all: true})
	}
	for _, s := range slices.Sorted(maps.Keys(rows)) {
		out.matches = append(out.matches, subjectRows{subject: s, rows: rows[s]})
	}
	slices.SortFunc(out.matches, func(a, b subjectRows) int { return a.subject - b.subject })
	p.mu.Lock()
	p.scanned[id] = out
	p.mu.Unlock()
	return out, nil
}

// byPartition returns the subjects that every row of the file is.
func (p *planner) byPartition(a *log.Add) ([]int, error) {
	var out []int
	for i := range p.bound.columns {
		c := &p.bound.columns[i]
		keys := p.keys.Column(c.Name)
		if c.partition == "" || keys == nil {
			continue
		}
		subjects, err := keys.MatchPartition(a.PartitionValues[c.partition])
		if err != nil {
			return nil, err
		}
		out = append(out, subjects...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// candidate is a data column that may hold a match.
type candidate struct {
	column *boundColumn
	keys   *match.ColumnKeys
}

// candidates drops the columns that the statistics rule out.
func (p *planner) candidates(stats *log.Stats) []candidate {
	var out []candidate
	for i := range p.bound.columns {
		c := &p.bound.columns[i]
		keys := p.keys.Column(c.Name)
		if c.partition != "" || keys == nil || allNull(stats, c.physical) {
			continue
		}
		if keys.OverlapsStats(log.Lookup(stats.MinValues, c.physical), log.Lookup(stats.MaxValues, c.physical)) {
			out = append(out, candidate{c, keys})
		}
	}
	return out
}

// allNull reports whether the statistics say that a column has no value; a
// null count equal to the row count says so with tight bounds and without.
func allNull(stats *log.Stats, physical []string) bool {
	n, ok := nullCount(stats, physical)
	return ok && stats.NumRecords != nil && n == *stats.NumRecords
}

// scan collects the matching rows of the candidate columns by subject.
func (p *planner) scan(ctx context.Context, f *parquet.File, candidates []candidate, rows map[int]*deletion.Set) error {
	var keys []parquet.Key
	for _, c := range candidates {
		leaf, err := p.bound.leaf(f, c.column)
		if errors.Is(err, parquet.ErrNoLeaf) {
			continue // the column is younger than the file: null everywhere
		}
		if err != nil {
			return err
		}
		keys = append(keys, parquet.Key{Leaf: leaf, Keys: c.keys})
	}
	if len(keys) == 0 {
		return nil
	}
	var last *deletion.Set
	lastSubject := -1
	stats, err := f.Scan(ctx, keys, func(subject int, row int64) {
		if subject != lastSubject {
			if last = rows[subject]; last == nil {
				last = deletion.NewThreshold(p.t.o.Threshold)
				rows[subject] = last
			}
			lastSubject = subject
		}
		last.Add(row)
	})
	p.rows.Add(stats.RowsScanned)
	p.bytes.Add(stats.BytesRead)
	return err
}
