// Package events is the vocabulary of what Delenda's services tell each other
// and its recipients: event types, subjects, and the CloudEvents 1.0 envelope
// in structured JSON mode. Standard library only; package bus carries it over
// JetStream; docs/asyncapi.yaml describes the same for outsiders.
//
// No event carries an identity. ErasureRequested and DeadLetter carry the
// request's ciphertext, which is worthless once its key is shredded. An event's
// id is derived from what it says, so a repeated publication is recognised.
package events
