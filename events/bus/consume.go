package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"delenda/events"
)

// MaxFetch bounds what one Fetch takes into memory: messages of at most
// MaxIntakeBytes or MaxItemBytes each.
const MaxFetch = 256

// Record is a stored message.
type Record struct {
	Subject  string
	Data     []byte
	Stream   string
	Sequence uint64    // in the stream
	Time     time.Time // when it was stored; UTC
	MsgID    string    // Nats-Msg-Id, if it has one
}

// Event decodes the message's envelope. Errors match events.ErrEnvelope.
func (r *Record) Event() (events.Event, error) { return events.Decode(r.Data) }

// Message is a fetched message. It is delivered again after the consumer's
// AckWait unless one of Ack, Nak or Term answers it, or InProgress asks for more
// time.
type Message struct {
	Record
	// Deliveries counts how often the message was delivered, this one
	// included. Look at it before working: a message that kills the process
	// comes back with a higher count. The count starts anew when the consumer
	// or the stream is lost.
	Deliveries int

	msg      jetstream.Msg
	consumer *Consumer
	waiting  int // messages that the consumer had not delivered yet
}

// Consumer fetches the messages of one durable consumer.
type Consumer struct {
	bus     *Bus
	stream  string
	durable string
	target  string
	group   string // priority group of a pinned consumer
	limit   int    // the server delivers no more unanswered messages than this

	cons jetstream.Consumer // holds the pin; shared by all Consumers of the durable

	mu   sync.Mutex
	open map[uint64]struct{} // sequences that were fetched and not answered
}

// Consumer opens a durable consumer that Declare has made. ErrNoStream when it
// does not exist.
//
// The work items of a table are pinned: as long as one Bus keeps fetching from
// them, Fetch of every other finds nothing. Topology.PinTTL after its last
// Fetch, or at once when it is drained, another takes over. Nothing depends on
// it: two replicas may still hold items of one table at a time.
func (b *Bus) Consumer(ctx context.Context, stream, durable string) (*Consumer, error) {
	c := &Consumer{bus: b, stream: stream, durable: durable, target: stream + "/" + durable, open: map[uint64]struct{}{}}
	err := b.run(ctx, "consumer", c.target, func(ctx context.Context) (err error) {
		c.cons, err = b.js.Consumer(ctx, stream, durable)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open consumer %s of %s: %w", durable, stream, err)
	}
	cfg := c.cons.CachedInfo().Config
	c.limit = cfg.MaxAckPending
	if len(cfg.PriorityGroups) == 0 {
		return c, nil
	}
	c.group = cfg.PriorityGroups[0]
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.pinned[c.target]; old != nil {
		c.cons = old.cons
	} else {
		b.pinned[c.target] = c
	}
	return c, nil
}

// Fetch waits up to wait for a message and returns it with what else is there,
// at most max messages and MaxFetch. None within wait is an empty slice and no
// error. With wait zero it returns what is there now.
//
// When ctx ends or the connection breaks after messages have come, they are
// returned without an error; the next call reports it.
func (c *Consumer) Fetch(ctx context.Context, max int, wait time.Duration) ([]*Message, error) {
	var list []*Message
	err := c.bus.around(ctx, "fetch", c.target, func(ctx context.Context) (err error) {
		list, err = c.fetch(ctx, max, wait)
		if errors.Is(err, nats.ErrNoResponders) {
			err = fmt.Errorf("%w: %w", ErrNoStream, err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("fetch from %s: %w", c.target, err)
	}
	c.took(list)
	return list, nil
}

func (c *Consumer) fetch(ctx context.Context, max int, wait time.Duration) ([]*Message, error) {
	if !c.bus.Connected() {
		return nil, errOffline
	}
	ctx, cancel := c.bus.whileConnected(ctx)
	defer cancel()
	end := time.Now().Add(wait)
	list, err := c.pull(ctx, 1, wait)
	if left := time.Until(end); errors.Is(err, jetstream.ErrPinIDMismatch) && left > 0 {
		// The table went to another replica. The client has forgotten its pin
		// now: wait in line with the others.
		list, err = c.pull(ctx, 1, left)
	}
	switch {
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages), errors.Is(err, jetstream.ErrPinIDMismatch):
		return nil, nil
	case err != nil || len(list) == 0 || max == 1:
		return list, err
	}
	// As many as are known to wait are asked for, so that the request ends by
	// being fulfilled: a replicated consumer delivers a message only after its
	// replicas know, and one that is on its way when a request expires comes
	// after the AckWait. Messages that are delivered again are not known.
	first, rest := list[0], min(max, MaxFetch)-1
	var more []*Message
	switch {
	case first.waiting > 0:
		more, _ = c.pull(ctx, min(rest, first.waiting), restWait) // an error shows again at the next call
	case first.Deliveries > 1:
		more, _ = c.pull(ctx, rest, againWait)
	}
	return append(list, more...), nil
}

// leastWait gives every pull request an expiry: without one the server would
// keep it. What is there comes before it expires, however far the server is.
const (
	leastWait = 10 * time.Millisecond
	restWait  = 250 * time.Millisecond // unless others take them, they come in a few
	againWait = 50 * time.Millisecond
)

// pull sends one pull request. Its error is nil if any message came.
func (c *Consumer) pull(ctx context.Context, count int, wait time.Duration) ([]*Message, error) {
	// No FetchMaxBytes: where replicas delay the delivery, the server announces
	// the end of such a request before its last messages.
	opts := []jetstream.FetchOpt{jetstream.FetchMaxWait(max(wait, leastWait))}
	if c.group != "" {
		opts = append(opts, jetstream.FetchPriorityGroup(c.group))
	}
	batch, err := c.cons.Fetch(count, opts...)
	if err != nil {
		return nil, err
	}
	var list []*Message
	for {
		select {
		case m, ok := <-batch.Messages():
			if !ok {
				return list, unless(len(list) > 0, batch.Error())
			}
			message, err := c.message(m)
			if err != nil {
				return nil, err
			}
			list = append(list, message)
			continue
		case <-ctx.Done():
		}
		// The pull request lives on in the server until it expires: what it
		// still delivers goes back at once.
		go func() {
			for m := range batch.Messages() {
				_ = m.Nak()
			}
		}()
		return list, unless(len(list) > 0, cause(ctx, ctx.Err()))
	}
}

func unless(some bool, err error) error {
	if some {
		return nil
	}
	return err
}

func (c *Consumer) message(m jetstream.Msg) (*Message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	return &Message{
		Record:     *record(m, meta),
		Deliveries: int(min(meta.NumDelivered, 1<<30)),
		msg:        m, consumer: c, waiting: int(min(meta.NumPending, 1<<20)),
	}, nil
}

// took notes messages that wait for an answer.
func (c *Consumer) took(list []*Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit > 0 && len(c.open)+len(list) > c.limit {
		clear(c.open) // the server has taken back some that were never answered
	}
	for _, m := range list {
		c.open[m.Sequence] = struct{}{}
	}
}

// many reports whether more messages than EraseLimit wait for an answer.
func (c *Consumer) many() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > EraseLimit
}

func (c *Consumer) answered(sequence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, sequence)
}

// unpin lets other replicas fetch at once.
func (c *Consumer) unpin(ctx context.Context) error {
	return c.bus.run(ctx, "unpin", c.target, func(ctx context.Context) error {
		s, err := c.bus.stream(ctx, c.stream)
		if err != nil {
			return err
		}
		return s.UnpinConsumer(ctx, c.durable, c.group)
	})
}
