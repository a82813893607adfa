package snapshot

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"delenda/sharing"
	"delenda/storage"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"
)

// manifestFormat changes when manifests of the same version come to hold other
// bytes: it is part of their key.
const manifestFormat = 1

// Prepare returns the manifest of a version of the table, storage.NoVersion for
// the newest, and writes it if the state prefix has none. The table's files
// stream through; memory holds the commits since its checkpoint. It is safe to
// call again and beside other replicas. A table that may not be shared is a
// *storage.Refusal.
func (m *Manifests) Prepare(ctx context.Context, name string, source Source, at storage.Version) (*Manifest, *log.Snapshot, error) {
	snap, err := log.Load(ctx, source.Bucket, at)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	prefix, err := manifestKey(ctx, name, source, snap)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare %s version %d: %w", name, snap.Version, err)
	}
	manifest, err := m.Load(ctx, prefix+"info")
	if errors.Is(err, storage.ErrNotFound) {
		manifest, err = m.build(ctx, name, source, snap, prefix)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("prepare %s version %d: %w", name, snap.Version, err)
	}
	return manifest, snap, nil
}

// manifestKey names a version by all that its manifest depends on, so that
// neither another table at the same place nor other identity columns ever find
// it: the commit's bytes stand for the table's content.
func manifestKey(ctx context.Context, name string, source Source, snap *log.Snapshot) (string, error) {
	h := sha256.New()
	about, err := json.Marshal([]any{manifestFormat, snap.Metadata.ID, sortedColumns(source)})
	if err != nil {
		return "", err
	}
	h.Write(about)
	r, err := source.Bucket.Read(ctx, log.CommitKey(snap.Version), 0, -1)
	switch {
	case errors.Is(err, storage.ErrNotFound): // cleaned up: a checkpoint stands for it
	case err != nil:
		return "", err
	default:
		_, err = io.Copy(h, r)
		if cerr := r.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s%s/%020d-%s/", manifestPrefix, name, snap.Version, hex.EncodeToString(h.Sum(nil)[:12])), nil
}

func sortedColumns(source Source) []string {
	columns := append([]string{}, source.IdentityColumns...)
	slices.Sort(columns)
	return slices.Compact(columns)
}

func (m *Manifests) build(ctx context.Context, name string, source Source, snap *log.Snapshot, prefix string) (*Manifest, error) {
	schema, err := snap.Metadata.Schema()
	if err != nil {
		return nil, err
	}
	paths, err := statsPaths(schema, source.IdentityColumns)
	if err != nil {
		return nil, err
	}
	unique := make([]byte, 8)
	_, _ = rand.Read(unique) // never fails
	manifest := &Manifest{
		Key: prefix + "info", Format: manifestFormat, Redacted: sortedColumns(source), Source: name, Version: snap.Version, TableID: snap.Metadata.ID, Timestamp: snap.Timestamp.UTC(),
		// Only the info object that wins names its files: those of a builder
		// that lost, or died, are never read and removed later.
		Files: prefix + "files-" + hex.EncodeToString(unique),
	}
	if err := m.writeFiles(ctx, snap, paths, manifest); err != nil {
		return nil, err
	}
	manifest.Required = requiredFeatures(snap.Protocol, schema, manifest.Vectors)
	if err := manifest.describe(snap); err != nil {
		return nil, err
	}
	won, err := m.save(ctx, manifest)
	if err == nil && won.Files != manifest.Files {
		_ = m.state.Delete(ctx, manifest.Files) // if it stays, it is trimmed later
	}
	return won, err
}

var errStopped = errors.New("store stopped reading")

// writeFiles streams the snapshot's files into the manifest's object and counts
// them.
func (m *Manifests) writeFiles(ctx context.Context, snap *log.Snapshot, paths [][]string, manifest *Manifest) error {
	building, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := m.encodeFiles(building, snap, paths, manifest, pw)
		_ = pw.CloseWithError(err) // never fails; nil ends the stream
		done <- err
	}()
	err := m.state.Put(ctx, manifest.Files, pr, storage.PutOptions{IfAbsent: true})
	_ = pr.CloseWithError(errStopped) // never fails
	cancel()
	built := <-done
	if err != nil && (built == nil || errors.Is(built, errStopped) || errors.Is(built, context.Canceled)) {
		return err // the store's doing; otherwise what the table could not give
	}
	return built
}

func (m *Manifests) encodeFiles(ctx context.Context, snap *log.Snapshot, paths [][]string, manifest *Manifest, w io.Writer) error {
	sealed, err := newSealWriter(w, m.keys, manifest.Files)
	if err != nil {
		return err
	}
	var buf []byte
	for add, err := range snap.Files(ctx) {
		if err != nil {
			return err
		}
		rec, err := encodeFile(&add, paths)
		if err != nil {
			return err
		}
		manifest.NumFiles++
		manifest.SizeBytes += add.SizeBytes
		if add.DeletionVector != nil {
			manifest.Vectors++
		}
		buf = rec.appendTo(buf[:0])
		if _, err := sealed.Write(buf); err != nil {
			return err
		}
	}
	return sealed.Close()
}

