package log

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/parquet"

	"delenda/storage"
	"delenda/storage/deletion"
	"delenda/storage/delta/internal/arrowfile"
)

// rowDecoder makes an action of the row that a checkpoint's columns stand on.
// A column that is missing reads as null.
type rowDecoder struct {
	kinds []kindDecoder
	err   error // the first column of an unexpected type
}

// kindDecoder holds the columns of one action kind.
type kindDecoder struct {
	kind   string
	marker *arrowfile.Column            // tells whether the action is there
	cols   map[string]*arrowfile.Column // by path below the kind
	stats  *statsNode                   // of stats_parsed; nil without
	groups map[string]group             // by path: lists and maps
}

// markers are members that each action of a kind has.
var markers = map[string]string{
	"protocol": "minReaderVersion", "metaData": "id", "txn": "appId", "domainMetadata": "domain", "sidecar": "path", "add": "path", "remove": "path",
}

func newRowDecoder(kinds []string, cols []*arrowfile.Column) *rowDecoder {
	d := &rowDecoder{}
	for _, kind := range kinds {
		k := kindDecoder{kind: kind, cols: map[string]*arrowfile.Column{}, groups: map[string]group{}}
		for _, c := range cols {
			if c.Path[0] != kind || len(c.Path) < 2 {
				continue
			}
			if c.Path[1] == "stats_parsed" {
				k.stats = k.stats.insert(c, 2)
				continue
			}
			k.cols[strings.Join(c.Path[1:], ".")] = c
		}
		if k.marker = k.cols[markers[kind]]; k.marker == nil {
			for _, c := range k.cols {
				k.marker = c // the action will be found to lack its marker
				break
			}
		}
		if k.marker != nil {
			d.kinds = append(d.kinds, k)
		}
	}
	return d
}

// row returns the row's action, nil if it is of another kind.
func (d *rowDecoder) row() (*Action, error) {
	for i := range d.kinds {
		k := &d.kinds[i]
		if k.marker.Def(0) < k.marker.Level(1) || k.marker.Level(1) == 0 && !k.marker.Valid(0) {
			continue
		}
		a := d.action(k)
		if d.err != nil {
			return nil, d.err
		}
		return a, nil
	}
	return nil, nil //nolint:nilnil // an unknown action is not an error and not an action
}

func (d *rowDecoder) action(k *kindDecoder) *Action {
	switch k.kind {
	case "protocol":
		return &Action{Protocol: &Protocol{
			MinReaderVersion: d.int32(k, "minReaderVersion"), MinWriterVersion: d.int32(k, "minWriterVersion"),
			ReaderFeatures: d.list(k, "readerFeatures"), WriterFeatures: d.list(k, "writerFeatures"),
		}}
	case "metaData":
		m := &Metadata{
			ID: d.text(k, "id"), Name: d.optText(k, "name"), Description: d.optText(k, "description"),
			SchemaString: d.text(k, "schemaString"), PartitionColumns: d.list(k, "partitionColumns"),
			CreatedTime: d.optInt(k, "createdTime"), Configuration: plain(d.textMap(k, "configuration")),
			Format: FileFormat{Provider: d.text(k, "format.provider"), Options: plain(d.textMap(k, "format.options"))},
		}
		if m.PartitionColumns == nil {
			m.PartitionColumns = []string{}
		}
		return &Action{Metadata: m}
	case "txn":
		return &Action{Txn: &Txn{AppID: d.text(k, "appId"), Version: d.int(k, "version"), LastUpdated: d.optInt(k, "lastUpdated")}}
	case "domainMetadata":
		return &Action{DomainMetadata: &DomainMetadata{Domain: d.text(k, "domain"), Configuration: d.text(k, "configuration"), Removed: d.bool(k, "removed")}}
	case "sidecar":
		return &Action{Sidecar: &Sidecar{Path: d.text(k, "path"), SizeBytes: d.int(k, "sizeInBytes")}}
	case "add":
		return &Action{Add: d.add(k)}
	default:
		return &Action{Remove: &Remove{
			Path: d.text(k, "path"), DeletionTimestamp: d.int(k, "deletionTimestamp"), DataChange: d.bool(k, "dataChange"),
			ExtendedFileMetadata: d.bool(k, "extendedFileMetadata"), PartitionValues: d.textMap(k, "partitionValues"),
			SizeBytes: d.optInt(k, "size"), Tags: d.textMap(k, "tags"), DeletionVector: d.vector(k),
			BaseRowID: d.optInt(k, "baseRowId"), DefaultRowCommitVersion: d.optInt(k, "defaultRowCommitVersion"),
		}}
	}
}

func (d *rowDecoder) add(k *kindDecoder) *Add {
	a := &Add{
		Path: d.text(k, "path"), PartitionValues: d.textMap(k, "partitionValues"), SizeBytes: d.int(k, "size"),
		ModificationTime: d.int(k, "modificationTime"), DataChange: d.bool(k, "dataChange"), Stats: d.text(k, "stats"),
		Tags: d.textMap(k, "tags"), DeletionVector: d.vector(k), BaseRowID: d.optInt(k, "baseRowId"),
		DefaultRowCommitVersion: d.optInt(k, "defaultRowCommitVersion"), ClusteringProvider: d.optText(k, "clusteringProvider"),
	}
	if a.Stats == "" && k.stats != nil {
		a.Stats = k.stats.render()
	}
	return a
}

