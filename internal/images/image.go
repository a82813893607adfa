package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// The user that images run as, and that owns what they may write.
const nonRoot = 65532

// image is one image of two layers: what all have in common, and its own.
type image struct {
	name, tag, title string
	latest           bool // a second tag
	entrypoint       []string
	env              []string
	health           []string
	base, files      []file
}

// file is an entry of a layer; a directory if the name ends with '/'.
type file struct {
	name  string
	mode  int64
	data  []byte
	path  string // where the content is, if not in data
	owned bool   // by the user of the image
}

func (i *image) reference() string { return "delenda/" + i.name + ":" + i.tag }

// The parts of an image archive as docker save writes them.
type (
	manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	configuration struct {
		Created      time.Time `json:"created"`
		Architecture string    `json:"architecture"`
		OS           string    `json:"os"`
		Config       process   `json:"config"`
		RootFS       rootFS    `json:"rootfs"`
		History      []history `json:"history"`
	}
	process struct {
		User        string            `json:"User"`
		Env         []string          `json:"Env"`
		Entrypoint  []string          `json:"Entrypoint"`
		WorkingDir  string            `json:"WorkingDir"`
		Labels      map[string]string `json:"Labels"`
		Healthcheck *healthcheck      `json:"Healthcheck,omitempty"`
	}
	healthcheck struct {
		Test        []string      `json:"Test"`
		Interval    time.Duration `json:"Interval"`
		Timeout     time.Duration `json:"Timeout"`
		StartPeriod time.Duration `json:"StartPeriod"`
		Retries     int           `json:"Retries"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	history struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	}
)

// write writes the archive and returns the size of the image's layers.
func (i *image) write(path string, o options) (size int64, err error) {
	f, err := os.CreateTemp(o.out, ".image-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	w := tar.NewWriter(f)
	conf := i.configuration(o)
	m := manifest{RepoTags: []string{i.reference()}}
	if i.latest {
		m.RepoTags = append(m.RepoTags, "delenda/"+i.name+":latest")
	}
	for _, files := range [][]file{i.base, i.files} {
		id, n, err := layer(io.Discard, files, o.epoch)
		if err != nil {
			return 0, err
		}
		size += n
		name := id + "/layer.tar"
		conf.RootFS.DiffIDs = append(conf.RootFS.DiffIDs, "sha256:"+id)
		if slices.Contains(m.Layers, name) {
			return 0, errors.New("two layers are the same")
		}
		m.Layers = append(m.Layers, name)
		if err := w.WriteHeader(header(file{name: name, mode: 0o644}, n, o.epoch)); err != nil {
			return 0, err
		}
		if _, _, err := layer(w, files, o.epoch); err != nil {
			return 0, err
		}
	}
	text, err := json.Marshal(conf)
	if err != nil {
		return 0, err
	}
	m.Config = hexSum(text) + ".json"
	list, err := json.Marshal([]manifest{m})
	if err != nil {
		return 0, err
	}
	for _, part := range []file{{name: m.Config, mode: 0o644, data: text}, {name: "manifest.json", mode: 0o644, data: list}} {
		if err := put(w, part, o.epoch); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(w.Close(), f.Chmod(0o644), f.Close()); err != nil {
		return 0, err
	}
	return size, os.Rename(f.Name(), path)
}

func (i *image) configuration(o options) configuration {
	c := configuration{
		Created: o.epoch, Architecture: (&builder{options: o}).goarch(), OS: "linux",
		Config: process{
			User: fmt.Sprintf("%d:%d", nonRoot, nonRoot), WorkingDir: "/", Entrypoint: i.entrypoint,
			Env: append([]string{"PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}, i.env...),
			Labels: map[string]string{
				"org.opencontainers.image.title":   i.title,
				"org.opencontainers.image.version": i.tag,
				"org.opencontainers.image.created": o.epoch.Format(time.RFC3339),
			},
		},
		RootFS: rootFS{Type: "layers"},
		History: []history{
			{o.epoch, "certificates of authorities"},
			{o.epoch, i.title + " " + i.tag},
		},
	}
	if i.health != nil {
		c.Config.Healthcheck = &healthcheck{i.health, 10 * time.Second, 10 * time.Second, 2 * time.Minute, 3}
	}
	return c
}

// layer writes a layer's archive and returns its hash and size.
func layer(w io.Writer, files []file, epoch time.Time) (id string, size int64, err error) {
	sum := sha256.New()
	n := &counter{hash: sum}
	t := tar.NewWriter(io.MultiWriter(w, n))
	seen := map[string]bool{}
	for _, f := range files {
		// The directories above it, which belong to root.
		for at := range len(f.name) - 1 {
			if dir := f.name[:at+1]; f.name[at] == '/' && !seen[dir] {
				seen[dir] = true
				if err := put(t, file{name: dir, mode: 0o755}, epoch); err != nil {
					return "", 0, err
				}
			}
		}
		seen[f.name] = true
		if err := put(t, f, epoch); err != nil {
			return "", 0, err
		}
	}
	if err := t.Close(); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(sum.Sum(nil)), n.size, nil
}

type counter struct {
	hash hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.hash.Write(p)
}

// put writes one entry.
func put(w *tar.Writer, f file, epoch time.Time) error {
	var content io.Reader = bytes.NewReader(f.data)
	size := int64(len(f.data))
	if f.path != "" {
		in, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		content, size = in, info.Size()
	}
	if err := w.WriteHeader(header(f, size, epoch)); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

func header(f file, size int64, epoch time.Time) *tar.Header {
	h := &tar.Header{Name: f.name, Mode: f.mode, Size: size, ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if strings.HasSuffix(f.name, "/") {
		h.Typeflag = tar.TypeDir
	}
	if f.owned {
		h.Uid, h.Gid = nonRoot, nonRoot
	}
	return h
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
