package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

func (b *Bus) secureDelete(ctx context.Context, stream string, sequence uint64) error {
	s, err := b.stream(ctx, stream)
	if err != nil {
		return err
	}
	err = s.SecureDeleteMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
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
