package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"delenda/pipeline/internal/object"
	"delenda/storage"
)

// Status is where a request stands. It holds no identity.
type Status struct {
	ID               RequestID     `json:"id"`
	Source           string        `json:"source"`
	State            State         `json:"state"`
	Regulation       string        `json:"regulation,omitempty"`
	SubjectRequestID string        `json:"subject_request_id,omitempty"`
	ReceivedAt       time.Time     `json:"received_at"`
	AcceptedAt       time.Time     `json:"accepted_at"`
	ClosedAt         *time.Time    `json:"closed_at,omitempty"` // when the last table was hidden and nothing of an identity was kept
	Tables           []TableStatus `json:"tables"`              // in the record's order
	NotApplicable    []string      `json:"not_applicable,omitempty"`
}

// TableStatus is where one table of a request stands.
type TableStatus struct {
	Table   string          `json:"table"`
	State   State           `json:"state"`
	Rows    int64           `json:"rows"`    // hidden, or counted while held
	Version storage.Version `json:"version"` // that shows none of the rows; -1 before
	Batch   int64           `json:"batch,omitempty"`
	Parked  bool            `json:"parked,omitempty"` // received, and no deleter can work on the table: Code and Reason say why
	Code    string          `json:"code,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	At      *time.Time      `json:"at,omitempty"`
}

// Status reads where a request stands: storage.ErrNotFound if it is unknown.
func (s *Store) Status(ctx context.Context, id RequestID) (*Status, error) {
	r, err := s.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	st, err := s.status(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := s.explain(ctx, st.Tables); err != nil {
		return nil, fmt.Errorf("status of %s: %w", id, err)
	}
	if st.State == Hidden {
		var c Status
		err := object.Get(ctx, s.bucket, closedKey(st), &c)
		switch {
		case err == nil:
			st.ClosedAt = c.ClosedAt
		case !errors.Is(err, storage.ErrNotFound):
			return nil, err
		}
	}
	return st, nil
}

func (s *Store) status(ctx context.Context, r *Record) (*Status, error) {
	st := &Status{
		ID: r.ID, Source: r.Source, Regulation: r.Regulation, SubjectRequestID: r.SubjectRequestID,
		ReceivedAt: r.ReceivedAt, AcceptedAt: r.AcceptedAt, NotApplicable: r.NotApplicable,
		Tables: make([]TableStatus, len(r.Tables)),
	}
	for n, table := range r.Tables {
		i, err := s.Item(ctx, r.ID, table)
		if err != nil {
			return nil, fmt.Errorf("status of %s: %w", r.ID, err)
		}
		t := TableStatus{Table: table, State: Received, Version: storage.NoVersion}
		if i != nil {
			run, err := s.runnable(ctx, r.ID, table, i)
			if err != nil {
				return nil, fmt.Errorf("status of %s: %w", r.ID, err)
			}
			if !run {
				at := i.At
				t = TableStatus{
					Table: table, State: i.State, Rows: i.Rows, Version: i.Version, Batch: i.Batch,
					Code: i.Code, Reason: i.Reason, At: &at,
				}
			}
		}
		st.Tables[n] = t
	}
	st.State = overall(st.Tables)
	return st, nil
}

// overall is the state of a request: what needs a person comes first, then
// what needs time.
func overall(tables []TableStatus) State {
	seen := make(map[State]bool, len(tables))
	for _, t := range tables {
		seen[t.State] = true
	}
	switch {
	case seen[Failed]:
		return Partial
	case seen[Held]:
		return Held
	case seen[Received]:
		return Received
	}
	return Hidden
}

// closedKey names the closing record of a request whose tables are all hidden.
// Its month is that of the last item, so that every writer names it alike.
func closedKey(st *Status) string {
	return "closed/" + lastAt(st).Format("2006-01") + "/" + string(st.ID)
}

func lastAt(st *Status) time.Time {
	at := st.AcceptedAt
	for _, t := range st.Tables {
		if t.At != nil && t.At.After(at) {
			at = *t.At
		}
	}
	return at.UTC()
}

// Close ends a request if every table of it is hidden: closing record, then
// the key is deleted, then the marker. It reports whether the request is
// closed, and may be called at any time and again.
func (s *Store) Close(ctx context.Context, r *Record) (bool, error) {
	st, err := s.status(ctx, r)
	if err != nil {
		return false, err
	}
	return s.end(ctx, st)
}

func (s *Store) end(ctx context.Context, st *Status) (bool, error) {
	if st.State != Hidden {
		return false, nil
	}
	at := lastAt(st)
	st.ClosedAt = &at
	won, err := object.PutOnce(ctx, s.bucket, closedKey(st), st)
	if err != nil {
		return false, fmt.Errorf("close request: %w", err)
	}
	if !won {
		// It tells of its own moment: an item may have been amended since. That
		// one is there is what matters.
		var stands Status
		if err := object.Get(ctx, s.bucket, closedKey(st), &stands); err != nil {
			return false, fmt.Errorf("close request: %w", err)
		}
		if stands.ID != st.ID || stands.State != Hidden {
			return false, fmt.Errorf("close request %s: another closing record is there", st.ID)
		}
	}
	if err := s.bucket.Delete(ctx, requestKey(st.ID)); err != nil {
		return false, fmt.Errorf("shred key: %w", err)
	}
	if err := s.bucket.Delete(ctx, openKey(st.ID)); err != nil {
		return false, fmt.Errorf("close request: %w", err)
	}
	return true, nil
}
