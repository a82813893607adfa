package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"delenda/events"
)

// erases reports the streams whose messages are overwritten when they are done:
// those that carry what a person sent.
func erases(stream string) bool {
	return stream == events.StreamRequests || stream == events.StreamIntake
}

// Ack says that the message is done. On the intake and requests streams it also
// overwrites the message's bytes in the stream's files. Once it returned nil the
// message is not delivered again. An error leaves it open whether that is so;
// acknowledging again is safe.
func (m *Message) Ack(ctx context.Context) error {
	if erases(m.Stream) {
		return m.bus.erase(ctx, "ack", m.Stream, m.Sequence)
	}
	return m.answer(ctx, "ack", m.msg.DoubleAck)
}

// Term says that the message must not be delivered again although it was not
// done; the reason, a code, goes into the server's advisory. Bytes are erased as
// by Ack; a message that is erased raises no advisory. Record a dead letter
// first.
func (m *Message) Term(ctx context.Context, reason string) error {
	if erases(m.Stream) {
		return m.bus.erase(ctx, "term", m.Stream, m.Sequence)
	}
	return m.answer(ctx, "term", func(ctx context.Context) error {
		if err := m.msg.TermWithReason(reason); err != nil {
			return err
		}
		return m.bus.nc.FlushWithContext(ctx)
	})
}

// Nak gives the message back, to be delivered again after delay.
func (m *Message) Nak(ctx context.Context, delay time.Duration) error {
	return m.answer(ctx, "nak", func(ctx context.Context) error {
		if err := m.msg.NakWithDelay(delay); err != nil {
			return err
		}
		return m.bus.nc.FlushWithContext(ctx)
	})
}

// InProgress starts the consumer's AckWait anew.
func (m *Message) InProgress(ctx context.Context) error {
	return m.answer(ctx, "progress", func(ctx context.Context) error {
		if err := m.msg.InProgress(); err != nil {
			return err
		}
		return m.bus.nc.FlushWithContext(ctx)
	})
}

func (m *Message) answer(ctx context.Context, kind string, do func(context.Context) error) error {
	err := m.bus.run(ctx, kind, m.Subject, do)
	if errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s message %d of %s: %w", kind, m.Sequence, m.Stream, classify(err))
	}
	return nil
}

// erase removes a message and overwrites its bytes. One that is gone already is
// no error.
func (b *Bus) erase(ctx context.Context, kind, stream string, sequence uint64) error {
	err := b.run(ctx, kind, fmt.Sprintf("%s/%d", stream, sequence), func(ctx context.Context) error {
		return b.secureDelete(ctx, stream, sequence)
	})
	if err != nil {
		return fmt.Errorf("%s message %d of %s: %w", kind, sequence, stream, classify(err))
	}
	return nil
}
