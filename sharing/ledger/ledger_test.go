package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"delenda/sharing/ledger"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
)

func TestTheHighestEntryIsInForce(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	l := ledger.New(b, "x/")
	entry, err := l.Newest(t.Context(), ledger.Entry{})
	if err != nil || entry.Number != 0 {
		t.Fatalf("an empty ledger has entry %d, %v", entry.Number, err)
	}
	for i := range 5 {
		if entry, err = l.Append(t.Context(), entry, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Trim(t.Context(), entry.Number, 2, time.Time{}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range b.List(t.Context(), "x/", "") {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.Newest(t.Context(), ledger.Entry{})
	if err != nil || got.Number != 5 || string(got.Body) != "4" || n != 2 {
		t.Errorf("entry %d, %q, %v, and %d are left", got.Number, got.Body, err, n)
	}
	if again, err := l.Newest(t.Context(), got); err != nil || again.Number != 5 {
		t.Errorf("nothing new gives %d, %v", again.Number, err)
	}
}

func TestABucketWithoutTheKnownEntryConfirmsNothing(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	l := ledger.New(b, "x/")
	entry, err := l.Append(t.Context(), ledger.Entry{}, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []string{"2", "3"} {
		if entry, err = l.Append(t.Context(), entry, []byte(bytes)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ledger.New(bucket.NewMemory(), "x/").Newest(t.Context(), entry); !errors.Is(err, ledger.ErrGone) {
		t.Errorf("an empty bucket gives %v", err)
	}
	if err := b.Delete(t.Context(), ledger.Key("x/", 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Newest(t.Context(), entry); !errors.Is(err, ledger.ErrGone) {
		t.Errorf("older entries alone give %v", err)
	}
}

func TestOfManyWritersOneWinsEachNumber(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	var work sync.WaitGroup
	var mu sync.Mutex
	won := map[int64]int{}
	for w := range 10 {
		work.Go(func() {
			l := ledger.New(b, "x/")
			for i := range 20 {
				known, err := l.Newest(t.Context(), ledger.Entry{})
				if err != nil {
					t.Error(err)
					return
				}
				entry, err := l.Append(t.Context(), known, fmt.Appendf(nil, "[%d,%d]", w, i))
				if errors.Is(err, ledger.ErrLost) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				won[entry.Number]++
				mu.Unlock()
				if err := l.Trim(t.Context(), entry.Number, 3, time.Time{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	for n, times := range won {
		if times != 1 {
			t.Errorf("entry %d was won %d times", n, times)
		}
	}
}

func TestAnAppendWhoseAnswerWasLostIsFoundAgain(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	f := fault.Wrap(b)
	f.ArmMatch(fault.Tear, 1, func(o fault.Op) bool { return o.Name == "put-if-absent" })
	entry, err := ledger.New(f, "x/").Append(t.Context(), ledger.Entry{}, []byte("1"))
	if err != nil || entry.Number != 1 || !f.Struck() {
		t.Errorf("entry %d, %v", entry.Number, err)
	}
	if _, err := ledger.New(b, "x/").Append(t.Context(), ledger.Entry{}, []byte("2")); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
}

// A writer that won learns so, also when others have gone on before it looked:
// a change that was made must not be made again.
func TestAWriterThatWonIsToldSoWhenOthersHaveGoneOn(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	f := fault.Wrap(b)
	f.Before(func(ctx context.Context, o fault.Op) {
		if o.Name != "list" {
			return
		}
		l := ledger.New(b, "x/")
		for range 2 { // after the put, before the look
			known, err := l.Newest(ctx, ledger.Entry{})
			if err == nil {
				_, err = l.Append(ctx, known, []byte("2"))
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	entry, err := ledger.New(f, "x/").Append(t.Context(), ledger.Entry{}, []byte("1"))
	if err != nil || entry.Number != 1 {
		t.Errorf("entry %d, %v", entry.Number, err)
	}
}

func TestAnEntryThatIsNoneIsCorrupt(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{", "{}", `{"id":"a"}`, `{"id":1,"value":2}`} {
		b := bucket.NewMemory()
		if err := b.Put(t.Context(), ledger.Key("x/", 1), strings.NewReader(body), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.New(b, "x/").Newest(t.Context(), ledger.Entry{}); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestATrimmedNumberIsNotWon(t *testing.T) {
	t.Parallel()
	b := bucket.NewMemory()
	l := ledger.New(b, "x/")
	var first, last ledger.Entry
	for n := range int64(4) {
		entry, err := l.Append(t.Context(), last, fmt.Append(nil, n))
		if err != nil {
			t.Fatal(err)
		}
		if last = entry; n == 0 {
			first = entry
		}
	}
	if err := l.Trim(t.Context(), 4, 1, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), first, []byte("9")); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
	if e, err := l.Newest(t.Context(), ledger.Entry{}); err != nil || e.Number != 4 {
		t.Errorf("entry %d, %v", e.Number, err)
	}
}

func TestAnOversizedEntryIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := ledger.New(bucket.NewMemory(), "x/").Append(t.Context(), ledger.Entry{}, make([]byte, ledger.MaxEntryBytes+1)); !errors.Is(err, storage.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
