package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"delenda/events"
)

// MaxFetchBytes bounds what one Fetch takes into memory.
const MaxFetchBytes = 64 << 20

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

	msg  jetstream.Msg
	bus  *Bus
	bulk bool // one of more than EraseLimit in its fetch
}

// Consumer fetches the messages of one durable consumer.
type Consumer struct {
	bus     *Bus
	cons    jetstream.Consumer
	stream  string
	durable string
	target  string
	group   string // priority group of a pinned consumer
	pinned  bool   // the last Fetch found something, so the pin is probably ours
}

// Consumer opens a durable consumer that Declare has made. ErrNoStream when it
// does not exist.
//
// The work items of a table are pinned: as long as one Consumer keeps fetching
// from them, Fetch of every other finds nothing. Topology.PinTTL after its last
// Fetch, or at once when it is released, another takes over. Nothing depends on
// it: two replicas may still hold items of one table at a time.
func (b *Bus) Consumer(ctx context.Context, stream, durable string) (*Consumer, error) {
	c := &Consumer{bus: b, stream: stream, durable: durable, target: stream + "/" + durable}
	err := b.run(ctx, "consumer", c.target, func(ctx context.Context) (err error) {
		c.cons, err = b.js.Consumer(ctx, stream, durable)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open consumer %s of %s: %w", durable, stream, classify(err))
	}
	if cfg := c.cons.CachedInfo().Config; len(cfg.PriorityGroups) > 0 {
		c.group = cfg.PriorityGroups[0]
	}
	return c, nil
}

// Fetch returns up to max messages: as soon as it has max or MaxFetchBytes of
// them, otherwise what came within wait. None within wait is an empty slice and
// no error. With wait zero it returns what is there now.
//
// When ctx ends or the connection breaks while messages have already come, they
// are returned without an error; the next call reports it.
func (c *Consumer) Fetch(ctx context.Context, max int, wait time.Duration) ([]*Message, error) {
	var list []*Message
	err := c.bus.around(ctx, "fetch", c.target, func(ctx context.Context) (err error) {
		list, err = c.fetch(ctx, max, wait)
		return err
	})
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch from %s: %w", c.target, classify(err))
	}
	c.pinned = len(list) > 0 || c.pinned
	if len(list) > EraseLimit {
		for _, m := range list {
			m.bulk = true
		}
	}
	return list, nil
}

// Release lets another replica fetch at once. The Consumer may fetch on.
func (c *Consumer) Release(ctx context.Context) error {
	if c.group == "" || !c.pinned {
		return nil
	}
	c.pinned = false
	err := c.bus.run(ctx, "release", c.target, func(ctx context.Context) error {
		s, err := c.bus.stream(ctx, c.stream)
		if err != nil {
			return err
		}
		return s.UnpinConsumer(ctx, c.durable, c.group)
	})
	if err != nil {
		return fmt.Errorf("release %s: %w", c.target, classify(err))
	}
	return nil
}

func (c *Consumer) fetch(ctx context.Context, max int, wait time.Duration) ([]*Message, error) {
	// Taken before anything else: a connection that breaks from here on is noticed.
	changed := c.bus.Changed()
	if !c.bus.Connected() {
		return nil, ErrDisconnected
	}
	wait = maxWait(wait)
	end := time.Now().Add(wait)
	list, err := c.pull(ctx, changed, max, wait)
	if left := time.Until(end); errors.Is(err, jetstream.ErrPinIDMismatch) && left > 0 {
		// The table went to another replica. The client has forgotten its pin
		// now: wait in line with the others.
		list, err = c.pull(ctx, changed, max, maxWait(left))
	}
	switch {
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages), errors.Is(err, jetstream.ErrPinIDMismatch):
		return nil, nil
	}
	return list, err
}

// pull sends one pull request. Its error is nil if any message came.
func (c *Consumer) pull(ctx context.Context, changed <-chan struct{}, max int, wait time.Duration) ([]*Message, error) {
	opts := []jetstream.FetchOpt{jetstream.FetchMaxWait(wait), jetstream.FetchMaxBytes(MaxFetchBytes)}
	if c.group != "" {
		opts = append(opts, jetstream.FetchPriorityGroup(c.group))
	}
	batch, err := c.cons.Fetch(max, opts...)
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
			message, err := c.bus.message(m)
			if err != nil {
				return nil, err
			}
			list = append(list, message)
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-changed:
			err = ErrDisconnected
		}
		// The pull request lives on in the server until it expires: what it
		// still delivers goes back at once.
		go func() {
			for m := range batch.Messages() {
				_ = m.Nak()
			}
		}()
		return list, unless(len(list) > 0, err)
	}
}

func unless(some bool, err error) error {
	if some {
		return nil
	}
	return err
}

// maxWait gives every pull request an expiry: without one the server would keep
// it. What is there comes before it expires, however far the server is.
func maxWait(wait time.Duration) time.Duration { return max(wait, 10*time.Millisecond) }

func (b *Bus) message(m jetstream.Msg) (*Message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	return &Message{
		Record:     *record(m, meta),
		Deliveries: int(min(meta.NumDelivered, 1<<30)),
		msg:        m, bus: b,
	}, nil
}
