package log

import (
	"encoding/json"
	"slices"
	"strconv"

	"delenda/storage/deletion"
)

// Action is one line of a commit: exactly one field is set.
type Action struct {
	CommitInfo     *CommitInfo     `json:"commitInfo,omitempty"`
	Protocol       *Protocol       `json:"protocol,omitempty"`
	Metadata       *Metadata       `json:"metaData,omitempty"`
	Txn            *Txn            `json:"txn,omitempty"`
	DomainMetadata *DomainMetadata `json:"domainMetadata,omitempty"`
	Remove         *Remove         `json:"remove,omitempty"`
	Add            *Add            `json:"add,omitempty"`
	CDC            *CDC            `json:"cdc,omitempty"`

	CheckpointMetadata *CheckpointMetadata `json:"checkpointMetadata,omitempty"` // V2 checkpoints only
	Sidecar            *Sidecar            `json:"sidecar,omitempty"`            // V2 checkpoints only
}

// Protocol says which versions and features a client must support.
type Protocol struct {
	MinReaderVersion int32    `json:"minReaderVersion"`
	MinWriterVersion int32    `json:"minWriterVersion"`
	ReaderFeatures   []string `json:"readerFeatures,omitempty"` // only with reader version 3
	WriterFeatures   []string `json:"writerFeatures,omitempty"` // only with writer version 7
}

// MarshalJSON keeps the feature lists, empty ones too, exactly when the
// versions call for them.
func (p Protocol) MarshalJSON() ([]byte, error) {
	type wire struct {
		MinReaderVersion int32     `json:"minReaderVersion"`
		MinWriterVersion int32     `json:"minWriterVersion"`
		ReaderFeatures   *[]string `json:"readerFeatures,omitempty"`
		WriterFeatures   *[]string `json:"writerFeatures,omitempty"`
	}
	w := wire{MinReaderVersion: p.MinReaderVersion, MinWriterVersion: p.MinWriterVersion}
	if p.MinReaderVersion >= 3 {
		l := append([]string{}, p.ReaderFeatures...)
		w.ReaderFeatures = &l
	}
	if p.MinWriterVersion >= 7 {
		l := append([]string{}, p.WriterFeatures...)
		w.WriterFeatures = &l
	}
	return json.Marshal(w)
}

// Equal reports whether two protocols ask for the same; the order of features
// does not matter.
func (p Protocol) Equal(q Protocol) bool {
	return p.MinReaderVersion == q.MinReaderVersion && p.MinWriterVersion == q.MinWriterVersion &&
		slices.Equal(sorted(p.ReaderFeatures), sorted(q.ReaderFeatures)) &&
		slices.Equal(sorted(p.WriterFeatures), sorted(q.WriterFeatures))
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return slices.Compact(s)
}

// FileFormat is the encoding of data files; only "parquet" exists.
type FileFormat struct {
	Provider string            `json:"provider"`
	Options  map[string]string `json:"options"`
}

// Metadata describes the table; a later one replaces an earlier one whole.
type Metadata struct {
	ID               string            `json:"id"`
	Name             *string           `json:"name,omitempty"`
	Description      *string           `json:"description,omitempty"`
	Format           FileFormat        `json:"format"`
	SchemaString     string            `json:"schemaString"`
	PartitionColumns []string          `json:"partitionColumns"` // logical names
	CreatedTime      *int64            `json:"createdTime,omitempty"`
	Configuration    map[string]string `json:"configuration"`
}

// Property returns a table property, and whether it is set.
func (m *Metadata) Property(name string) (string, bool) {
	v, ok := m.Configuration[name]
	return v, ok
}

// IsTrue reports whether a boolean table property is set to true.
func (m *Metadata) IsTrue(name string) bool {
	v, err := strconv.ParseBool(m.Configuration[name])
	return err == nil && v
}

// Add makes a data file, with its deletion vector, part of the table.
type Add struct {
	Path             string             `json:"path"` // URI as logged: percent-encoded, relative to the root or absolute; see Key
	PartitionValues  map[string]*string `json:"partitionValues"`
	SizeBytes        int64              `json:"size"`
	ModificationTime int64              `json:"modificationTime"` // ms
	DataChange       bool               `json:"dataChange"`
	Stats            string             `json:"stats,omitempty"` // JSON text; rendered from stats_parsed where a checkpoint has only that
	Tags             map[string]*string `json:"tags,omitempty"`

	DeletionVector          *deletion.Descriptor `json:"deletionVector,omitempty"`
	BaseRowID               *int64               `json:"baseRowId,omitempty"`
	DefaultRowCommitVersion *int64               `json:"defaultRowCommitVersion,omitempty"`
	ClusteringProvider      *string              `json:"clusteringProvider,omitempty"`
}

