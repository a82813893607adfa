package log

import (
	"fmt"
	"slices"
	"strings"

	"delenda/storage"
)

// Names of table features, exactly as the protocol spells them.
const (
	FeatureAppendOnly        = "appendOnly"
	FeatureClustering        = "clustering"
	FeatureColumnMapping     = "columnMapping"
	FeatureDeletionVectors   = "deletionVectors"
	FeatureDomainMetadata    = "domainMetadata"
	FeatureInCommitTimestamp = "inCommitTimestamp"
	FeatureRowTracking       = "rowTracking"
)

// The highest protocol versions that exist.
const (
	maxReaderVersion = 3
	maxWriterVersion = 7
	maxFeatures      = 1000
)

// readable are the reader features that replay, masking and key scans honour.
var readable = []string{
	FeatureColumnMapping, FeatureDeletionVectors, "timestampNtz", "timestampWithoutTimezone",
	"typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck",
	"variantType", "variantType-preview", "variantShredding", "variantShredding-preview",
}

// elsewhere are the features that put the truth about a table outside its log.
var elsewhere = map[string][2]string{
	"catalogManaged":               {"catalog_managed", "a catalog decides its commits"},
	"catalogOwned-preview":         {"catalog_managed", "a catalog decides its commits"},
	"coordinatedCommits-preview":   {"catalog_managed", "a commit coordinator decides its commits"},
	"coordinatedCommits":           {"catalog_managed", "a commit coordinator decides its commits"},
	"redirectReaderWriter-preview": {"redirected", "its data lives at another location"},
	"redirectWriterOnly-preview":   {"redirected", "its data lives at another location"},
	"adaptiveMetadata":             {"adaptive_metadata", "its log does not keep what erasure needs"},
	"adaptiveMetadata-preview":     {"adaptive_metadata", "its log does not keep what erasure needs"},
}

// CheckRead returns a *storage.Refusal if Delenda may not interpret a table
// with this protocol, and a *storage.CorruptError if the protocol contradicts
// itself.
func (p Protocol) CheckRead() error {
	if p.MinReaderVersion < 1 || p.MinWriterVersion < 0 {
		return &storage.CorruptError{Offset: -1, Field: "protocol", Reason: "versions out of range"}
	}
	for _, f := range slices.Concat(p.ReaderFeatures, p.WriterFeatures) {
		if r, ok := elsewhere[f]; ok {
			return storage.Refuse(r[0], "table feature %s: %s", name(f), r[1])
		}
	}
	if p.MinReaderVersion > maxReaderVersion {
		return storage.Refuse("unsupported_reader_version", "the table needs reader version %d, the highest known is %d", p.MinReaderVersion, maxReaderVersion)
	}
	if p.MinReaderVersion < 3 {
		return nil // legacy versions imply column mapping at most
	}
	if p.MinWriterVersion < 7 {
		return &storage.CorruptError{Offset: -1, Field: "protocol", Reason: "reader version 3 without writer version 7"}
	}
	if unknown := missing(p.ReaderFeatures, readable); len(unknown) > 0 {
		return storage.Refuse("unsupported_reader_feature", "the table needs the reader feature %s", strings.Join(unknown, ", "))
	}
	return nil
}

// Has reports whether the feature is supported: listed, or implied by a legacy
// version.
func (p Protocol) Has(feature string) bool {
	if p.MinWriterVersion >= 7 && slices.Contains(p.WriterFeatures, feature) {
		return true
	}
	if p.MinReaderVersion >= 3 && slices.Contains(p.ReaderFeatures, feature) {
		return true
	}
	return slices.Contains(p.implied(), feature)
}

// implied lists the features that legacy versions stand for.
func (p Protocol) implied() []string {
	var out []string
	add := func(version int32, features ...string) {
		if p.MinWriterVersion < 7 && p.MinWriterVersion >= version {
			out = append(out, features...)
		}
	}
	add(2, FeatureAppendOnly, "invariants")
	add(3, "checkConstraints")
	add(4, "changeDataFeed", "generatedColumns")
	add(5, FeatureColumnMapping)
	add(6, "identityColumns")
	if p.MinReaderVersion == 2 && !slices.Contains(out, FeatureColumnMapping) {
		out = append(out, FeatureColumnMapping)
	}
	return out
}

// Features lists all supported features, implied ones included, sorted.
func (p Protocol) Features() []string {
	out := p.implied()
	if p.MinReaderVersion >= 3 {
		out = append(out, p.ReaderFeatures...)
	}
	if p.MinWriterVersion >= 7 {
		out = append(out, p.WriterFeatures...)
	}
	return sorted(out)
}

// WithDeletionVectors returns the protocol that supports what p supports and
// deletion vectors too: reader 3, writer 7, everything implied made explicit.
func (p Protocol) WithDeletionVectors() Protocol {
	if p.Has(FeatureDeletionVectors) {
		return p
	}
	var readers []string
	if p.MinReaderVersion >= 3 {
		readers = slices.Clone(p.ReaderFeatures)
	} else if p.Has(FeatureColumnMapping) && p.MinReaderVersion == 2 {
		readers = []string{FeatureColumnMapping}
	}
	return Protocol{
		MinReaderVersion: 3,
		MinWriterVersion: 7,
		ReaderFeatures:   sorted(append(readers, FeatureDeletionVectors)),
		WriterFeatures:   sorted(append(p.Features(), FeatureDeletionVectors)),
	}
}

// Unknown returns the writer features, implied ones included, that are not in
// known, sorted and fit to print.
func (p Protocol) Unknown(known []string) []string {
	if p.MinWriterVersion < 7 {
		return nil
	}
	return missing(p.WriterFeatures, known)
}

func missing(features, known []string) []string {
	var out []string
	for _, f := range sorted(features) {
		if !slices.Contains(known, f) {
			out = append(out, name(f))
		}
	}
	return out
}

// name makes a feature's name from a table fit to print.
func name(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	for _, c := range s {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("%q", s)
		}
	}
	return s
}
