// Package storagetest holds the conformance suites of storage.Bucket and
// storage.Table: every MUST of those interfaces is a subtest named by its
// sentence. It is for tests only.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
)

// Bucket runs the conformance suite. open returns an empty bucket that nothing
// else uses; it is called once for every subtest, which may run in parallel.
func Bucket(t *testing.T, open func(t *testing.T) storage.Bucket) {
	t.Helper()
	for _, test := range []struct {
		sentence string
		run      func(t *testing.T, b storage.Bucket)
	}{
		{"what is put is read back whole, at every size", testRoundTrip},
		{"Stat reports key, exact size and a UTC time", testStat},
		{"an absent object is ErrNotFound", testAbsent},
		{"Read streams length bytes from offset", testRanges},
		{"an offset at or past the end yields an empty stream", testPastEnd},
		{"Put replaces what is there", testReplace},
		{"IfAbsent refuses an existing object with ErrExists and leaves it alone", testIfAbsent},
		{"exactly one of racing writers wins a put-if-absent", testRace},
		{"a large object is put if absent by exactly one writer", testRaceLarge},
		{"if reading body fails nothing appears and the reader's error comes back", testBrokenBody},
		{"if reading body fails what was there stays", testBrokenReplace},
		{"a body that gives one byte at a time is stored whole", testSlowBody},
		{"an object appears complete or not at all", testAtomic},
		{"List yields every object with the prefix in ascending byte order", testListOrder},
		{"List starts after the given key, exclusive", testListAfter},
		{"List fetches page by page and can be left early", testListPages},
		{"List yields each object that existed during the whole call", testListConcurrent},
		{"List of nothing yields nothing", testListEmpty},
		{"Delete removes the object and may be repeated", testDelete},
		{"keys reach the store byte for byte", testKeys},
		{"a key that a store cannot carry is refused, never mapped", testBadKeys},
		{"a cancelled context ends every operation", testCancelled},
		{"errors name the operation and the key", testErrors},
		{"concurrent use is safe", testConcurrent},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			t.Parallel()
			test.run(t, open(t))
		})
	}
}

// pattern returns n bytes in which no two blocks of 64 KiB are alike.
func pattern(n int) []byte {
	const block = 64 << 10
	p := make([]byte, n)
	for i := range min(n, block) {
		p[i] = byte(i*7 + i>>8*13)
	}
	for i := block; i < n; i += block {
		copy(p[i:], p[:block])
		copy(p[i:], fmt.Sprintf("block %d", i/block))
	}
	return p
}

func mustPut(t *testing.T, b storage.Bucket, key string, body []byte) {
	t.Helper()
	if err := b.Put(t.Context(), key, bytes.NewReader(body), storage.PutOptions{}); err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
}

func mustRead(t *testing.T, b storage.Bucket, key string, offset, length int64) []byte {
	t.Helper()
	p, err := read(t.Context(), b, key, offset, length)
	if err != nil {
		t.Fatalf("read %q from %d, %d bytes: %v", key, offset, length, err)
	}
	return p
}

func read(ctx context.Context, b storage.Bucket, key string, offset, length int64) ([]byte, error) {
	r, err := b.Read(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(r)
	return p, errors.Join(err, r.Close())
}

func list(t *testing.T, b storage.Bucket, prefix, after string) []string {
	t.Helper()
	var keys []string
	for info, err := range b.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatalf("list %q after %q: %v", prefix, after, err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

func testRoundTrip(t *testing.T, b storage.Bucket) {
	// The large sizes take several parts on every store.
	for _, size := range []int{0, 1, 4095, 256 << 10, 256<<10 + 1, 1 << 20, 17<<20 + 3} {
		key := fmt.Sprintf("size/%d", size)
		want := pattern(size)
		mustPut(t, b, key, want)
		if got := mustRead(t, b, key, 0, -1); !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back as %d others", size, len(got))
		}
		if info, err := b.Stat(t.Context(), key); err != nil || info.SizeBytes != int64(size) {
			t.Errorf("stat: %d bytes, %v; want %d", info.SizeBytes, err, size)
		}
	}
}

func testStat(t *testing.T, b storage.Bucket) {
	mustPut(t, b, "dir/object", []byte("12345"))
	info, err := b.Stat(t.Context(), "dir/object")
	if err != nil {
		t.Fatal(err)
	}
	if info.Key != "dir/object" || info.SizeBytes != 5 {
		t.Errorf("got %+v", info)
	}
	if info.ModTime.IsZero() || info.ModTime.Location().String() != "UTC" {
		t.Errorf("time %v", info.ModTime)
	}
	for listed, err := range b.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if listed.SizeBytes != 5 || listed.ModTime.Unix() != info.ModTime.Unix() || listed.ModTime.Location().String() != "UTC" {
			t.Errorf("list says %+v, stat %+v", listed, info)
		}
	}
}

func testAbsent(t *testing.T, b storage.Bucket) {
	mustPut(t, b, "dir/object", nil)
	for _, key := range []string{"absent", "dir", "dir/objec", "dir/object2", "no/such/dir"} {
		if _, err := b.Stat(t.Context(), key); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("stat %q: %v", key, err)
		}
		for _, length := range []int64{-1, 0, 10} {
			if _, err := read(t.Context(), b, key, 0, length); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("read %q, length %d: %v", key, length, err)
			}
		}
		if err := b.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if _, err := b.Stat(t.Context(), "dir/object"); err != nil {
		t.Errorf("the object is gone: %v", err)
	}
}

