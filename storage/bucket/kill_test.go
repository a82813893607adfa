package bucket_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"delenda/storage"
	"delenda/storage/bucket"
)

const killDir = "DELENDA_TEST_KILL_DIR"

// killBody is what the n-th put writes: several megabytes, no two alike.
func killBody(n int) []byte { return bytes.Repeat(fmt.Appendf(nil, "object %06d\n", n), 1<<18) }

// TestAKilledWriterLeavesWholeObjectsOnly kills a process that writes without
// pause, at whatever line it is, and looks at what it left: all that it was
// told is stored, and nothing that is not whole.
func TestAKilledWriterLeavesWholeObjectsOnly(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(killDir); dir != "" {
		writeUntilKilled(t, open(t, dir))
		return
	}
	for round := range 3 {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stored := 0
		for said := bufio.NewScanner(out); stored < 2+round && said.Scan(); {
			if strings.HasPrefix(said.Text(), "stored ") {
				stored++
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		checkWhole(t, open(t, dir), stored)
	}
}

func writeUntilKilled(t *testing.T, b *bucket.Bucket) {
	t.Helper()
	for n := 0; ; n++ {
		opts := storage.PutOptions{IfAbsent: n%2 == 0}
		if err := b.Put(t.Context(), fmt.Sprintf("log/%06d", n), bytes.NewReader(killBody(n)), opts); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(os.Stdout, "\nstored %d\n", n); err != nil {
			t.Fatal(err)
		}
	}
}

func checkWhole(t *testing.T, b *bucket.Bucket, stored int) {
	t.Helper()
	n := 0
	for info, err := range b.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("log/%06d", n); info.Key != want {
			t.Errorf("listed %q, want %q", info.Key, want)
		}
		got, err := storage.ReadObject(t.Context(), b, info.Key, 1<<24)
		if err != nil || !bytes.Equal(got, killBody(n)) {
			t.Errorf("%s holds %d bytes, %v", info.Key, len(got), err)
		}
		n++
	}
	if n < stored {
		t.Errorf("%d objects are there, %d were stored", n, stored)
	}
}
