package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func example() *image {
	return &image{
		name: "x", tag: "v1", latest: true, title: "X", entrypoint: []string{"/x"}, health: []string{"CMD", "/x", "health"},
		base:  []file{{name: "etc/passwd", mode: 0o644, data: []byte("x")}},
		files: []file{{name: "x", mode: 0o755, data: []byte("program")}, {name: "var/lib/x/", mode: 0o700, owned: true}},
	}
}

// entries reads an archive.
func entries(t *testing.T, r io.Reader) (names []string, headers map[string]*tar.Header, content map[string][]byte) {
	t.Helper()
	headers, content = map[string]*tar.Header{}, map[string][]byte{}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names, headers, content
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		names, headers[h.Name], content[h.Name] = append(names, h.Name), h, body
	}
}

func TestAnImageHasTheSameBytesEveryTime(t *testing.T) {
	t.Parallel()
	var all [][]byte
	for range 2 {
		o := options{out: t.TempDir(), epoch: time.Unix(1_700_000_000, 0).UTC(), arch: "amd64"}
		path := filepath.Join(o.out, "x.tar")
		if _, err := example().write(path, o); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
		if left, _ := os.ReadDir(o.out); len(left) != 1 {
			t.Errorf("left behind: %v", left)
		}
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("two archives differ")
	}
}

func TestAnImageRunsAsAUserWhoIsNotRoot(t *testing.T) {
	t.Parallel()
	epoch := time.Unix(1_700_000_000, 0).UTC()
	o := options{out: t.TempDir(), epoch: epoch, arch: "arm64"}
	path := filepath.Join(o.out, "x.tar")
	if _, err := example().write(path, o); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	_, _, content := entries(t, f)
	var list []manifest
	if err := json.Unmarshal(content["manifest.json"], &list); err != nil || len(list) != 1 {
		t.Fatalf("%d images, %v", len(list), err)
	}
	var c configuration
	if err := json.Unmarshal(content[list[0].Config], &c); err != nil {
		t.Fatal(err)
	}
	if c.Config.User != "65532:65532" || c.Architecture != "arm64" || !c.Created.Equal(epoch) {
		t.Errorf("user %s, %s, created %v", c.Config.User, c.Architecture, c.Created)
	}
	if got := c.Config.Labels["org.opencontainers.image.version"]; got != "v1" {
		t.Errorf("version %q", got)
	}
	if d := cmp.Diff([]string{"delenda/x:v1", "delenda/x:latest"}, list[0].RepoTags); d != "" {
		t.Errorf("tags (-want +got):\n%s", d)
	}
	if len(c.RootFS.DiffIDs) != len(list[0].Layers) {
		t.Fatalf("%d layers, %d ids", len(list[0].Layers), len(c.RootFS.DiffIDs))
	}
	for i, name := range list[0].Layers {
		if got := sha256.Sum256(content[name]); "sha256:"+hex.EncodeToString(got[:]) != c.RootFS.DiffIDs[i] {
			t.Errorf("layer %d is not what its id says", i)
		}
	}
	names, headers, _ := entries(t, bytes.NewReader(content[list[0].Layers[1]]))
	if d := cmp.Diff([]string{"x", "var/", "var/lib/", "var/lib/x/"}, names); d != "" {
		t.Errorf("entries (-want +got):\n%s", d)
	}
	if h := headers["var/lib/x/"]; h.Uid != nonRoot || h.Typeflag != tar.TypeDir || headers["x"].Uid != 0 {
		t.Error("the user owns more or less than what it writes to")
	}
}
