package client

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"time"

	"delenda/sharing"
	"delenda/storage"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"
)

// File is one data file of a snapshot with its deletion vector.
type File struct {
	// ID names the file's bytes: equal ids, equal bytes, whatever the version.
	ID string
	// DeletionVectorID changes when other rows of the file are hidden. It is
	// empty without a deletion vector; an inline one, or one that the server
	// gave no id, is named after its descriptor.
	DeletionVectorID string
	// Add is the file's action in the local log: its path, and that of its
	// deletion vector, are keys of the snapshot's FileSystem.
	Add log.Add

	url, dvURL storage.SignedURL
	expires    time.Time // of whichever URL dies first; zero if unknown
}

// newFile checks and keeps what a line says of a file.
func newFile(line *sharing.FileLine, format sharing.ResponseFormat) (File, error) {
	if line.ID == "" {
		return File{}, fmt.Errorf("%w: id is missing", ErrProtocol)
	}
	f := File{ID: line.ID}
	if line.ExpirationTimestamp != nil {
		f.expires = time.UnixMilli(*line.ExpirationTimestamp).UTC()
	}
	var target string
	if format == sharing.FormatParquet {
		if line.Action != nil {
			return File{}, fmt.Errorf("%w: deltaSingleAction in parquet format", ErrProtocol)
		}
		if line.SizeBytes == nil || line.PartitionValues == nil {
			return File{}, fmt.Errorf("%w: size or partitionValues is missing", ErrProtocol)
		}
		target = line.URL
		f.Add = log.Add{PartitionValues: *line.PartitionValues, SizeBytes: *line.SizeBytes, DataChange: true, Stats: line.Stats}
	} else {
		if line.Action == nil || line.Action.Add == nil || line.URL != "" {
			return File{}, fmt.Errorf("%w: deltaSingleAction holds no add", ErrProtocol)
		}
		add := line.Action.Add
		target = add.Path
		f.Add = log.Add{
			PartitionValues: add.PartitionValues, SizeBytes: add.SizeBytes,
			ModificationTime: add.ModificationTime, DataChange: add.DataChange, Stats: add.Stats,
		}
		if err := f.takeVector(add.DeletionVector, line.DeletionVectorFileID); err != nil {
			return File{}, err
		}
	}
	if f.Add.SizeBytes <= 0 {
		return File{}, fmt.Errorf("%w: size is not above 0", ErrProtocol)
	}
	if err := checkURL(target); err != nil {
		return File{}, err
	}
	f.url = storage.NewSignedURL(target, f.expires)
	f.Add.Path = localName(line.ID) + ".parquet"
	if f.Add.PartitionValues == nil {
		f.Add.PartitionValues = map[string]*string{}
	}
	return f, nil
}

// takeVector keeps a deletion vector. One in a file becomes a relative one in
// the local log, under a name made from its id.
func (f *File) takeVector(dv *sharing.DeletionVector, id string) error {
	if dv == nil {
		return nil
	}
	d := deletion.Descriptor{
		StorageType: dv.StorageType, PathOrInlineDV: dv.PathOrInlineDV,
		Offset: dv.Offset, SizeInBytes: dv.SizeBytes, Cardinality: dv.Cardinality,
	}
	switch dv.StorageType {
	case deletion.StorageInline:
		f.DeletionVectorID = localName(d.UniqueID())
	case deletion.StorageAbsolute:
		if err := checkURL(dv.PathOrInlineDV); err != nil {
			return fmt.Errorf("deletionVector: %w", err)
		}
		if d.SizeInBytes <= 0 || d.Offset != nil && *d.Offset < 0 {
			return fmt.Errorf("%w: deletionVector: offset or sizeInBytes out of range", ErrProtocol)
		}
		f.dvURL = storage.NewSignedURL(dv.PathOrInlineDV, f.expires)
		offset := int32(1) // where the first vector of a file starts
		if d.Offset != nil {
			offset = *d.Offset
		}
		f.DeletionVectorID = id
		if id == "" {
			f.DeletionVectorID = fmt.Sprintf("%s@%d+%d=%d", f.ID, offset, d.SizeInBytes, d.Cardinality)
		}
		sum := sha256.Sum256([]byte(f.DeletionVectorID))
		d = deletion.NewDescriptor("", [16]byte(sum[:16]), deletion.Placement{Offset: offset, SizeInBytes: d.SizeInBytes}, d.Cardinality)
	default:
		return storage.Refuse("deletion_vector_storage_type", "a deletion vector is neither inline nor at a URL")
	}
	f.Add.DeletionVector = &d
	return nil
}

// localName makes an id fit to be a file's name.
func localName(id string) string {
	plain := len(id) <= 128
	for _, r := range id {
		plain = plain && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_')
	}
	if plain {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256-" + hex.EncodeToString(sum[:])
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%w: a path is no http or https URL", ErrProtocol)
	}
	return nil
}
