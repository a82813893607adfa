package parquet

import (
	"errors"
	"strings"

	"github.com/apache/arrow-go/v18/parquet/schema"
)

// ErrNoLeaf says that the file has no such column. Every row is null there:
// nothing matches.
var ErrNoLeaf = errors.New("column not in file")

// Leaf is a column of one File that holds values.
type Leaf struct {
	index  int
	column *schema.Column
}

// Path returns the names from the root to the leaf.
func (l Leaf) Path() []string { return l.column.ColumnPath() }

// LeafByName finds a column by its path of physical names. A path that is
// absent is ErrNoLeaf. Names are looked up as written, then without regard to
// case; where two columns differ only by case the lookup is refused, since
// readers disagree about which one is meant. So are columns inside lists and
// maps.
func (f *File) LeafByName(path ...string) (Leaf, error) {
	found := -1
	for i, c := range f.meta.Schema.Columns() {
		if !equalFoldPath(c.ColumnPath(), path) {
			continue
		}
		if found >= 0 {
			return Leaf{}, f.refuse("ambiguous_column", "two columns differ from %q only by case", strings.Join(path, "."))
		}
		found = i
	}
	return f.leaf(found)
}

func equalFoldPath(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !strings.EqualFold(a[i], b[i]) {
			return false
		}
	}
	return true
}

// LeafByFieldID finds a column by the field id of its last node. An id that is
// absent is ErrNoLeaf; one that two columns have is refused.
func (f *File) LeafByFieldID(id int32) (Leaf, error) {
	found := -1
	for i, c := range f.meta.Schema.Columns() {
		if id < 0 || c.SchemaNode().FieldID() != id {
			continue
		}
		if found >= 0 {
			return Leaf{}, f.refuse("ambiguous_column", "two columns have field id %d", id)
		}
		found = i
	}
	return f.leaf(found)
}

func (f *File) leaf(i int) (Leaf, error) {
	if i < 0 {
		return Leaf{}, ErrNoLeaf
	}
	c := f.meta.Schema.Column(i)
	if c.MaxRepetitionLevel() > 0 {
		return Leaf{}, f.refuse("repeated_column", "column %q lies inside a list or map", strings.Join(c.ColumnPath(), "."))
	}
	return Leaf{index: i, column: c}, nil
}
