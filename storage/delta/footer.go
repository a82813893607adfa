package delta

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"delenda/storage"
	"delenda/storage/delta/internal/arrowfile"
	"delenda/storage/delta/log"
)

// maxIndexed is the number of columns that statistics are written for, as
// delta.dataSkippingNumIndexedCols has it by default.
const maxIndexed = 32

// footerStats makes an add's statistics from a file's footer: the row count,
// and for top-level columns of simple types null counts and bounds, where every
// row group has them.
func footerStats(ctx context.Context, b storage.Bucket, info storage.Info) (string, error) {
	r, err := arrowfile.Open(ctx, b, info)
	if err != nil {
		return "", err
	}
	tight := true
	n := r.NumRows()
	s := log.Stats{
		NumRecords: &n, TightBounds: &tight,
		MinValues: map[string]json.RawMessage{}, MaxValues: map[string]json.RawMessage{}, NullCount: map[string]json.RawMessage{},
	}
	err = arrowfile.Guard(info.Key, func() error {
		sc := r.MetaData().Schema
		for i := range min(sc.NumColumns(), maxIndexed) {
			if path := sc.Column(i).ColumnPath(); len(path) == 1 && sc.Column(i).MaxRepetitionLevel() == 0 {
				chunkStats(r.Reader, i, path[0], &s)
			}
		}
		return nil
	})
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", err
	}
	p, err := json.Marshal(s)
	return string(p), err
}

// chunkStats folds the statistics of one column over the row groups.
func chunkStats(r *file.Reader, column int, name string, s *log.Stats) {
	nulls := int64(0)
	acc := accumulator{}
	bounded := acc.supports(r.MetaData().Schema.Column(column))
	for g := range r.NumRowGroups() {
		chunk, err := r.MetaData().RowGroup(g).ColumnChunk(column)
		if err != nil {
			return
		}
		st, err := chunk.Statistics()
		if err != nil || st == nil || !st.HasNullCount() {
			return
		}
		nulls += st.NullCount()
		if nulls == r.MetaData().RowGroup(g).NumRows() && !st.HasMinMax() {
			continue
		}
		bounded = bounded && st.HasMinMax() && acc.fold(st)
	}
	s.NullCount[name] = strconv.AppendInt(nil, nulls, 10)
	if b := acc.bounds(); bounded && b.min != nil {
		s.MinValues[name], s.MaxValues[name] = b.min, b.max
	}
}

// fold takes the bounds of a column chunk; false if their type has no use here.
func (a *accumulator) fold(st metadata.TypedStatistics) bool {
	switch st := st.(type) {
	case *metadata.Int64Statistics:
		a.addInt(st.Min(), st.Max())
	case *metadata.Int32Statistics:
		a.addInt(int64(st.Min()), int64(st.Max()))
	case *metadata.ByteArrayStatistics:
		a.addText(string(st.Min()), string(st.Max()))
	default:
		return false
	}
	return true
}
