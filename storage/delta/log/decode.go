package log

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"delenda/storage"
	"delenda/storage/deletion"
)

// Bounds on what one object of the log may hold.
const (
	maxLineBytes       = 64 << 20
	maxLinesPerObject  = 20_000_000
	maxPartitionValues = 10_000
	maxTags            = 10_000
	maxPathBytes       = 64 << 10
)

// Commit is one version's actions, by kind; within a commit their order has no
// meaning.
type Commit struct {
	Version  storage.Version
	Info     *CommitInfo // nil when the commit has none
	Protocol *Protocol   // nil when it stays
	Metadata *Metadata   // nil when it stays
	Txns     []Txn
	Domains  []DomainMetadata
	Adds     []Add
	Removes  []Remove
	CDC      []CDC
}

// Txn returns the commit's transaction of the application, and whether it has one.
func (c *Commit) Txn(app string) (Txn, bool) {
	for _, t := range c.Txns {
		if t.AppID == app {
			return t, true
		}
	}
	return Txn{}, false
}

// CommitKey is the object key of a commit, relative to the table root.
func CommitKey(v storage.Version) string { return fmt.Sprintf("%s%020d.json", prefix, int64(v)) }

// ReadCommit reads the commit of version v. It returns storage.ErrNotFound if
// there is none, and a *storage.CorruptError that names object and line if its
// bytes are not actions.
func ReadCommit(ctx context.Context, b storage.Bucket, v storage.Version) (Commit, error) {
	c, err := readCommit(ctx, b, v)
	if err != nil {
		return Commit{}, err
	}
	return c, nil
}

// readCommit returns what it understood beside the error, so that a table
// whose protocol nobody knows is refused for its protocol.
func readCommit(ctx context.Context, b storage.Bucket, v storage.Version) (Commit, error) {
	c := Commit{Version: v}
	err := readActions(ctx, b, CommitKey(v), func(line int64, a *Action) error { return c.fold(line, a) })
	if err != nil {
		return c, fmt.Errorf("read commit %d: %w", v, err)
	}
	return c, nil
}

func (c *Commit) fold(line int64, a *Action) error {
	twice := func(field string) error {
		return &storage.CorruptError{Offset: line, Field: field, Reason: "twice in one commit"}
	}
	switch {
	case a.Add != nil:
		c.Adds = append(c.Adds, *a.Add)
	case a.Remove != nil:
		c.Removes = append(c.Removes, *a.Remove)
	case a.Protocol != nil:
		if c.Protocol != nil {
			return twice("protocol")
		}
		c.Protocol = a.Protocol
	case a.Metadata != nil:
		if c.Metadata != nil {
			return twice("metaData")
		}
		c.Metadata = a.Metadata
	case a.Txn != nil:
		if _, ok := c.Txn(a.Txn.AppID); ok {
			return twice("txn")
		}
		c.Txns = append(c.Txns, *a.Txn)
	case a.DomainMetadata != nil:
		for _, d := range c.Domains {
			if d.Domain == a.DomainMetadata.Domain {
				return twice("domainMetadata")
			}
		}
		c.Domains = append(c.Domains, *a.DomainMetadata)
	case a.CDC != nil:
		c.CDC = append(c.CDC, *a.CDC)
	case a.CommitInfo != nil:
		if c.Info == nil {
			c.Info = a.CommitInfo
		}
	}
	return nil
}

// errStop ends a callback-driven read early.
var errStop = errors.New("stop")

// maxInfoLines is how many lines of a commit are searched for its commitInfo,
// which writers put first or last.
const maxInfoLines = 100

