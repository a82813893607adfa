package deletion

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"delenda/storage"
)

// Storage types of a Descriptor.
const (
	StorageRelative = "u" // a file in the table root, named by a UUID
	StorageAbsolute = "p" // a file at an absolute, URL-encoded path
	StorageInline   = "i" // the payload itself, in Z85
)

// uuidChars is the length of a UUID in Z85.
const uuidChars = 20

// Descriptor is the deletionVector of an add or remove action.
type Descriptor struct {
	StorageType    string `json:"storageType"`
	PathOrInlineDV string `json:"pathOrInlineDv"`
	Offset         *int32 `json:"offset,omitempty"` // of the size field in the file; nil for inline
	SizeInBytes    int32  `json:"sizeInBytes"`      // of the payload
	Cardinality    int64  `json:"cardinality"`      // rows
}

// Placement is where a payload lies in a deletion vector file.
type Placement struct {
	Offset      int32
	SizeInBytes int32
}

// NewDescriptor describes a deletion vector in the file that FileKey names.
func NewDescriptor(prefix string, id [16]byte, at Placement, cardinality int64) Descriptor {
	text, err := EncodeZ85(id[:])
	if err != nil { // 16 is a multiple of 4
		panic("deletion: internal error: " + err.Error())
	}
	return Descriptor{
		StorageType:    StorageRelative,
		PathOrInlineDV: prefix + text,
		Offset:         &at.Offset,
		SizeInBytes:    at.SizeInBytes,
		Cardinality:    cardinality,
	}
}

// FileKey returns the key, relative to the table root, of the deletion vector
// file with this id. A prefix is letters and digits, or empty.
func FileKey(prefix string, id [16]byte) string {
	h := hex.EncodeToString(id[:])
	name := "deletion_vector_" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:] + ".bin"
	if prefix == "" {
		return name
	}
	return prefix + "/" + name
}

// UniqueID tells deletion vectors of one table apart. An absent offset and
// offset 0 are different ids.
func (d Descriptor) UniqueID() string {
	id := d.StorageType + d.PathOrInlineDV
	if d.Offset != nil {
		id += "@" + strconv.FormatInt(int64(*d.Offset), 10)
	}
	return id
}

// Key returns the key of the file that holds the deletion vector, relative to
// the table root, and whether there is one: inline vectors have no file, and
// that of an absolute path is found by Resolve.
func (d Descriptor) Key() (string, bool) {
	key, err := d.Resolve("")
	return key, err == nil && key != ""
}

var errOutside = errors.New("lies outside the table root")

// Resolve is Key for a table whose root URL is known: an absolute path that
// lies inside the root becomes a key, one that does not is a refusal. tableURL
// is a URL or a plain absolute path. The key of an inline vector is empty.
func (d Descriptor) Resolve(tableURL string) (string, error) {
	switch d.StorageType {
	case StorageInline:
		return "", nil
	case StorageRelative:
		n := len(d.PathOrInlineDV) - uuidChars
		if n < 0 {
			return "", d.corrupt("pathOrInlineDv", "shorter than a UUID")
		}
		raw, err := DecodeZ85(d.PathOrInlineDV[n:])
		if err != nil {
			return "", d.corrupt("pathOrInlineDv", err.Error())
		}
		prefix := d.PathOrInlineDV[:n]
		if prefix != "" && path.Clean("/"+prefix) != "/"+prefix {
			return "", d.corrupt("pathOrInlineDv", "prefix is not a clean path")
		}
		return FileKey(prefix, [16]byte(raw)), nil
	case StorageAbsolute:
		key, err := relativeKey(tableURL, d.PathOrInlineDV)
		if errors.Is(err, errOutside) {
			return "", storage.Refuse("deletion_vector_outside_table", "a deletion vector %v", err)
		}
		if err != nil {
			return "", d.corrupt("pathOrInlineDv", err.Error())
		}
		return key, nil
	default:
		return "", storage.Refuse("deletion_vector_storage_type", "deletion vector storage type is none of u, p, i")
	}
}

// relativeKey turns a URL-encoded absolute path into a key below root.
func relativeKey(root, encoded string) (string, error) {
	u, err := url.Parse(encoded)
	if err != nil {
		return "", errors.New("not a URL")
	}
	if u.Opaque != "" {
		return "", errors.New("not a path")
	}
	r, err := url.Parse(root)
	if err != nil || r.Scheme == "" {
		r = &url.URL{Scheme: "file", Path: root}
	}
	if u.Scheme == "" {
		u.Scheme = "file"
	}
	base := strings.TrimRight(r.Path, "/") + "/"
	if root == "" || !sameStore(u, r) || !strings.HasPrefix(u.Path, base) {
		return "", errOutside
	}
	key := strings.TrimPrefix(u.Path, base)
	if key == "" || path.Clean("/"+key) != "/"+key {
		return "", errors.New("not a clean path")
	}
	return key, nil
}

// sameStore compares scheme and host; the Hadoop spellings of the S3 scheme
// are one.
func sameStore(a, b *url.URL) bool {
	scheme := func(u *url.URL) string {
		switch u.Scheme {
		case "s3a", "s3n":
			return "s3"
		default:
			return u.Scheme
		}
	}
	return scheme(a) == scheme(b) && a.Host == b.Host
}

func (d Descriptor) corrupt(field, reason string) error {
	return fmt.Errorf("resolve deletion vector: %w",
		&storage.CorruptError{Offset: -1, Field: field, Reason: reason})
}
