package delta

import (
	"errors"
	"slices"

	"delenda/storage"
	"delenda/storage/delta/log"
	"delenda/storage/match"
	"delenda/storage/parquet"
)

// binding is a table's key columns, resolved for one metadata.
type binding struct {
	mode    log.MappingMode
	columns []boundColumn
}

// boundColumn is a key column of the table.
type boundColumn struct {
	match.Column
	physical  []string // path in files and statistics
	partition string   // key in partitionValues; "" for a data column
	fieldID   int32    // under id mapping
	hasID     bool
}

// bind resolves columns in the snapshot's schema. The first that does not
// exist, is ambiguous, or cannot be compared is a *storage.Refusal.
func bind(s *log.Snapshot, columns []string) (*binding, error) {
	schema, err := s.Metadata.Schema()
	if err != nil {
		return nil, err
	}
	b := &binding{mode: schema.Mode}
	for _, name := range columns {
		c, err := schema.Resolve(name)
		if err != nil {
			return nil, err
		}
		leaf := c.Leaf()
		if !leaf.Type.IsPrimitive() {
			return nil, storage.Refuse("uncomparable_column", "column %s has the type %s, which cannot be compared", name, leaf.Type.String())
		}
		if _, err := match.ParseType(leaf.Type.Name); err != nil {
			var r *storage.Refusal
			if errors.As(err, &r) {
				return nil, storage.Refuse(r.Code, "column %s: %s", name, r.Reason)
			}
			return nil, err
		}
		if leaf.Collated() {
			return nil, storage.Refuse("collated_column", "column %s has a collation, which is not compared byte by byte", name)
		}
		bc := boundColumn{Column: match.Column{Name: name, Type: leaf.Type.Name}, physical: c.Physical}
		bc.fieldID, bc.hasID = leaf.ID()
		if len(c.Path) == 1 && slices.Contains(s.Metadata.PartitionColumns, leaf.Name) {
			bc.partition = c.Physical[0]
		}
		b.columns = append(b.columns, bc)
	}
	return b, nil
}

// matchColumns is what match.Compile wants.
func (b *binding) matchColumns() []match.Column {
	out := make([]match.Column, len(b.columns))
	for i, c := range b.columns {
		out[i] = c.Column
	}
	return out
}

// leaf finds the column in a data file: by field id under id mapping, else by
// its physical path.
func (b *binding) leaf(f *parquet.File, c *boundColumn) (parquet.Leaf, error) {
	if b.mode == log.MappingID {
		if !c.hasID {
			return parquet.Leaf{}, storage.Refuse("unsupported_column_mapping", "column %s has no column mapping id", c.Name)
		}
		leaf, err := f.LeafByFieldID(c.fieldID)
		if errors.Is(err, parquet.ErrNoLeaf) {
			if _, nerr := f.LeafByName(c.physical...); nerr == nil {
				return parquet.Leaf{}, storage.Refuse("file_without_field_ids", "a data file has column %s by name, but not by its id, which decides", c.Name)
			}
		}
		return leaf, err
	}
	return f.LeafByName(c.physical...)
}

// keyColumns lists the columns that the subjects' keys name, sorted.
func keyColumns(subjects []storage.Subject) []string {
	var out []string
	for _, s := range subjects {
		for _, k := range s.Keys {
			if !slices.Contains(out, k.Column) {
				out = append(out, k.Column)
			}
		}
	}
	slices.Sort(out)
	return out
}
