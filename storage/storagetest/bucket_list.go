package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
)

// awkward keys: what table formats, Spark's escaping and people put into names,
// and neighbours of '/' in byte order.
var awkward = []string{
	"_delta_log/00000000000000000000.json",
	"_delta_log/00000000000000000000.checkpoint.parquet",
	"_delta_log/_last_checkpoint",
	"date=2024-01-01/part-00000-c000.snappy.parquet",
	"ts=2024-01-01 12%3A00%3A00/part 1.parquet",
	"a=b&c=d/plus+plus,comma;semi",
	"colon:at@dollar$",
	"percent%20encoded%2Fslash",
	"percent%",
	"question?mark#hash",
	`"quoted"'single'`,
	"{brace}[bracket](paren)",
	"tilde~under_score-dash.dot!bang*star",
	"back`tick^caret|pipe<less>more",
	"grüße/日本語/😀.parquet",
	"e\u0301 is not \u00e9",
	"\u00e9 is not e\u0301",
	"...dots/..two/x",
	" leading space/trailing space ",
	"UPPER/lower",
	"upper/LOWER",
	"x.attrs",
	".hidden",
}

func testKeys(t *testing.T, b storage.Bucket) {
	for _, key := range awkward {
		if err := b.Put(t.Context(), key, strings.NewReader(key), storage.PutOptions{IfAbsent: true}); err != nil {
			t.Errorf("put %q: %v", key, err)
		}
	}
	want := slices.Sorted(slices.Values(awkward))
	if diff := cmp.Diff(want, list(t, b, "", "")); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	for i, key := range want {
		if got := mustRead(t, b, key, 0, -1); string(got) != key {
			t.Errorf("%q holds %q", key, got)
		}
		if info, err := b.Stat(t.Context(), key); err != nil || info.SizeBytes != int64(len(key)) {
			t.Errorf("stat %q: %+v, %v", key, info, err)
		}
		if got := list(t, b, key, ""); !slices.Contains(got, key) {
			t.Errorf("list by the prefix %q: %q", key, got)
		}
		if diff := cmp.Diff(want[i+1:], list(t, b, "", key), cmpEmpty); diff != "" {
			t.Errorf("keys after %q (-want +got):\n%s", key, diff)
		}
	}
	for _, key := range want {
		if err := b.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if left := list(t, b, "", ""); len(left) != 0 {
		t.Errorf("left after delete: %q", left)
	}
}

var cmpEmpty = cmp.Transformer("empty", func(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
})

func testBadKeys(t *testing.T, b storage.Bucket) {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "../a", "a/../b", "a/..",
		"nul\x00", "line\nbreak", "del\x7f", "\xff\xfe", strings.Repeat("k", 1025),
	} {
		if err := b.Put(t.Context(), key, strings.NewReader("x"), storage.PutOptions{}); err == nil {
			t.Errorf("put %q was taken", key)
		}
		if _, err := b.Stat(t.Context(), key); err == nil || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("stat %q: %v, want a refusal", key, err)
		}
		if _, err := b.Read(t.Context(), key, 0, -1); err == nil || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("read %q: %v, want a refusal", key, err)
		}
		if err := b.Delete(t.Context(), key); err == nil {
			t.Errorf("delete %q was taken", key)
		}
	}
	// Some stores carry these, some cannot: then they say so.
	for _, key := range []string{"__0x2f__", "a__0x41__b", "two../x", `back\slash`, "dot./x", "end."} {
		if err := b.Put(t.Context(), key, strings.NewReader(key), storage.PutOptions{}); err != nil {
			if _, err := b.Stat(t.Context(), key); err == nil || errors.Is(err, storage.ErrNotFound) {
				t.Errorf("put %q is refused, stat gives %v", key, err)
			}
			continue
		}
		if got := list(t, b, "", ""); !slices.Equal(got, []string{key}) {
			t.Errorf("%q is listed as %q", key, got)
		}
		if err := b.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if keys := list(t, b, "", ""); len(keys) != 0 {
		t.Errorf("listed: %q", keys)
	}
}

var ordered = []string{
	"a!", "a.b", "a/b", "a/b.c", "a/c/d", "a/c0", "a0", "aa/x", "b", "b-/x", "b0/y", "c/d/e/f/g", "é", "日",
}

func testListOrder(t *testing.T, b storage.Bucket) {
	for i := range ordered {
		mustPut(t, b, ordered[(i*5)%len(ordered)], nil)
	}
	for _, prefix := range []string{"", "a", "a/", "a/c", "a/c/", "b", "b0", "c/d/e/f/g", "c/d/e/f/gg", "zz", "日"} {
		var want []string
		for _, key := range ordered {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		if diff := cmp.Diff(want, list(t, b, prefix, "")); diff != "" {
			t.Errorf("prefix %q (-want +got):\n%s", prefix, diff)
		}
	}
}

func testListAfter(t *testing.T, b storage.Bucket) {
	for _, key := range ordered {
		mustPut(t, b, key, nil)
	}
	for _, prefix := range []string{"", "a", "a/", "b"} {
		for _, after := range append([]string{"a", "a/", "a/b!", "a/c", "a/c/", "a/zz", "c/d", "zz", "~"}, ordered...) {
			var want []string
			for _, key := range ordered {
				if strings.HasPrefix(key, prefix) && key > after {
					want = append(want, key)
				}
			}
			if diff := cmp.Diff(want, list(t, b, prefix, after)); diff != "" {
				t.Errorf("prefix %q after %q (-want +got):\n%s", prefix, after, diff)
			}
		}
	}
}

// pages is more than two pages of every store.
const pages = 2100

func testListPages(t *testing.T, b storage.Bucket) {
	want := make([]string, pages)
	for i := range want {
		want[i] = fmt.Sprintf("log/%020d.json", i)
	}
	fill(t, b, want)
	mustPut(t, b, "lof", nil)
	mustPut(t, b, "log0", nil)
	if diff := cmp.Diff(want, list(t, b, "log/", "")); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1500:], list(t, b, "log/", want[1499])); diff != "" {
		t.Errorf("keys after the 1500th (-want +got):\n%s", diff)
	}
	seen := 0
	for _, err := range b.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("left after %d", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range b.List(ctx, "", "") {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("a listing cancelled in the middle ends with %v", last)
	}
}