func testRanges(t *testing.T, b storage.Bucket) {
	want := pattern(1000)
	mustPut(t, b, "k", want)
	for _, r := range []struct{ offset, length, from, to int64 }{
		{0, -1, 0, 1000},
		{0, 0, 0, 0},
		{0, 1, 0, 1},
		{0, 1000, 0, 1000},
		{0, 5000, 0, 1000},
		{10, 20, 10, 30},
		{10, 0, 10, 10},
		{990, -1, 990, 1000},
		{990, 5000, 990, 1000},
		{999, 1, 999, 1000},
	} {
		if got := mustRead(t, b, "k", r.offset, r.length); !bytes.Equal(got, want[r.from:r.to]) {
			t.Errorf("offset %d, length %d: got %d bytes, want [%d:%d]", r.offset, r.length, len(got), r.from, r.to)
		}
	}
	if _, err := b.Read(t.Context(), "k", -1, 5); err == nil {
		t.Error("a negative offset was taken")
	}
}

func testPastEnd(t *testing.T, b storage.Bucket) {
	mustPut(t, b, "ten", pattern(10))
	mustPut(t, b, "none", nil)
	for key, offsets := range map[string][]int64{"ten": {10, 11, 1 << 40}, "none": {0, 1, 1 << 40}} {
		for _, offset := range offsets {
			for _, length := range []int64{-1, 0, 1, 100} {
				if got := mustRead(t, b, key, offset, length); len(got) != 0 {
					t.Errorf("%s from %d: %d bytes", key, offset, len(got))
				}
			}
		}
	}
}

func testReplace(t *testing.T, b storage.Bucket) {
	for _, body := range []string{"first, longer", "second", ""} {
		mustPut(t, b, "k", []byte(body))
		if got := mustRead(t, b, "k", 0, -1); string(got) != body {
			t.Errorf("got %q, want %q", got, body)
		}
	}
}

func testIfAbsent(t *testing.T, b storage.Bucket) {
	absent := storage.PutOptions{IfAbsent: true}
	if err := b.Put(t.Context(), "log/0.json", strings.NewReader("first"), absent); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"second", "first", ""} {
		if err := b.Put(t.Context(), "log/0.json", strings.NewReader(body), absent); !errors.Is(err, storage.ErrExists) {
			t.Errorf("got %v, want ErrExists", err)
		}
	}
	if got := mustRead(t, b, "log/0.json", 0, -1); string(got) != "first" {
		t.Errorf("the loser overwrote it: %q", got)
	}
	if err := b.Delete(t.Context(), "log/0.json"); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), "log/0.json", strings.NewReader("again"), absent); err != nil {
		t.Errorf("after a delete: %v", err)
	}
}

const racers = 16

func testRace(t *testing.T, b storage.Bucket) {
	for round := range 25 {
		race(t, b, fmt.Sprintf("race/%020d.json", round), func(i int) []byte { return fmt.Appendf(nil, "writer %d", i) })
	}
}

func testRaceLarge(t *testing.T, b storage.Bucket) {
	race(t, b, "large", func(i int) []byte { return pattern(9<<20 + i) })
}

