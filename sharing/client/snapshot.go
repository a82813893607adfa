package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"delenda/sharing"
	"delenda/storage/delta/log"
)

// Snapshot is one version of a shared table: the answer to a query.
type Snapshot struct {
	Head
	files  []File
	fs     *FileSystem
	schema *log.Schema
	arrow  *arrow.Schema
}

func newSnapshot(c *Client, table sharing.Table, o QueryOptions, a *answer) (*Snapshot, error) {
	op := "query " + tableName(table)
	schema, err := tableSchema(&a.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	text, err := localLog(a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	fs, err := newFileSystem(c, table, o, a, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	s := &Snapshot{Head: a.Head, files: a.files, fs: fs, schema: schema}
	if s.arrow, err = arrowSchema(schema); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return s, nil
}

// tableSchema parses the schema and holds the partition columns to it.
func tableSchema(m *log.Metadata) (*log.Schema, error) {
	schema, err := m.Schema()
	if err != nil {
		return nil, err
	}
	for _, name := range m.PartitionColumns {
		if !slices.ContainsFunc(schema.Fields, func(f log.Field) bool { return f.Name == name }) {
			return nil, fmt.Errorf("%w: partitionColumns names a column that the schema lacks", ErrProtocol)
		}
	}
	return schema, nil
}

// localLog makes the commit that holds a whole answer: protocol, metadata, adds.
func localLog(a *answer) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	write := func(action log.Action) error {
		if err := enc.Encode(action); err != nil {
			return fmt.Errorf("build local log: %w", err)
		}
		return nil
	}
	err := errors.Join(write(log.Action{Protocol: &a.Protocol}), write(log.Action{Metadata: &a.Metadata}))
	for i := range a.files {
		if err == nil {
			err = write(log.Action{Add: &a.files[i].Add})
		}
	}
	return text.Bytes(), err
}

// Files returns the data files, in the order of the answer.
func (s *Snapshot) Files() []File { return slices.Clone(s.files) }

// FileSystem returns the snapshot as a bucket, its local log included.
func (s *Snapshot) FileSystem() *FileSystem { return s.fs }

// Schema returns the schema of the record batches that Read yields, all
// columns in the table's order, with logical names.
func (s *Snapshot) Schema() *arrow.Schema { return s.arrow }

// WriteLog writes the local log into dir, as
// dir/_delta_log/00000000000000000000.json. It holds no URL: paths are keys of
// FileSystem. A log that is there already is an error.
func (s *Snapshot) WriteLog(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "_delta_log"), 0o700); err != nil {
		return fmt.Errorf("write local log: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, filepath.FromSlash(logKey)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the caller names the directory
	if err != nil {
		return fmt.Errorf("write local log: %w", err)
	}
	_, err = f.Write(s.fs.log)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write local log: %w", err)
	}
	return nil
}
