package pipelinetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"delenda/events"
	"delenda/pipeline"
)

// Queue is a small durable bus: a work queue per subject of items and of
// intake, and a list of everything else. It outlives the processes that use it
// through a Conn.
type Queue struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	waiting  map[string][]*entry
	inFlight map[*entry]bool
	kept     []events.Event
	sequence uint64
}

type entry struct {
	subject    string
	sequence   uint64
	id         string
	data       []byte
	deliveries int
	epoch      int // how often it was taken back from a dead process
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{changed: make(chan struct{}), waiting: map[string][]*entry{}, inFlight: map[*entry]bool{}}
}

func (q *Queue) signal() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Put stores a raw message.
func (q *Queue) Put(subject, id string, data []byte) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sequence++
	q.waiting[subject] = append(q.waiting[subject], &entry{subject: subject, sequence: q.sequence, id: id, data: data})
	q.signal()
	return q.sequence
}

// Kept returns the events of a type that are no work, without repetitions.
func (q *Queue) Kept(typ events.Type) []events.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []events.Event
	seen := map[string]bool{}
	for _, e := range q.kept {
		if e.Type == typ && !seen[e.ID] {
			seen[e.ID] = true
			list = append(list, e)
		}
	}
	return list
}

// Messages returns the work that is not done.
func (q *Queue) Messages() (waiting, inFlight int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.waiting {
		waiting += len(l)
	}
	return waiting, len(q.inFlight)
}

// Backlog is for pipeline.Sweeper: the items of a table that are not done.
func (q *Queue) Backlog(_ context.Context, table string) (int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	subject := events.RequestsSubject(table)
	n := len(q.waiting[subject])
	for e := range q.inFlight {
		if e.subject == subject {
			n++
		}
	}
	return int64(n), nil
}

// Intake returns the messages of senders that are not done.
func (q *Queue) Intake() (waiting, inFlight int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	prefix := events.IntakeSubject("")
	for subject, l := range q.waiting {
		if strings.HasPrefix(subject, prefix) {
			waiting += len(l)
		}
	}
	for e := range q.inFlight {
		if strings.HasPrefix(e.subject, prefix) {
			inFlight++
		}
	}
	return waiting, inFlight
}

// Changed returns a channel that is closed at the next change. What happened
// before the call may be missed for as long as nothing else happens, so it
// also closes after a moment.
func (q *Queue) Changed() <-chan struct{} {
	q.mu.Lock()
	changed := q.changed
	q.mu.Unlock()
	out := make(chan struct{})
	go func() {
		defer close(out)
		timer := time.NewTimer(10 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-changed:
		case <-timer.C:
		}
	}()
	return out
}

// WaitEmpty returns once no work is left, or with the context's error.
func (q *Queue) WaitEmpty(ctx context.Context) error {
	for {
		q.mu.Lock()
		changed := q.changed
		q.mu.Unlock()
		if w, f := q.Messages(); w+f == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Redeliver takes back everything that was delivered and not settled, as the
// end of the acknowledgement wait would.
func (q *Queue) Redeliver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := range q.inFlight {
		e.epoch++
		q.waiting[e.subject] = append(q.waiting[e.subject], e)
	}
	clear(q.inFlight)
	q.signal()
}

// Wipe loses everything.
func (q *Queue) Wipe() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.waiting)
	clear(q.inFlight)
	q.kept = nil
	q.signal()
}

// Conn is one process's way to a Queue.
type Conn struct {
	Queue *Queue
	// Around, when not nil, is called in place of every operation and decides
	// whether to do it.
	Around func(ctx context.Context, op string, do func() error) error
}

func (c *Conn) run(ctx context.Context, op string, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.Around == nil {
		return do()
	}
	return c.Around(ctx, op, do)
}

// Publish is a pipeline.Publish.
func (c *Conn) Publish(ctx context.Context, e events.Event) error {
	return c.run(ctx, "publish "+e.Subject, func() error {
		p, err := e.Encode()
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Subject, events.RequestsSubject("")) {
			c.Queue.Put(e.Subject, e.ID, p)
			return nil
		}
		c.Queue.mu.Lock()
		defer c.Queue.mu.Unlock()
		c.Queue.kept = append(c.Queue.kept, e)
		return nil
	})
}

// Consume opens the items of a table.
func (c *Conn) Consume(_ context.Context, table string) (pipeline.Fetch, error) {
	return c.Fetch(events.RequestsSubject(table)), nil
}

// Fetch returns a pipeline.Fetch of a subject.
func (c *Conn) Fetch(subject string) pipeline.Fetch {
	return func(ctx context.Context, limit int, wait time.Duration) (list []pipeline.Message, err error) {
		err = c.run(ctx, "fetch "+subject, func() error {
			list = c.Queue.fetch(ctx, c, subject, limit, wait)
			return nil
		})
		if err != nil {
			return nil, err
		}
		return list, nil
	}
}

func (q *Queue) fetch(ctx context.Context, c *Conn, subject string, limit int, wait time.Duration) []pipeline.Message {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		q.mu.Lock()
		changed := q.changed
		l := q.waiting[subject]
		n := min(limit, len(l))
		var list []pipeline.Message
		for _, e := range l[:n] {
			e.deliveries++
			q.inFlight[e] = true
			list = append(list, pipeline.Message{
				Delivery: &delivery{conn: c, entry: e, epoch: e.epoch}, Subject: e.subject, Stream: "QUEUE",
				Sequence: e.sequence, Deliveries: e.deliveries, ID: e.id, Data: e.data,
			})
		}
		q.waiting[subject] = l[n:]
		q.mu.Unlock()
		if n > 0 {
			return list
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			return nil
		case <-changed:
		}
	}
}

var errLate = errors.New("delivery is over")

type delivery struct {
	conn  *Conn
	entry *entry
	epoch int
}

func (d *delivery) settle(ctx context.Context, op string, again bool) error {
	return d.conn.run(ctx, op, func() error {
		q := d.conn.Queue
		q.mu.Lock()
		defer q.mu.Unlock()
		if d.entry.epoch != d.epoch || !q.inFlight[d.entry] {
			return errLate
		}
		delete(q.inFlight, d.entry)
		if again {
			q.waiting[d.entry.subject] = append(q.waiting[d.entry.subject], d.entry)
		}
		q.signal()
		return nil
	})
}

func (d *delivery) Ack(ctx context.Context) error { return d.settle(ctx, "ack", false) }

func (d *delivery) Nak(ctx context.Context, _ time.Duration) error { return d.settle(ctx, "nak", true) }

func (d *delivery) Term(ctx context.Context, _ string) error { return d.settle(ctx, "term", false) }

func (d *delivery) InProgress(ctx context.Context) error {
	return d.conn.run(ctx, "progress", func() error { return nil })
}
