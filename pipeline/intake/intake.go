package intake

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"delenda/pipeline"
	"delenda/storage"
)

// Options of New. The zero value works.
type Options struct {
	// MaxAge bounds received_at; zero is five years.
	MaxAge time.Duration
	// MaxSkew is how far received_at may lie in the future; zero is five minutes.
	MaxSkew time.Duration
	// Timeout bounds one HTTP request, from its headers to its answer; zero is
	// one minute.
	Timeout time.Duration
	Metrics pipeline.Metrics
	Logger  *slog.Logger // none if nil
}

// Intake accepts requests. It is safe for concurrent use.
type Intake struct {
	store   *pipeline.Store
	tables  map[string]pipeline.Table
	names   []string // sorted
	publish pipeline.Publish
	o       Options
}

// New returns an Intake for the configured tables.
func New(store *pipeline.Store, tables []pipeline.Table, publish pipeline.Publish, o *Options) *Intake {
	in := &Intake{store: store, tables: map[string]pipeline.Table{}, publish: publish}
	if o != nil {
		in.o = *o
	}
	if in.o.MaxAge == 0 {
		in.o.MaxAge = 5 * 366 * 24 * time.Hour
	}
	if in.o.MaxSkew == 0 {
		in.o.MaxSkew = 5 * time.Minute
	}
	if in.o.Timeout == 0 {
		in.o.Timeout = time.Minute
	}
	if in.o.Logger == nil {
		in.o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, t := range tables {
		in.tables[t.Name] = t
		in.names = append(in.names, t.Name)
	}
	slices.Sort(in.names)
	return in
}

// Accept takes one body from a source. The record it returns is stored, and so
// are the messages for its tables. A refusal is a *Problem; any other error
// means that it is not known whether the request was stored, and that sending
// it again is safe.
func (in *Intake) Accept(ctx context.Context, source string, body []byte) (*pipeline.Record, error) {
	r, p := read(body)
	if p != nil {
		return nil, p
	}
	id := in.store.RequestID(source, r.key)
	mac := in.store.BodyMAC(r.canonical)
	rec, err := in.store.Record(ctx, id)
	isNew := errors.Is(err, storage.ErrNotFound)
	switch {
	case isNew:
		fresh, p := in.plan(ctx, r)
		if p != nil {
			return nil, p
		}
		fresh.ID, fresh.Source, fresh.BodyMAC = id, source, mac
		if rec, err = in.store.Create(ctx, *fresh, r.identities); err != nil {
			return nil, fmt.Errorf("accept request: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("accept request: %w", err)
	}
	if !hmac.Equal(rec.BodyMAC, mac) {
		return nil, problem(http.StatusConflict, "idempotency_conflict", "idempotency_key",
			"a request with this key and another body was accepted before")
	}
	if err := in.hand(ctx, rec); err != nil {
		return nil, fmt.Errorf("accept request: %w", err)
	}
	if isNew {
		in.o.Logger.LogAttrs(ctx, slog.LevelInfo, "request accepted", slog.String("request", string(id)),
			slog.String("source", source), slog.Int("tables", len(rec.Tables)))
		if f := in.o.Metrics.Accepted; f != nil {
			f(source)
		}
	}
	return rec, nil
}

// hand makes sure that the messages of a request were stored before it is
// answered. One that is closed needs none.
func (in *Intake) hand(ctx context.Context, r *pipeline.Record) error {
	open, err := in.store.IsOpen(ctx, r.ID)
	if err != nil || !open {
		return err
	}
	_, err = in.store.Feed(ctx, in.publish, r)
	return err
}

// plan resolves tables and checks what depends on configuration and time.
func (in *Intake) plan(ctx context.Context, r *request) (*pipeline.Record, *Problem) {
	now := in.store.Now()
	rec := &pipeline.Record{Regulation: r.regulation, SubjectRequestID: r.subjectRequestID, ReceivedAt: r.receivedAt}
	switch {
	case r.receivedAt.IsZero():
		rec.ReceivedAt = now.Truncate(time.Millisecond)
	case r.receivedAt.After(now.Add(in.o.MaxSkew)):
		return nil, problem(http.StatusUnprocessableEntity, "out_of_bounds", "received_at", "lies in the future")
	case r.receivedAt.Before(now.Add(-in.o.MaxAge)):
		return nil, problem(http.StatusUnprocessableEntity, "out_of_bounds", "received_at", "lies too far back")
	}
	names := r.tables
	if names == nil {
		names = in.names
	}
	mapped := make([]bool, len(r.identities))
	for i, name := range names {
		t, ok := in.tables[name]
		if !ok {
			return nil, problem(http.StatusUnprocessableEntity, "unknown_table", fmt.Sprintf("tables[%d]", i), "no table of this name is configured")
		}
		applies := false
		for n, id := range r.identities {
			if _, ok := t.Identities[id.Type]; ok {
				mapped[n], applies = true, true
			}
		}
		switch {
		case applies:
			rec.Tables = append(rec.Tables, name)
		case r.tables != nil:
			return nil, problem(http.StatusUnprocessableEntity, "not_mapped", fmt.Sprintf("tables[%d]", i),
				"the table maps none of the request's identity types; it maps %s", in.types([]string{name}))
		default:
			rec.NotApplicable = append(rec.NotApplicable, name)
		}
	}
	for n, ok := range mapped {
		if !ok {
			return nil, problem(http.StatusUnprocessableEntity, "not_mapped", identityField(n)+".type",
				"no table of the request maps this type; mapped are %s", in.types(names))
		}
	}
	slices.Sort(rec.Tables)
	if p := in.check(ctx, rec.Tables, r.identities); p != nil {
		return nil, p
	}
	return rec, nil
}

// types lists the identity types that tables map.
func (in *Intake) types(tables []string) string {
	var types []string
	for _, name := range tables {
		for typ := range in.tables[name].Identities {
			types = append(types, typ)
		}
	}
	slices.Sort(types)
	if types = slices.Compact(types); len(types) == 0 {
		return "none"
	}
	return strings.Join(types, ", ")
}

// check refuses values that are not in the canonical form of a column's type.
// A table that cannot be asked now is not held against the request: its
// deleter will fail the item by name.
func (in *Intake) check(ctx context.Context, tables []string, identities []pipeline.Identity) *Problem {
	for _, name := range tables {
		t := in.tables[name]
		if t.Check == nil {
			continue
		}
		for n, id := range identities {
			column, ok := t.Identities[id.Type]
			if !ok {
				continue
			}
			err := t.Check(ctx, storage.Key{Column: column, Value: id.Value})
			if refused := (*storage.Refusal)(nil); errors.As(err, &refused) {
				return problem(http.StatusUnprocessableEntity, pipeline.CodeInvalidValue, identityField(n)+".value",
					"table %s: %s", name, refused.Reason)
			}
		}
	}
	return nil
}