// Remove takes a data file with exactly this deletion vector out of the table.
type Remove struct {
	Path                 string             `json:"path"`
	DeletionTimestamp    int64              `json:"deletionTimestamp"` // ms; absent counts as 0, that is expired
	DataChange           bool               `json:"dataChange"`
	ExtendedFileMetadata bool               `json:"extendedFileMetadata,omitempty"`
	PartitionValues      map[string]*string `json:"partitionValues,omitempty"`
	SizeBytes            *int64             `json:"size,omitempty"`
	Stats                string             `json:"stats,omitempty"`
	Tags                 map[string]*string `json:"tags,omitempty"`

	DeletionVector          *deletion.Descriptor `json:"deletionVector,omitempty"`
	BaseRowID               *int64               `json:"baseRowId,omitempty"`
	DefaultRowCommitVersion *int64               `json:"defaultRowCommitVersion,omitempty"`
}

// MarshalJSON writes partitionValues, empty or not, exactly when
// extendedFileMetadata promises them.
func (r Remove) MarshalJSON() ([]byte, error) {
	type plain Remove
	if !r.ExtendedFileMetadata {
		return json.Marshal(plain(r))
	}
	values := r.PartitionValues
	if values == nil {
		values = map[string]*string{}
	}
	r.PartitionValues = nil
	return json.Marshal(struct {
		plain
		PartitionValues map[string]*string `json:"partitionValues"`
	}{plain(r), values})
}

// Txn records an application's progress in the commit that made it.
type Txn struct {
	AppID       string `json:"appId"`
	Version     int64  `json:"version"`
	LastUpdated *int64 `json:"lastUpdated,omitempty"` // ms
}

// DomainMetadata is a named configuration of the table; delta.* domains
// belong to the system.
type DomainMetadata struct {
	Domain        string `json:"domain"`
	Configuration string `json:"configuration"`
	Removed       bool   `json:"removed"`
}

// CDC is a change data file of a commit.
type CDC struct {
	Path            string             `json:"path"`
	PartitionValues map[string]*string `json:"partitionValues"`
	SizeBytes       int64              `json:"size"`
	DataChange      bool               `json:"dataChange"`
}

// CheckpointMetadata marks a V2 checkpoint.
type CheckpointMetadata struct {
	Version int64 `json:"version"`
}

// Sidecar names an object with file actions of a V2 checkpoint.
type Sidecar struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"sizeInBytes"`
}

// CommitInfo is the provenance of a commit. It is free form; the members named
// here are read when they have the expected type and are zero otherwise.
type CommitInfo struct {
	Timestamp           int64             `json:"timestamp"` // ms
	InCommitTimestamp   *int64            `json:"inCommitTimestamp,omitempty"`
	Operation           string            `json:"operation"`
	OperationParameters map[string]string `json:"operationParameters"`
	ReadVersion         *int64            `json:"readVersion,omitempty"`
	IsolationLevel      string            `json:"isolationLevel,omitempty"`
	IsBlindAppend       *bool             `json:"isBlindAppend,omitempty"`
	OperationMetrics    map[string]string `json:"operationMetrics,omitempty"`
	Tags                map[string]string `json:"tags,omitempty"`
	EngineInfo          string            `json:"engineInfo,omitempty"`
	TxnID               string            `json:"txnId,omitempty"`
	Delenda             json.RawMessage   `json:"delenda,omitempty"` // see package delta
}

// UnmarshalJSON never fails on a member of an unexpected type.
func (c *CommitInfo) UnmarshalJSON(p []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(p, &m); err != nil {
		return err
	}
	*c = CommitInfo{}
	lenient := func(name string, into any) {
		if raw, ok := m[name]; ok {
			_ = json.Unmarshal(raw, into) // free form: another type means another meaning
		}
	}
	lenient("timestamp", &c.Timestamp)
	lenient("inCommitTimestamp", &c.InCommitTimestamp)
	lenient("operation", &c.Operation)
	lenient("readVersion", &c.ReadVersion)
	lenient("isolationLevel", &c.IsolationLevel)
	lenient("isBlindAppend", &c.IsBlindAppend)
	lenient("engineInfo", &c.EngineInfo)
	lenient("txnId", &c.TxnID)
	lenient("delenda", &c.Delenda)
	c.OperationParameters = textMembers(m["operationParameters"])
	c.OperationMetrics = textMembers(m["operationMetrics"])
	c.Tags = textMembers(m["tags"])
	return nil
}

// textMembers reads an object of strings; members of other types appear as
// their JSON text, which is how the wild writes them.
func textMembers(raw json.RawMessage) map[string]string {
	var m map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &m) != nil || m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		out[k] = s
	}
	return out
}
