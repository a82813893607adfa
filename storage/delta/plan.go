package delta

import (
	"context"
	"crypto/sha256"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"delenda/storage"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"
	"delenda/storage/match"
)

// planner plans one delete, again after each lost race. What it found out
// about data files stays valid while the metadata does: data files never
// change, and what their rows match does not depend on deletion vectors. Only
// what statistics ruled out does: they may speak of live rows alone.
type planner struct {
	t *Table
	d *storage.Deletion

	metadata *log.Metadata // what the rest was made for
	bound    *binding
	identity *identity // of the columns whose bounds our commits leave out
	keys     *match.Set
	subjects []storage.SubjectResult

	mu      sync.Mutex
	scanned map[fileID]*scanned

	done, total, rows, bytes atomic.Int64
}

// fileID stands for a data file in memory.
type fileID [16]byte

func idOf(path string) fileID {
	h := sha256.Sum256([]byte(path))
	return fileID(h[:16])
}

// scanned is what is known of one data file.
type scanned struct {
	physical int64
	matches  []subjectRows  // ascending by subject; empty: no row matches
	columns  []*boundColumn // the data columns that were looked at; statistics ruled out the others
}

// covers reports whether nothing but what was looked at can match.
func (s *scanned) covers(candidates []candidate) bool {
	return !slices.ContainsFunc(candidates, func(c candidate) bool { return !slices.Contains(s.columns, c.column) })
}

// subjectRows are the physical rows of a file that are one subject's.
type subjectRows struct {
	subject int
	all     bool // every row, by partition value
	rows    *deletion.Set
}

// plan is what a delete would do to one version.
type plan struct {
	snapshot *log.Snapshot
	hits     []*hit // files with a live match, ascending by path
	files    int64
	matched  storage.Matched
}

// hit is a file with live rows that match.
type hit struct {
	add      log.Add
	key      string
	stats    *log.Stats
	physical int64
	old      *deletion.Set // rows hidden already; nil for none
	matches  []subjectRows
}

// live counts the rows of m that are not hidden yet.
func (h *hit) live(m *subjectRows) int64 {
	if m.all {
		return h.physical - h.old.Cardinality()
	}
	return m.rows.Minus(h.old).Cardinality()
}

// prepare binds columns and compiles keys, once per metadata.
func (p *planner) prepare(s *log.Snapshot) error {
	if p.metadata != nil && sameLayout(p.metadata, &s.Metadata) {
		return nil
	}
	columns := keyColumns(p.d.Subjects)
	bound, err := bind(s, columns)
	if err != nil {
		return err
	}
	keys, subjects, err := match.Compile(p.d.Subjects, bound.matchColumns())
	if err != nil {
		return err
	}
	identity, err := identityColumns(s, append(columns, p.t.o.IdentityColumns...))
	if err != nil {
		return err
	}
	p.metadata, p.bound, p.identity, p.keys, p.subjects = &s.Metadata, bound, identity, keys, subjects
	p.scanned = map[fileID]*scanned{}
	return nil
}

// sameLayout reports whether scans for one metadata hold for another.
func sameLayout(a, b *log.Metadata) bool {
	const mode = "delta.columnMapping.mode"
	return a.ID == b.ID && a.SchemaString == b.SchemaString && slices.Equal(a.PartitionColumns, b.PartitionColumns) &&
		a.Configuration[mode] == b.Configuration[mode]
}

// plan finds out what the subjects' keys match in the snapshot.
func (p *planner) plan(ctx context.Context, s *log.Snapshot) (*plan, error) {
	if err := p.prepare(s); err != nil {
		return nil, err
	}
	out := &plan{snapshot: s, matched: storage.Matched{Rows: make([]int64, len(p.d.Subjects))}}
	p.done.Store(0)
	p.total.Store(0)
	g, ctx := errgroup.WithContext(ctx)
	adds := make(chan log.Add, 1024)
	g.Go(func() error {
		defer close(adds)
		for a, err := range s.Files(ctx) {
			if err != nil {
				return err
			}
			p.total.Add(1)
			select {
			case adds <- a:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var mu sync.Mutex
	live := map[fileID]struct{}{} // candidates, to find a path that is live twice
	for range p.t.o.Workers {
		g.Go(func() error {
			for a := range adds {
				h, rows, err := p.file(ctx, &a)
				if err != nil {
					return err
				}
				mu.Lock()
				out.files++
				out.matched.LiveRows += rows
				if h != nil {
					id := idOf(h.key)
					_, twice := live[id]
					live[id] = struct{}{}
					if twice {
						err = &storage.CorruptError{Offset: -1, Field: "add.path", Reason: "one path is live with two deletion vectors"}
					}
					out.hits = append(out.hits, h)
					for i := range h.matches {
						out.matched.Rows[h.matches[i].subject] += h.live(&h.matches[i])
					}
				}
				mu.Unlock()
				if err != nil {
					return err
				}
				p.progress()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.hits, func(a, b *hit) int { return strings.Compare(a.add.Path, b.add.Path) })
	return out, nil
}

func (p *planner) progress() {
	p.done.Add(1)
	p.sign()
}

// sign says how far the scan is, if only to say that something moves.
func (p *planner) sign() {
	if p.d.Progress == nil {
		return
	}
	done := p.done.Load()
	p.d.Progress(storage.Progress{
		FragmentsDone: done, FragmentsTotal: max(p.total.Load(), done),
		RowsScanned: p.rows.Load(), BytesRead: p.bytes.Load(),
	})
}

// file plans one file: a hit if live rows of it match, and its live rows.
func (p *planner) file(ctx context.Context, a *log.Add) (*hit, int64, error) {
	stats, err := log.ParseStats(a.Stats)
	if err != nil {
		return nil, 0, err
	}
	key, err := a.Key(p.t.o.Root)
	if err != nil {
		return nil, 0, err
	}
	found, err := p.find(ctx, a, key, stats)
	if err != nil {
		return nil, 0, storage.Discreet(err, key)
	}
	hidden := int64(0)
	if a.DeletionVector != nil {
		hidden = a.DeletionVector.Cardinality
	}
	if hidden > found.physical {
		return nil, 0, &storage.CorruptError{Key: path.Base(key), Offset: -1, Field: "deletionVector.cardinality", Reason: "more rows than the file has"}
	}
	rows := found.physical - hidden
	if len(found.matches) == 0 || rows == 0 {
		return nil, rows, nil
	}
	h := &hit{add: *a, key: key, stats: stats, physical: found.physical, matches: found.matches}
	if a.DeletionVector != nil {
		if h.old, err = p.t.readVector(ctx, a.DeletionVector, found.physical); err != nil {
			return nil, 0, err
		}
	}
	for i := range h.matches {
		if h.live(&h.matches[i]) > 0 {
			return h, rows, nil
		}
	}
	return nil, rows, nil
}

// readVector reads a deletion vector of the table.
func (t *Table) readVector(ctx context.Context, d *deletion.Descriptor, physical int64) (*deletion.Set, error) {
	key, err := d.Resolve(t.o.Root)
	if err != nil {
		return nil, err
	}
	rows, err := deletion.ReadAt(ctx, t.bucket, key, *d, physical)
	return rows, storage.Discreet(err, key)
}
