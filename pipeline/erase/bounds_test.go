package erase

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"delenda/pipeline"
	"delenda/pipeline/internal/object"
	"delenda/storage"
)

// slow is a delivery whose answers come only once several are asked for.
type slow struct {
	pipeline.Delivery
	mu      *sync.Mutex
	asked   *int
	several chan struct{}
}

func (s slow) Nak(ctx context.Context, _ time.Duration) error { return s.InProgress(ctx) }

func (s slow) InProgress(ctx context.Context) error {
	s.mu.Lock()
	if *s.asked++; *s.asked == parallel {
		close(s.several)
	}
	s.mu.Unlock()
	select {
	case <-s.several:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func Test_what_is_in_hand_is_answered_several_at_a_time(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var h hand
	s := slow{mu: &sync.Mutex{}, asked: new(int), several: make(chan struct{})}
	for i := range 2 * parallel {
		h.add(pipeline.RequestID(strconv.Itoa(i)), s, false, 1)
	}
	h.giveBack(ctx, 0)
	if ctx.Err() != nil || *s.asked != 2*parallel {
		t.Errorf("%d answers: %v", *s.asked, ctx.Err())
	}
	if n, bytes := h.size(); n != 0 || bytes != 0 {
		t.Errorf("%d items, %d bytes left in hand", n, bytes)
	}
}

func Test_the_record_of_the_largest_batch_can_be_read_again(t *testing.T) {
	t.Parallel()
	all := make([]storage.FragmentResult, 10*maxFragments)
	for i := range all {
		all[i] = storage.FragmentResult{Fragment: strings.Repeat("f", 200), Outcome: storage.Bitmap, RowsDeleted: 1 << 40, RowsHidden: 1 << 40, PhysicalRows: 1 << 40}
	}
	c := &closed{Committed: true}
	c.name(all)
	id := pipeline.RequestID("a7551968-d5d6-44b2-9831-815ac9017798")
	for range 10_000 {
		c.Results = append(c.Results, result{Request: id, State: pipeline.Failed, Code: pipeline.CodeInvalidValue, Reason: strings.Repeat("r", 200)})
	}
	p, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(p) > object.MaxBytes || c.Unnamed != 9*maxFragments {
		t.Errorf("%d bytes, %d left out", len(p), c.Unnamed)
	}
	if c = (&closed{}); c.Unnamed != 0 || c.Fragments != nil {
		t.Error("an empty record names fragments")
	}
}