// vector decodes a deletion vector; one without its storage type is found
// corrupt when the action is validated.
func (d *rowDecoder) vector(k *kindDecoder) *deletion.Descriptor {
	c := k.cols["deletionVector.storageType"]
	if c == nil || c.Def(0) < c.Level(2) {
		return nil
	}
	v := &deletion.Descriptor{
		StorageType: d.text(k, "deletionVector.storageType"), PathOrInlineDV: d.text(k, "deletionVector.pathOrInlineDv"),
		SizeInBytes: d.int32(k, "deletionVector.sizeInBytes"), Cardinality: d.int(k, "deletionVector.cardinality"),
	}
	if d.optInt(k, "deletionVector.offset") != nil {
		offset := d.int32(k, "deletionVector.offset")
		v.Offset = &offset
	}
	return v
}

func (d *rowDecoder) fail(path string) {
	if d.err == nil {
		d.err = &storage.CorruptError{Offset: -1, Field: path, Reason: "a column of an unexpected type"}
	}
}

// scalar finds a member's column if it has a value in this row.
func (d *rowDecoder) scalar(k *kindDecoder, path string, types ...parquet.Type) *arrowfile.Column {
	c := k.cols[path]
	if c == nil {
		return nil
	}
	if !c.Is(types...) || c.Len() != 1 {
		d.fail(path)
		return nil
	}
	if !c.Valid(0) {
		return nil
	}
	return c
}

func (d *rowDecoder) optText(k *kindDecoder, path string) *string {
	c := d.scalar(k, path, parquet.Types.ByteArray)
	if c == nil {
		return nil
	}
	s := c.Text(0)
	return &s
}

func (d *rowDecoder) text(k *kindDecoder, path string) string {
	if s := d.optText(k, path); s != nil {
		return *s
	}
	return ""
}

func (d *rowDecoder) optInt(k *kindDecoder, path string) *int64 {
	c := d.scalar(k, path, parquet.Types.Int32, parquet.Types.Int64)
	if c == nil {
		return nil
	}
	n := c.Int(0)
	return &n
}

func (d *rowDecoder) int(k *kindDecoder, path string) int64 {
	if n := d.optInt(k, path); n != nil {
		return *n
	}
	return 0
}

func (d *rowDecoder) int32(k *kindDecoder, path string) int32 {
	n := d.int(k, path)
	if n != int64(int32(n)) { //nolint:gosec // that is the question
		d.fail(path)
		return 0
	}
	return int32(n) //nolint:gosec // checked
}

func (d *rowDecoder) bool(k *kindDecoder, path string) bool {
	c := d.scalar(k, path, parquet.Types.Boolean)
	return c != nil && c.Bool(0)
}

// group is what lies below a list or a map: the element, or key and value.
type group struct {
	cols  []*arrowfile.Column
	level int16 // definition level from which the list or map is not null
}

// group finds the leaf columns below a path, whatever the nodes between are
// called.
func (k *kindDecoder) group(path string) group {
	if g, ok := k.groups[path]; ok {
		return g
	}
	var g group
	for name, c := range k.cols {
		if strings.HasPrefix(name, path+".") {
			g.cols = append(g.cols, c)
			g.level = c.Level(strings.Count(path, ".") + 2)
		}
	}
	slices.SortFunc(g.cols, func(a, b *arrowfile.Column) int { return a.Index - b.Index })
	k.groups[path] = g
	return g
}

func (d *rowDecoder) list(k *kindDecoder, path string) []string {
	g := k.group(path)
	if len(g.cols) == 0 {
		return nil
	}
	c := g.cols[0]
	if len(g.cols) != 1 || !c.Is(parquet.Types.ByteArray) {
		d.fail(path)
		return nil
	}
	if c.Def(0) < g.level {
		return nil
	}
	out := make([]string, 0, c.Len())
	for i := range c.Len() {
		if c.Valid(i) {
			out = append(out, c.Text(i))
		}
	}
	return out
}

func (d *rowDecoder) textMap(k *kindDecoder, path string) map[string]*string {
	g := k.group(path)
	cols := g.cols
	if len(cols) == 0 {
		return nil
	}
	if len(cols) != 2 || !cols[0].Is(parquet.Types.ByteArray) || !cols[1].Is(parquet.Types.ByteArray) || cols[0].Len() != cols[1].Len() {
		d.fail(path)
		return nil
	}
	keys, values := cols[0], cols[1]
	if keys.Def(0) < g.level {
		return nil
	}
	out := make(map[string]*string, keys.Len())
	for i := range keys.Len() {
		if !keys.Valid(i) {
			continue // an empty map
		}
		if !values.Valid(i) {
			out[keys.Text(i)] = nil
			continue
		}
		v := values.Text(i)
		out[keys.Text(i)] = &v
	}
	return out
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
