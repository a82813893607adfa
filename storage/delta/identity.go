package delta

import (
	"encoding/json"
	"slices"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// identity are the columns whose bounds our commits leave out.
type identity struct {
	columns []identityColumn
	mode    log.MappingMode
}

type identityColumn struct {
	boundColumn
	clustering bool // its bounds must stay: they are computed over the rows that stay
}

// identityColumns resolves columns of any type.
func identityColumns(s *log.Snapshot, columns []string) (*identity, error) {
	schema, err := s.Metadata.Schema()
	if err != nil {
		return nil, err
	}
	clustered, err := clusteringColumns(s)
	if err != nil {
		return nil, err
	}
	out := &identity{mode: schema.Mode}
	var seen []string
	for _, name := range columns {
		if slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		c, err := schema.Resolve(name)
		if err != nil {
			return nil, err
		}
		leaf := c.Leaf()
		ic := identityColumn{boundColumn: boundColumn{physical: c.Physical}, clustering: slices.Contains(clustered, pathKey(c.Physical))}
		ic.Name, ic.Type = name, leaf.Type.Name
		ic.fieldID, ic.hasID = leaf.ID()
		if len(c.Path) == 1 && slices.Contains(s.Metadata.PartitionColumns, leaf.Name) {
			continue // partition columns have no statistics
		}
		out.columns = append(out.columns, ic)
	}
	return out, nil
}

// clusteringColumns returns the pathKey of each clustering column, by physical
// names.
func clusteringColumns(s *log.Snapshot) ([]string, error) {
	d, ok := s.Domains["delta.clustering"]
	if !ok || !s.Protocol.Has(log.FeatureClustering) {
		return nil, nil
	}
	var c struct {
		Columns [][]string `json:"clusteringColumns"`
	}
	if json.Unmarshal([]byte(d.Configuration), &c) != nil {
		return nil, &storage.CorruptError{Offset: -1, Field: "domainMetadata delta.clustering", Reason: "not its JSON form"}
	}
	out := make([]string, len(c.Columns))
	for i, path := range c.Columns {
		out[i] = pathKey(path)
	}
	return out, nil
}

// paths are the physical paths to leave out.
func (d *identity) paths() [][]string {
	out := make([][]string, len(d.columns))
	for i, c := range d.columns {
		out[i] = c.physical
	}
	return out
}
