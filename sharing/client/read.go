package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/storage"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"
)

// defaultBatchRows bounds a batch unless told otherwise.
const defaultBatchRows = 16 << 10

// ReadOptions modify Read. The zero value reads all columns of all rows.
type ReadOptions struct {
	// Columns are the top-level columns to read, by their logical names, in
	// the order wanted; nil means all.
	Columns []string
	// Limit, if above 0, ends the read after so many rows.
	Limit int64
	// BatchRows bounds the rows of a batch; 0 means 16,384.
	BatchRows int64
	// Allocator serves the batches; nil means Go's memory.
	Allocator memory.Allocator
}

// Read yields the snapshot's live rows, file by file in the order of the
// answer, batch by batch in the order of the file. A batch is valid until the
// next one is asked for: Retain it to keep it. An error ends the read; the rows
// before it are right, but not all.
func (s *Snapshot) Read(ctx context.Context, o *ReadOptions) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		r, err := s.newReader(o)
		for i := range s.files {
			if err != nil || r.done {
				break
			}
			err = r.file(ctx, &s.files[i], yield)
		}
		if err != nil {
			yield(nil, fmt.Errorf("read %s: %w", tableName(s.fs.table), err))
		}
	}
}

// reader is the state of one Read.
type reader struct {
	s       *Snapshot
	columns []column
	schema  *arrow.Schema
	batch   int64
	left    int64 // rows until the limit, -1 without one
	mem     memory.Allocator
	done    bool // the consumer has enough
	handed  bool // the consumer has the batch just now
}

// column is one column to read.
type column struct {
	field     *log.Field
	want      arrow.Field
	partition bool
}

func (s *Snapshot) newReader(o *ReadOptions) (*reader, error) {
	if o == nil {
		o = &ReadOptions{}
	}
	r := &reader{s: s, batch: o.BatchRows, left: -1, mem: o.Allocator}
	if r.batch <= 0 {
		r.batch = defaultBatchRows
	}
	if o.Limit > 0 {
		r.left = o.Limit
	}
	if r.mem == nil {
		r.mem = memory.DefaultAllocator
	}
	indexes := make([]int, 0, len(s.schema.Fields))
	if o.Columns == nil {
		for i := range s.schema.Fields {
			indexes = append(indexes, i)
		}
	}
	for _, name := range o.Columns {
		found := s.arrow.FieldIndices(name)
		if len(found) != 1 {
			return nil, storage.Refuse("unknown_column", "the table has no single column %s", printable(name))
		}
		indexes = append(indexes, found[0])
	}
	fields := make([]arrow.Field, len(indexes))
	for i, at := range indexes {
		c := column{field: &s.schema.Fields[at], want: s.arrow.Field(at)}
		for _, name := range s.Metadata.PartitionColumns {
			c.partition = c.partition || name == c.field.Name
		}
		r.columns, fields[i] = append(r.columns, c), c.want
	}
	r.schema = arrow.NewSchema(fields, nil)
	return r, nil
}

// file yields the live rows of one data file.
func (r *reader) file(ctx context.Context, f *File, yield func(arrow.RecordBatch, error) bool) error {
	object, err := r.s.fs.openObject(ctx, f.Add.Path, f.Add.SizeBytes)
	if err != nil {
		return err
	}
	return r.object(ctx, f, object, yield)
}

// object decodes one data file.
func (r *reader) object(ctx context.Context, f *File, object *objectReader, yield func(arrow.RecordBatch, error) bool) (err error) {
	defer func() {
		// The Parquet reader panics on some files that are not Parquet. What
		// the consumer's loop throws is none of ours.
		if p := recover(); p != nil {
			if r.handed {
				panic(p)
			}
			err = &storage.CorruptError{Key: f.Add.Path, Offset: -1, Field: "data file", Reason: "cannot be decoded"}
			if thrown, ok := p.(error); ok && errors.Is(thrown, errTooLarge) {
				err = storage.Refuse("batch_too_large", "%d rows of a file need a buffer of more than %d bytes: ask for less with BatchRows", r.batch, maxBuffer)
			}
		}
	}()
	pf, err := openParquet(object)
	if err != nil {
		return r.decodeError(f, object, "footer", err)
	}
	defer pf.Close() //nolint:errcheck // nothing is written
	hidden := &deletion.Set{}
	if dv := f.Add.DeletionVector; dv != nil {
		if hidden, err = deletion.Read(ctx, r.s.fs, *dv, pf.NumRows()); err != nil {
			return err
		}
	}
	reader, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: r.batch}, bounded{r.mem})
	if err != nil {
		return r.decodeError(f, object, "schema", err)
	}
	plan, err := r.plan(f, reader)
	if err != nil {
		return err
	}
	base := int64(0)
	for group := range pf.NumRowGroups() {
		rows := pf.MetaData().RowGroup(group).NumRows()
		if err := r.rowGroup(ctx, f, object, reader, plan, group, span{base, base + rows}, hidden, yield); err != nil || r.done {
			return err
		}
		base += rows
	}
	if base != pf.NumRows() {
		return &storage.CorruptError{Key: f.Add.Path, Offset: -1, Field: "num_rows", Reason: "differs from its row groups"}
	}
	return nil
}

