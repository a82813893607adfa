package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"delenda/events"
)

// contentType marks a CloudEvents envelope in structured mode.
const contentType = "application/cloudevents+json"

// Stored says where a publication went.
type Stored struct {
	Stream    string
	Sequence  uint64
	Duplicate bool // the stream held it already; Sequence is the first one's
}

// Publish stores e on its subject and returns nil once the stream has
// acknowledged it. Every error matches ErrNotStored or ErrUnclear; to publish
// the same event again is safe after either.
func (b *Bus) Publish(ctx context.Context, e events.Event) error {
	p, err := e.Encode()
	if err != nil {
		return fmt.Errorf("publish on %s: %w: %w", e.Subject, ErrNotStored, err)
	}
	if windowless(e.Subject) {
		_, err = b.PublishRaw(ctx, e.Subject, "", p)
		return err
	}
	for id := e.ID; ; {
		s, err := b.PublishRaw(ctx, e.Subject, id, p)
		if err != nil || !s.Duplicate || s.Stream != events.StreamDead {
			return err
		}
		// Work that was replayed and failed again inside the duplicate window:
		// its first letter is gone, so it needs another.
		_, err = b.stored(ctx, s.Stream, s.Sequence)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("publish on %s: %w: %w", e.Subject, ErrUnclear, err)
		}
		id = fmt.Sprintf("%s.%d", e.ID, s.Sequence)
	}
}

// windowless reports the subjects whose messages carry no Nats-Msg-Id: see
// "Deduplication" in the package comment.
func windowless(subject string) bool {
	return strings.HasPrefix(subject, events.RequestsSubject(""))
}

// PublishRaw stores body on subject. msgID, when not empty, is the Nats-Msg-Id.
// Errors are those of Publish.
func (b *Bus) PublishRaw(ctx context.Context, subject, msgID string, body []byte) (Stored, error) {
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	if msgID != "" {
		m.Header.Set(nats.MsgIdHdr, msgID)
	}
	if len(body) > 0 && body[0] == '{' {
		m.Header.Set("Content-Type", contentType)
	}
	return b.publish(ctx, m)
}

func (b *Bus) publish(ctx context.Context, m *nats.Msg) (Stored, error) {
	var s Stored
	if err := ctx.Err(); err != nil {
		return s, fmt.Errorf("publish on %s: %w: %w", m.Subject, ErrNotStored, err)
	}
	err := b.run(ctx, "publish", m.Subject, func(ctx context.Context) error {
		ack, err := b.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err != nil {
			return err
		}
		s = Stored{Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}
		return nil
	})
	switch {
	case err == nil:
		return s, nil
	case neverSent(err):
		return s, fmt.Errorf("publish on %s: %w: %w", m.Subject, ErrNotStored, err)
	default:
		return s, fmt.Errorf("publish on %s: %w: %w", m.Subject, ErrUnclear, err)
	}
}
