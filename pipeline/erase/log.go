package erase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"delenda/pipeline"
	"delenda/pipeline/internal/object"
	"delenda/storage"
)

// group is a set of requests that one batch takes on.
type group struct {
	Requests []pipeline.RequestID `json:"requests"` // in the order of Deletion.Subjects
	// Origins are the batches, given up without effect, that held these
	// requests before. One of them may yet have been committed by a worker
	// that everyone took for dead; its rows count.
	Origins []int64 `json:"origins,omitempty"`
}

// intent is what a batch is about to do.
type intent struct {
	group
	Pending []group         `json:"pending,omitempty"` // to be done next, before anything new
	Base    storage.Version `json:"base"`              // not committed at or below
	// Doubt are earlier batches that were closed without a commit while another
	// worker may still have been at them, as long as nothing was committed since:
	// what they may have done is looked for when this batch is settled.
	Doubt    []int64   `json:"doubt,omitempty"`
	Worker   string    `json:"worker"` // who opened it
	OpenedAt time.Time `json:"opened_at"`
}

// result is what a batch did for one request.
type result struct {
	Request pipeline.RequestID `json:"request"`
	State   pipeline.State     `json:"state"`
	Rows    int64              `json:"rows"`
	Code    string             `json:"code,omitempty"`
	Reason  string             `json:"reason,omitempty"`
	Late    []int64            `json:"late,omitempty"` // batches given up whose commits count here
}

// fragment is what a batch did to one fragment.
type fragment struct {
	Fragment     string          `json:"fragment"`
	Outcome      storage.Outcome `json:"outcome"`
	RowsDeleted  int64           `json:"rows_deleted"`
	RowsHidden   int64           `json:"rows_hidden"`
	PhysicalRows int64           `json:"physical_rows"`
}

// closed is what came of a batch.
type closed struct {
	Committed bool            `json:"committed"`
	Version   storage.Version `json:"version"`
	Fragments []fragment      `json:"fragments,omitempty"` // changed ones, of very many the first
	Unnamed   int             `json:"unnamed,omitempty"`   // changed fragments that are left out
	Kept      int64           `json:"kept"`
	Results   []result        `json:"results,omitempty"` // in the order of the intent
	Split     []group         `json:"split,omitempty"`   // instead of results: given up without effect
	Code      string          `json:"code,omitempty"`    // why it was given up
	At        time.Time       `json:"at"`
}

// maxFragments bounds what a record names of a table, so that it can always be
// read again.
const maxFragments = 20_000

// name takes over what became of fragments.
func (c *closed) name(all []storage.FragmentResult) {
	for _, f := range all[:min(len(all), maxFragments)] {
		c.Fragments = append(c.Fragments, fragment(f))
	}
	c.Unnamed = len(all) - len(c.Fragments)
}

// attempt signs an attempt, a failure, or a sign of life.
type attempt struct {
	Worker string    `json:"worker"`
	At     time.Time `json:"at"`
	Beat   int       `json:"beat,omitempty"` // counts signs of life: two never look alike
}

// batchLog reads and writes the batch log of one table.
type batchLog struct {
	bucket storage.Bucket
	table  string
}

// head is the newest batch of a log.
type head struct {
	number   int64 // 0: there is none
	intent   *intent
	attempts []int // numbers of the attempt objects, ascending
	failures []int // numbers of the failure objects, ascending
	unclear  bool  // an attempt ended alive with its commit perhaps on its way
	closed   *closed
	settled  bool
}

// next is what must be done before anything new.
func (h *head) next() []group {
	if h.number == 0 {
		return nil
	}
	return append(append([]group(nil), h.closed.Split...), h.intent.Pending...)
}

// doubt is Doubt of the next batch. The newest one is closed. Who may still
// commit a batch began an attempt before it looked whether the batch was closed;
// so once it is closed, the attempts that are there tell.
func (h *head) doubt() []int64 {
	if h.number == 0 || h.closed.Committed {
		return nil // a commit is the end of every earlier batch
	}
	own := 1
	if h.closed.Code != "" {
		own = 0 // given up: whoever did so made no attempt, or has ended it
	}
	list := h.intent.Doubt
	if len(h.attempts) > own || len(h.failures) > 0 || h.unclear {
		list = append(slices.Clone(list), h.number)
	}
	return list[max(len(list)-maxDoubt, 0):]
}

// maxDoubt bounds Doubt.
const maxDoubt = 1000

func (l *batchLog) prefix() string { return "batches/" + l.table + "/" }

func (l *batchLog) key(n int64, name string) string {
	return fmt.Sprintf("%s%020d/%s", l.prefix(), n, name)
}

