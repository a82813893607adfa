package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
)

func openDir(t *testing.T, dir string, o *Options) *Bucket {
	t.Helper()
	b, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b storage.Bucket, key string, ifAbsent bool) error {
	t.Helper()
	return b.Put(t.Context(), key, strings.NewReader("x"), storage.PutOptions{IfAbsent: ifAbsent})
}

func keys(t *testing.T, b storage.Bucket) []string {
	t.Helper()
	var got []string
	for info, err := range b.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Key)
	}
	return got
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpeningADirectoryWritesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "absent")
	b := openDir(t, dir, nil)
	if got := keys(t, b); len(got) != 0 {
		t.Errorf("listed %q", got)
	}
	if _, err := b.Stat(t.Context(), "k"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("stat: %v", err)
	}
	if err := b.Delete(t.Context(), "k"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
}

func TestSymbolicLinks(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "inside", "file"))
	for link, target := range map[string]string{
		"out-dir":        outside,
		"out-file":       filepath.Join(outside, "secret"),
		"up":             "../" + filepath.Base(outside),
		"in-dir":         "inside",
		"in-file":        "inside/file",
		"inside/to-root": "..",
		"nowhere":        "absent",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	b := openDir(t, dir, nil)
	t.Run("that lead out are not listed, and those that lead back are not followed for ever", func(t *testing.T) {
		t.Parallel()
		want := []string{"in-dir/file", "in-file", "inside/file"}
		if diff := cmp.Diff(want, keys(t, b)); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
	})
	t.Run("that lead out are refused, which is not absence", func(t *testing.T) {
		t.Parallel()
		for _, key := range []string{"out-dir/secret", "out-file", "up/secret"} {
			_, statErr := b.Stat(t.Context(), key)
			_, readErr := b.Read(t.Context(), key, 0, -1)
			for op, err := range map[string]error{"stat": statErr, "read": readErr} {
				if !errors.Is(err, storage.ErrDenied) {
					t.Errorf("%s %q: %v", op, key, err)
				}
			}
		}
		if err := put(t, b, "out-dir/new", false); !errors.Is(err, storage.ErrDenied) {
			t.Errorf("put: %v", err)
		}
		if err := b.Delete(t.Context(), "out-dir/secret"); !errors.Is(err, storage.ErrDenied) {
			t.Errorf("delete: %v", err)
		}
		if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
			t.Error(err)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("outside: %v, %v", entries, err)
		}
	})
	t.Run("that lead inside are read", func(t *testing.T) {
		t.Parallel()
		p, err := storage.ReadObject(t.Context(), b, "in-dir/file", 100)
		if err != nil || string(p) != "content" {
			t.Errorf("got %q, %v", p, err)
		}
	})
}

func TestTemporaryFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := openDir(t, dir, nil)
	held, release := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- b.Put(t.Context(), "log/1", held, storage.PutOptions{IfAbsent: true}) }()
	if _, err := release.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "log"))
	if err != nil || len(entries) != 1 || !strings.HasPrefix(entries[0].Name(), tempPrefix) {
		t.Fatalf("beside the target: %v, %v", entries, err)
	}
	if got := keys(t, b); len(got) != 0 {
		t.Errorf("listed while being written: %q", got)
	}
	if err := errors.Join(release.Close(), <-done); err != nil {
		t.Fatal(err)
	}
	if entries, err = os.ReadDir(filepath.Join(dir, "log")); err != nil || len(entries) != 1 || entries[0].Name() != "1" {
		t.Errorf("after: %v, %v", entries, err)
	}
}

func TestTemporaryFilesOfKilledWritersAreRemovedWhenADayOld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, "log", tempPrefix+"old"), filepath.Join(dir, "log", tempPrefix+"fresh")
	write(t, old)
	write(t, fresh)
	day := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, day, day); err != nil {
		t.Fatal(err)
	}
	if err := put(t, openDir(t, dir, nil), "log/1", true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old one: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("the fresh one: %v", err)
	}
}

