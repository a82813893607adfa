package pipeline

import (
	"context"
	"time"

	"delenda/events"
)

// Publish stores one event durably before it returns nil. Publishing the same
// event again is harmless.
type Publish func(ctx context.Context, e events.Event) error

// Fetch returns up to limit messages, waiting at most wait for the first of
// them. No message and no error means that none came.
type Fetch func(ctx context.Context, limit int, wait time.Duration) ([]Message, error)

// Delivery settles one delivery of a message.
type Delivery interface {
	// Ack says that the message is done.
	Ack(ctx context.Context) error
	// Nak asks for the message again after delay.
	Nak(ctx context.Context, delay time.Duration) error
	// Term says that the message must never come again. reason is recorded.
	Term(ctx context.Context, reason string) error
	// InProgress puts off redelivery while work goes on.
	InProgress(ctx context.Context) error
}

// Message is one delivery of a message.
type Message struct {
	Delivery
	Subject    string
	Stream     string
	Sequence   uint64 // in the stream
	Deliveries int    // this one included
	ID         string // the publisher's message id, if any
	Data       []byte
}