func fill(t *testing.T, b storage.Bucket, keys []string) {
	t.Helper()
	next := make(chan string)
	var wg sync.WaitGroup
	for range racers {
		wg.Go(func() {
			for key := range next {
				if err := b.Put(t.Context(), key, strings.NewReader(""), storage.PutOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	wg.Wait()
}

// testListConcurrent lists while other objects come and go.
func testListConcurrent(t *testing.T, b storage.Bucket) {
	stable := make([]string, 300)
	for i := range stable {
		stable[i] = fmt.Sprintf("d%d/%04d", i%3, i)
	}
	slices.Sort(stable)
	fill(t, b, stable)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				key := fmt.Sprintf("d%d/%04d-passing-%d", i%3, i%300, w)
				if err := b.Put(t.Context(), key, strings.NewReader("whole"), storage.PutOptions{}); err != nil {
					t.Error(err)
				}
				if err := b.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		var got []string
		last := ""
		for info, err := range b.List(t.Context(), "", "") {
			if err != nil {
				t.Error(err)
				break
			}
			if info.Key <= last {
				t.Errorf("%q comes after %q", info.Key, last)
			}
			last = info.Key
			if !strings.Contains(info.Key, "passing") {
				got = append(got, info.Key)
			} else if info.SizeBytes != 5 {
				t.Errorf("%q is listed half-written with %d bytes", info.Key, info.SizeBytes)
			}
		}
		if diff := cmp.Diff(stable, got); diff != "" {
			t.Errorf("lasting keys (-want +got):\n%s", diff)
		}
	}
	close(done)
	wg.Wait()
}

func testListEmpty(t *testing.T, b storage.Bucket) {
	for _, prefix := range []string{"", "a", "a/", "a/b/c/"} {
		if keys := list(t, b, prefix, ""); len(keys) != 0 {
			t.Errorf("prefix %q: %q", prefix, keys)
		}
	}
}

func testCancelled(t *testing.T, b storage.Bucket) {
	mustPut(t, b, "k", []byte("old"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, statErr := b.Stat(ctx, "k")
	_, readErr := read(ctx, b, "k", 0, -1)
	var listErr error
	for _, err := range b.List(ctx, "", "") {
		listErr = err
	}
	for op, err := range map[string]error{
		"stat":   statErr,
		"read":   readErr,
		"list":   listErr,
		"put":    b.Put(ctx, "k", strings.NewReader("new"), storage.PutOptions{}),
		"create": b.Put(ctx, "k2", strings.NewReader("new"), storage.PutOptions{IfAbsent: true}),
		"delete": b.Delete(ctx, "k"),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if got := mustRead(t, b, "k", 0, -1); string(got) != "old" {
		t.Errorf("a cancelled call changed it to %q", got)
	}
}

func testErrors(t *testing.T, b storage.Bucket) {
	_, statErr := b.Stat(t.Context(), "no/such key")
	_, readErr := b.Read(t.Context(), "no/such key", 0, -1)
	mustPut(t, b, "no/other", nil)
	putErr := b.Put(t.Context(), "no/other", strings.NewReader(""), storage.PutOptions{IfAbsent: true})
	for _, e := range []struct {
		err      error
		op, name string
	}{
		{statErr, "stat", "no/such key"},
		{readErr, "read", "no/such key"},
		{putErr, "put", "no/other"},
	} {
		if e.err == nil || !strings.HasPrefix(e.err.Error(), fmt.Sprintf("%s %q: ", e.op, e.name)) {
			t.Errorf("got %v", e.err)
		}
		for _, leak := range []string{"://", "X-Amz", "Signature", "<?xml", "RequestId", "/tmp/"} {
			if strings.Contains(fmt.Sprint(e.err), leak) {
				t.Errorf("%v holds %s", e.err, leak)
			}
		}
	}
}

// testConcurrent keeps an object in every directory: servers that keep objects
// in a file system remove a directory with its last object, and then lose races
// with themselves.
func testConcurrent(t *testing.T, b storage.Bucket) {
	var anchors []string
	for d := range 4 {
		anchors = append(anchors, fmt.Sprintf("w%d/anchor", d))
		mustPut(t, b, anchors[d], nil)
	}
	var wg sync.WaitGroup
	for w := range racers {
		wg.Go(func() {
			key := fmt.Sprintf("w%d/%d", w%4, w)
			for range 5 {
				if err := b.Put(t.Context(), key, strings.NewReader(key), storage.PutOptions{}); err != nil {
					t.Error(err)
				}
				if got, err := read(t.Context(), b, key, 0, -1); err != nil || string(got) != key {
					t.Errorf("read %q: %q, %v", key, got, err)
				}
				if err := b.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(anchors, list(t, b, "", "")); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}
