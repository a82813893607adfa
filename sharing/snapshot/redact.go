package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// Metadata of a schema's fields that readers of the answer need. Anything else
// stays at home: default values, generation expressions and custom entries may
// say more than the provider means to share.
var (
	deltaFieldMetadata = []string{
		"comment", "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.columnMapping.nested.ids",
		"delta.typeChanges", "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS",
	}
	parquetFieldMetadata = []string{"comment"}
)

// filterSchema drops field metadata that is not in keep from a schema's JSON.
func filterSchema(schema string, keep []string) (string, error) {
	dec := json.NewDecoder(strings.NewReader(schema))
	dec.UseNumber()
	var root any
	if err := dec.Decode(&root); err != nil {
		return "", &storage.CorruptError{Offset: -1, Field: "schemaString", Reason: "not JSON"}
	}
	filterType(root, keep)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(root); err != nil {
		return "", fmt.Errorf("encode schema: %w", err)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// filterType walks a type; log.Metadata.Schema has bounded its depth.
func filterType(node any, keep []string) {
	t, ok := node.(map[string]any)
	if !ok {
		return
	}
	fields, _ := t["fields"].([]any)
	for _, f := range fields {
		field, ok := f.(map[string]any)
		if !ok {
			continue
		}
		if meta, ok := field["metadata"].(map[string]any); ok {
			for name := range meta {
				if !slices.Contains(keep, name) {
					delete(meta, name)
				}
			}
		}
		filterType(field["type"], keep)
	}
	for _, member := range []string{"elementType", "keyType", "valueType"} {
		filterType(t[member], keep)
	}
}

// statsPaths gives the paths, in physical names, at which statistics hold the
// minimum and maximum of the identity columns. A column that the table does
// not have is refused: it may have been renamed, and its new name would leave.
func statsPaths(schema *log.Schema, columns []string) ([][]string, error) {
	var paths [][]string
	for _, name := range columns {
		column, err := schema.Resolve(name)
		if err != nil {
			return nil, err
		}
		paths = append(paths, column.Physical)
	}
	return paths, nil
}

// statistics are the members of an add's stats that leave in an answer.
type statistics struct {
	NumRecords  *int64                     `json:"numRecords,omitempty"`
	TightBounds *bool                      `json:"tightBounds,omitempty"`
	MinValues   map[string]json.RawMessage `json:"minValues,omitempty"`
	MaxValues   map[string]json.RawMessage `json:"maxValues,omitempty"`
	NullCount   json.RawMessage            `json:"nullCount,omitempty"`
}

// redactStats takes minimum and maximum at the paths out of an add's
// statistics, and returns the number of physical rows, -1 if they do not tell.
// Statistics that cannot be read do not leave.
func redactStats(stats string, paths [][]string) (string, int64) {
	if stats == "" {
		return "", -1
	}
	var s statistics
	if json.Unmarshal([]byte(stats), &s) != nil {
		return "", -1
	}
	for _, path := range paths {
		dropPath(s.MinValues, path)
		dropPath(s.MaxValues, path)
	}
	rows := int64(-1)
	if s.NumRecords != nil && *s.NumRecords >= 0 {
		rows = *s.NumRecords
	}
	out, err := json.Marshal(s)
	if err != nil {
		return "", rows
	}
	return string(out), rows
}

// dropPath removes what stands at the path, in whatever case it is spelled.
func dropPath(values map[string]json.RawMessage, path []string) {
	for name, raw := range values {
		if !strings.EqualFold(name, path[0]) {
			continue
		}
		var members map[string]json.RawMessage
		if len(path) == 1 || json.Unmarshal(raw, &members) != nil { // not what the schema says: nothing of it leaves
			delete(values, name)
			continue
		}
		dropPath(members, path[1:])
		out, err := json.Marshal(members)
		if err != nil {
			delete(values, name)
			continue
		}
		values[name] = out
	}
}
