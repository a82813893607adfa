package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"

	"delenda/events"
	"delenda/pipeline/internal/object"
	"delenda/storage"
)

// RequestID is the lower-case text of a UUID.
type RequestID string

// ParseRequestID accepts the canonical text of a UUID and nothing else.
func ParseRequestID(s string) (RequestID, bool) {
	u, err := uuid.Parse(s)
	if err != nil || u.String() != s {
		return "", false
	}
	return RequestID(s), true
}

// Record is what is kept of a request for ever. It holds no identity but in
// the ciphertext.
type Record struct {
	ID               RequestID `json:"id"`
	Source           string    `json:"source"`
	Regulation       string    `json:"regulation,omitempty"`
	SubjectRequestID string    `json:"subject_request_id,omitempty"` // UUID
	ReceivedAt       time.Time `json:"received_at"`                  // by the sender, from the subject
	AcceptedAt       time.Time `json:"accepted_at"`
	Tables           []string  `json:"tables"`                   // resolved, sorted, unique
	NotApplicable    []string  `json:"not_applicable,omitempty"` // tables of "all" that map none of the types
	BodyMAC          []byte    `json:"body_mac"`
	Ciphertext       []byte    `json:"ciphertext"`
}

// Store is the state prefix. It is safe for concurrent use, also by any
// number of processes.
type Store struct {
	bucket       storage.Bucket
	keeper       Keeper
	installation string
	now          func() time.Time
	master       []byte
	idKey        []byte
	macKey       []byte
}

// OpenStore opens the state prefix of an installation, whose key it makes at
// the first start.
func OpenStore(ctx context.Context, bucket storage.Bucket, keeper Keeper, installation string, now func() time.Time) (*Store, error) {
	if !events.ValidName(installation) {
		return nil, errors.New("open state: installation is not a name of lower-case letters, digits, '_' and '-'")
	}
	s := &Store{bucket: bucket, keeper: keeper, installation: installation, now: now}
	var err error
	if s.master, err = s.LoadKey(ctx, strings.TrimPrefix(installationKey, "keys/"), NewKey); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	if s.idKey, err = s.DeriveKey("request-id"); err != nil {
		return nil, err
	}
	if s.macKey, err = s.DeriveKey("body-mac"); err != nil {
		return nil, err
	}
	return s, nil
}

// Bucket returns the state prefix's objects.
func (s *Store) Bucket() storage.Bucket { return s.bucket }

// Installation returns the installation's name.
func (s *Store) Installation() string { return s.installation }

// Now returns the time.
func (s *Store) Now() time.Time { return s.now().UTC() }

// Source returns the CloudEvents source of a service.
func (s *Store) Source(service string) string {
	return "/delenda/" + s.installation + "/" + service
}

// App names the installation and a table inside that table: opaque, stable.
func (s *Store) App(table string) string { return "delenda/" + s.installation + "/" + table }

func recordKey(id RequestID) string { return "requests/" + string(id) }
func openKey(id RequestID) string   { return "open/" + string(id) }

// Record reads a request's record: storage.ErrNotFound if there is none.
func (s *Store) Record(ctx context.Context, id RequestID) (*Record, error) {
	var r Record
	if err := object.Get(ctx, s.bucket, recordKey(id), &r); err != nil {
		return nil, err
	}
	if r.ID != id {
		return nil, &storage.CorruptError{Key: recordKey(id), Offset: -1, Field: "id", Reason: "not the id of its key"}
	}
	return &r, nil
}

// Create stores a request if its id is new and returns the record that now
// decides: the given one, or the one that was there. It sets AcceptedAt and
// Ciphertext. The caller compares BodyMAC.
func (s *Store) Create(ctx context.Context, r Record, identities []Identity) (*Record, error) {
	if err := object.Put(ctx, s.bucket, openKey(r.ID), struct{}{}); err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	key, err := s.LoadKey(ctx, string(r.ID), NewKey)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	if r.Ciphertext, err = seal(key, r.ID, identities); err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	r.AcceptedAt = s.Now().Truncate(time.Millisecond)
	won, err := object.PutOnce(ctx, s.bucket, recordKey(r.ID), r)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	if !won {
		return s.Record(ctx, r.ID)
	}
	// A sweep that took marker and key for orphans of a dead attempt may have
	// removed them meanwhile.
	if err := s.restore(ctx, r.ID, key); err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	return &r, nil
}

// restore makes sure that marker and key of a record are there.
func (s *Store) restore(ctx context.Context, id RequestID, key []byte) error {
	there, err := s.LoadKey(ctx, string(id), func() ([]byte, error) { return key, nil })
	if err != nil {
		return err
	}
	if !bytes.Equal(there, key) {
		wrapped, err := s.keeper.Encrypt(ctx, key)
		if err != nil {
			return fmt.Errorf("wrap key: %w", err)
		}
		if err := s.bucket.Put(ctx, requestKey(id), bytes.NewReader(wrapped), storage.PutOptions{}); err != nil {
			return err
		}
	}
	if open, err := s.IsOpen(ctx, id); err != nil || open {
		return err
	}
	return object.Put(ctx, s.bucket, openKey(id), struct{}{})
}

// IsOpen reports whether the request's marker is there.
func (s *Store) IsOpen(ctx context.Context, id RequestID) (bool, error) {
	_, err := s.bucket.Stat(ctx, openKey(id))
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Marker is one open request.
type Marker struct {
	ID      RequestID
	ModTime time.Time // of the marker, by the bucket's clock
}

// Open yields the open requests in the order of their ids.
func (s *Store) Open(ctx context.Context) iter.Seq2[Marker, error] {
	return func(yield func(Marker, error) bool) {
		for info, err := range s.bucket.List(ctx, "open/", "") {
			if err != nil {
				yield(Marker{}, fmt.Errorf("list open requests: %w", err))
				return
			}
			id, ok := ParseRequestID(strings.TrimPrefix(info.Key, "open/"))
			if !ok {
				continue
			}
			if !yield(Marker{ID: id, ModTime: info.ModTime}, nil) {
				return
			}
		}
	}
}

// ItemEvent is the message that asks the deleters for one table of a request.
// cause tells why it is published: "" for the first time, else what makes it a
// message of its own for the stream's duplicate window.
func (s *Store) ItemEvent(r *Record, table, cause string) (events.Event, error) {
	key := string(r.ID)
	if cause != "" {
		key += "/" + cause
	}
	return events.New(s.Source("ingest"), events.TypeErasureRequested, events.RequestsSubject(table), key, s.Now(),
		events.ErasureRequested{Request: string(r.ID), Table: table, AcceptedAt: r.AcceptedAt, Ciphertext: r.Ciphertext})
}
