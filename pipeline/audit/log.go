package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"delenda/storage"
)

const (
	logPrefix   = "_delta_log/"
	maxLogBytes = 256 << 20
)

var (
	commitName     = regexp.MustCompile(`^_delta_log/(\d{20})\.json$`)
	checkpointName = regexp.MustCompile(`^_delta_log/(\d{20})\.checkpoint\.parquet$`)
)

type deletionVector struct {
	StorageType    string `json:"storageType"`
	PathOrInlineDV string `json:"pathOrInlineDv"`
	Offset         *int32 `json:"offset"`
	SizeInBytes    int32  `json:"sizeInBytes"`
	Cardinality    int64  `json:"cardinality"`
}

func (d *deletionVector) id() string {
	if d == nil {
		return ""
	}
	id := d.StorageType + d.PathOrInlineDV
	if d.Offset != nil {
		id += "@" + strconv.Itoa(int(*d.Offset))
	}
	return id
}

type file struct {
	Path            string             `json:"path"`
	PartitionValues map[string]*string `json:"partitionValues"`
	DeletionVector  *deletionVector    `json:"deletionVector"`
}

type metadata struct {
	SchemaString     string            `json:"schemaString"`
	PartitionColumns []string          `json:"partitionColumns"`
	Configuration    map[string]string `json:"configuration"`
}

// action is one line of a commit.
type action struct {
	Add      *file     `json:"add"`
	Remove   *file     `json:"remove"`
	MetaData *metadata `json:"metaData"`
	Protocol *struct {
		MinReaderVersion int      `json:"minReaderVersion"`
		ReaderFeatures   []string `json:"readerFeatures"`
	} `json:"protocol"`
	Txn *struct {
		AppID   string `json:"appId"`
		Version int64  `json:"version"`
	} `json:"txn"`
}

// log is a table's log at its newest version.
type deltaLog struct {
	version storage.Version
	meta    *metadata
	files   map[string]*file // by path and deletion vector
	// batches counts, per txn appId and version, the commits still in the log
	// that hold it.
	batches map[string]map[int64]int
}

// readFeatures are the reader features whose tables can be read.
var readFeatures = []string{
	"deletionVectors", "columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening", "typeWidening-preview",
}

func (l *deltaLog) apply(a *action) error {
	switch {
	case a.Add != nil:
		l.files[a.Add.Path+"\x00"+a.Add.DeletionVector.id()] = a.Add
	case a.Remove != nil:
		delete(l.files, a.Remove.Path+"\x00"+a.Remove.DeletionVector.id())
	case a.MetaData != nil:
		l.meta = a.MetaData
	case a.Protocol != nil:
		for _, f := range a.Protocol.ReaderFeatures {
			if !slices.Contains(readFeatures, f) {
				return fmt.Errorf("the auditor cannot read feature %s", f)
			}
		}
		if a.Protocol.MinReaderVersion > 3 {
			return fmt.Errorf("the auditor cannot read protocol version %d", a.Protocol.MinReaderVersion)
		}
	}
	return nil
}

