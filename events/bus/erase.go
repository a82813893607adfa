package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// secureDelete removes a message and overwrites its bytes; consumers take it as
// acknowledged. A message that is gone is no error, nor is a stream that is gone.
// A stream that was lost and made again numbers anew: a message that was stored
// at another time under the same sequence is somebody else's and stays.
func (b *Bus) secureDelete(ctx context.Context, r *Record) error {
	s, err := b.stream(ctx, r.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	have, err := s.GetMsg(ctx, r.Sequence)
	if err == nil {
		if !have.Time.Equal(r.Time) || have.Subject != r.Subject {
			return nil
		}
		err = s.SecureDeleteMsg(ctx, r.Sequence)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// stream returns a handle on a stream. Handles hold a name and cached
// information and outlive the stream's loss.
func (b *Bus) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	b.mu.Lock()
	s := b.streams[name]
	b.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := b.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams[name] = s
	return s, nil
}
