package intake

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"delenda/pipeline"
	"delenda/storage"
)

// Source is a sender of requests.
type Source struct {
	Name         string              // events.ValidName
	TokensSHA256 [][sha256.Size]byte // of its bearer tokens
}

// Handler serves
//
//	POST /v1/erasures       a request body; 202 with id, accepted_at, tables
//	GET  /v1/erasures/{id}  pipeline.Status of a request of the same source
//	GET  /v1/keys           the public keys for JWE, a JWK set; without a token
//
// Every refusal is application/problem+json. keys may be nil.
func Handler(in *Intake, sources []Source, keys *Keys) http.Handler {
	h := &handler{in: in, sources: sources, keys: keys}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/erasures", only(http.MethodPost, h.accept))
	mux.HandleFunc("/v1/erasures/{id}", only(http.MethodGet, h.status))
	mux.HandleFunc("/v1/keys", only(http.MethodGet, h.publicKeys))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, problem(http.StatusNotFound, "not_found", "", "no such resource"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A body that trickles in, a bucket that does not answer: neither holds
		// a connection for ever.
		ctx, cancel := context.WithTimeout(r.Context(), in.o.Timeout)
		defer cancel()
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(in.o.Timeout)) // where the server can
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

type handler struct {
	in      *Intake
	sources []Source
	keys    *Keys
}

// answer is what an accepted request gets, each time the same.
type answer struct {
	ID            pipeline.RequestID `json:"id"`
	AcceptedAt    time.Time          `json:"accepted_at"`
	Tables        []string           `json:"tables"`
	NotApplicable []string           `json:"not_applicable,omitempty"`
}

func only(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
			w.Header().Set("Allow", method)
			refuse(w, problem(http.StatusMethodNotAllowed, "method_not_allowed", "", "use %s", method))
			return
		}
		next(w, r)
	}
}

func (h *handler) accept(w http.ResponseWriter, r *http.Request) {
	source, ok := h.authenticate(w, r)
	if !ok {
		return
	}
	rec, err := h.read(w, r, source)
	status, code := http.StatusAccepted, ""
	if err != nil {
		p := h.asProblem(r, err)
		status, code = p.Status, p.Code
		refuse(w, p)
	} else {
		w.Header().Set("Location", "/v1/erasures/"+string(rec.ID))
		write(w, status, "application/json", answer{rec.ID, rec.AcceptedAt, rec.Tables, rec.NotApplicable})
	}
	if f := h.in.o.Metrics.Answered; f != nil {
		f(source, status, code)
	}
}

func (h *handler) read(w http.ResponseWriter, r *http.Request, source string) (*pipeline.Record, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, problem(http.StatusUnsupportedMediaType, "unsupported_media_type", "", "Content-Type must be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, problem(http.StatusRequestEntityTooLarge, "too_large", "", "the body has more than %d bytes", MaxBody)
	}
	if err != nil {
		return nil, malformed("", "the body ended early")
	}
	return h.in.Accept(r.Context(), source, body)
}

func (h *handler) status(w http.ResponseWriter, r *http.Request) {
	source, ok := h.authenticate(w, r)
	if !ok {
		return
	}
	unknown := problem(http.StatusNotFound, "not_found", "", "no such request")
	id, ok := pipeline.ParseRequestID(r.PathValue("id"))
	if !ok {
		refuse(w, unknown)
		return
	}
	st, err := h.in.store.Status(r.Context(), id)
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && st.Source != source:
		refuse(w, unknown)
	case err != nil:
		refuse(w, h.asProblem(r, err))
	default:
		write(w, http.StatusOK, "application/json", st)
	}
}

func (h *handler) publicKeys(w http.ResponseWriter, _ *http.Request) {
	if h.keys == nil {
		refuse(w, problem(http.StatusNotFound, "not_found", "", "no keys are published"))
		return
	}
	write(w, http.StatusOK, "application/jwk-set+json", h.keys.Public())
}

// authenticate finds the source of a bearer token. It compares with every
// token of every source, each in constant time.
func (h *handler) authenticate(w http.ResponseWriter, r *http.Request) (source string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && token != "" {
		sum := sha256.Sum256([]byte(token))
		for _, s := range h.sources {
			for _, want := range s.TokensSHA256 {
				if subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
					source, ok = s.Name, true
				}
			}
		}
	}
	if !ok {
		w.Header().Set("WWW-Authenticate", `Bearer realm="delenda"`)
		refuse(w, problem(http.StatusUnauthorized, "unauthorized", "", "a valid bearer token is required"))
	}
	return source, ok
}

// asProblem hides what is not the sender's business.
func (h *handler) asProblem(r *http.Request, err error) *Problem {
	if p := (*Problem)(nil); errors.As(err, &p) {
		return p
	}
	h.in.o.Logger.LogAttrs(r.Context(), slog.LevelError, "request not answered", slog.Any("error", err))
	return problem(http.StatusServiceUnavailable, "unavailable", "",
		"the request could not be stored or looked up; send it again")
}

func refuse(w http.ResponseWriter, p *Problem) {
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	write(w, p.Status, "application/problem+json", p)
}

func write(w http.ResponseWriter, status int, contentType string, v any) {
	p, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("intake: internal error: %T does not marshal", v))
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(p, '\n'))
}
