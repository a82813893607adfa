package bus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"delenda/events"
)

// Backlog returns how many work items of a table the requests stream holds,
// delivered ones included. ErrNoStream when the stream does not exist.
func (b *Bus) Backlog(ctx context.Context, table string) (int64, error) {
	subject := events.RequestsSubject(table)
	var n uint64
	err := b.run(ctx, "backlog", subject, func(ctx context.Context) error {
		s, err := b.stream(ctx, events.StreamRequests)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return err
		}
		n = info.State.Subjects[subject]
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count backlog of %s: %w", table, err)
	}
	return int64(min(n, 1<<62)), nil
}
