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

// EraseLimit is how many unanswered messages of a Consumer are erased one by
// one, see Message.Ack.
const EraseLimit = 256

// Ack says that the message is done. Once it returned nil the message is not
// delivered again. An error leaves it open whether that is so; to acknowledge
// again is safe.
//
// On the intake and requests streams Ack also erases: the server overwrites the
// record with random bytes in the stream's file (a new file that replaces the
// old one; the file system frees the old one's blocks). That rewrites a file of
// up to 4 MiB for each message. So while more than EraseLimit messages of the
// Consumer wait for an answer, Ack only removes: bytes go when no message is left
// in their file, or when the server compacts it at its sync interval, which spares
// the newest file. And a replicated stream keeps every message in its Raft log
// until that is compacted. What such bytes hold is ciphertext, and worthless once
// its key is shredded.
func (m *Message) Ack(ctx context.Context) error {
	if erases(m.Stream) && !m.consumer.many() {
		return m.erase(ctx, "ack")
	}
	return m.answer(ctx, "ack", m.msg.DoubleAck)
}

// Term says that the message must not be delivered again although it was not
// done; the reason, a code, goes into the server's advisory. Bytes are erased as
// by Ack, however many wait; an erased message raises no advisory. Record a dead
// letter first.
func (m *Message) Term(ctx context.Context, reason string) error {
	if erases(m.Stream) {
		return m.erase(ctx, "term")
	}
	return m.answer(ctx, "term", func(ctx context.Context) error {
		if err := m.msg.TermWithReason(reason); err != nil {
			return err
		}
		return m.consumer.bus.nc.FlushWithContext(ctx)
	})
}

// Nak gives the message back, to be delivered again after delay.
func (m *Message) Nak(ctx context.Context, delay time.Duration) error {
	return m.answer(ctx, "nak", func(ctx context.Context) error {
		if err := m.msg.NakWithDelay(delay); err != nil {
			return err
		}
		return m.consumer.bus.nc.FlushWithContext(ctx)
	})
}

// InProgress starts the consumer's AckWait anew.
func (m *Message) InProgress(ctx context.Context) error {
	return m.answer(ctx, "progress", func(ctx context.Context) error {
		if err := m.msg.InProgress(); err != nil {
			return err
		}
		return m.consumer.bus.nc.FlushWithContext(ctx)
	})
}

func (m *Message) answer(ctx context.Context, kind string, do func(context.Context) error) error {
	err := m.consumer.bus.run(ctx, kind, m.Subject, do)
	if err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return fmt.Errorf("%s message %d of %s: %w", kind, m.Sequence, m.Stream, err)
	}
	if kind != "progress" {
		m.consumer.answered(m.Sequence)
	}
	return nil
}

func (m *Message) erase(ctx context.Context, kind string) error {
	return m.answer(ctx, kind, func(ctx context.Context) error {
		return m.consumer.bus.secureDelete(ctx, &m.Record)
	})
}
