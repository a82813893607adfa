package parquet

import (
	"context"
	"errors"
	"fmt"

	"delenda/storage"
	"delenda/storage/match"
)

// Key is a column to scan and what its values are compared with.
type Key struct {
	Leaf Leaf
	Keys *match.ColumnKeys
}

// Stats counts what a scan cost.
type Stats struct {
	RowsScanned int64 // rows whose values were decoded, per key column
	BytesRead   int64 // bytes asked of the bucket, the footer not included

	RowGroups       int64 // row groups met, per key column
	RowGroupsPruned int64 // of them those of which no page was read
	PagesSkipped    int64 // data pages passed over without being decompressed
}

// Scan calls emit for every row that equals a key: once per key column and
// subject of the key, so a row of two subjects, or one that matches in two
// columns, comes more than once. Per key column and subject rows ascend. Emit
// is called from the goroutine of Scan.
//
// After an error emit may have been called for some of the rows. A type that
// cannot be read as the table's, and an unsupported codec, are refusals; bytes
// that do not follow the format are storage.ErrCorrupt.
func (f *File) Scan(ctx context.Context, keys []Key, emit func(subject int, row int64)) (Stats, error) {
	var st Stats
	for _, k := range keys {
		if k.Keys == nil || k.Keys.Len() == 0 {
			continue
		}
		p, err := f.newProbe(k.Leaf, k.Keys)
		if err != nil {
			return st, err
		}
		hit := func(id int32, row int64) {
			for _, subject := range k.Keys.Subjects(int(id)) {
				emit(subject, row)
			}
		}
		for rg := range f.meta.RowGroups {
			if err := ctx.Err(); err != nil {
				return st, fmt.Errorf("scan %q: %w", f.key, err)
			}
			if err := f.scanChunk(ctx, rg, k.Leaf, p, &st, hit); err != nil {
				return st, f.wrap(err)
			}
		}
	}
	return st, nil
}

// scanChunk scans one column of one row group.
func (f *File) scanChunk(ctx context.Context, rg int, leaf Leaf, p *probe, st *Stats, hit func(id int32, row int64)) error {
	st.RowGroups++
	return f.fallback(ctx, rg, leaf, p, 0, st, hit)
}

func (f *File) wrap(err error) error {
	var c *storage.CorruptError
	if errors.As(err, &c) || errors.Is(err, storage.ErrRefused) {
		return err
	}
	return fmt.Errorf("scan %q: %w", f.key, err)
}
