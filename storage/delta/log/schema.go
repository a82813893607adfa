package log

import (
	"encoding/json"
	"fmt"
	"strings"

	"delenda/storage"
)

// Bounds on schemas and configurations.
const (
	maxSchemaBytes   = 32 << 20
	maxFields        = 200_000
	maxDepth         = 100
	maxConfiguration = 100_000
)

// Column mapping: table property and field metadata.
const (
	propMappingMode      = "delta.columnMapping.mode"
	metaPhysicalName     = "delta.columnMapping.physicalName"
	metaColumnID         = "delta.columnMapping.id"
	metaCollations       = "__COLLATIONS"
	kindStruct, kindList = "struct", "array"
	kindMap              = "map"
)

// MappingMode is the column mapping mode of a table.
type MappingMode string

// The column mapping modes.
const (
	MappingNone MappingMode = "none"
	MappingName MappingMode = "name"
	MappingID   MappingMode = "id"
)

// Type is a Delta type: a primitive by its name ("long", "decimal(10,2)"), or
// nested.
type Type struct {
	Name    string  // "struct", "array", "map" or the primitive's text
	Fields  []Field // of a struct
	Element *Type   // of an array
	Key     *Type   // of a map
	Value   *Type   // of a map
}

// IsPrimitive reports whether the type has no members.
func (t *Type) IsPrimitive() bool {
	return t.Name != kindStruct && t.Name != kindList && t.Name != kindMap
}

// Field is a member of a struct; the schema's root is one.
type Field struct {
	Name     string // logical
	Type     Type
	Nullable bool
	Metadata map[string]json.RawMessage
}

// PhysicalName is the name in data files, statistics and partition values
// under column mapping; without a mapping it is the logical name.
func (f *Field) PhysicalName(mode MappingMode) string {
	if mode == MappingNone {
		return f.Name
	}
	var s string
	if raw, ok := f.Metadata[metaPhysicalName]; ok && json.Unmarshal(raw, &s) == nil && s != "" {
		return s
	}
	return f.Name
}

// ID is the column mapping id, the field_id in data files, and whether it has one.
func (f *Field) ID() (int32, bool) {
	var id int32
	raw, ok := f.Metadata[metaColumnID]
	if !ok || json.Unmarshal(raw, &id) != nil {
		return 0, false
	}
	return id, true
}

// Collated reports whether a string column compares by other rules than bytes.
func (f *Field) Collated() bool {
	_, ok := f.Metadata[metaCollations]
	return ok
}

// Schema is the logical schema of a table.
type Schema struct {
	Fields []Field
	Mode   MappingMode
}

// Schema parses the table's schema. A table without one has no columns.
func (m *Metadata) Schema() (*Schema, error) {
	mode := MappingMode(m.Configuration[propMappingMode])
	switch mode {
	case "":
		mode = MappingNone
	case MappingNone, MappingName, MappingID:
	default:
		return nil, storage.Refuse("unsupported_column_mapping", "the table's column mapping mode is not none, name or id")
	}
	if m.SchemaString == "" {
		return &Schema{Mode: mode}, nil
	}
	t, err := ParseSchema([]byte(m.SchemaString))
	if err != nil {
		return nil, err
	}
	return &Schema{Fields: t.Fields, Mode: mode}, nil
}

// ParseSchema parses the JSON form of a schema: a struct at the root.
func ParseSchema(p []byte) (*Type, error) {
	if len(p) > maxSchemaBytes {
		return nil, schemaError("longer than allowed")
	}
	s := schemaParser{}
	t, err := s.parse(p, 0)
	if err != nil {
		return nil, err
	}
	if t.Name != kindStruct {
		return nil, schemaError("the root is not a struct")
	}
	return t, nil
}

func schemaError(reason string) error {
	return &storage.CorruptError{Offset: -1, Field: "schemaString", Reason: reason}
}

type schemaParser struct{ fields int }

