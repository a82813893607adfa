package storagetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"delenda/storage"
)

const (
	raceURL    = "DELENDA_TEST_RACE_URL"
	raceWriter = "DELENDA_TEST_RACE_WRITER"
	raceKeys   = "DELENDA_TEST_RACE_KEYS"
	processes  = 4
)

// BucketProcesses lets several processes race for put-if-absent on the same
// keys of one bucket and checks that each key has one winner and holds what it
// wrote. The processes are this test binary again, running the test that calls
// this function: the function then takes a racer's part and setup is not
// called. setup returns the URL of an empty bucket that all processes share;
// open opens it, in every process.
func BucketProcesses(t *testing.T, keys int, setup func(t *testing.T) string, open func(ctx context.Context, url string) (storage.Bucket, error)) {
	t.Helper()
	if url := os.Getenv(raceURL); url != "" {
		b, err := open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		runRacer(t, b)
		return
	}
	url := setup(t)
	var racers []*racer
	for i := range processes {
		racers = append(racers, startRacer(t, url, i, keys))
	}
	for _, r := range racers {
		r.expect(t, "ready")
	}
	for _, r := range racers {
		if _, err := io.WriteString(r.in, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	winners := make([]int, keys)
	wins := make([]int, processes)
	for i, r := range racers {
		for line := range r.lines(t) {
			k, err := strconv.Atoi(line)
			if err != nil || k < 0 || k >= keys {
				t.Fatalf("process %d says %q", i, line)
			}
			if winners[k] != 0 {
				t.Errorf("key %d was won by processes %d and %d", k, winners[k]-1, i)
			}
			winners[k] = i + 1
			wins[i]++
		}
	}
	b, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	for k, winner := range winners {
		if winner == 0 {
			t.Errorf("key %d was won by nobody", k)
		} else if got := mustRead(t, b, raceKey(k), 0, -1); string(got) != raceBody(winner-1, k) {
			t.Errorf("key %d does not hold what its winner, process %d, wrote", k, winner-1)
		}
	}
	t.Logf("wins of %d keys by process: %v", keys, wins)
}

func raceKey(k int) string          { return fmt.Sprintf("_log/%020d.json", k) }
func raceBody(writer, k int) string { return fmt.Sprintf("process %d, key %d", writer, k) }

// runRacer waits for the start, puts every key if absent and says which it won.
func runRacer(t *testing.T, b storage.Bucket) {
	t.Helper()
	writer, errWriter := strconv.Atoi(os.Getenv(raceWriter))
	keys, errKeys := strconv.Atoi(os.Getenv(raceKeys))
	if err := errors.Join(errWriter, errKeys); err != nil {
		t.Fatal(err)
	}
	say := func(line string) {
		if _, err := fmt.Fprintf(os.Stdout, "\nrace: %s\n", line); err != nil {
			t.Fatal(err)
		}
	}
	say("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for k := range keys {
		err := b.Put(t.Context(), raceKey(k), strings.NewReader(raceBody(writer, k)), storage.PutOptions{IfAbsent: true})
		switch {
		case err == nil:
			say(strconv.Itoa(k))
		case !errors.Is(err, storage.ErrExists):
			t.Fatal(err)
		}
	}
	say("done")
}

// racer is one process of a race.
type racer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	log strings.Builder
}

func startRacer(t *testing.T, url string, writer, keys int) *racer {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	r := &racer{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$", "-test.count=1")} //nolint:gosec // this binary
	r.cmd.Env = append(os.Environ(), raceURL+"="+url, fmt.Sprintf("%s=%d", raceWriter, writer), fmt.Sprintf("%s=%d", raceKeys, keys))
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewScanner(out)
	r.cmd.Stderr = &r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// next returns the next thing the racer says, and false at its end.
func (r *racer) next() (string, bool) {
	for r.out.Scan() {
		if said, ok := strings.CutPrefix(r.out.Text(), "race: "); ok {
			return said, true
		}
		_, _ = r.log.WriteString(r.out.Text() + "\n")
	}
	return "", false
}

func (r *racer) expect(t *testing.T, want string) {
	t.Helper()
	if got, ok := r.next(); !ok || got != want {
		_ = r.cmd.Wait()
		t.Fatalf("a racer says %q, want %q\n%s", got, want, r.log.String())
	}
}

// lines yields what the racer says until it is done, and checks its exit.
func (r *racer) lines(t *testing.T) func(yield func(string) bool) {
	t.Helper()
	return func(yield func(string) bool) {
		done := false
		for said, ok := r.next(); ok; said, ok = r.next() {
			if said == "done" {
				done = true
			} else if !yield(said) {
				return
			}
		}
		if err := r.cmd.Wait(); err != nil || !done {
			t.Fatalf("a racer ended with %v\n%s", err, r.log.String())
		}
	}
}
