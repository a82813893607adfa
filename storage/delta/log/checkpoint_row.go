package log

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"delenda/storage"
	"delenda/storage/deletion"
)

// decoder reads the members of one action column of a checkpoint. Missing
// members read as null.
type decoder struct {
	st    *array.Struct
	cols  map[string]arrow.Array
	dv    *decoder // deletionVector
	fmt   *decoder // format
	stats *array.Struct
	err   error // the first member of an unexpected type
}

func newDecoder(st *array.Struct) *decoder {
	d := &decoder{st: st, cols: map[string]arrow.Array{}}
	t, _ := st.DataType().(*arrow.StructType)
	for i, f := range t.Fields() {
		d.cols[f.Name] = st.Field(i)
	}
	if s, ok := d.cols["deletionVector"].(*array.Struct); ok {
		d.dv = newDecoder(s)
	}
	if s, ok := d.cols["format"].(*array.Struct); ok {
		d.fmt = newDecoder(s)
	}
	d.stats, _ = d.cols["stats_parsed"].(*array.Struct)
	return d
}

// action decodes row i of a column of the given kind.
func (d *decoder) action(kind string, i int) (*Action, error) {
	a := &Action{}
	switch kind {
	case "protocol":
		a.Protocol = &Protocol{
			MinReaderVersion: int32(d.int(i, "minReaderVersion")), //nolint:gosec // validated after
			MinWriterVersion: int32(d.int(i, "minWriterVersion")), //nolint:gosec // validated after
			ReaderFeatures:   d.list(i, "readerFeatures"),
			WriterFeatures:   d.list(i, "writerFeatures"),
		}
	case "metaData":
		a.Metadata = &Metadata{
			ID: d.text(i, "id"), Name: d.optText(i, "name"), Description: d.optText(i, "description"),
			SchemaString: d.text(i, "schemaString"), PartitionColumns: d.list(i, "partitionColumns"),
			CreatedTime: d.optInt(i, "createdTime"), Configuration: plain(d.textMap(i, "configuration")),
		}
		if a.Metadata.PartitionColumns == nil {
			a.Metadata.PartitionColumns = []string{}
		}
		if d.fmt != nil && d.fmt.st.IsValid(i) {
			a.Metadata.Format = FileFormat{Provider: d.fmt.text(i, "provider"), Options: plain(d.fmt.textMap(i, "options"))}
		}
	case "txn":
		a.Txn = &Txn{AppID: d.text(i, "appId"), Version: d.int(i, "version"), LastUpdated: d.optInt(i, "lastUpdated")}
	case "domainMetadata":
		a.DomainMetadata = &DomainMetadata{Domain: d.text(i, "domain"), Configuration: d.text(i, "configuration"), Removed: d.bool(i, "removed")}
	case "sidecar":
		a.Sidecar = &Sidecar{Path: d.text(i, "path"), SizeBytes: d.int(i, "sizeInBytes")}
	case "add":
		a.Add = d.add(i)
	case "remove":
		a.Remove = &Remove{
			Path: d.text(i, "path"), DeletionTimestamp: d.int(i, "deletionTimestamp"), DataChange: d.bool(i, "dataChange"),
			ExtendedFileMetadata: d.bool(i, "extendedFileMetadata"), PartitionValues: d.textMap(i, "partitionValues"),
			SizeBytes: d.optInt(i, "size"), Tags: d.textMap(i, "tags"), DeletionVector: d.vector(i),
			BaseRowID: d.optInt(i, "baseRowId"), DefaultRowCommitVersion: d.optInt(i, "defaultRowCommitVersion"),
		}
	default:
		return nil, nil //nolint:nilnil // an unknown action is not an error and not an action
	}
	if d.err == nil && d.dv != nil {
		d.err = d.dv.err
	}
	if d.err == nil && d.fmt != nil {
		d.err = d.fmt.err
	}
	return a, d.err
}

func (d *decoder) add(i int) *Add {
	a := &Add{
		Path: d.text(i, "path"), PartitionValues: d.textMap(i, "partitionValues"), SizeBytes: d.int(i, "size"),
		ModificationTime: d.int(i, "modificationTime"), DataChange: d.bool(i, "dataChange"), Stats: d.text(i, "stats"),
		Tags: d.textMap(i, "tags"), DeletionVector: d.vector(i), BaseRowID: d.optInt(i, "baseRowId"),
		DefaultRowCommitVersion: d.optInt(i, "defaultRowCommitVersion"), ClusteringProvider: d.optText(i, "clusteringProvider"),
	}
	if a.Stats == "" && d.stats != nil && d.stats.IsValid(i) {
		a.Stats = renderStats(d.stats, i)
	}
	return a
}

