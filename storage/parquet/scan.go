package parquet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"delenda/storage"
	"delenda/storage/match"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// Key is a column to scan and what its values are compared with.
type Key struct {
	Leaf Leaf
	Keys *match.ColumnKeys
}

// Stats counts what a scan cost.
type Stats struct {
	RowsScanned int64 // rows whose values were decoded, per key column
	BytesRead   int64 // bytes taken from the bucket, the footer not included

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
	w, _ := walkers.Get().(*walker)
	defer w.release()
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
			if err := f.scanChunk(ctx, w, rg, k.Leaf, p, &st, hit); err != nil {
				return st, f.wrap(err)
			}
		}
	}
	return st, nil
}

// scanChunk scans one column of one row group.
func (f *File) scanChunk(ctx context.Context, w *walker, rg int, leaf Leaf, p *probe, st *Stats, hit func(id int32, row int64)) error {
	st.RowGroups++
	group := f.meta.RowGroups[rg]
	if group.NumRows == 0 {
		return nil
	}
	column := group.Columns[leaf.index]
	switch {
	case column.IsSetCryptoMetadata() || column.MetaData == nil:
		return f.refuse("encrypted_file", "column %q is encrypted", strings.Join(leaf.Path(), "."))
	case column.FilePath != nil && *column.FilePath != "":
		return f.refuse("external_column", "column %q lies in another file", strings.Join(leaf.Path(), "."))
	}
	m := f.chunkMeta(rg, leaf)
	if m.physical != leaf.column.PhysicalType() || m.values != group.NumRows {
		return f.corrupt(-1, "column metadata", "differs from the schema or the row group")
	}
	if !supportedCodec(m.codec) {
		return f.refuse("unsupported_codec", "column %q is compressed with %s", strings.Join(leaf.Path(), "."), column.MetaData.Codec)
	}
	if leaf.column.MaxDefinitionLevel() > 255 {
		return f.refuse("nested_too_deep", "column %q lies in more than 255 structs", strings.Join(leaf.Path(), "."))
	}
	if m.start < int64(len(magic)) || m.length <= 0 || m.length > f.size-m.start {
		return f.corrupt(m.start, "column chunk", "outside the file")
	}
	if f.pruneGroup(rg, leaf, p) {
		st.RowGroupsPruned++
		return nil
	}
	absent, err := f.pruneBloom(ctx, rg, leaf, p, st)
	if err != nil {
		return err
	}
	if absent {
		st.RowGroupsPruned++
		return nil
	}
	c := &chunk{
		leaf: leaf, probe: p, codec: m.codec, base: f.firstRow[rg], onlyDictionary: m.onlyDictionary,
		sections: []section{{m.start, m.length, 0, group.NumRows}},
	}
	if err := f.pages(ctx, rg, c, st); err != nil {
		return err
	}
	if len(c.sections) == 0 {
		st.RowGroupsPruned++
		return nil
	}
	return w.walk(ctx, f, c, st, hit)
}

// maxDictionaryHeader bounds the header of a dictionary page of old parquet-mr.
const maxDictionaryHeader = 100

// chunkMeta is the metadata of a column chunk.
type chunkMeta struct {
	physical      parquet.Type
	codec         int32
	values        int64
	start, length int64 // of its pages in the file
	// onlyDictionary: every data page is dictionary encoded. Without
	// statistics of encodings nothing is assumed.
	onlyDictionary bool
}

func (f *File) chunkMeta(rg int, leaf Leaf) chunkMeta {
	meta := f.meta.RowGroups[rg].Columns[leaf.index].MetaData
	m := chunkMeta{
		physical: parquet.Type(meta.Type),
		codec:    int32(meta.Codec), //nolint:gosec // an enumeration
		values:   meta.NumValues,
		start:    meta.DataPageOffset,
		length:   meta.TotalCompressedSize,
	}
	if meta.DictionaryPageOffset != nil && *meta.DictionaryPageOffset > 0 {
		m.start = min(m.start, *meta.DictionaryPageOffset)
	}
	// Before 1.2.9 parquet-mr left the header of the dictionary out of the length.
	if f.meta.WriterVersion().LessThan(metadata.Parquet816FixedVersion) {
		m.length = min(m.length+maxDictionaryHeader, f.size-m.start)
	}
	for _, s := range meta.EncodingStats {
		if t := int32(s.PageType); (t != pageData && t != pageDataV2) || s.Count <= 0 { //nolint:gosec // an enumeration
			continue
		}
		if e := int32(s.Encoding); e != encodingPlainDictionary && e != encodingRLEDictionary { //nolint:gosec // an enumeration
			m.onlyDictionary = false
			break
		}
		m.onlyDictionary = true
	}
	return m
}

func (f *File) wrap(err error) error {
	var c *storage.CorruptError
	if errors.As(err, &c) || errors.Is(err, storage.ErrRefused) {
		return err
	}
	return fmt.Errorf("scan %q: %w", f.key, err)
}