func (s *schemaParser) parse(p []byte, depth int) (*Type, error) {
	if depth > maxDepth {
		return nil, schemaError("nested deeper than allowed")
	}
	var text string
	if json.Unmarshal(p, &text) == nil {
		if text == "" || text == kindStruct || text == kindList || text == kindMap {
			return nil, schemaError("a type without members")
		}
		return &Type{Name: text}, nil
	}
	var node struct {
		Type   string `json:"type"`
		Fields []struct {
			Name     *string                    `json:"name"`
			Type     json.RawMessage            `json:"type"`
			Nullable bool                       `json:"nullable"`
			Metadata map[string]json.RawMessage `json:"metadata"`
		} `json:"fields"`
		Element json.RawMessage `json:"elementType"`
		Key     json.RawMessage `json:"keyType"`
		Value   json.RawMessage `json:"valueType"`
	}
	if err := json.Unmarshal(p, &node); err != nil {
		return nil, schemaError("not valid JSON")
	}
	t := &Type{Name: node.Type}
	var err error
	switch node.Type {
	case kindStruct:
		if s.fields += len(node.Fields); s.fields > maxFields {
			return nil, schemaError("too many fields")
		}
		t.Fields = make([]Field, 0, len(node.Fields))
		for _, f := range node.Fields {
			if f.Name == nil || len(f.Type) == 0 {
				return nil, schemaError("a field without name or type")
			}
			ft, err := s.parse(f.Type, depth+1)
			if err != nil {
				return nil, err
			}
			t.Fields = append(t.Fields, Field{Name: *f.Name, Type: *ft, Nullable: f.Nullable, Metadata: f.Metadata})
		}
	case kindList:
		if t.Element, err = s.parse(node.Element, depth+1); err != nil {
			return nil, err
		}
	case kindMap:
		if t.Key, err = s.parse(node.Key, depth+1); err != nil {
			return nil, err
		}
		if t.Value, err = s.parse(node.Value, depth+1); err != nil {
			return nil, err
		}
	default:
		return nil, schemaError("an unknown type")
	}
	return t, nil
}

// Column is a column that a dotted path resolves to.
type Column struct {
	Path     []*Field // from the top-level field to the leaf
	Logical  string   // the path as configured
	Physical []string // physical names of the path
}

// Leaf is the field that holds the values.
func (c *Column) Leaf() *Field { return c.Path[len(c.Path)-1] }

// Resolve finds a column by its exact logical name, or a struct member by a
// dotted path. A path that fits no column, or more than one when case is
// ignored, is a Refusal: most engines do not tell such columns apart.
func (s *Schema) Resolve(path string) (*Column, error) {
	var found []*Column
	s.match(s.Fields, path, nil, &found)
	var exact *Column
	for _, c := range found {
		if names(c.Path) == path {
			if exact != nil {
				return nil, storage.Refuse("ambiguous_column", "the table has more than one column %s", name(path))
			}
			exact = c
		}
	}
	switch {
	case len(found) > 1:
		return nil, storage.Refuse("ambiguous_column", "the table has more than one column %s when case is ignored", name(path))
	case exact == nil && len(found) == 1:
		return nil, storage.Refuse("unknown_column", "the table has no column %s; it has %s", name(path), name(names(found[0].Path)))
	case exact == nil:
		return nil, storage.Refuse("unknown_column", "the table has no column %s", name(path))
	}
	exact.Logical = path
	for _, f := range exact.Path {
		exact.Physical = append(exact.Physical, f.PhysicalName(s.Mode))
	}
	return exact, nil
}

func names(path []*Field) string {
	parts := make([]string, len(path))
	for i, f := range path {
		parts[i] = f.Name
	}
	return strings.Join(parts, ".")
}

// match collects every chain of fields whose dotted name equals path under
// case folding.
func (s *Schema) match(fields []Field, path string, chain []*Field, found *[]*Column) {
	for i := range fields {
		f := &fields[i]
		here := append(chain[:len(chain):len(chain)], f)
		if strings.EqualFold(f.Name, path) {
			*found = append(*found, &Column{Path: here})
		}
		if f.Type.Name != kindStruct || len(path) <= len(f.Name) || path[len(f.Name)] != '.' || !strings.EqualFold(f.Name, path[:len(f.Name)]) {
			continue
		}
		s.match(f.Type.Fields, path[len(f.Name)+1:], here, found)
	}
}

// PartitionKey returns the key under which the partition column is found in
// partitionValues.
func (s *Schema) PartitionKey(column string) (string, error) {
	for i := range s.Fields {
		if s.Fields[i].Name == column {
			return s.Fields[i].PhysicalName(s.Mode), nil
		}
	}
	return "", &storage.CorruptError{Offset: -1, Field: "partitionColumns", Reason: "names a column that the schema lacks"}
}

// String renders a type as Spark's DDL would name it, for messages.
func (t *Type) String() string {
	switch t.Name {
	case kindList:
		return fmt.Sprintf("array<%s>", t.Element)
	case kindMap:
		return fmt.Sprintf("map<%s,%s>", t.Key, t.Value)
	default:
		return name(t.Name)
	}
}
