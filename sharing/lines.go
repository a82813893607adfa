package sharing

import "encoding/json"

// Line is one line of an NDJSON answer: exactly one member is set. File holds
// the delta format's `file` as well as the parquet format's: they share id,
// version, timestamp and expirationTimestamp, and differ in the rest.
type Line struct {
	Protocol  *ProtocolLine `json:"protocol,omitempty"`
	MetaData  *MetaDataLine `json:"metaData,omitempty"`
	File      *FileLine     `json:"file,omitempty"`
	EndStream *EndStream    `json:"endStreamAction,omitempty"`
}

// ProtocolLine sets MinReaderVersion in parquet format, DeltaProtocol in delta
// format.
type ProtocolLine struct {
	MinReaderVersion int            `json:"minReaderVersion,omitempty"`
	DeltaProtocol    *DeltaProtocol `json:"deltaProtocol,omitempty"`
}

// DeltaProtocol is Delta's protocol action. The feature lists are present
// exactly if the versions are 3 and 7.
type DeltaProtocol struct {
	MinReaderVersion int      `json:"minReaderVersion"`
	MinWriterVersion int      `json:"minWriterVersion"`
	ReaderFeatures   []string `json:"readerFeatures,omitempty"`
	WriterFeatures   []string `json:"writerFeatures,omitempty"`
}

// MetaDataLine has the parquet format's members inline, the delta format's in
// DeltaMetadata. SizeBytes and NumFiles are always sent.
type MetaDataLine struct {
	ID               string             `json:"id,omitempty"`
	Name             string             `json:"name,omitempty"`
	Description      string             `json:"description,omitempty"`
	Format           *DataFormat        `json:"format,omitempty"`
	SchemaString     string             `json:"schemaString,omitempty"`
	PartitionColumns *[]string          `json:"partitionColumns,omitempty"` // an array even if empty
	Configuration    *map[string]string `json:"configuration,omitempty"`
	DeltaMetadata    *DeltaMetadata     `json:"deltaMetadata,omitempty"`
	Version          *int64             `json:"version,omitempty"`
	SizeBytes        *int64             `json:"size,omitempty"`
	NumFiles         *int64             `json:"numFiles,omitempty"`
}

// DataFormat is always parquet.
type DataFormat struct {
	Provider string            `json:"provider"`
	Options  map[string]string `json:"options,omitzero"` // nil is left out, empty is kept: kernel clients want it
}

// DeltaMetadata is Delta's metaData action.
type DeltaMetadata struct {
	ID               string            `json:"id"`
	Name             string            `json:"name,omitempty"`
	Description      string            `json:"description,omitempty"`
	Format           DataFormat        `json:"format"`
	SchemaString     string            `json:"schemaString"`
	PartitionColumns []string          `json:"partitionColumns"`
	Configuration    map[string]string `json:"configuration"`
	CreatedTime      *int64            `json:"createdTime,omitempty"` // ms
}

// FileLine is one data file with its pre-signed URL. Times are milliseconds
// since the epoch.
type FileLine struct {
	ID                   string  `json:"id"`
	DeletionVectorFileID string  `json:"deletionVectorFileId,omitempty"`
	Version              *int64  `json:"version,omitempty"`
	Timestamp            *int64  `json:"timestamp,omitempty"`
	ExpirationTimestamp  *int64  `json:"expirationTimestamp,omitempty"`
	Action               *Action `json:"deltaSingleAction,omitempty"`

	// Parquet format only.
	URL             string              `json:"url,omitempty"`
	PartitionValues *map[string]*string `json:"partitionValues,omitempty"`
	SizeBytes       *int64              `json:"size,omitempty"`
	Stats           string              `json:"stats,omitempty"`
}

// Action wraps one Delta action whose path is a pre-signed URL.
type Action struct {
	Add *AddFile `json:"add,omitempty"`
}

// AddFile is Delta's add action with pre-signed URLs.
type AddFile struct {
	Path                    string             `json:"path"`
	PartitionValues         map[string]*string `json:"partitionValues"`
	SizeBytes               int64              `json:"size"`
	ModificationTime        int64              `json:"modificationTime"`
	DataChange              bool               `json:"dataChange"`
	Stats                   string             `json:"stats,omitempty"`
	Tags                    map[string]string  `json:"tags,omitempty"`
	DeletionVector          *DeletionVector    `json:"deletionVector,omitempty"`
	BaseRowID               *int64             `json:"baseRowId,omitempty"`
	DefaultRowCommitVersion *int64             `json:"defaultRowCommitVersion,omitempty"`
	ClusteringProvider      string             `json:"clusteringProvider,omitempty"`
}

// DeletionVector is Delta's deletion vector descriptor: storage type "p" with a
// pre-signed URL, or "i" inline.
type DeletionVector struct {
	StorageType    string `json:"storageType"`
	PathOrInlineDV string `json:"pathOrInlineDv"`
	Offset         *int32 `json:"offset,omitempty"`
	SizeBytes      int32  `json:"sizeInBytes"`
	Cardinality    int64  `json:"cardinality"`
}

// EndStream ends an answer when it was asked for.
type EndStream struct {
	RefreshToken              string `json:"refreshToken,omitempty"`
	NextPageToken             string `json:"nextPageToken,omitempty"`
	MinURLExpirationTimestamp *int64 `json:"minUrlExpirationTimestamp,omitempty"` // ms
	ErrorMessage              string `json:"errorMessage,omitempty"`
}

// QueryRequest is the body of a table query. Int64 accepts numbers and numeric
// strings, as clients send both; unknown members are ignored.
type QueryRequest struct {
	PredicateHints      []string `json:"predicateHints,omitempty"`
	JSONPredicateHints  string   `json:"jsonPredicateHints,omitempty"`
	LimitHint           *Int64   `json:"limitHint,omitempty"`
	Version             *Int64   `json:"version,omitempty"`
	Timestamp           string   `json:"timestamp,omitempty"`
	StartingVersion     *Int64   `json:"startingVersion,omitempty"`
	EndingVersion       *Int64   `json:"endingVersion,omitempty"`
	MaxFiles            *Int64   `json:"maxFiles,omitempty"`
	PageToken           string   `json:"pageToken,omitempty"`
	IncludeRefreshToken bool     `json:"includeRefreshToken,omitempty"`
	RefreshToken        string   `json:"refreshToken,omitempty"`
}

// Int64 decodes a JSON number or a numeric string.
type Int64 int64

// UnmarshalJSON accepts 3 and "3".
func (n *Int64) UnmarshalJSON(p []byte) error {
	if len(p) > 1 && p[0] == '"' && p[len(p)-1] == '"' {
		p = p[1 : len(p)-1]
	}
	var v int64
	if err := json.Unmarshal(p, &v); err != nil {
		return err
	}
	*n = Int64(v)
	return nil
}
