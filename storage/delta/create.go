package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// Definition is what Create makes a table of.
type Definition struct {
	Schema           string            // the schema's JSON form: a struct
	PartitionColumns []string          // logical names
	Properties       map[string]string // beside delta.enableDeletionVectors, which Create sets to true
	Name             string
}

// Create makes an empty table that allows deletion vectors at the bucket's
// root. It returns storage.ErrExists if there is a table.
func Create(ctx context.Context, b storage.Bucket, d Definition, o *Options) (*Table, error) {
	t := newTable(b, o)
	schema, err := log.ParseSchema([]byte(d.Schema))
	if err != nil {
		return nil, fmt.Errorf("create table: %w", err)
	}
	for _, c := range d.PartitionColumns {
		if !slices.ContainsFunc(schema.Fields, func(f log.Field) bool { return f.Name == c }) {
			return nil, fmt.Errorf("create table: the schema has no partition column %s", c)
		}
	}
	now := t.o.Now()
	ms := now.UnixMilli()
	m := log.Metadata{
		ID: uuid.NewString(), Format: log.FileFormat{Provider: "parquet", Options: map[string]string{}}, SchemaString: d.Schema,
		PartitionColumns: append([]string{}, d.PartitionColumns...), CreatedTime: &ms, Configuration: map[string]string{},
	}
	if d.Name != "" {
		m.Name = &d.Name
	}
	for k, v := range d.Properties {
		m.Configuration[k] = v
	}
	m.Configuration[propDeletionVectors] = "true"
	blind := true
	txnID := uuid.NewString()
	_, err = t.attempt(ctx, 0, txnID, []log.Action{
		{CommitInfo: &log.CommitInfo{
			Timestamp: ms, Operation: "CREATE TABLE", OperationParameters: map[string]string{}, IsBlindAppend: &blind, EngineInfo: engine, TxnID: txnID,
		}},
		{Protocol: &log.Protocol{
			MinReaderVersion: 3, MinWriterVersion: 7,
			ReaderFeatures: []string{log.FeatureDeletionVectors}, WriterFeatures: []string{log.FeatureAppendOnly, log.FeatureDeletionVectors, "invariants"},
		}},
		{Metadata: &m},
	})
	if errors.Is(err, errLost) {
		err = storage.ErrExists
	}
	if err != nil {
		return nil, fmt.Errorf("create table: %w", err)
	}
	return t, nil
}

// DataFile is a Parquet file that lies in the table's bucket.
type DataFile struct {
	Key             string             // relative to the table root
	PartitionValues map[string]*string // by logical name
}

// AppendFiles adds data files to the table in one commit. Row counts and
// bounds come from the files' footers.
func (t *Table) AppendFiles(ctx context.Context, files []DataFile) (storage.Version, error) {
	adds := make([]log.Add, len(files))
	for i, f := range files {
		a, err := t.addOfFile(ctx, f)
		if err != nil {
			return storage.NoVersion, fmt.Errorf("append files: %w", err)
		}
		adds[i] = a
	}
	v, err := commitLoop(ctx, t, func(s *log.Snapshot, txnID string) (storage.Version, error) {
		if err := mayAppend(s); err != nil {
			return storage.NoVersion, err
		}
		schema, err := s.Metadata.Schema()
		if err != nil {
			return storage.NoVersion, err
		}
		ci := info(s, t.o.Now(), txnID, "WRITE")
		blind := true
		ci.IsBlindAppend, ci.OperationParameters["mode"] = &blind, "Append"
		actions := []log.Action{{CommitInfo: ci}}
		for i := range adds {
			a := adds[i]
			a.PartitionValues = map[string]*string{}
			for _, c := range s.Metadata.PartitionColumns {
				key, err := schema.PartitionKey(c)
				if err != nil {
					return storage.NoVersion, err
				}
				a.PartitionValues[key] = files[i].PartitionValues[c]
			}
			actions = append(actions, log.Action{Add: &a})
		}
		c, err := t.attempt(ctx, s.Version+1, txnID, actions)
		if err != nil {
			return storage.NoVersion, err
		}
		t.checkpoint(ctx, s, c.Version, t.o.Now())
		return c.Version, nil
	})
	if err != nil {
		return storage.NoVersion, fmt.Errorf("append files: %w", err)
	}
	return v, nil
}

// mayAppend refuses tables whose new files need more than a plain add.
func mayAppend(s *log.Snapshot) error {
	if err := mayWrite(s); err != nil {
		return err
	}
	for _, f := range []string{log.FeatureRowTracking, "checkConstraints", "generatedColumns", "identityColumns", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3"} {
		if s.Protocol.MinWriterVersion >= 7 && s.Protocol.Has(f) {
			return storage.Refuse("unsupported_writer_feature", "files cannot be added to a table with the feature %s", f)
		}
	}
	return nil
}

func (t *Table) addOfFile(ctx context.Context, f DataFile) (_ log.Add, err error) {
	defer func() { err = storage.Discreet(err, f.Key) }()
	i, err := t.bucket.Stat(ctx, f.Key)
	if err != nil {
		return log.Add{}, fmt.Errorf("look at %q: %w", f.Key, err)
	}
	stats, err := footerStats(ctx, t.bucket, i)
	if err != nil {
		return log.Add{}, err
	}
	return log.Add{
		Path: log.EscapePath(f.Key), SizeBytes: i.SizeBytes, ModificationTime: i.ModTime.UnixMilli(), DataChange: true, Stats: stats,
	}, nil
}

// EnableDeletionVectors lets the table at the bucket's root carry deletion
// vectors: it upgrades the protocol to reader version 3 and writer version 7 if
// need be, lists the feature, and sets delta.enableDeletionVectors. Readers
// that know neither can no longer read the table, so nothing else calls this.
// It returns the version from which they are allowed; on a table that allows
// them already it changes nothing.
func EnableDeletionVectors(ctx context.Context, b storage.Bucket, o *Options) (storage.Version, error) {
	t := newTable(b, o)
	v, err := commitLoop(ctx, t, func(s *log.Snapshot, txnID string) (storage.Version, error) {
		if err := mayWrite(s); err != nil {
			return storage.NoVersion, err
		}
		if err := mayMask(s); err != nil {
			return storage.NoVersion, err
		}
		if s.Protocol.Has(log.FeatureDeletionVectors) && s.Metadata.IsTrue(propDeletionVectors) {
			return s.Version, nil
		}
		m := s.Metadata
		m.Configuration = map[string]string{propDeletionVectors: "true"}
		for k, v := range s.Metadata.Configuration {
			if k != propDeletionVectors {
				m.Configuration[k] = v
			}
		}
		now := t.o.Now()
		ci := info(s, now, txnID, "SET TBLPROPERTIES")
		ci.OperationParameters["properties"] = `{"` + propDeletionVectors + `":"true"}`
		actions := []log.Action{{CommitInfo: ci}}
		if p := s.Protocol.WithDeletionVectors(); !p.Equal(s.Protocol) {
			actions = append(actions, log.Action{Protocol: &p})
		}
		actions = append(actions, log.Action{Metadata: &m})
		c, err := t.attempt(ctx, s.Version+1, txnID, actions)
		return c.Version, err
	})
	if err != nil {
		return storage.NoVersion, fmt.Errorf("enable deletion vectors: %w", err)
	}
	return v, nil
}
