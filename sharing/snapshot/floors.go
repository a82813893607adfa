package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"delenda/storage"
	"delenda/storage/delta/log"

	"golang.org/x/sync/errgroup"
)

// Operations of our commits.
const (
	operationDelete = "DELETE"
	operationPurge  = "REORG"
)

const floorReadAhead = 8 // commits read at once

// floors are the newest commits of erasures, storage.NoVersion for none.
type floors struct{ hide, purge storage.Version }

// findFloors walks the commits above `above` up to the snapshot, newest first,
// for the newest delete and the newest purge of the installation. Commits that
// the log's cleanup removed cannot tell: if the snapshot shows that the
// installation has written to the table, and no later delete was found, the
// newest version that is missing stands for the delete.
func findFloors(ctx context.Context, b storage.Bucket, snap *log.Snapshot, above storage.Version, installation string) (floors, error) {
	found := floors{storage.NoVersion, storage.NoVersion}
	app := "delenda/" + installation + "/"
	for v := snap.Version; v > above; {
		n := min(floorReadAhead, int(v-above))
		commits := make([]log.Commit, n)
		errs := make([]error, n)
		var g errgroup.Group
		for i := range n {
			g.Go(func() error {
				commits[i], errs[i] = log.ReadCommit(ctx, b, v-storage.Version(i))
				return nil
			})
		}
		_ = g.Wait() // the errors are in errs
		for i := range n {
			if errors.Is(errs[i], storage.ErrNotFound) {
				if found.hide == storage.NoVersion && wrote(snap, app) {
					found.hide = v
				}
				return found, nil
			}
			if errs[i] != nil {
				return floors{}, fmt.Errorf("find floors: %w", errs[i])
			}
			found.add(&commits[i], app)
			if found.hide != storage.NoVersion && found.purge != storage.NoVersion {
				return found, nil
			}
			v--
		}
	}
	return found, nil
}

func (f *floors) add(c *log.Commit, app string) {
	ours := slices.ContainsFunc(c.Txns, func(t log.Txn) bool { return strings.HasPrefix(t.AppID, app) })
	if !ours || c.Info == nil {
		return
	}
	switch c.Info.Operation {
	case operationDelete:
		f.hide = max(f.hide, c.Version)
	case operationPurge:
		f.purge = max(f.purge, c.Version)
	}
}

func wrote(snap *log.Snapshot, app string) bool {
	for id := range snap.Txns {
		if strings.HasPrefix(id, app) {
			return true
		}
	}
	return false
}
