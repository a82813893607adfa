package events

import "time"

// Type is the CloudEvents type attribute.
type Type string

// The event types.
const (
	TypeErasureRequested Type = "dev.delenda.erasure.requested.v1"
	TypeErasureReported  Type = "dev.delenda.erasure.reported.v1"
	TypeIntakeAnswered   Type = "dev.delenda.intake.answered.v1"
	TypeTableChanged     Type = "dev.delenda.table.changed.v1"
	TypeShareChanged     Type = "dev.delenda.share.changed.v1"
	TypeDeadLetter       Type = "dev.delenda.deadletter.v1"
)

// ErasureRequested asks the deleters to erase one request from one table: the
// unit of work. Published by ingest, one per table.
type ErasureRequested struct {
	Request    string    `json:"request"` // UUID
	Table      string    `json:"table"`   // configured name
	AcceptedAt time.Time `json:"accepted_at"`
	// Ciphertext is the request's identities sealed under the request's own
	// key; the same bytes as in requests/{id}.
	Ciphertext []byte `json:"ciphertext"`
}

// ErasureReported tells the state of one request on one table. Published by
// deleters.
type ErasureReported struct {
	Request string    `json:"request"`
	Table   string    `json:"table"`
	State   string    `json:"state"`           // hidden, held, failed
	Rows    int64     `json:"rows"`            // hidden, or counted while held
	Version int64     `json:"version"`         // the table's version that shows none of the rows
	Batch   int64     `json:"batch,omitempty"` // number in the table's batch log
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"`
}

// IntakeAnswered answers one message of delenda.intake.{source}: the same
// answer that HTTP gives, on delenda.outcome.{source}.
type IntakeAnswered struct {
	// IntakeSequence is the stream sequence that the sender's publish
	// acknowledgement named.
	IntakeSequence uint64 `json:"intake_sequence"`
	// MessageID echoes the sender's Nats-Msg-Id, if it is a UUID.
	MessageID string `json:"message_id,omitempty"`
	Accepted  bool   `json:"accepted"`
	Request   string `json:"request,omitempty"` // UUID, when accepted
	Status    int    `json:"status"`            // what HTTP would have answered: 202, 400, 409, 422 ...
	Code      string `json:"code,omitempty"`    // reason code when not accepted
	Field     string `json:"field,omitempty"`   // the member that is wrong, never its value
}

// ChangeKind says what made a table version.
type ChangeKind string

// The kinds of change.
const (
	ChangeDelete  ChangeKind = "delete"  // an erasure's delete
	ChangePurge   ChangeKind = "purge"   // fragments rewritten without deleted rows
	ChangeVacuum  ChangeKind = "vacuum"  // objects removed
	ChangeForeign ChangeKind = "foreign" // another writer's commit
)

// TableChanged announces a new version of a table. Published by deleters
// after the closing record of a batch, and by the publisher for foreign
// commits that its poll finds.
type TableChanged struct {
	Table   string     `json:"table"`
	Version int64      `json:"version"`
	Kind    ChangeKind `json:"kind"`
	Batch   int64      `json:"batch,omitempty"`
	At      time.Time  `json:"at"`
}

// ShareChanged announces to recipients that a shared table serves a new
// version. Copies made below HideFloor still hold erased rows.
type ShareChanged struct {
	Share      string     `json:"share"`
	Schema     string     `json:"schema"`
	Table      string     `json:"table"`
	Version    int64      `json:"version"`
	HideFloor  int64      `json:"hide_floor"`  // newest erasure's delete commit; nothing below is served
	PurgeFloor int64      `json:"purge_floor"` // newest purge
	Reason     ChangeKind `json:"reason"`
	At         time.Time  `json:"at"`
}

// DeadLetter records work that was given up: a reference, a reason code and
// ciphertext, enough to replay it and nothing that identifies a person.
type DeadLetter struct {
	Subject    string `json:"subject"`            // the NATS subject it was taken from
	Stream     string `json:"stream,omitempty"`   // and its stream
	Sequence   uint64 `json:"sequence,omitempty"` // and sequence there
	Request    string `json:"request,omitempty"`
	Table      string `json:"table,omitempty"`
	Code       string `json:"code"` // reason code, lower_snake_case
	Deliveries int    `json:"deliveries"`
	// Payload is the original message when that is ciphertext (an encrypted
	// intake, an ErasureRequested); empty when it is not.
	Payload []byte    `json:"payload,omitempty"`
	At      time.Time `json:"at"`
}