// span is a range of physical rows of a file.
type span struct{ from, to int64 }

// rowGroup yields the live rows of one row group.
func (r *reader) rowGroup(ctx context.Context, f *File, object *objectReader, reader *pqarrow.FileReader, plan *plan, group int, rows span, hidden *deletion.Set, yield func(arrow.RecordBatch, error) bool) error {
	err := rehearse(reader.ParquetReader(), reader.Manifest, plan.all(), group, object.size)
	if err != nil {
		return r.decodeError(f, object, "row group", err)
	}
	source, err := r.source(ctx, reader, plan, group, rows)
	if err != nil {
		return r.decodeError(f, object, "row group", err)
	}
	defer source.Release()
	at := rows.from
	for at < rows.to && !r.done {
		if err := ctx.Err(); err != nil { // a footer may claim any number of rows
			return err
		}
		batch, err := source.next()
		if err != nil {
			return r.decodeError(f, object, "row group", err)
		}
		n := batch.NumRows()
		if n <= 0 || n > rows.to-at {
			batch.Release()
			return &storage.CorruptError{Key: f.Add.Path, Offset: -1, Field: "row group", Reason: "holds another number of rows than it says"}
		}
		err = r.emit(ctx, f, object, plan, batch, span{at, at + n}, hidden, yield)
		batch.Release()
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// emit drops the hidden rows of a physical batch, gives the others the table's
// schema and hands them on.
func (r *reader) emit(ctx context.Context, f *File, object *objectReader, plan *plan, batch arrow.RecordBatch, rows span, hidden *deletion.Set, yield func(arrow.RecordBatch, error) bool) error {
	live, err := r.live(batch, rows, hidden)
	if err != nil {
		return r.decodeError(f, object, "rows", err)
	}
	defer live.Release()
	if r.left >= 0 && live.NumRows() > r.left {
		cut := live.NewSlice(0, r.left)
		defer cut.Release()
		live = cut
	}
	if live.NumRows() == 0 {
		return nil
	}
	out, err := plan.conform(ctx, r, live)
	if err != nil {
		return r.decodeError(f, object, "column", err)
	}
	defer out.Release()
	if r.left >= 0 {
		r.left -= out.NumRows()
	}
	r.done = !r.hand(yield, out) || r.left == 0
	return nil
}

// hand calls yield, and marks the time that is the consumer's.
func (r *reader) hand(yield func(arrow.RecordBatch, error) bool, out arrow.RecordBatch) bool {
	r.handed = true
	more := yield(out, nil)
	r.handed = false
	return more
}

// live returns the rows of a batch that are not hidden.
func (r *reader) live(batch arrow.RecordBatch, rows span, hidden *deletion.Set) (arrow.RecordBatch, error) {
	if hidden.Max() < rows.from {
		batch.Retain()
		return batch, nil
	}
	var runs []span
	kept := int64(0)
	for row := rows.from; row < rows.to; row++ {
		if hidden.Contains(row) {
			continue
		}
		if n := len(runs); n > 0 && runs[n-1].to == row {
			runs[n-1].to++
		} else {
			runs = append(runs, span{row, row + 1})
		}
		kept++
	}
	switch {
	case kept == batch.NumRows():
		batch.Retain()
		return batch, nil
	case len(runs) <= 1:
		runs = append(runs, span{rows.from, rows.from})
		return batch.NewSlice(runs[0].from-rows.from, runs[0].to-rows.from), nil
	}
	columns := make([]arrow.Array, 0, batch.NumCols())
	defer func() { releaseArrays(columns) }()
	for _, c := range batch.Columns() {
		pieces := make([]arrow.Array, len(runs))
		for i, run := range runs {
			pieces[i] = array.NewSlice(c, run.from-rows.from, run.to-rows.from)
		}
		whole, err := array.Concatenate(pieces, r.mem)
		releaseArrays(pieces)
		if err != nil {
			return nil, err
		}
		columns = append(columns, whole)
	}
	return array.NewRecordBatch(batch.Schema(), columns, kept), nil
}

func releaseArrays(all []arrow.Array) {
	for _, a := range all {
		a.Release()
	}
}

// decodeError says where bytes could not be decoded, without the decoder's
// words, which may hold some of them. If reading the object failed, that is the
// error; those of this package and of the specification pass as they are.
func (r *reader) decodeError(f *File, object *objectReader, field string, err error) error {
	if object.err != nil {
		return object.err
	}
	for _, known := range []error{ErrProtocol, errPhysicalType, storage.ErrCorrupt, storage.ErrRefused, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			var corrupt *storage.CorruptError
			if errors.As(err, &corrupt) && corrupt.Key == "" {
				corrupt.Key = f.Add.Path
			}
			return err
		}
	}
	return &storage.CorruptError{Key: f.Add.Path, Offset: -1, Field: field, Reason: "cannot be decoded"}
}
