package service

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"delenda/storage"
)

// checkTimeout bounds one answer of /readyz.
const checkTimeout = 5 * time.Second

// Health tells whether a service can do its work, and if not, why. It is safe
// for concurrent use.
type Health struct {
	service string

	mu     sync.Mutex
	checks []check
	tables map[string]TableHealth
	shares func() []ShareHealth
}

type check struct {
	name string
	ok   func(ctx context.Context) error
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Service string        `json:"service"`
	Ready   bool          `json:"ready"`
	Checks  []CheckHealth `json:"checks"`
	Tables  []TableHealth `json:"tables,omitempty"` // in order of their names
	Shares  []ShareHealth `json:"shares,omitempty"` // in order of their names
}

// ShareHealth is how one shared table is served to recipients.
type ShareHealth struct {
	Share   string `json:"share"`
	Schema  string `json:"schema"`
	Table   string `json:"table"`
	Served  bool   `json:"served"`
	Version int64  `json:"version"` // -1: none yet
	Reason  string `json:"reason,omitempty"`
}

// CheckHealth is one thing that the service as a whole needs.
type CheckHealth struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// The states of a table in TableHealth.
const (
	TableServed   = "served"
	TableRefused  = "refused"  // needs a change of the table or the configuration
	TableUnopened = "unopened" // cannot be opened now; tried again
)

// TableHealth is how one configured table is served. A table that is not
// served does not hold up the others, nor readiness.
type TableHealth struct {
	Table  string `json:"table"`
	State  string `json:"state"`
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// NewHealth returns the health of a service without checks: ready.
func NewHealth(service string) *Health {
	return &Health{service: service, tables: map[string]TableHealth{}}
}

// Check adds something that the service as a whole needs. The text of its
// errors is shown.
func (h *Health) Check(name string, ok func(ctx context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{name, ok})
}

// Table records how a table is served: by nil, or by why it is not.
func (h *Health) Table(name string, err error) {
	t := TableHealth{Table: name, State: TableServed}
	var refusal *storage.Refusal
	switch {
	case errors.As(err, &refusal):
		t.State, t.Code, t.Reason = TableRefused, refusal.Code, refusal.Reason
	case errors.Is(err, storage.ErrNoTable):
		t.State, t.Code, t.Reason = TableRefused, "no_table", err.Error()
	case errors.Is(err, storage.ErrCorrupt):
		t.State, t.Code, t.Reason = TableRefused, "corrupt", err.Error()
	case err != nil:
		t.State, t.Reason = TableUnopened, err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tables[name] = t
}

// Shares sets what tells of shared tables.
func (h *Health) Shares(list func() []ShareHealth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shares = list
}

// Readiness runs the checks, and only then looks at tables and shares: what
// makes a check pass is in the same answer.
func (h *Health) Readiness(ctx context.Context) Readiness {
	h.mu.Lock()
	checks := slices.Clone(h.checks)
	r := Readiness{Service: h.service, Ready: true, Checks: []CheckHealth{}}
	h.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for _, c := range checks {
		result := CheckHealth{Name: c.name, OK: true}
		if err := c.ok(ctx); err != nil {
			result.OK, result.Reason, r.Ready = false, err.Error(), false
		}
		r.Checks = append(r.Checks, result)
	}

	h.mu.Lock()
	for _, t := range h.tables {
		r.Tables = append(r.Tables, t)
	}
	shares := h.shares
	h.mu.Unlock()
	if shares != nil {
		r.Shares = shares()
	}
	slices.SortFunc(r.Tables, func(a, b TableHealth) int { return strings.Compare(a.Table, b.Table) })
	return r
}

// ServeHTTP answers /readyz: 200 when the service as a whole can work, else
// 503, each with the reasons.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ready := h.Readiness(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ready.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(ready)
}
