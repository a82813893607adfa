package bucket

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	schemeFile   = "file"
	schemeMemory = "mem"
	schemeS3     = "s3"
	schemeGCS    = "gs"
	schemeAzure  = "azblob"
)

// misnamed are schemes of other tools, and ours for the same store.
var misnamed = map[string]string{
	"s3a": schemeS3, "s3n": schemeS3, "gcs": schemeGCS,
	"az": schemeAzure, "abfs": schemeAzure, "abfss": schemeAzure, "wasb": schemeAzure, "wasbs": schemeAzure,
}

// location is a parsed bucket URL.
type location struct {
	scheme string
	host   string     // bucket, container or memory name
	path   string     // file: absolute, cleaned; else the key prefix, "" or ending with '/'
	query  url.Values // clouds only
}

// String returns scheme, host and path, without query.
func (l location) String() string {
	if l.scheme == schemeFile {
		return (&url.URL{Scheme: schemeFile, Path: filepath.ToSlash(l.path)}).String()
	}
	u := &url.URL{Scheme: l.scheme, Host: l.host, Path: "/" + strings.TrimSuffix(l.path, "/")}
	return strings.TrimSuffix(u.String(), "/")
}

// parse reads a plain path or a URL. Its errors do not repeat the URL, which
// may hold what its writer should not have put there.
func parse(raw string) (location, error) {
	if raw == "" {
		return location{}, errors.New("parse bucket URL: it is empty")
	}
	if !strings.Contains(raw, "://") {
		return parsePath(raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return location{}, errors.New("parse bucket URL: malformed")
	}
	if u.User != nil {
		return location{}, errors.New("parse bucket URL: credentials belong in the environment, not in the URL")
	}
	if u.Fragment != "" || strings.HasSuffix(raw, "#") {
		return location{}, errors.New("parse bucket URL: a # in a path is written %23")
	}
	l := location{scheme: u.Scheme, host: u.Host, query: u.Query()}
	switch u.Scheme {
	case schemeFile:
		if u.Host != "" && u.Host != "localhost" {
			return location{}, errors.New("parse bucket URL: a file URL has three slashes: file:///dir")
		}
		if len(l.query) > 0 {
			return location{}, errors.New("parse bucket URL: a file URL takes no parameters")
		}
		return parsePath(filepath.FromSlash(u.Path))
	case schemeMemory:
		if len(l.query) > 0 {
			return location{}, errors.New("parse bucket URL: a mem URL takes no parameters")
		}
	case schemeS3, schemeGCS, schemeAzure:
		if u.Host == "" {
			return location{}, fmt.Errorf("parse bucket URL: %s:// lacks the bucket's name", u.Scheme)
		}
	default:
		if ours, ok := misnamed[u.Scheme]; ok {
			return location{}, fmt.Errorf("parse bucket URL: scheme %s: write %s://", u.Scheme, ours)
		}
		return location{}, fmt.Errorf("parse bucket URL: unknown scheme %q (file, mem, s3, gs, azblob)", u.Scheme)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := checkPath(prefix); err != nil {
			return location{}, fmt.Errorf("parse bucket URL: path: %w", err)
		}
		l.path = prefix + "/"
	}
	return l, nil
}

func parsePath(p string) (location, error) {
	if p == "" {
		return location{}, errors.New("parse bucket URL: a file URL lacks the directory")
	}
	if strings.ContainsRune(p, 0) {
		return location{}, errors.New("parse bucket URL: NUL in path")
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return location{}, fmt.Errorf("parse bucket URL: %w", scrub(err))
	}
	return location{scheme: schemeFile, path: abs}, nil
}

// Normalize returns the one form of a bucket's URL: a plain path becomes an
// absolute, cleaned file URL, a cloud path loses superfluous slashes, and
// parameters are sorted. The result opens the same bucket. Symbolic links are
// left as they are; Overlap sees through them.
func Normalize(rawURL string) (string, error) {
	l, err := parse(rawURL)
	if err != nil {
		return "", err
	}
	if len(l.query) > 0 {
		return l.String() + "?" + l.query.Encode(), nil
	}
	return l.String(), nil
}

// Overlap reports whether a and b are the same place or one lies inside the
// other. It errs towards true: endpoints are not compared, because one store
// answers under many names, and a URL that does not parse overlaps everything.
// Directories are compared as the file system sees them now, through symbolic
// links and other names for the same directory.
func Overlap(a, b string) bool {
	la, errA := parse(a)
	lb, errB := parse(b)
	if errA != nil || errB != nil {
		return true
	}
	if la.scheme != lb.scheme {
		return false
	}
	if la.scheme == schemeFile {
		return insideDir(la.path, lb.path) || insideDir(lb.path, la.path)
	}
	if la.host != lb.host {
		return false
	}
	const account = "storage_account"
	if x, y := la.query.Get(account), lb.query.Get(account); x != "" && y != "" && x != y {
		return false
	}
	return strings.HasPrefix(la.path, lb.path) || strings.HasPrefix(lb.path, la.path)
}

// insideDir reports whether the directory inner is outer or lies below it.
func insideDir(inner, outer string) bool {
	inner, outer = resolve(inner), resolve(outer)
	if inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, string(filepath.Separator))+string(filepath.Separator)) {
		return true
	}
	root, err := os.Stat(outer)
	if err != nil {
		return false
	}
	for dir := inner; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && os.SameFile(info, root) {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// resolve follows the symbolic links of the longest part of p that exists. A
// link whose target does not exist yet is followed to where it points.
func resolve(p string) string {
	return resolveSteps(p, 255)
}

func resolveSteps(p string, steps int) string {
	var missing []string
	for dir := p; ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			slices.Reverse(missing)
			return filepath.Join(append([]string{real}, missing...)...)
		}
		if target, err := os.Readlink(dir); err == nil && steps > 0 {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(dir), target)
			}
			slices.Reverse(missing)
			return resolveSteps(filepath.Join(append([]string{target}, missing...)...), steps-1)
		}
		if dir == filepath.Dir(dir) {
			return path.Clean(p)
		}
		missing = append(missing, filepath.Base(dir))
	}
}
