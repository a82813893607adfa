package fault_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
)

func filled(t *testing.T) *bucket.Bucket {
	t.Helper()
	b := bucket.NewMemory()
	for _, key := range []string{"a", "b", "c", "d"} {
		put(t, b, key, "12345678")
	}
	return b
}

func put(t *testing.T, b storage.Bucket, key, body string) {
	t.Helper()
	if err := b.Put(t.Context(), key, strings.NewReader(body), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, b storage.Bucket, key string) bool {
	t.Helper()
	_, err := b.Stat(t.Context(), key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestModesByOperation(t *testing.T) {
	t.Parallel()
	for _, mode := range fault.Modes() {
		done := mode == fault.Tear || mode == fault.KillAfter
		want := fault.ErrInjected
		if mode == fault.Kill || mode == fault.KillAfter {
			want = fault.ErrKilled
		}
		start := func(t *testing.T) (*bucket.Bucket, *fault.Faults) {
			t.Helper()
			b := filled(t)
			f := fault.Wrap(b)
			f.Arm(mode, 1)
			return b, f
		}
		t.Run(mode.String()+" of a put", func(t *testing.T) {
			t.Parallel()
			b, f := start(t)
			err := f.Put(t.Context(), "new", strings.NewReader("x"), storage.PutOptions{IfAbsent: true})
			if !errors.Is(err, want) {
				t.Errorf("got error %v, want %v", err, want)
			}
			if got := exists(t, b, "new"); got != done {
				t.Errorf("object exists: %v, want %v", got, done)
			}
		})
		t.Run(mode.String()+" of a delete", func(t *testing.T) {
			t.Parallel()
			b, f := start(t)
			if err := f.Delete(t.Context(), "a"); !errors.Is(err, want) {
				t.Errorf("got error %v, want %v", err, want)
			}
			if got := exists(t, b, "a"); got == done {
				t.Errorf("object exists: %v, want %v", got, !done)
			}
		})
		t.Run(mode.String()+" of a stat", func(t *testing.T) {
			t.Parallel()
			_, f := start(t)
			if _, err := f.Stat(t.Context(), "a"); !errors.Is(err, want) {
				t.Errorf("got error %v, want %v", err, want)
			}
		})
		t.Run(mode.String()+" of a read", func(t *testing.T) {
			t.Parallel()
			_, f := start(t)
			r, err := f.Read(t.Context(), "a", 0, -1)
			var got []byte
			if err == nil {
				got, err = io.ReadAll(r)
				_ = r.Close()
			}
			if !errors.Is(err, want) {
				t.Errorf("got error %v, want %v", err, want)
			}
			if wantBytes := map[bool]string{true: "1234"}[done]; string(got) != wantBytes {
				t.Errorf("got %q, want %q", got, wantBytes)
			}
		})
		t.Run(mode.String()+" of a list", func(t *testing.T) {
			t.Parallel()
			_, f := start(t)
			var got []string
			var last error
			for info, err := range f.List(t.Context(), "", "") {
				if last = err; err == nil {
					got = append(got, info.Key)
				}
			}
			if !errors.Is(last, want) {
				t.Errorf("got error %v, want %v", last, want)
			}
			if diff := cmp.Diff(map[bool][]string{true: {"a", "b"}}[done], got); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFaultStrikesOnlyTheArmedOperation(t *testing.T) {
	t.Parallel()
	f := fault.Wrap(filled(t))
	f.Arm(fault.Fail, 2)
	for n, wantErr := range []bool{false, true, false} {
		if _, err := f.Stat(t.Context(), "a"); (err != nil) != wantErr {
			t.Errorf("operation %d: %v", n+1, err)
		}
	}
	if !f.Struck() || f.Count() != 3 {
		t.Errorf("struck %v after %d operations", f.Struck(), f.Count())
	}
}

func TestKillCancelsAndFailsAllThatFollows(t *testing.T) {
	t.Parallel()
	b := filled(t)
	f := fault.Wrap(b)
	ctx, cancel := context.WithCancel(t.Context())
	f.OnKill(cancel)
	f.Arm(fault.Kill, 1)
	_ = f.Delete(ctx, "a")
	if ctx.Err() == nil {
		t.Error("context is not cancelled")
	}
	for range 2 {
		err := f.Put(t.Context(), "late", strings.NewReader("x"), storage.PutOptions{})
		if !errors.Is(err, fault.ErrKilled) {
			t.Errorf("got %v after the kill", err)
		}
	}
	if exists(t, b, "late") {
		t.Error("a killed process wrote")
	}
	f.Reset()
	put(t, f, "late", "x")
}

func TestMatchCountsOnlyWhatMatches(t *testing.T) {
	t.Parallel()
	f := fault.Wrap(filled(t))
	f.ArmMatch(fault.Fail, 2, func(op fault.Op) bool { return op.Name == "put" })
	put(t, f, "x", "")
	if !exists(t, f, "x") {
		t.Fatal("x is gone")
	}
	if err := f.Put(t.Context(), "y", strings.NewReader(""), storage.PutOptions{}); !errors.Is(err, fault.ErrInjected) {
		t.Errorf("second put: %v", err)
	}
	put(t, f, "z", "")
}

func TestBeforeLetsAnotherWriterWin(t *testing.T) {
	t.Parallel()
	b := filled(t)
	f := fault.Wrap(b)
	f.Before(func(ctx context.Context, op fault.Op) {
		if op.Name != "put-if-absent" {
			return
		}
		if err := b.Put(ctx, op.Key, strings.NewReader("theirs"), storage.PutOptions{}); err != nil {
			t.Error(err)
		}
	})
	err := f.Put(t.Context(), "race", strings.NewReader("ours"), storage.PutOptions{IfAbsent: true})
	if !errors.Is(err, storage.ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
}

func TestTraceNamesOperationsInOrder(t *testing.T) {
	t.Parallel()
	f := fault.Wrap(filled(t))
	put(t, f, "k", "v")
	_ = exists(t, f, "k")
	for info, err := range f.List(t.Context(), "p/", "") {
		t.Errorf("unexpected: %+v, %v", info, err)
	}
	want := []fault.Op{{1, "put", "k"}, {2, "stat", "k"}, {3, "list", "p/"}}
	if diff := cmp.Diff(want, f.Trace()); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}
