package bucket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, raw, want string }{
		{"a plain path becomes a file URL", "/data/lake", "file:///data/lake"},
		{"a relative path becomes absolute", "lake/../x", "file://" + filepath.ToSlash(wd) + "/x"},
		{"a path is data, not a URL", "/data/a b#c?d%20e", "file:///data/a%20b%23c%3Fd%2520e"},
		{"a file URL is cleaned", "file:///data//lake/./x/", "file:///data/lake/x"},
		{"localhost is no host", "file://localhost/data", "file:///data"},
		{"a bucket needs no slash", "s3://b/", "s3://b"},
		{"slashes around a prefix go", "gs://b//p/q//", "gs://b/p/q"},
		{"parameters are sorted", "s3://b/p?region=r&endpoint=http://h:1", "s3://b/p?endpoint=http%3A%2F%2Fh%3A1&region=r"},
		{"memory has a name", "mem://m/p", "mem://m/p"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := Normalize(test.raw)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
	for _, test := range []struct{ name, raw, reason string }{
		{"nothing", "", "empty"},
		{"a scheme of Hadoop", "s3a://b/p", "write s3://"},
		{"a scheme of Hadoop for Azure", "abfss://c@a.dfs.core.windows.net/p", ""},
		{"an unknown scheme", "ftp://h/p", "unknown scheme"},
		{"credentials", "s3://key:secret@b/p", "credentials"},
		{"two slashes", "file://data/lake", "three slashes"},
		{"no bucket", "s3:///p", "lacks"},
		{"a fragment", "s3://b/p#q", "%23"},
		{"a way up", "s3://b/p/../q", "segment .."},
		{"parameters of a directory", "file:///data?metadata=skip", "no parameters"},
		{"a malformed URL", "s3://b/%zz", "malformed"},
	} {
		t.Run(test.name+" is refused", func(t *testing.T) {
			t.Parallel()
			got, err := Normalize(test.raw)
			if err == nil || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("got %q, %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats a secret: %v", err)
			}
		})
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, p := range []string{"lake/table", "state", "elsewhere"} {
		if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"link":     filepath.Join(dir, "lake"),
		"relative": "lake/table",
		"future":   filepath.Join(dir, "lake", "not yet"),
		"loop":     filepath.Join(dir, "loop"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	at := func(p string) string { return filepath.Join(dir, filepath.FromSlash(p)) }
	for _, test := range []struct {
		name, a, b string
		want       bool
	}{
		{"the same directory", at("lake"), "file://" + at("lake"), true},
		{"a directory inside", at("lake/table/_state"), at("lake/table"), true},
		{"a directory around", at("lake"), at("lake/table"), true},
		{"the root of everything", "/", at("state"), true},
		{"neighbours", at("lake"), at("state"), false},
		{"a longer name is not inside", at("lake2"), at("lake"), false},
		{"through a symbolic link", at("link/table/x"), at("lake"), true},
		{"through a relative symbolic link", at("relative/x"), at("lake/table"), true},
		{"through a link to what is not there yet", at("future/x"), at("lake"), true},
		{"a link to nowhere", at("loop/x"), at("lake"), false},
		{"directories that do not exist", at("new/state"), at("new"), true},
		{"a directory and a bucket", at("lake"), "s3://lake", false},
		{"the same bucket", "s3://b", "s3://b/", true},
		{"a prefix inside", "s3://b/p/q", "s3://b/p", true},
		{"a prefix is whole segments", "s3://b/pq", "s3://b/p", false},
		{"a bucket around", "s3://b/p", "s3://b", true},
		{"other buckets", "s3://b/p", "s3://c/p", false},
		{"endpoints do not tell stores apart", "s3://b/p?endpoint=http://one", "s3://b/p?endpoint=http://two", true},
		{"accounts do", "azblob://c/p?storage_account=one", "azblob://c/p?storage_account=two", false},
		{"an account may be the one of the environment", "azblob://c/p?storage_account=one", "azblob://c/p", true},
		{"what does not parse", "s3a://b", "gs://c", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := Overlap(test.a, test.b); got != test.want {
				t.Errorf("got %v", got)
			}
			if got := Overlap(test.b, test.a); got != test.want {
				t.Errorf("the other way round: %v", got)
			}
		})
	}
}