// readInfo returns the commitInfo of a commit, nil if it is not among its first
// lines.
func readInfo(ctx context.Context, b storage.Bucket, v storage.Version) (*CommitInfo, error) {
	var info *CommitInfo
	err := readActions(ctx, b, CommitKey(v), func(line int64, a *Action) error {
		if info = a.CommitInfo; info != nil || line >= maxInfoLines {
			return errStop
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		return nil, fmt.Errorf("read commit %d: %w", v, err)
	}
	return info, nil
}

// readActions streams the actions of one NDJSON object. It goes on after a bad
// line, to find the protocol, and returns the first error at the end; errStop
// ends it at once.
func readActions(ctx context.Context, b storage.Bucket, key string, fold func(line int64, a *Action) error) error {
	r, err := b.Read(ctx, key, 0, -1)
	if err != nil {
		return err
	}
	err = decodeActions(r, fold)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	var corrupt *storage.CorruptError
	if errors.As(err, &corrupt) && corrupt.Key == "" {
		corrupt.Key = key
	}
	return err
}

func decodeActions(r io.Reader, fold func(line int64, a *Action) error) error {
	br := bufio.NewReaderSize(r, 16<<10)
	var first error
	var buf []byte
	for line := int64(0); ; line++ {
		if line > maxLinesPerObject {
			return &storage.CorruptError{Offset: line, Field: "line", Reason: "too many lines"}
		}
		p, err := readLine(br, &buf)
		if errors.Is(err, errLongLine) {
			return &storage.CorruptError{Offset: line, Field: "line", Reason: "longer than allowed"}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(bytes.TrimSpace(p)) > 0 {
			a, perr := ParseAction(p)
			var corrupt *storage.CorruptError
			if errors.As(perr, &corrupt) {
				corrupt.Offset = line
			}
			if perr == nil && a != nil {
				perr = fold(line, a)
			}
			if errors.Is(perr, errStop) {
				return perr
			}
			if perr != nil && first == nil {
				first = perr
			}
		}
		if err != nil {
			return first
		}
	}
}

var errLongLine = errors.New("long line")

// readLine returns the next line; the slice is valid until the next call.
func readLine(br *bufio.Reader, buf *[]byte) ([]byte, error) {
	*buf = (*buf)[:0]
	for {
		p, err := br.ReadSlice('\n')
		if err == nil && len(*buf) == 0 {
			return p, nil
		}
		*buf = append(*buf, p...)
		if len(*buf) > maxLineBytes {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return *buf, err
		}
	}
}

// ParseAction parses one line of a commit or of a JSON checkpoint. An action
// of an unknown kind is nil without an error.
func ParseAction(line []byte) (*Action, error) {
	var a Action
	if err := json.Unmarshal(line, &a); err != nil {
		return nil, corruptJSON("action", err)
	}
	set := 0
	for _, ok := range []bool{
		a.CommitInfo != nil, a.Protocol != nil, a.Metadata != nil, a.Txn != nil, a.DomainMetadata != nil,
		a.Remove != nil, a.Add != nil, a.CDC != nil, a.CheckpointMetadata != nil, a.Sidecar != nil,
	} {
		if ok {
			set++
		}
	}
	if set == 0 {
		return nil, nil //nolint:nilnil // an unknown action is not an error and not an action
	}
	if set > 1 {
		return nil, &storage.CorruptError{Offset: -1, Field: "action", Reason: "more than one action on a line"}
	}
	if err := a.validate(); err != nil {
		return nil, err
	}
	return &a, nil
}

// corruptJSON locates a JSON error by its field and drops the rest of it,
// which quotes content.
func corruptJSON(field string, err error) error {
	reason := "not valid JSON"
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		reason = "unexpected JSON type"
		if typeErr.Field != "" && knownFieldPath(typeErr.Field) {
			field = typeErr.Field
		}
	}
	return &storage.CorruptError{Offset: -1, Field: field, Reason: reason}
}

// knownFieldPath reports whether a path consists of Go-declared names only up
// to a map key, which may be content.
func knownFieldPath(p string) bool {
	return !strings.Contains(p, "partitionValues.") && !strings.Contains(p, "tags.") &&
		!strings.Contains(p, "configuration.") && !strings.Contains(p, "options.") && len(p) < 100
}

func (a *Action) validate() error {
	bad := func(field, reason string) error {
		return &storage.CorruptError{Offset: -1, Field: field, Reason: reason}
	}
	switch {
	case a.Add != nil:
		switch {
		case a.Add.SizeBytes < 0:
			return bad("add.size", "negative")
		case len(a.Add.PartitionValues) > maxPartitionValues || len(a.Add.Tags) > maxTags:
			return bad("add", "too many partition values or tags")
		}
		return a.validateFile("add", a.Add.Path)
	case a.Remove != nil:
		if len(a.Remove.PartitionValues) > maxPartitionValues || len(a.Remove.Tags) > maxTags {
			return bad("remove", "too many partition values or tags")
		}
		return a.validateFile("remove", a.Remove.Path)
	case a.Protocol != nil:
		return a.Protocol.validate()
	case a.Metadata != nil:
		return a.Metadata.validate()
	case a.Txn != nil && a.Txn.AppID == "":
		return bad("txn.appId", "missing")
	case a.DomainMetadata != nil && a.DomainMetadata.Domain == "":
		return bad("domainMetadata.domain", "missing")
	case a.Sidecar != nil && a.Sidecar.Path == "":
		return bad("sidecar.path", "missing")
	case a.Sidecar != nil && a.Sidecar.SizeBytes < 0:
		return bad("sidecar.sizeInBytes", "negative")
	}
	return nil
}

func (a *Action) validateFile(kind, path string) error {
	bad := func(field, reason string) error {
		return &storage.CorruptError{Offset: -1, Field: kind + "." + field, Reason: reason}
	}
	if path == "" {
		return bad("path", "missing")
	}
	if len(path) > maxPathBytes {
		return bad("path", "longer than allowed")
	}
	if _, err := canonicalPath(path); err != nil || !utf8.ValidString(path) {
		return bad("path", "not a percent-encoded URI")
	}
	dv := a.deletionVector()
	if dv == nil {
		return nil
	}
	if dv.StorageType == "" {
		return bad("deletionVector.storageType", "missing")
	}
	if dv.Cardinality < 0 || dv.SizeInBytes < 0 || (dv.Offset != nil && *dv.Offset < 0) {
		return bad("deletionVector", "negative number")
	}
	return nil
}

func (p *Protocol) validate() error {
	if len(p.ReaderFeatures) > maxFeatures || len(p.WriterFeatures) > maxFeatures {
		return &storage.CorruptError{Offset: -1, Field: "protocol", Reason: "too many features"}
	}
	if p.MinReaderVersion < 1 || p.MinWriterVersion < 1 {
		return &storage.CorruptError{Offset: -1, Field: "protocol", Reason: "versions missing or out of range"}
	}
	return nil
}

func (m *Metadata) validate() error {
	bad := func(field, reason string) error {
		return &storage.CorruptError{Offset: -1, Field: field, Reason: reason}
	}
	switch {
	case len(m.SchemaString) > maxSchemaBytes:
		return bad("metaData.schemaString", "longer than allowed")
	case len(m.PartitionColumns) > maxFields:
		return bad("metaData.partitionColumns", "too many")
	case len(m.Configuration) > maxConfiguration:
		return bad("metaData.configuration", "too many properties")
	}
	return nil
}

func (a *Action) deletionVector() *deletion.Descriptor {
	if a.Add != nil {
		return a.Add.DeletionVector
	}
	return a.Remove.DeletionVector
}
