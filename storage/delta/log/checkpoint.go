package log

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"strings"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"delenda/storage"
	"delenda/storage/delta/internal/arrowfile"
)

const (
	checkpointBatch = 4096 // rows encoded at once
	maxSidecars     = 1_000_000
)

// checkpoint is an opened checkpoint: its small actions in memory, its file
// actions still in the store.
type checkpoint struct {
	version  storage.Version
	protocol *Protocol
	metadata *Metadata
	txns     []Txn
	domains  []DomainMetadata
	main     []storage.Info // one object, or all parts
	json     bool           // main is NDJSON
	sidecars []storage.Info
}

// openCheckpoint reads everything but the file actions.
func openCheckpoint(ctx context.Context, b storage.Bucket, c *checkpointFiles) (*checkpoint, error) {
	base := &checkpoint{version: c.version, main: c.files, json: c.json}
	fold := func(a *Action) error {
		switch {
		case a.Protocol != nil:
			base.protocol = a.Protocol
		case a.Metadata != nil:
			base.metadata = a.Metadata
		case a.Txn != nil:
			if base.txns = append(base.txns, *a.Txn); len(base.txns) > maxTxns {
				return &storage.CorruptError{Key: c.files[0].Key, Offset: -1, Field: "txn", Reason: "more than allowed"}
			}
		case a.DomainMetadata != nil:
			if base.domains = append(base.domains, *a.DomainMetadata); len(base.domains) > maxDomains {
				return &storage.CorruptError{Key: c.files[0].Key, Offset: -1, Field: "domainMetadata", Reason: "more than allowed"}
			}
		case a.Sidecar != nil:
			if base.sidecars = append(base.sidecars, sidecarInfo(a.Sidecar)); len(base.sidecars) > maxSidecars {
				return &storage.CorruptError{Key: c.files[0].Key, Offset: -1, Field: "sidecar", Reason: "more than allowed"}
			}
		}
		return nil
	}
	for _, info := range c.files {
		if c.json {
			err := readActions(ctx, b, info.Key, func(_ int64, a *Action) error { return fold(a) })
			if err != nil {
				return nil, err
			}
			continue
		}
		for a, err := range readParquet(ctx, b, info, "protocol", "metaData", "txn", "domainMetadata", "sidecar") {
			if err == nil {
				err = fold(a)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if base.protocol == nil || base.metadata == nil {
		return nil, &storage.CorruptError{Key: c.files[0].Key, Offset: -1, Field: "protocol", Reason: "a checkpoint without protocol or metaData"}
	}
	return base, nil
}

// sidecarInfo resolves a sidecar's path: a bare name below _sidecars, or a
// path relative to the log.
func sidecarInfo(s *Sidecar) storage.Info {
	name, err := url.PathUnescape(s.Path)
	if err != nil {
		name = s.Path
	}
	if !strings.Contains(name, "/") {
		return storage.Info{Key: prefix + "_sidecars/" + name, SizeBytes: s.SizeBytes}
	}
	if _, after, ok := strings.Cut(name, prefix); ok {
		return storage.Info{Key: prefix + after, SizeBytes: s.SizeBytes}
	}
	return storage.Info{Key: prefix + name, SizeBytes: s.SizeBytes}
}

func (c *checkpoint) files(ctx context.Context, b storage.Bucket) iter.Seq2[*Action, error] {
	return c.rows(ctx, b, "add")
}

func (c *checkpoint) tombstones(ctx context.Context, b storage.Bucket) iter.Seq2[*Action, error] {
	return c.rows(ctx, b, "remove")
}

// rows streams the actions of one kind from the main objects and the sidecars.
func (c *checkpoint) rows(ctx context.Context, b storage.Bucket, kind string) iter.Seq2[*Action, error] {
	return func(yield func(*Action, error) bool) {
		if c.json {
			err := readActions(ctx, b, c.main[0].Key, func(_ int64, a *Action) error {
				if (a.Add != nil && kind == "add" || a.Remove != nil && kind == "remove") && !yield(a, nil) {
					return errStop
				}
				return nil
			})
			if errors.Is(err, errStop) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
		var objects []storage.Info
		if !c.json {
			objects = append(objects, c.main...)
		}
		for _, info := range append(objects, c.sidecars...) {
			for a, err := range readParquet(ctx, b, info, kind) {
				if !yield(a, err) || err != nil {
					return
				}
			}
		}
	}
}

// readParquet streams the actions of the given kinds, in the order of rows;
// only their columns are read.
func readParquet(ctx context.Context, b storage.Bucket, info storage.Info, kinds ...string) iter.Seq2[*Action, error] {
	return func(yield func(*Action, error) bool) {
		r, err := arrowfile.Open(ctx, b, info)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = r.Close() }()
		var cols []int
		if err := arrowfile.Guard(info.Key, func() error { cols = leaves(r.Reader, kinds); return nil }); err != nil {
			yield(nil, err)
			return
		}
		if len(cols) == 0 {
			return
		}
		var d *rowDecoder
		err = r.EachRow(ctx, cols, func(row int64, cols []*arrowfile.Column) error {
			if d == nil {
				d = newRowDecoder(kinds, cols)
			}
			a, err := d.row()
			if err == nil && a != nil {
				err = a.validate()
			}
			var corrupt *storage.CorruptError
			if errors.As(err, &corrupt) {
				corrupt.Key, corrupt.Offset = info.Key, row
			}
			if err == nil && a != nil && !yield(a, nil) {
				err = errStop
			}
			return err
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, err)
		}
	}
}

// leaves picks the leaf columns of the action kinds. Parsed partition values
// are left out, they repeat the text form; parsed statistics are read only if
// some row lacks the JSON form, and never where a value is a list or INT96.
func leaves(r *file.Reader, kinds []string) []int {
	sc := r.MetaData().Schema
	parsed := statsNeeded(r)
	var out []int
	for i := range sc.NumColumns() {
		c := sc.Column(i)
		path := c.ColumnPath()
		wanted := false
		for _, k := range kinds {
			wanted = wanted || path[0] == k
		}
		if !wanted || c.PhysicalType() == parquet.Types.Int96 {
			continue
		}
		if len(path) > 1 {
			switch path[1] {
			case "stats_parsed":
				if !parsed || len(path) > maxDepth || c.MaxRepetitionLevel() > 0 {
					continue
				}
			case "partitionValues_parsed", "extendedFileMetadata_parsed":
				continue
			}
		}
		out = append(out, i)
	}
	return out
}

// statsNeeded reports whether some add may have no statistics in JSON.
func statsNeeded(r *file.Reader) bool {
	sc := r.MetaData().Schema
	stats, path := sc.ColumnIndexByName("add.stats"), sc.ColumnIndexByName("add.path")
	if stats < 0 || path < 0 {
		return true
	}
	for g := range r.NumRowGroups() {
		rg := r.MetaData().RowGroup(g)
		nulls := func(col int) (int64, bool) {
			cc, err := rg.ColumnChunk(col)
			if err != nil {
				return 0, false
			}
			st, err := cc.Statistics()
			if err != nil || st == nil || !st.HasNullCount() {
				return 0, false
			}
			return st.NullCount(), true
		}
		s, ok1 := nulls(stats)
		p, ok2 := nulls(path)
		if !ok1 || !ok2 || s != p {
			return true
		}
	}
	return false
}
