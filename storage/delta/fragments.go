package delta

import (
	"context"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"

	"delenda/storage"
	"delenda/storage/delta/log"
	"delenda/storage/parquet"
)

// Fragment is a live data file with its deletion vector.
type Fragment struct {
	Path         string // as logged
	PhysicalRows int64  // rows in the file
	DeletedRows  int64  // rows that the deletion vector hides
}

// Fragments yields the fragments of a version (storage.NoVersion: the newest)
// in no particular order. Row counts come from statistics, or from the file's
// footer where those lack them.
func (t *Table) Fragments(ctx context.Context, version storage.Version) iter.Seq2[Fragment, error] {
	return func(yield func(Fragment, error) bool) {
		s, err := log.Load(ctx, t.bucket, version)
		if err != nil {
			yield(Fragment{}, fmt.Errorf("list fragments: %w", err))
			return
		}
		for a, err := range s.Files(ctx) {
			var f Fragment
			if err == nil {
				f, err = t.fragment(ctx, &a)
			}
			if err != nil {
				yield(Fragment{}, fmt.Errorf("list fragments: %w", err))
				return
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

// eachFragment calls f for every fragment, one call at a time; footers are read
// in parallel.
func (t *Table) eachFragment(ctx context.Context, s *log.Snapshot, f func(Fragment)) error {
	g, gctx := errgroup.WithContext(ctx)
	adds, found := make(chan log.Add, 256), make(chan Fragment, 256)
	g.Go(func() error {
		defer close(adds)
		for a, err := range s.Files(gctx) {
			if err != nil {
				return err
			}
			select {
			case adds <- a:
			case <-gctx.Done():
				return gctx.Err()
			}
		}
		return nil
	})
	workers, wctx := errgroup.WithContext(gctx)
	for range t.o.Workers {
		workers.Go(func() error {
			for a := range adds {
				fr, err := t.fragment(wctx, &a)
				if err != nil {
					return err
				}
				select {
				case found <- fr:
				case <-wctx.Done():
					return wctx.Err()
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(found)
		return workers.Wait()
	})
	for fr := range found {
		f(fr)
	}
	return g.Wait()
}

func (t *Table) fragment(ctx context.Context, a *log.Add) (Fragment, error) {
	stats, err := log.ParseStats(a.Stats)
	if err != nil {
		return Fragment{}, err
	}
	f := Fragment{Path: a.Path}
	if a.DeletionVector != nil {
		f.DeletedRows = a.DeletionVector.Cardinality
	}
	if stats.NumRecords != nil {
		f.PhysicalRows = *stats.NumRecords
		return f, nil
	}
	key, err := a.Key(t.o.Root)
	if err != nil {
		return Fragment{}, err
	}
	file, err := parquet.Open(ctx, t.bucket, key, a.SizeBytes)
	if err != nil {
		return Fragment{}, storage.Discreet(err, key)
	}
	f.PhysicalRows = file.NumRows()
	return f, nil
}
