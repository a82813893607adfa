package log

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"delenda/storage"
	"delenda/storage/delta/internal/arrowfile"
)

const (
	checkpointRowGroup = 64 << 10 // rows
	defaultRetention   = 7 * 24 * time.Hour
)

// CheckpointKey is the object key of the classic checkpoint of a version.
func CheckpointKey(v storage.Version) string {
	return fmt.Sprintf("%s%020d.checkpoint.parquet", prefix, int64(v))
}

// WriteCheckpoint writes the classic single-file checkpoint of s, then the
// hint. Tombstones older than the table's retention before now are left out.
// Memory holds one row group at a time. A checkpoint that is there already is
// left as it is. Statistics are written as JSON, whatever
// delta.checkpoint.writeStatsAsStruct says: they hold the row counts that
// deletion vectors need.
func WriteCheckpoint(ctx context.Context, b storage.Bucket, s *Snapshot, now time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	var counts checkpointCounts
	go func() {
		err := arrowfile.Guard(CheckpointKey(s.Version), func() error { return s.encodeCheckpoint(ctx, pw, now, &counts) })
		_ = pw.CloseWithError(err) // always nil; the reader sees err
		done <- err
	}()
	err := b.Put(ctx, CheckpointKey(s.Version), pr, storage.PutOptions{IfAbsent: true})
	_ = pr.CloseWithError(io.ErrClosedPipe) // always nil; frees the writer
	werr := <-done
	switch {
	case errors.Is(err, storage.ErrExists):
		return nil // another writer's checkpoint of the same version says the same
	case werr != nil && !errors.Is(werr, io.ErrClosedPipe):
		return fmt.Errorf("write checkpoint %d: %w", s.Version, werr)
	case err != nil:
		return fmt.Errorf("write checkpoint %d: %w", s.Version, err)
	}
	return putHint(ctx, b, s.Version, counts)
}

type checkpointCounts struct{ actions, adds, bytes int64 }

// putHint replaces _last_checkpoint unless it already points further.
func putHint(ctx context.Context, b storage.Bucket, v storage.Version, n checkpointCounts) error {
	current, err := hint(ctx, b)
	if err != nil {
		return err
	}
	if current >= v {
		return nil
	}
	p, err := json.Marshal(struct {
		Version       storage.Version `json:"version"`
		Size          int64           `json:"size"`
		SizeInBytes   int64           `json:"sizeInBytes"`
		NumOfAddFiles int64           `json:"numOfAddFiles"`
	}{v, n.actions, n.bytes, n.adds})
	if err != nil {
		return fmt.Errorf("write checkpoint hint: %w", err)
	}
	err = b.Put(ctx, lastCheckpointKey, bytes.NewReader(p), storage.PutOptions{ContentType: "application/json"})
	if err != nil {
		return fmt.Errorf("write checkpoint hint: %w", err)
	}
	return nil
}

type countingWriter struct {
	w io.Writer
	n *int64
}

func (c countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	*c.n += int64(n)
	if err != nil {
		err = arrowfile.IOError{Err: err}
	}
	return n, err
}

func (s *Snapshot) encodeCheckpoint(ctx context.Context, w io.Writer, now time.Time, n *checkpointCounts) error {
	sc := checkpointSchema()
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy), parquet.WithStats(true),
		parquet.WithMaxRowGroupLength(checkpointRowGroup), parquet.WithCreatedBy("delenda"))
	fw, err := pqarrow.NewFileWriter(sc, countingWriter{w, &n.bytes}, props, pqarrow.DefaultWriterProps())
	if err != nil {
		return err
	}
	rows := &rowWriter{bld: array.NewRecordBuilder(memory.DefaultAllocator, sc), fw: fw}
	defer rows.bld.Release()
	if err := s.checkpointRows(ctx, now, rows, n); err != nil {
		return err
	}
	if err := rows.flush(); err != nil {
		return err
	}
	n.actions = rows.total
	return fw.Close()
}

func (s *Snapshot) checkpointRows(ctx context.Context, now time.Time, rows *rowWriter, n *checkpointCounts) error {
	if err := rows.write(&Action{Protocol: &s.Protocol}); err != nil {
		return err
	}
	if err := rows.write(&Action{Metadata: &s.Metadata}); err != nil {
		return err
	}
	for _, t := range s.sortedTxns() {
		if err := rows.write(&Action{Txn: &t}); err != nil {
			return err
		}
	}
	for _, d := range s.sortedDomains() {
		if err := rows.write(&Action{DomainMetadata: &d}); err != nil {
			return err
		}
	}
	oldest := now.Add(-s.Metadata.interval("delta.deletedFileRetentionDuration", defaultRetention)).UnixMilli()
	for r, err := range s.Tombstones(ctx) {
		if err != nil {
			return arrowfile.IOError{Err: err}
		}
		if r.DeletionTimestamp < oldest {
			continue
		}
		if err := rows.write(&Action{Remove: &r}); err != nil {
			return err
		}
	}
	for a, err := range s.Files(ctx) {
		if err != nil {
			return arrowfile.IOError{Err: err}
		}
		n.adds++
		if err := rows.write(&Action{Add: &a}); err != nil {
			return err
		}
	}
	return nil
}

// rowWriter turns actions into rows of the checkpoint schema.
type rowWriter struct {
	bld   *array.RecordBuilder
	fw    *pqarrow.FileWriter
	rows  int
	total int64
}

func (w *rowWriter) flush() error {
	if w.rows == 0 {
		return nil
	}
	rec := w.bld.NewRecordBatch()
	defer rec.Release()
	w.rows = 0
	return w.fw.WriteBuffered(rec)
}

