package log

import "github.com/apache/arrow-go/v18/arrow"

// checkpointSchema is the schema of a classic checkpoint, after "Checkpoint
// Schema" in the protocol: every action a nullable struct column.
func checkpointSchema() *arrow.Schema {
	text := arrow.BinaryTypes.String
	long := arrow.PrimitiveTypes.Int64
	i32 := arrow.PrimitiveTypes.Int32
	boolean := arrow.FixedWidthTypes.Boolean
	opt := func(name string, t arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: t, Nullable: true}
	}
	textMap := func() arrow.DataType { return arrow.MapOf(text, text) }
	textList := func() arrow.DataType {
		return arrow.ListOfField(arrow.Field{Name: "element", Type: text, Nullable: true})
	}
	vector := arrow.StructOf(
		opt("storageType", text), opt("pathOrInlineDv", text), opt("offset", i32), opt("sizeInBytes", i32), opt("cardinality", long),
	)
	return arrow.NewSchema([]arrow.Field{
		opt("txn", arrow.StructOf(opt("appId", text), opt("version", long), opt("lastUpdated", long))),
		opt("add", arrow.StructOf(
			opt("path", text), opt("partitionValues", textMap()), opt("size", long), opt("modificationTime", long),
			opt("dataChange", boolean), opt("stats", text), opt("tags", textMap()), opt("deletionVector", vector),
			opt("baseRowId", long), opt("defaultRowCommitVersion", long), opt("clusteringProvider", text),
		)),
		opt("remove", arrow.StructOf(
			opt("path", text), opt("deletionTimestamp", long), opt("dataChange", boolean), opt("extendedFileMetadata", boolean),
			opt("partitionValues", textMap()), opt("size", long), opt("deletionVector", vector),
			opt("baseRowId", long), opt("defaultRowCommitVersion", long),
		)),
		opt("metaData", arrow.StructOf(
			opt("id", text), opt("name", text), opt("description", text),
			opt("format", arrow.StructOf(opt("provider", text), opt("options", textMap()))),
			opt("schemaString", text), opt("partitionColumns", textList()), opt("configuration", textMap()), opt("createdTime", long),
		)),
		opt("protocol", arrow.StructOf(
			opt("minReaderVersion", i32), opt("minWriterVersion", i32), opt("readerFeatures", textList()), opt("writerFeatures", textList()),
		)),
		opt("domainMetadata", arrow.StructOf(opt("domain", text), opt("configuration", text), opt("removed", boolean))),
	}, nil)
}
