package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"delenda/sharing"
	"delenda/sharing/recipients"
	"delenda/sharing/snapshot"
)

const (
	bodyTimeout     = 30 * time.Second
	progressTimeout = 2 * time.Minute // between two pieces of an answer that a recipient takes
)

// Handler serves the endpoint. It wants paths as they came: a mux that cleans
// them by redirects turns the POST of some clients into a GET.
//
// It ends an answer that fails after its start by http.ErrAbortHandler, so that
// no client takes it for whole: a handler around it must not stop that panic.
func (p *Publisher) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := p.o.Now()
		pw := newProgress(w, progressTimeout)
		a := &answer{p: p, w: pw, r: r, route: parseRoute(r.URL.EscapedPath(), p.o.Prefix)}
		defer func() {
			if p.o.Observe != nil {
				p.o.Observe(Observation{
					Operation: a.route.op.class(), Status: pw.status, Duration: p.o.Now().Sub(started), Bytes: pw.bytes, Files: a.files,
				})
			}
		}()
		if err := a.serve(r.Context()); err != nil {
			a.fail(r.Context(), err)
		}
	})
}

// class is the operation's name in observations.
func (o operation) class() string {
	switch o {
	case opShares, opShare, opSchemas, opTables, opAllTables:
		return "lists"
	case opVersion, opTable:
		return "version"
	case opMetadata, opQuery, opFile:
		return string(o)
	default:
		return "other"
	}
}

// answer is one request that is being answered.
type answer struct {
	p         *Publisher
	w         *progress
	r         *http.Request
	route     route
	recipient recipients.Recipient
	files     int64 // shown so far
}

func (a *answer) serve(ctx context.Context) error {
	switch {
	case a.route.op == opFile:
		return a.file(ctx)
	case a.route.op == opRoot && a.r.Method == http.MethodPost:
		// Clients with basic authentication ask here for a token first, and go
		// on whatever the answer.
		writeJSON(a.w, http.StatusOK, struct{}{})
		return nil
	}
	if err := a.authenticate(); err != nil {
		return err
	}
	if methods := a.route.op.methods(); !slices.Contains(methods, a.r.Method) {
		a.w.Header().Set("Allow", strings.Join(methods, ", "))
		return &failure{status: http.StatusMethodNotAllowed, code: sharing.CodeUnsupportedOperation, message: "method not allowed"}
	}
	switch a.route.op {
	case opShares, opSchemas, opTables, opAllTables:
		return a.list()
	case opShare:
		return a.share()
	case opVersion, opTable:
		return a.version(ctx)
	case opMetadata:
		return a.metadata(ctx)
	case opQuery:
		return a.query(ctx)
	case opChanges:
		ref, err := a.table()
		if err != nil {
			return err
		}
		return invalid("cdf is not enabled on table %s.%s.%s", ref.Share, ref.Schema, ref.Name)
	case opCredentials:
		if _, err := a.table(); err != nil {
			return err
		}
		return unsupported("temporary credentials are not given out: they would reach files that hold erased rows")
	case opQueryStatus:
		if _, err := a.table(); err != nil {
			return err
		}
		return &failure{status: http.StatusNotFound, code: sharing.CodeDoesNotExist, message: "no such query: queries are answered at once"}
	default:
		return errNoEndpoint
	}
}

func (a *answer) authenticate() error {
	scheme, token, _ := strings.Cut(a.r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	recipient, ok, err := a.p.registry.Authenticate(strings.TrimSpace(token))
	if err != nil {
		return err
	}
	if !ok {
		return errUnauthenticated
	}
	a.recipient = recipient
	return nil
}

// table returns the shared table of the path; one that is not granted is as
// absent as one that does not exist.
func (a *answer) table() (snapshot.Ref, error) {
	ref, ok := a.p.catalog.Table(a.route.share, a.route.schema, a.route.table)
	if !ok || !a.recipient.Granted(ref.Share) {
		return snapshot.Ref{}, absent(a.route.names()...)
	}
	return ref, nil
}

// fail answers with what went wrong, or breaks off an answer that has begun.
func (a *answer) fail(ctx context.Context, err error) {
	f := unavailable(err)
	if f.status >= http.StatusInternalServerError && ctx.Err() == nil {
		a.p.o.Logger.LogAttrs(ctx, slog.LevelWarn, "request failed",
			slog.String("operation", string(a.route.op)), slog.Int("status", f.status), slog.Any("error", causeOf(f)))
	}
	if a.w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	f.write(a.w)
}

// causeOf is what a log may say: errors of file requests name objects of the
// table, whose names may hold partition values.
func causeOf(f *failure) error {
	if f.cause == nil {
		return f
	}
	return f.cause
}

var errBodyTooLarge = &failure{status: http.StatusRequestEntityTooLarge, code: sharing.CodeMalformedRequest, message: "the request body is larger than allowed"}

func tooLarge(err error) bool {
	var limit *http.MaxBytesError
	return errors.As(err, &limit)
}