// Columns of checkpointSchema, in its order.
const (
	colTxn = iota
	colAdd
	colRemove
	colMetadata
	colProtocol
	colDomain
	numCols
)

func (w *rowWriter) write(a *Action) error {
	for i := range numCols {
		sb, _ := w.bld.Field(i).(*array.StructBuilder)
		set := false
		switch i {
		case colTxn:
			set = a.Txn != nil
		case colAdd:
			set = a.Add != nil
		case colRemove:
			set = a.Remove != nil
		case colMetadata:
			set = a.Metadata != nil
		case colProtocol:
			set = a.Protocol != nil
		case colDomain:
			set = a.DomainMetadata != nil
		}
		if !set {
			sb.AppendNull()
			continue
		}
		sb.Append(true)
		c := &cells{sb: sb}
		switch i {
		case colTxn:
			c.text(&a.Txn.AppID).long(&a.Txn.Version).long(a.Txn.LastUpdated)
		case colAdd:
			c.add(a.Add)
		case colRemove:
			c.remove(a.Remove)
		case colMetadata:
			c.metadata(a.Metadata)
		case colProtocol:
			c.protocol(a.Protocol)
		case colDomain:
			c.text(&a.DomainMetadata.Domain).text(&a.DomainMetadata.Configuration).boolean(a.DomainMetadata.Removed)
		}
	}
	w.total++
	if w.rows++; w.rows < checkpointBatch {
		return nil
	}
	return w.flush()
}

// cells appends the members of one struct from left to right.
type cells struct {
	sb *array.StructBuilder
	i  int
}

func (c *cells) next() array.Builder {
	b := c.sb.FieldBuilder(c.i)
	c.i++
	return b
}

func (c *cells) text(s *string) *cells {
	b, _ := c.next().(*array.StringBuilder)
	if s == nil {
		b.AppendNull()
	} else {
		b.Append(*s)
	}
	return c
}

func (c *cells) long(n *int64) *cells {
	b, _ := c.next().(*array.Int64Builder)
	if n == nil {
		b.AppendNull()
	} else {
		b.Append(*n)
	}
	return c
}

func (c *cells) i32(n *int32) *cells {
	b, _ := c.next().(*array.Int32Builder)
	if n == nil {
		b.AppendNull()
	} else {
		b.Append(*n)
	}
	return c
}

func (c *cells) boolean(v bool) *cells {
	b, _ := c.next().(*array.BooleanBuilder)
	b.Append(v)
	return c
}

// textMap appends a map; null if it is nil.
func (c *cells) textMap(m map[string]*string) *cells {
	b, _ := c.next().(*array.MapBuilder)
	if m == nil {
		b.AppendNull()
		return c
	}
	b.Append(true)
	kb, _ := b.KeyBuilder().(*array.StringBuilder)
	vb, _ := b.ItemBuilder().(*array.StringBuilder)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		kb.Append(k)
		if m[k] == nil {
			vb.AppendNull()
		} else {
			vb.Append(*m[k])
		}
	}
	return c
}

// textList appends a list; null if it is nil.
func (c *cells) textList(l []string) *cells {
	b, _ := c.next().(*array.ListBuilder)
	if l == nil {
		b.AppendNull()
		return c
	}
	b.Append(true)
	vb, _ := b.ValueBuilder().(*array.StringBuilder)
	for _, s := range l {
		vb.Append(s)
	}
	return c
}

// nested appends a struct member, or null.
func (c *cells) nested(ok bool, f func(*cells)) *cells {
	b, _ := c.next().(*array.StructBuilder)
	if !ok {
		b.AppendNull()
		return c
	}
	b.Append(true)
	f(&cells{sb: b})
	return c
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (c *cells) vector(a *Action) *cells {
	dv := a.deletionVector()
	return c.nested(dv != nil, func(c *cells) {
		c.text(&dv.StorageType).text(&dv.PathOrInlineDV).i32(dv.Offset).i32(&dv.SizeInBytes).long(&dv.Cardinality)
	})
}

func (c *cells) add(a *Add) {
	values := a.PartitionValues
	if values == nil {
		values = map[string]*string{}
	}
	c.text(&a.Path).textMap(values).long(&a.SizeBytes).long(&a.ModificationTime).boolean(false).
		text(optional(a.Stats)).textMap(a.Tags).vector(&Action{Add: a}).
		long(a.BaseRowID).long(a.DefaultRowCommitVersion).text(a.ClusteringProvider)
}

func (c *cells) remove(r *Remove) {
	c.text(&r.Path).long(&r.DeletionTimestamp).boolean(false).boolean(r.ExtendedFileMetadata).
		textMap(r.PartitionValues).long(r.SizeBytes).vector(&Action{Remove: r}).
		long(r.BaseRowID).long(r.DefaultRowCommitVersion)
}

func (c *cells) metadata(m *Metadata) {
	partitions := append([]string{}, m.PartitionColumns...)
	provider := m.Format.Provider
	if provider == "" {
		provider = "parquet"
	}
	c.text(&m.ID).text(m.Name).text(m.Description).
		nested(true, func(c *cells) { c.text(&provider).textMap(pointers(m.Format.Options)) }).
		text(&m.SchemaString).textList(partitions).textMap(pointers(m.Configuration)).long(m.CreatedTime)
}

func (c *cells) protocol(p *Protocol) {
	var readers, writers []string
	if p.MinReaderVersion >= 3 {
		readers = append([]string{}, p.ReaderFeatures...)
	}
	if p.MinWriterVersion >= 7 {
		writers = append([]string{}, p.WriterFeatures...)
	}
	c.i32(&p.MinReaderVersion).i32(&p.MinWriterVersion).textList(readers).textList(writers)
}

func pointers(m map[string]string) map[string]*string {
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = &v
	}
	return out
}
