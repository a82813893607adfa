package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Publishing.
var (
	// ErrNotStored: the message is in no stream and will not appear in one
	// later. Publish it again, or give up.
	ErrNotStored = errors.New("message not stored")
	// ErrUnclear: the message may or may not be stored. Publish it again: every
	// consumer takes the same event twice.
	ErrUnclear = errors.New("unclear whether the message was stored")
)

// Connection and topology.
var (
	// ErrDisconnected: there is no connection to a server, or JetStream did not
	// answer. Nothing is known about what was asked for last; ask again once
	// connected.
	ErrDisconnected = errors.New("disconnected from NATS")
	// ErrNoStream: the stream, consumer or bucket does not exist (any more).
	// Declare, and feed again what the state prefix knows to be open.
	ErrNoStream = errors.New("no such stream")
	// ErrTopology: what the server holds differs from what Declare was asked
	// for in a way that would lose messages, or the server does not take what
	// will be sent. A person decides.
	ErrTopology = errors.New("incompatible stream")
)

// Key-value buckets and stored messages.
var (
	// ErrKeyNotFound: the bucket has no value under the key.
	ErrKeyNotFound = errors.New("key not found")
	// ErrRevision: the key's revision is not the expected one. Read again.
	ErrRevision = errors.New("key has another revision")
	// ErrNotFound: the stream holds no message with this sequence.
	ErrNotFound = errors.New("message not found")
	// ErrNotReplayable: the dead letter carries no message that could be
	// published again, or none of a subject that is fed from dead letters.
	ErrNotReplayable = errors.New("dead letter cannot be replayed")
)

// errOffline refuses an operation that was not begun.
var errOffline = fmt.Errorf("%w: not connected", ErrDisconnected)

// classify adds the sentinel that a caller branches on. Errors of nats.go carry
// no message content and no credentials.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, ErrNoStream), errors.Is(err, ErrDisconnected):
		return err
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, jetstream.ErrStreamNotFound),
		errors.Is(err, jetstream.ErrConsumerNotFound),
		errors.Is(err, jetstream.ErrConsumerDoesNotExist),
		errors.Is(err, jetstream.ErrConsumerDeleted),
		errors.Is(err, jetstream.ErrBucketNotFound),
		errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w: %w", ErrNoStream, err)
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return fmt.Errorf("%w: %w", ErrKeyNotFound, err)
	case wrongRevision(err):
		return fmt.Errorf("%w: %w", ErrRevision, err)
	case lost(err):
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return err
}

func wrongRevision(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) ||
		errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// lost reports an error that says that nobody answered.
func lost(err error) bool {
	for _, target := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrConnectionReconnecting,
		nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, nats.ErrNoServers,
		jetstream.ErrNoHeartbeat, jetstream.ErrServerShutdown,
		jetstream.ErrConnectionClosed, jetstream.ErrConsumerLeadershipChanged,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// neverSent reports an error after which a publication certainly reached no
// stream: the server refused it, nobody listens, or it never left the process.
func neverSent(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return true
	}
	for _, target := range []error{
		errOffline, nats.ErrNoResponders, jetstream.ErrNoStreamResponse, nats.ErrMaxPayload, nats.ErrBadSubject,
		nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionDraining,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
