package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"delenda/events"
)

// Dead is a dead letter where it is kept.
type Dead struct {
	Sequence uint64 // names it to DeadLetter, RemoveDead and ReplayDead
	Stage    string // intake, requests or tables
	Letter   events.DeadLetter
	Err      error // why the letter cannot be read, if so; matches events.ErrEnvelope
}

const deadSubjects = "delenda.dead.*"

// DeadLetters lists up to limit dead letters in order, beginning after a
// sequence: zero, then the last one of the previous page. A page that is shorter
// than limit is the last.
func (b *Bus) DeadLetters(ctx context.Context, after uint64, limit int) ([]Dead, error) {
	var page []Dead
	for len(page) < limit {
		r, err := b.stored(ctx, events.StreamDead, after+1, jetstream.WithGetMsgSubject(deadSubjects))
		if errors.Is(err, ErrNotFound) {
			return page, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list dead letters after %d: %w", after, err)
		}
		page = append(page, dead(r))
		after = r.Sequence
	}
	return page, nil
}

// DeadLetter returns one dead letter, or ErrNotFound.
func (b *Bus) DeadLetter(ctx context.Context, sequence uint64) (Dead, error) {
	r, err := b.stored(ctx, events.StreamDead, sequence)
	if err != nil {
		return Dead{}, fmt.Errorf("read dead letter %d: %w", sequence, err)
	}
	return dead(r), nil
}

// RemoveDead erases a dead letter. One that is gone is ErrNotFound.
func (b *Bus) RemoveDead(ctx context.Context, sequence uint64) error {
	r, err := b.stored(ctx, events.StreamDead, sequence)
	if err == nil {
		err = b.run(ctx, "erase", r.Subject, func(ctx context.Context) error { return b.secureDelete(ctx, r) })
	}
	if err != nil {
		return fmt.Errorf("remove dead letter %d: %w", sequence, err)
	}
	return nil
}

// ReplayDead publishes the message of a dead letter again where it was taken
// from, then erases the letter. ErrNotReplayable when the letter carries none;
// then work is fed again from the state prefix. If it ends between the two the
// letter stays and may be replayed again.
func (b *Bus) ReplayDead(ctx context.Context, sequence uint64) (Stored, error) {
	d, err := b.DeadLetter(ctx, sequence)
	if err != nil {
		return Stored{}, err
	}
	var why string
	switch {
	case d.Err != nil:
		return Stored{}, fmt.Errorf("replay dead letter %d: %w: %w", sequence, ErrNotReplayable, d.Err)
	case len(d.Letter.Payload) == 0:
		why = "it carries no message"
	case !replayable(d.Letter.Subject):
		why = "messages of its subject are not taken from dead letters"
	}
	if why != "" {
		return Stored{}, fmt.Errorf("replay dead letter %d: %w: %s", sequence, ErrNotReplayable, why)
	}
	// No message id: inside the duplicate window of the first publication the
	// stream would drop it.
	s, err := b.PublishRaw(ctx, d.Letter.Subject, "", d.Letter.Payload)
	if err != nil {
		return s, fmt.Errorf("replay dead letter %d: %w", sequence, err)
	}
	return s, b.RemoveDead(ctx, sequence)
}

// replayable reports the subjects of work queues, with one name behind.
func replayable(subject string) bool {
	for _, prefix := range []string{events.IntakeSubject(""), events.RequestsSubject("")} {
		if name, ok := strings.CutPrefix(subject, prefix); ok {
			return events.ValidName(name)
		}
	}
	return false
}

func dead(r *Record) Dead {
	d := Dead{Sequence: r.Sequence, Stage: strings.TrimPrefix(r.Subject, events.DeadSubject(""))}
	e, err := r.Event()
	if err == nil && e.Type != events.TypeDeadLetter {
		err = fmt.Errorf("%w: it is no dead letter", events.ErrEnvelope)
	}
	if err == nil {
		d.Letter, err = events.Payload[events.DeadLetter](e)
	}
	d.Err = err
	return d
}

// stored reads one message of a stream.
func (b *Bus) stored(ctx context.Context, stream string, sequence uint64, opts ...jetstream.GetMsgOpt) (*Record, error) {
	var r *Record
	err := b.run(ctx, "get", fmt.Sprintf("%s/%d", stream, sequence), func(ctx context.Context) error {
		s, err := b.stream(ctx, stream)
		if err != nil {
			return err
		}
		m, err := s.GetMsg(ctx, sequence, opts...)
		if err != nil {
			return err
		}
		r = &Record{
			Subject: m.Subject, Data: m.Data, Stream: stream, Sequence: m.Sequence,
			Time: m.Time.UTC(), MsgID: m.Header.Get(jetstream.MsgIDHeader),
		}
		return nil
	})
	return r, err
}
