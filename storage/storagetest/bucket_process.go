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
	processes  = 4
)

// BucketProcesses lets several processes race for put-if-absent on the same
// keys of one bucket, all at once for each key, and checks that each key has one
// winner and holds what it wrote. The processes are this test binary again, running the test that calls
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
		racers = append(racers, startRacer(t, url, i))
	}
	for _, r := range racers {
		if said, _ := r.next(); said != "ready" {
			r.fail(t, said)
		}
	}
	winners := make([]int, keys)
	wins := make([]int, processes)
	for k := range keys {
		for _, r := range racers {
			if _, err := fmt.Fprintln(r.in, k); err != nil {
				t.Fatal(err)
			}
		}
		for i, r := range racers {
			switch said, _ := r.next(); {
			case said == "lost":
			case said != "won":
				r.fail(t, said)
			case winners[k] != 0:
				t.Errorf("key %d was won by processes %d and %d", k, winners[k]-1, i)
			default:
				winners[k] = i + 1
				wins[i]++
			}
		}
	}
	for _, r := range racers {
		if err := errors.Join(r.in.Close(), r.drain()); err != nil {
			t.Errorf("a racer ended with %v\n%s", err, r.log.String())
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

// runRacer puts each key that it is told if absent, and says whether it won.
func runRacer(t *testing.T, b storage.Bucket) {
	t.Helper()
	writer, err := strconv.Atoi(os.Getenv(raceWriter))
	if err != nil {
		t.Fatal(err)
	}
	say := func(line string) {
		if _, err := fmt.Fprintf(os.Stdout, "\nrace: %s\n", line); err != nil {
			t.Fatal(err)
		}
	}
	say("ready")
	for told := bufio.NewScanner(os.Stdin); told.Scan(); {
		k, err := strconv.Atoi(told.Text())
		if err != nil {
			t.Fatal(err)
		}
		err = b.Put(t.Context(), raceKey(k), strings.NewReader(raceBody(writer, k)), storage.PutOptions{IfAbsent: true})
		switch {
		case err == nil:
			say("won")
		case errors.Is(err, storage.ErrExists):
			say("lost")
		default:
			t.Fatal(err)
		}
	}
}

// racer is one process of a race.
type racer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	log strings.Builder
}

func startRacer(t *testing.T, url string, writer int) *racer {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	r := &racer{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$", "-test.count=1")} //nolint:gosec // this binary
	r.cmd.Env = append(os.Environ(), raceURL+"="+url, fmt.Sprintf("%s=%d", raceWriter, writer))
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

// drain waits for the racer's end.
func (r *racer) drain() error {
	for _, ok := r.next(); ok; _, ok = r.next() {
	}
	return r.cmd.Wait()
}

func (r *racer) fail(t *testing.T, said string) {
	t.Helper()
	_ = r.in.Close()
	err := r.drain()
	t.Fatalf("a racer says %q and ends with %v\n%s", said, err, r.log.String())
}