func (d *decoder) vector(i int) *deletion.Descriptor {
	if d.dv == nil || d.dv.st.IsNull(i) {
		return nil
	}
	v := &deletion.Descriptor{
		StorageType: d.dv.text(i, "storageType"), PathOrInlineDV: d.dv.text(i, "pathOrInlineDv"),
		SizeInBytes: int32(d.dv.int(i, "sizeInBytes")), //nolint:gosec // the column is INT32
		Cardinality: d.dv.int(i, "cardinality"),
	}
	if o := d.dv.optInt(i, "offset"); o != nil {
		offset := int32(*o) //nolint:gosec // the column is INT32
		v.Offset = &offset
	}
	return v
}

func (d *decoder) fail(name string) {
	if d.err == nil {
		d.err = &storage.CorruptError{Offset: -1, Field: name, Reason: "a column of an unexpected type"}
	}
}

// cell returns the column and whether row i has a value in it.
func (d *decoder) cell(i int, name string) (arrow.Array, bool) {
	c, ok := d.cols[name]
	if !ok || c.IsNull(i) {
		return nil, false
	}
	return c, true
}

func (d *decoder) optText(i int, name string) *string {
	c, ok := d.cell(i, name)
	if !ok {
		return nil
	}
	s, ok := textAt(c, i)
	if !ok {
		d.fail(name)
		return nil
	}
	return &s
}

func (d *decoder) text(i int, name string) string {
	if s := d.optText(i, name); s != nil {
		return *s
	}
	return ""
}

func (d *decoder) optInt(i int, name string) *int64 {
	c, ok := d.cell(i, name)
	if !ok {
		return nil
	}
	var n int64
	switch c := c.(type) {
	case *array.Int64:
		n = c.Value(i)
	case *array.Int32:
		n = int64(c.Value(i))
	default:
		d.fail(name)
		return nil
	}
	return &n
}

func (d *decoder) int(i int, name string) int64 {
	if n := d.optInt(i, name); n != nil {
		return *n
	}
	return 0
}

func (d *decoder) bool(i int, name string) bool {
	c, ok := d.cell(i, name)
	if !ok {
		return false
	}
	b, ok := c.(*array.Boolean)
	if !ok {
		d.fail(name)
		return false
	}
	return b.Value(i)
}

func (d *decoder) list(i int, name string) []string {
	c, ok := d.cell(i, name)
	if !ok {
		return nil
	}
	l, ok := c.(*array.List)
	if !ok {
		d.fail(name)
		return nil
	}
	from, to := l.ValueOffsets(i)
	out := make([]string, 0, to-from)
	for j := from; j < to; j++ {
		s, ok := textAt(l.ListValues(), int(j))
		if !ok {
			d.fail(name)
			return nil
		}
		out = append(out, s)
	}
	return out
}

func (d *decoder) textMap(i int, name string) map[string]*string {
	c, ok := d.cell(i, name)
	if !ok {
		return nil
	}
	m, ok := c.(*array.Map)
	if !ok {
		d.fail(name)
		return nil
	}
	from, to := m.ValueOffsets(i)
	out := make(map[string]*string, to-from)
	for j := from; j < to; j++ {
		k, ok := textAt(m.Keys(), int(j))
		if !ok {
			d.fail(name)
			return nil
		}
		if m.Items().IsNull(int(j)) {
			out[k] = nil
			continue
		}
		v, ok := textAt(m.Items(), int(j))
		if !ok {
			d.fail(name)
			return nil
		}
		out[k] = &v
	}
	return out
}

func textAt(c arrow.Array, i int) (string, bool) {
	switch c := c.(type) {
	case *array.String:
		return string([]byte(c.Value(i))), true // detached from the batch
	case *array.LargeString:
		return string([]byte(c.Value(i))), true
	case *array.Binary:
		return string(c.Value(i)), true
	default:
		return "", false
	}
}

func plain(m map[string]*string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		if v != nil {
			out[k] = *v
		}
	}
	return out
}