// readLog replays a log from its newest checkpoint that commits continue.
func readLog(ctx context.Context, b storage.Bucket) (*deltaLog, error) {
	commits, checkpoints := map[int64]string{}, map[int64]string{}
	newest := int64(-1)
	for info, err := range b.List(ctx, logPrefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list log: %w", err)
		}
		if m := commitName.FindStringSubmatch(info.Key); m != nil {
			v, _ := strconv.ParseInt(m[1], 10, 64)
			commits[v], newest = info.Key, max(newest, v)
		} else if m := checkpointName.FindStringSubmatch(info.Key); m != nil {
			v, _ := strconv.ParseInt(m[1], 10, 64)
			checkpoints[v], newest = info.Key, max(newest, v)
		}
	}
	if newest < 0 {
		return nil, fmt.Errorf("read log: %w", storage.ErrNoTable)
	}
	l := &deltaLog{version: storage.Version(newest), files: map[string]*file{}, batches: map[string]map[int64]int{}}
	start := newest
	for start >= 0 && commits[start] != "" && checkpoints[start] == "" {
		start--
	}
	if start >= 0 {
		if checkpoints[start] == "" {
			return nil, fmt.Errorf("read log: version %d is neither a commit nor a checkpoint", start)
		}
		if err := l.readCheckpoint(ctx, b, checkpoints[start]); err != nil {
			return nil, fmt.Errorf("read checkpoint %d: %w", start, err)
		}
	}
	for v := int64(0); v <= newest; v++ {
		key := commits[v]
		if key == "" {
			continue
		}
		if err := l.readCommit(ctx, b, key, v > start); err != nil {
			return nil, fmt.Errorf("read commit %d: %w", v, err)
		}
	}
	if l.meta == nil {
		return nil, fmt.Errorf("read log: no metadata")
	}
	return l, nil
}

// readCommit counts the batches of a commit and, if state, applies it.
func (l *deltaLog) readCommit(ctx context.Context, b storage.Bucket, key string, state bool) error {
	p, err := storage.ReadObject(ctx, b, key, maxLogBytes)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(p))
	lines.Buffer(nil, maxLogBytes)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var a action
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return fmt.Errorf("an action is not JSON")
		}
		if a.Txn != nil {
			if l.batches[a.Txn.AppID] == nil {
				l.batches[a.Txn.AppID] = map[int64]int{}
			}
			l.batches[a.Txn.AppID][a.Txn.Version]++
		}
		if !state {
			continue
		}
		if err := l.apply(&a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// readCheckpoint applies the rows of a classic checkpoint.
func (l *deltaLog) readCheckpoint(ctx context.Context, b storage.Bucket, key string) error {
	p, err := storage.ReadObject(ctx, b, key, maxLogBytes)
	if err != nil {
		return err
	}
	return eachRow(ctx, key, p, func(row []byte) error {
		var a struct {
			action
			Add      *checkpointFile     `json:"add"`
			Remove   *checkpointFile     `json:"remove"`
			MetaData *checkpointMetadata `json:"metaData"`
		}
		if err := json.Unmarshal(row, &a); err != nil {
			return fmt.Errorf("a row is not an action: %w", err)
		}
		if a.Add != nil {
			a.action.Add = &file{a.Add.Path, a.Add.PartitionValues.values(), a.Add.DeletionVector}
		}
		if a.Remove != nil {
			a.action.Remove = &file{Path: a.Remove.Path, DeletionVector: a.Remove.DeletionVector}
		}
		if a.MetaData != nil {
			a.action.MetaData = &metadata{a.MetaData.SchemaString, a.MetaData.PartitionColumns, map[string]string{}}
			for k, v := range a.MetaData.Configuration.values() {
				a.action.MetaData.Configuration[k] = deref(v)
			}
		}
		return l.apply(&a.action)
	})
}

// checkpointFile and checkpointMetadata are those of arrow-go's JSON, in which
// a map is a list of entries.
type checkpointFile struct {
	Path            string          `json:"path"`
	PartitionValues entries         `json:"partitionValues"`
	DeletionVector  *deletionVector `json:"deletionVector"`
}

type checkpointMetadata struct {
	SchemaString     string   `json:"schemaString"`
	PartitionColumns []string `json:"partitionColumns"`
	Configuration    entries  `json:"configuration"`
}

type entries []struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

func (e entries) values() map[string]*string {
	m := make(map[string]*string, len(e))
	for _, v := range e {
		m[v.Key] = v.Value
	}
	return m
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// key returns the object of a file: its path is a URI reference.
func (f *file) key() (string, error) {
	p, err := url.PathUnescape(f.Path)
	if err != nil || strings.Contains(p, "://") || strings.HasPrefix(p, "/") {
		return "", fmt.Errorf("the auditor reads only files below the table's root")
	}
	return path.Clean(p), nil
}
