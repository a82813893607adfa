package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"delenda/sharing"
	"delenda/storage"
)

const (
	manifestPrefix = "manifests/"
	maxInfoBytes   = 128 << 20
)

// Manifest is what is known of one table version without its files. It does
// not change.
type Manifest struct {
	Key       string          `json:"-"` // of the info object
	Format    int             `json:"format"`
	Source    string          `json:"source"`
	Version   storage.Version `json:"version"`
	TableID   string          `json:"table_id"`
	Timestamp time.Time       `json:"timestamp"` // of the version's commit
	Required  []string        `json:"required"`  // reader features that a reader of the files needs, sorted
	SizeBytes int64           `json:"size_bytes"`
	NumFiles  int64           `json:"num_files"`
	Vectors   int64           `json:"vectors"` // files with a deletion vector

	Protocol sharing.DeltaProtocol `json:"protocol"`
	Metadata sharing.DeltaMetadata `json:"metadata"`       // as an answer in delta format shows it
	Schema   string                `json:"parquet_schema"` // as an answer in parquet format shows it
	Files    string                `json:"files"`          // key of the object with the files
	Redacted []string              `json:"redacted"`       // identity columns whose minimum and maximum are not in it, sorted
}

// Manifests reads and writes the manifests of the state prefix.
type Manifests struct {
	state storage.Bucket
	keys  Keys
	max   int

	mu    sync.Mutex
	cache map[string]*Manifest
	order []string // of the cache, oldest first
}

// NewManifests returns the manifests in the state prefix, of which it keeps a
// number in memory.
func NewManifests(state storage.Bucket, keys Keys, inMemory int) *Manifests {
	return &Manifests{state: state, keys: keys, max: inMemory, cache: map[string]*Manifest{}}
}

// Load returns the manifest whose info object has the key. An absent one is
// storage.ErrNotFound.
func (m *Manifests) Load(ctx context.Context, key string) (*Manifest, error) {
	m.mu.Lock()
	cached := m.cache[key]
	m.mu.Unlock()
	if cached != nil {
		return cached, nil
	}
	r, err := m.state.Read(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	plain, err := m.readSealed(r, key)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	manifest := &Manifest{}
	if err := json.Unmarshal(plain, manifest); err != nil {
		return nil, &storage.CorruptError{Key: key, Offset: -1, Field: "info", Reason: "not the JSON of a manifest"}
	}
	manifest.Key = key
	m.keep(manifest)
	return manifest, nil
}

func (m *Manifests) readSealed(r io.Reader, key string) ([]byte, error) {
	open, err := newOpenReader(r, m.keys, key)
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(open, maxInfoBytes+1))
	if err != nil {
		return nil, err
	}
	if len(plain) > maxInfoBytes {
		return nil, fmt.Errorf("read %q: %w", key, storage.ErrTooLarge)
	}
	return plain, nil
}

func (m *Manifests) keep(manifest *Manifest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.cache[manifest.Key]; ok {
		return
	}
	m.cache[manifest.Key] = manifest
	m.order = append(m.order, manifest.Key)
	if len(m.order) > m.max {
		delete(m.cache, m.order[0])
		m.order = m.order[1:]
	}
}

// save writes the info object put-if-absent and returns what is in force.
func (m *Manifests) save(ctx context.Context, manifest *Manifest) (*Manifest, error) {
	plain, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("save manifest: %w", err)
	}
	var sealed bytes.Buffer
	w, err := newSealWriter(&sealed, m.keys, manifest.Key)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err = m.state.Put(ctx, manifest.Key, &sealed, storage.PutOptions{IfAbsent: true})
	if errors.Is(err, storage.ErrExists) {
		return m.Load(ctx, manifest.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("save manifest: %w", err)
	}
	m.keep(manifest)
	return manifest, nil
}

// trim removes what manifests of a source leave behind: those below the hide
// floor, which are never served again, and those that a newer one, of a version
// up to newest, replaced before the given time.
func (m *Manifests) trim(ctx context.Context, source string, newest, floor storage.Version, before time.Time) error {
	prefix := manifestPrefix + source + "/"
	keep := floor
	for info, err := range m.state.List(ctx, prefix, "") {
		if err != nil {
			return fmt.Errorf("trim manifests: %w", err)
		}
		v, ok := manifestVersion(prefix, info.Key)
		if ok && v > newest {
			break
		}
		if ok && strings.HasSuffix(info.Key, "/info") && !info.ModTime.After(before) {
			keep = max(keep, v)
		}
	}
	for info, err := range m.state.List(ctx, prefix, "") {
		if err != nil {
			return fmt.Errorf("trim manifests: %w", err)
		}
		v, ok := manifestVersion(prefix, info.Key)
		if !ok {
			continue
		}
		if v >= keep {
			return nil
		}
		if err := m.state.Delete(ctx, info.Key); err != nil {
			return fmt.Errorf("trim manifests: %w", err)
		}
	}
	return nil
}

// manifestVersion cuts the version out of the key of an object of a manifest.
func manifestVersion(prefix, key string) (storage.Version, bool) {
	digits, _, ok := strings.Cut(strings.TrimPrefix(key, prefix), "-")
	v, err := strconv.ParseInt(digits, 10, 64)
	return storage.Version(v), ok && len(digits) == 20 && err == nil
}

// Head lines of an answer.

// ProtocolLine returns the first line of an answer.
func (m *Manifest) ProtocolLine(format sharing.ResponseFormat) sharing.Line {
	if format == sharing.FormatParquet {
		return sharing.Line{Protocol: &sharing.ProtocolLine{MinReaderVersion: 1}}
	}
	return sharing.Line{Protocol: &sharing.ProtocolLine{DeltaProtocol: &m.Protocol}}
}

// MetaDataLine returns the second line of an answer about the newest snapshot.
func (m *Manifest) MetaDataLine(format sharing.ResponseFormat) sharing.Line {
	line := &sharing.MetaDataLine{SizeBytes: &m.SizeBytes, NumFiles: &m.NumFiles}
	if format == sharing.FormatDelta {
		line.DeltaMetadata = &m.Metadata
		return sharing.Line{MetaData: line}
	}
	line.ID, line.Name, line.Description = m.Metadata.ID, m.Metadata.Name, m.Metadata.Description
	line.Format = &sharing.DataFormat{Provider: m.Metadata.Format.Provider}
	line.SchemaString, line.PartitionColumns = m.Schema, &m.Metadata.PartitionColumns
	line.Configuration = &map[string]string{}
	return sharing.Line{MetaData: line}
}

// Missing lists the features that a client which supports those of c lacks to
// read an answer in the format: parquet format carries none.
func (m *Manifest) Missing(format sharing.ResponseFormat, c sharing.Capabilities) []string {
	if format == sharing.FormatParquet {
		return m.Required
	}
	var missing []string
	for _, f := range m.Required {
		if !c.Supports(f) {
			missing = append(missing, f)
		}
	}
	return missing
}
