package delta

import (
	"slices"
	"strings"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// writable are the writer features that a delete by deletion vector honours.
// Most need nothing: no row is written. The others are dealt with where their
// duty arises: appendOnly, the iceberg features and deletionVectors below,
// column mapping and type changes when columns are bound and scanned, row
// tracking, clustering and in-commit timestamps when the commit is built,
// domains and checkpoints when a checkpoint is written.
var writable = []string{
	log.FeatureAppendOnly, "allowColumnDefaults", "changeDataFeed", "checkConstraints", "checkpointProtection",
	log.FeatureClustering, "collations", "collations-preview", log.FeatureColumnMapping, "columnMappingUsageTracking",
	log.FeatureDeletionVectors, log.FeatureDomainMetadata, "generatedColumns", "icebergCompatV1", "icebergCompatV2",
	"icebergCompatV3", "identityColumns", log.FeatureInCommitTimestamp, "invariants", "materializePartitionColumns",
	log.FeatureRowTracking, "timestampNtz", "timestampWithoutTimezone", "typeWidening", "typeWidening-preview",
	"v2Checkpoint", "vacuumProtocolCheck", "variantShredding", "variantShredding-preview", "variantType", "variantType-preview",
}

const propDeletionVectors = "delta.enableDeletionVectors"

// mayWrite refuses tables whose protocol asks writers for what is not done here.
func mayWrite(s *log.Snapshot) error {
	if v := s.Protocol.MinWriterVersion; v > 7 {
		return storage.Refuse("unsupported_writer_version", "the table needs writer version %d, the highest known is 7", v)
	}
	if unknown := s.Protocol.Unknown(writable); len(unknown) > 0 {
		return storage.Refuse("unsupported_writer_feature", "the table needs the writer feature %s", strings.Join(unknown, ", "))
	}
	return nil
}

// mayDelete refuses tables on which no new deletion vector may be written.
func mayDelete(s *log.Snapshot) error {
	if err := mayWrite(s); err != nil {
		return err
	}
	if s.Protocol.Has(log.FeatureAppendOnly) && s.Metadata.IsTrue("delta.appendOnly") {
		return storage.Refuse("append_only", "the table is append-only: set delta.appendOnly to false to let rows be deleted")
	}
	if err := mayMask(s); err != nil {
		return err
	}
	if !s.Protocol.Has(log.FeatureDeletionVectors) || !s.Metadata.IsTrue(propDeletionVectors) {
		return storage.Refuse("deletion_vectors_disabled",
			"the table does not allow deletion vectors: set the table property %s to true (readers then need reader version 3)", propDeletionVectors)
	}
	return nil
}

// mayMask refuses tables that another format's readers see without our masks.
func mayMask(s *log.Snapshot) error {
	for _, v := range []string{"V1", "V2"} {
		if s.Metadata.IsTrue("delta.enableIcebergCompat"+v) || v == "V1" && s.Protocol.Has("icebergCompatV1") {
			return storage.Refuse("iceberg_compat", "the table keeps icebergCompat%s, which forbids deletion vectors", v)
		}
	}
	formats, _ := s.Metadata.Property("delta.universalFormat.enabledFormats")
	if slices.ContainsFunc(strings.Split(formats, ","), func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), "iceberg") }) {
		return storage.Refuse("universal_format", "the table is also published as Iceberg, whose readers would go on seeing deleted rows")
	}
	return nil
}
