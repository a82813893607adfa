package delta

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

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
				chunkStats(r, i, path[0], &s)
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
	bounded := true
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
		bounded = bounded && st.HasMinMax() && acc.fold(st, r.MetaData().Schema.Column(column))
	}
	s.NullCount[name] = strconv.AppendInt(nil, nulls, 10)
	if b := acc.bounds(); bounded && b.min != nil {
		s.MinValues[name], s.MaxValues[name] = b.min, b.max
	}
}

// fold takes the bounds of a column chunk; false if their type has no use here.
func (a *accumulator) fold(st metadata.TypedStatistics, col *schema.Column) bool {
	number := func(low, high int64, render func(int64) json.RawMessage) bool {
		if !a.any || low < a.min {
			a.min = low
		}
		if !a.any || high > a.max {
			a.max = high
		}
		a.any, a.render = true, render
		return true
	}
	plain := func(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }
	switch st := st.(type) {
	case *metadata.Int64Statistics:
		switch l := col.LogicalType().(type) {
		case schema.NoLogicalType, schema.IntLogicalType:
			return number(st.Min(), st.Max(), plain)
		case schema.TimestampLogicalType:
			if l.TimeUnit() != schema.TimeUnitMicros {
				return false
			}
			layout := "2006-01-02T15:04:05.000000"
			if l.IsAdjustedToUTC() {
				layout += "Z"
			}
			return number(st.Min(), st.Max(), func(n int64) json.RawMessage {
				return quote(arrow.Timestamp(n).ToTime(arrow.Microsecond).UTC().Format(layout))
			})
		}
	case *metadata.Int32Statistics:
		switch col.LogicalType().(type) {
		case schema.NoLogicalType, schema.IntLogicalType:
			return number(int64(st.Min()), int64(st.Max()), plain)
		case schema.DateLogicalType:
			return number(int64(st.Min()), int64(st.Max()), func(n int64) json.RawMessage {
				return quote(arrow.Date32(n).ToTime().Format("2006-01-02")) //nolint:gosec // it was a Date32
			})
		}
	case *metadata.ByteArrayStatistics:
		if _, ok := col.LogicalType().(schema.StringLogicalType); !ok {
			return false
		}
		a.text = true
		if !a.any || string(st.Min()) < string(a.bmin) {
			a.bmin = st.Min()
		}
		if !a.any || string(st.Max()) > string(a.bmax) {
			a.bmax = st.Max()
		}
		a.any = true
		return true
	}
	return false
}