// race lets all racers put if absent and checks that one won, and with what.
func race(t *testing.T, b storage.Bucket, key string, body func(i int) []byte) {
	t.Helper()
	n, large := racers, len(body(0)) > 1<<20
	if large {
		n = 4
	}
	errs := make([]error, n)
	bodies := make([][]byte, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		bodies[i] = body(i)
		wg.Go(func() {
			<-start
			errs[i] = b.Put(t.Context(), key, bytes.NewReader(bodies[i]), storage.PutOptions{IfAbsent: true})
		})
	}
	close(start)
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = i
		case err == nil:
			t.Errorf("%s: writers %d and %d both won", key, winner, i)
		case large && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrDenied):
			// A server may refuse and hang up before it has read the body.
		case !errors.Is(err, storage.ErrExists):
			t.Errorf("%s: writer %d: %v, want ErrExists", key, i, err)
		}
	}
	if winner < 0 {
		t.Fatalf("%s: nobody won", key)
	}
	if got := mustRead(t, b, key, 0, -1); !bytes.Equal(got, bodies[winner]) {
		t.Errorf("%s: it does not hold what its winner %d wrote", key, winner)
	}
}

var errBody = errors.New("body broke off")

func testBrokenBody(t *testing.T, b storage.Bucket) {
	for _, size := range []int{0, 100, 1 << 20, 17 << 20} {
		for _, ifAbsent := range []bool{false, true} {
			if ifAbsent && size > 1<<20 {
				continue
			}
			key := fmt.Sprintf("broken/%d-%v", size, ifAbsent)
			body := io.MultiReader(bytes.NewReader(pattern(size)), iotest.ErrReader(errBody))
			if err := b.Put(t.Context(), key, body, storage.PutOptions{IfAbsent: ifAbsent}); !errors.Is(err, errBody) {
				t.Errorf("after %d bytes: %v, want the reader's error", size, err)
			}
			if _, err := b.Stat(t.Context(), key); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("after %d bytes an object is there: %v", size, err)
			}
		}
	}
	if keys := list(t, b, "", ""); len(keys) != 0 {
		t.Errorf("listed: %q", keys)
	}
}

func testBrokenReplace(t *testing.T, b storage.Bucket) {
	mustPut(t, b, "k", []byte("old"))
	for _, size := range []int{0, 100, 17 << 20} {
		body := io.MultiReader(bytes.NewReader(pattern(size)), iotest.ErrReader(errBody))
		if err := b.Put(t.Context(), "k", body, storage.PutOptions{}); !errors.Is(err, errBody) {
			t.Errorf("after %d bytes: %v, want the reader's error", size, err)
		}
		if got := mustRead(t, b, "k", 0, -1); string(got) != "old" {
			t.Errorf("after %d bytes: %d bytes are there", size, len(got))
		}
	}
}

func testSlowBody(t *testing.T, b storage.Bucket) {
	want := pattern(300 << 10)
	for name, r := range map[string]io.Reader{
		"one byte":       iotest.OneByteReader(bytes.NewReader(want)),
		"error with end": iotest.DataErrReader(bytes.NewReader(want)),
	} {
		if err := b.Put(t.Context(), name, r, storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := mustRead(t, b, name, 0, -1); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes came back", name, len(got))
		}
	}
}

// testAtomic replaces an object while readers look at it.
func testAtomic(t *testing.T, b storage.Bucket) {
	bodies := [][]byte{bytes.Repeat([]byte("a"), 300<<10), bytes.Repeat([]byte("b"), 500<<10)}
	mustPut(t, b, "k", bodies[0])
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				got, err := read(t.Context(), b, "k", 0, -1)
				if err != nil || !bytes.Equal(got, bodies[0]) && !bytes.Equal(got, bodies[1]) {
					t.Errorf("read %d bytes, %v: neither the old object nor the new one", len(got), err)
					return
				}
			}
		})
	}
	for i := range 20 {
		mustPut(t, b, "k", bodies[(i+1)%2])
	}
	close(done)
	wg.Wait()
}

func testDelete(t *testing.T, b storage.Bucket) {
	mustPut(t, b, "dir/a", nil)
	mustPut(t, b, "dir/b", nil)
	for range 2 {
		if err := b.Delete(t.Context(), "dir/a"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"dir/b"}, list(t, b, "", "")); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}