// describe fills in protocol and metadata as answers show them.
func (m *Manifest) describe(snap *log.Snapshot) error {
	meta := &snap.Metadata
	deltaSchema, err := filterSchema(meta.SchemaString, deltaFieldMetadata)
	if err != nil {
		return err
	}
	if m.Schema, err = filterSchema(meta.SchemaString, parquetFieldMetadata); err != nil {
		return err
	}
	m.Protocol = sharedProtocol(snap.Protocol, m.Required)
	m.Metadata = sharing.DeltaMetadata{
		ID:               meta.ID,
		Format:           sharing.DataFormat{Provider: "parquet", Options: map[string]string{}},
		SchemaString:     deltaSchema,
		PartitionColumns: append([]string{}, meta.PartitionColumns...),
		Configuration:    sharedConfiguration(meta.Configuration, m.Required),
		CreatedTime:      meta.CreatedTime,
	}
	if meta.Name != nil {
		m.Metadata.Name = *meta.Name
	}
	if meta.Description != nil {
		m.Metadata.Description = *meta.Description
	}
	return nil
}

// encodeFile renders what an answer says of a file, but for what differs from
// answer to answer: URLs, their expiry, and the hash of the id.
func encodeFile(add *log.Add, paths [][]string) (*record, error) {
	if _, err := add.Key(""); err != nil {
		return nil, err
	}
	stats, physical := redactStats(add.Stats, paths)
	values := add.PartitionValues
	if values == nil {
		values = map[string]*string{}
	}
	rec := &record{path: add.Path, rows: physical}
	tail := sharing.AddFile{
		PartitionValues: values, SizeBytes: add.SizeBytes, ModificationTime: add.ModificationTime,
		// A snapshot's files are its data, whatever the commit that added them
		// said; checkpoints do not keep it.
		DataChange: true, Stats: stats,
		BaseRowID: add.BaseRowID, DefaultRowCommitVersion: add.DefaultRowCommitVersion,
	}
	if add.ClusteringProvider != nil {
		tail.ClusteringProvider = *add.ClusteringProvider
	}
	var err error
	if rec.addTail, err = after(tail, `"partitionValues":`); err != nil {
		return nil, err
	}
	dv := add.DeletionVector
	if dv == nil {
		parquet := sharing.FileLine{PartitionValues: &values, SizeBytes: &add.SizeBytes, Stats: stats}
		rec.parquetTail, err = after(parquet, `"partitionValues":`)
		return rec, err
	}
	if rec.rows >= 0 {
		rec.rows = max(0, rec.rows-dv.Cardinality)
	}
	return rec, rec.setVector(dv)
}

// setVector appends the deletion vector to the add: an inline one as it is, one
// on disk around its URL.
func (r *record) setVector(dv *deletion.Descriptor) error {
	key, err := dv.Resolve("")
	if err != nil {
		return err
	}
	out := sharing.DeletionVector{
		StorageType: dv.StorageType, PathOrInlineDV: dv.PathOrInlineDV,
		Offset: dv.Offset, SizeBytes: dv.SizeInBytes, Cardinality: dv.Cardinality,
	}
	r.addTail = r.addTail[:len(r.addTail)-1] // before the brace
	if key == "" {
		whole, err := json.Marshal(out)
		if err != nil {
			return fmt.Errorf("encode deletion vector: %w", err)
		}
		r.addTail = append(append(append(r.addTail, `,"deletionVector":`...), whole...), '}')
		return nil
	}
	sum := sha256.Sum256([]byte(dv.UniqueID()))
	r.dvID, r.dvKey = hex.EncodeToString(sum[:]), key
	out.PathOrInlineDV = ""
	member := `"sizeInBytes":`
	if out.Offset != nil {
		member = `"offset":`
	}
	tail, err := after(out, member)
	if err != nil {
		return err
	}
	r.addTail = append(r.addTail, `,"deletionVector":{"storageType":"p","pathOrInlineDv":`...)
	r.dvTail = append(tail, '}')
	return nil
}

// after encodes v and returns its members from the named one on, with a comma
// before and the brace after. What stands before it is not content of a table.
func after(v any, member string) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode file: %w", err)
	}
	text := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	i := bytes.Index(text, []byte(member))
	if i < 0 {
		return nil, errors.New("encode file: no " + member)
	}
	return append([]byte{','}, text[i:]...), nil
}