// head reads the newest batch numbered at least from.
func (l *batchLog) head(ctx context.Context, from int64) (*head, error) {
	h := &head{}
	var after string
	if from > 0 {
		after = fmt.Sprintf("%s%020d/", l.prefix(), from)
	}
	var hasIntent, hasClosed bool
	for info, err := range l.bucket.List(ctx, l.prefix(), after) {
		if err != nil {
			return nil, fmt.Errorf("list batches: %w", err)
		}
		number, name, ok := strings.Cut(strings.TrimPrefix(info.Key, l.prefix()), "/")
		n, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || n <= 0 || len(number) != 20 {
			continue
		}
		if n != h.number {
			*h = head{number: n}
			hasIntent, hasClosed = false, false
		}
		switch name {
		case "intent":
			hasIntent = true
		case "closed":
			hasClosed = true
		case "settled":
			h.settled = true
		}
		kind, ordinal, _ := strings.Cut(name, "-")
		k, err := strconv.Atoi(ordinal)
		switch {
		case err != nil:
		case kind == "attempt":
			h.attempts = append(h.attempts, k)
		case kind == "failure":
			h.failures = append(h.failures, k)
		case kind == "unclear":
			h.unclear = true
		}
	}
	if h.number == 0 {
		return h, nil
	}
	if !hasIntent {
		return nil, &storage.CorruptError{Key: l.key(h.number, "intent"), Offset: -1, Field: "intent", Reason: "missing"}
	}
	h.intent = &intent{}
	if err := object.Get(ctx, l.bucket, l.key(h.number, "intent"), h.intent); err != nil {
		return nil, fmt.Errorf("read intent: %w", err)
	}
	if hasClosed {
		h.closed = &closed{}
		if err := object.Get(ctx, l.bucket, l.key(h.number, "closed"), h.closed); err != nil {
			return nil, fmt.Errorf("read closing record: %w", err)
		}
	}
	return h, nil
}

// open writes the intent of batch n and reports whether it is the one there.
func (l *batchLog) open(ctx context.Context, n int64, i *intent) (won bool, err error) {
	won, err = object.PutOnce(ctx, l.bucket, l.key(n, "intent"), i)
	if err != nil {
		return false, fmt.Errorf("open batch %d: %w", n, err)
	}
	return won, nil
}

// begin records an attempt that is about to start. It reports false when
// another worker recorded that number.
func (l *batchLog) begin(ctx context.Context, n int64, k int, a attempt) (bool, error) {
	won, err := object.PutOnce(ctx, l.bucket, l.key(n, fmt.Sprintf("attempt-%04d", k)), a)
	if err != nil {
		return false, fmt.Errorf("begin batch %d: %w", n, err)
	}
	return won, nil
}

// endTimeout bounds what is done after the work's context has ended.
const endTimeout = 5 * time.Second

// end removes an attempt that ended alive. If it got as far as to send a commit
// whose fate is not known, that stays known.
func (l *batchLog) end(ctx context.Context, n int64, k int, unclear bool) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if unclear {
		if err := object.Put(ctx, l.bucket, l.key(n, fmt.Sprintf("unclear-%04d", k)), struct{}{}); err != nil {
			return err
		}
	}
	return l.bucket.Delete(ctx, l.key(n, fmt.Sprintf("attempt-%04d", k)))
}

// fail records that an attempt ended by an error that may be the batch's own.
func (l *batchLog) fail(ctx context.Context, n int64, k int, a attempt) error {
	return object.Put(ctx, l.bucket, l.key(n, fmt.Sprintf("failure-%04d", k)), a)
}

// close writes the closing record of batch n and returns the one that stands.
func (l *batchLog) close(ctx context.Context, n int64, c *closed) (*closed, error) {
	won, err := object.PutOnce(ctx, l.bucket, l.key(n, "closed"), c)
	if err != nil {
		return nil, fmt.Errorf("close batch %d: %w", n, err)
	}
	if won {
		return c, nil
	}
	var stands closed
	if err := object.Get(ctx, l.bucket, l.key(n, "closed"), &stands); err != nil {
		return nil, fmt.Errorf("close batch %d: %w", n, err)
	}
	return &stands, nil
}

// closedOf reads the closing record of batch n, nil if there is none.
func (l *batchLog) closedOf(ctx context.Context, n int64) (*closed, error) {
	var c closed
	err := object.Get(ctx, l.bucket, l.key(n, "closed"), &c)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read closing record: %w", err)
	}
	return &c, nil
}

func (l *batchLog) intentOf(ctx context.Context, n int64) (*intent, error) {
	var i intent
	if err := object.Get(ctx, l.bucket, l.key(n, "intent"), &i); err != nil {
		return nil, fmt.Errorf("read intent: %w", err)
	}
	return &i, nil
}

// late records what a batch did that was closed without a commit, once that is
// known everywhere. Which of several writers does so does not matter.
func (l *batchLog) late(ctx context.Context, n int64, c *closed) error {
	_, err := object.PutOnce(ctx, l.bucket, l.key(n, "late"), c)
	return err
}

func (l *batchLog) isLate(ctx context.Context, n int64) (bool, error) {
	_, err := l.bucket.Stat(ctx, l.key(n, "late"))
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// beat tells other workers that batch n is worked on.
func (l *batchLog) beat(ctx context.Context, n int64, a attempt) error {
	return object.Put(ctx, l.bucket, l.key(n, "alive"), a)
}

// pulse reads what beat wrote last; the zero attempt if nothing.
func (l *batchLog) pulse(ctx context.Context, n int64) (attempt, error) {
	var a attempt
	err := object.Get(ctx, l.bucket, l.key(n, "alive"), &a)
	if errors.Is(err, storage.ErrNotFound) {
		return attempt{}, nil
	}
	return a, err
}

func (l *batchLog) settle(ctx context.Context, n int64) error {
	return object.Put(ctx, l.bucket, l.key(n, "settled"), struct{}{})
}
