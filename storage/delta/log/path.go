package log

import (
	"net/url"
	"strings"

	"delenda/storage"
	"delenda/storage/deletion"
)

// fileKey is the identity of a logical file during replay: the decoded path
// and the id of the deletion vector, "" for none.
type fileKey struct{ path, dv string }

func keyOf(path string, dv *deletion.Descriptor) (fileKey, error) {
	p, err := canonicalPath(path)
	if err != nil {
		return fileKey{}, err
	}
	k := fileKey{path: p}
	if dv != nil {
		k.dv = dv.UniqueID()
	}
	return k, nil
}

// canonicalPath decodes a logged path once and gives the spellings of one
// absolute file (/a, file:/a, file:///a; s3://, s3a://) one form.
func canonicalPath(raw string) (string, error) {
	p, err := url.PathUnescape(raw)
	if err != nil {
		return "", &storage.CorruptError{Offset: -1, Field: "path", Reason: "not a percent-encoded URI"}
	}
	if rest, ok := strings.CutPrefix(p, "file:"); ok && strings.HasPrefix(rest, "/") {
		p = "/" + strings.TrimLeft(rest, "/")
	}
	for _, hadoop := range []string{"s3a://", "s3n://"} {
		if rest, ok := strings.CutPrefix(p, hadoop); ok {
			p = "s3://" + rest
		}
	}
	return p, nil
}

// isAbsolute reports whether a decoded path starts at the root of a file
// system or names a scheme (scheme:/…).
func isAbsolute(p string) bool {
	if strings.HasPrefix(p, "/") {
		return true
	}
	i := strings.Index(p, ":/")
	if i <= 0 {
		return false
	}
	for j, c := range []byte(p[:i]) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		later := '0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'
		if !letter && (j == 0 || !later) {
			return false
		}
	}
	return true
}

// RelativeKey turns a logged path into an object key relative to the table
// root: it is percent-decoded exactly once. An absolute path is accepted only
// if it lies inside root (a URL or an absolute directory; "" knows no root);
// elsewhere it is a Refusal, and so is a path that climbs with "..".
func RelativeKey(raw, root string) (string, error) {
	p, err := canonicalPath(raw)
	if err != nil {
		return "", err
	}
	if p == "" {
		return "", &storage.CorruptError{Offset: -1, Field: "path", Reason: "empty"}
	}
	if isAbsolute(p) {
		if p, err = insideRoot(p, root); err != nil {
			return "", err
		}
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." || part == "." {
			return "", storage.Refuse("path_outside_table", "a file of the table is logged with a path that holds dot segments")
		}
	}
	return p, nil
}

func insideRoot(p, root string) (string, error) {
	refusal := storage.Refuse("path_outside_table",
		"a file of the table is logged with an absolute path outside the table's root (a shallow clone, or a table that was moved)")
	if root == "" {
		return "", refusal
	}
	r, err := canonicalPath(root)
	if err != nil {
		return "", refusal
	}
	rest, ok := strings.CutPrefix(p, strings.TrimRight(r, "/")+"/")
	if !ok || rest == "" {
		return "", refusal
	}
	return rest, nil
}

// Key returns the object key of the data file, relative to the table root;
// root is as for RelativeKey.
func (a *Add) Key(root string) (string, error) { return RelativeKey(a.Path, root) }

// EscapePath is the inverse of RelativeKey for a relative key: the URI that a
// commit logs.
func EscapePath(key string) string {
	return (&url.URL{Path: key}).EscapedPath()
}