func TestFileSystemWithoutHardLinks(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := openDir(t, t.TempDir(), &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	b.store.(*file).link = func(_ *os.Root, temp, final string) error {
		return &os.LinkError{Op: "linkat", Old: temp, New: final, Err: syscall.EPERM}
	}
	var wg sync.WaitGroup
	wins := make([]int, 200)
	for range 8 {
		wg.Go(func() {
			for i := range wins {
				switch err := put(t, b, fmt.Sprintf("log/%d", i), true); {
				case err == nil:
					exclusive.Lock()
					wins[i]++
					exclusive.Unlock()
				case !errors.Is(err, storage.ErrExists):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(wins, func(n int) bool { return n != 1 }); i >= 0 {
		t.Errorf("key %d has %d winners", i, wins[i])
	}
	if atomic, err := b.AtomicAcrossProcesses(t.Context()); atomic || err != nil {
		t.Errorf("it claims to be safe among processes: %v, %v", atomic, err)
	}
	if n := strings.Count(log.String(), "no hard links"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
	if got := keys(t, b); len(got) != len(wins) {
		t.Errorf("%d keys", len(got))
	}
}

func TestHardLinksAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := openDir(t, dir, nil)
	if atomic, err := b.AtomicAcrossProcesses(t.Context()); !atomic || err != nil {
		t.Errorf("got %v, %v", atomic, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the probe left %v, %v", entries, err)
	}
}

func TestALinkThatSucceededAndWasRepeatedIsAWin(t *testing.T) {
	t.Parallel()
	b := openDir(t, t.TempDir(), nil)
	b.store.(*file).link = func(root *os.Root, temp, final string) error {
		if err := root.Link(temp, final); err != nil {
			return err
		}
		return root.Link(temp, final)
	}
	if err := put(t, b, "k", true); err != nil {
		t.Error(err)
	}
	if err := put(t, b, "k", true); !errors.Is(err, storage.ErrExists) {
		t.Errorf("second put: %v", err)
	}
}

func TestADirectoryIsListedInPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("d%d/%02d", i%3, i), fmt.Sprintf("f%02d", i), fmt.Sprintf("f%02d/x", i+50))
	}
	for _, key := range want {
		write(t, filepath.Join(dir, filepath.FromSlash(key)))
	}
	slices.Sort(want)
	for _, page := range []int{1, 2, 7, 1000} {
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		w := &walk{ctx: t.Context(), root: root, page: page, yield: func(info storage.Info, err error) bool {
			got = append(got, info.Key)
			return err == nil
		}}
		w.dir("")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", page, diff)
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPrivateFilesAreTheOwnersOnly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if err := put(t, openDir(t, dir, &Options{Private: true}), "keys/1", true); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, "keys"): 0o700, filepath.Join(dir, "keys", "1"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", filepath.Base(path), info.Mode(), err)
		}
	}
}

func TestWhatAFileSystemCannotCarryIsRefused(t *testing.T) {
	t.Parallel()
	b := openDir(t, t.TempDir(), nil)
	if err := put(t, b, "a/b", false); err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{
		"a key that is a directory":   "a",
		"a key below an object":       "a/b/c",
		"a key far below an object":   "a/b/c/d",
		"a segment beyond 255 bytes":  strings.Repeat("n", 256),
		"a directory beyond its size": strings.Repeat("n", 256) + "/x",
	} {
		for _, ifAbsent := range []bool{false, true} {
			if err := put(t, b, key, ifAbsent); !errors.Is(err, ErrKey) {
				t.Errorf("%s, if absent %v: %v", name, ifAbsent, err)
			}
		}
	}
	if diff := cmp.Diff([]string{"a/b"}, keys(t, b)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestMemoryIsSharedByName(t *testing.T) {
	t.Parallel()
	one, two := openDir(t, "mem://shared-by-name/p", nil), openDir(t, "mem://shared-by-name", nil)
	if err := put(t, one, "k", true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"p/k"}, keys(t, two)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if got := keys(t, openDir(t, "mem://", nil)); len(got) != 0 {
		t.Errorf("a bucket without a name shares %q", got)
	}
}
