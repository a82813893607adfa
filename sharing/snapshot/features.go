package snapshot

import (
	"slices"
	"strings"

	"delenda/sharing"
	"delenda/storage/delta/log"
)

// Features of the table's log and of its upkeep: no business of a recipient,
// who never sees the log.
var providerFeatures = []string{
	"v2Checkpoint", "vacuumProtocolCheck", "catalogManaged", "inCommitTimestamp", "checkpointProtection", "domainMetadata", "rowTracking",
}

// requiredFeatures lists the reader features that a reader of a snapshot needs:
// of those that the protocol names, the ones that the answer makes use of.
func requiredFeatures(p log.Protocol, schema *log.Schema, vectors int64) []string {
	var required []string
	if schema.Mode != log.MappingNone {
		required = append(required, log.FeatureColumnMapping)
	}
	if vectors > 0 {
		required = append(required, log.FeatureDeletionVectors)
	}
	if p.MinReaderVersion < 3 {
		return required
	}
	root := log.Type{Name: "struct", Fields: schema.Fields}
	for _, f := range p.ReaderFeatures {
		needed := true
		switch {
		case f == log.FeatureColumnMapping, f == log.FeatureDeletionVectors, slices.Contains(providerFeatures, f):
			needed = false // counted above, or of no concern
		case f == "timestampNtz", f == "timestampWithoutTimezone":
			needed = uses(&root, func(f *log.Field, t *log.Type) bool { return t.Name == "timestamp_ntz" })
		case strings.HasPrefix(f, "variant"):
			needed = uses(&root, func(f *log.Field, t *log.Type) bool { return t.Name == "variant" })
		case strings.HasPrefix(f, "typeWidening"):
			needed = uses(&root, func(f *log.Field, t *log.Type) bool {
				return f != nil && f.Metadata["delta.typeChanges"] != nil
			})
		}
		if needed {
			required = append(required, f)
		}
	}
	slices.Sort(required)
	return slices.Compact(required)
}

// uses reports whether any type in t, with the field it belongs to, is found.
func uses(t *log.Type, found func(*log.Field, *log.Type) bool) bool {
	for i := range t.Fields {
		f := &t.Fields[i]
		if found(f, &f.Type) || uses(&f.Type, found) {
			return true
		}
	}
	for _, member := range []*log.Type{t.Element, t.Key, t.Value} {
		if member != nil && (found(nil, member) || uses(member, found)) {
			return true
		}
	}
	return false
}

// sharedProtocol is the protocol of an answer in delta format: the table's own
// without the reader features that its reader does not need, so that clients
// which do not know those can read it.
func sharedProtocol(p log.Protocol, required []string) sharing.DeltaProtocol {
	switch {
	case len(required) == 0:
		return sharing.DeltaProtocol{MinReaderVersion: 1, MinWriterVersion: 2}
	case p.MinReaderVersion < 3:
		return sharing.DeltaProtocol{MinReaderVersion: int(p.MinReaderVersion), MinWriterVersion: int(min(p.MinWriterVersion, 6))}
	}
	writers := slices.DeleteFunc(slices.Clone(p.WriterFeatures), func(f string) bool {
		return slices.Contains(p.ReaderFeatures, f) && !slices.Contains(required, f)
	})
	for _, f := range required {
		if !slices.Contains(writers, f) {
			writers = append(writers, f)
		}
	}
	return sharing.DeltaProtocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: required, WriterFeatures: writers}
}

// propertiesOf lists the table properties that go with a feature. Others stay
// at home: they may hold secrets, and a property without its feature makes
// readers refuse.
var propertiesOf = map[string][]string{
	log.FeatureColumnMapping:   {"delta.columnMapping.mode", "delta.columnMapping.maxColumnId"},
	log.FeatureDeletionVectors: {"delta.enableDeletionVectors"},
	"typeWidening":             {"delta.enableTypeWidening"},
	"typeWidening-preview":     {"delta.enableTypeWidening"},
}

func sharedConfiguration(configuration map[string]string, required []string) map[string]string {
	out := map[string]string{}
	for _, f := range required {
		for _, property := range propertiesOf[f] {
			if v, ok := configuration[property]; ok {
				out[property] = v
			}
		}
	}
	return out
}
