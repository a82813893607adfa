package recipients

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// ErrStale tells that the records could not be read for too long to let anyone in.
var ErrStale = errors.New("recipients have not been read lately")

// Registry is a replica's view of the directory. It is safe for concurrent
// use.
type Registry struct {
	dir    *Directory
	now    func() time.Time
	maxAge time.Duration
	nudge  chan struct{}

	reading sync.Mutex
	records map[string]record // guarded by reading

	mu      sync.RWMutex
	readAt  time.Time
	byToken map[string]entry // by the token's id
	names   map[string]Recipient
}

type entry struct {
	recipient Recipient
	token     Token
	sum       [sha256.Size]byte
}

// NewRegistry returns a registry that has not read anything yet. maxAge bounds
// how old its view may be.
func NewRegistry(dir *Directory, maxAge time.Duration, now func() time.Time) *Registry {
	return &Registry{dir: dir, now: now, maxAge: maxAge, nudge: make(chan struct{}, 1)}
}

// Refresh reads what is new in the directory.
func (g *Registry) Refresh(ctx context.Context) error {
	g.reading.Lock()
	defer g.reading.Unlock()
	started := g.now()
	records, err := g.dir.newer(ctx, g.records)
	if err != nil {
		return err
	}
	g.records = records
	byToken, names := map[string]entry{}, map[string]Recipient{}
	for _, rec := range records {
		r := rec.recipient
		names[r.Name] = r
		for _, t := range r.Tokens {
			e := entry{recipient: r, token: t}
			if sum, err := hex.DecodeString(t.SHA256); err != nil || copy(e.sum[:], sum) != len(sum) || len(sum) != len(e.sum) {
				continue // a hash that no token has
			}
			byToken[t.ID] = e
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readAt, g.byToken, g.names = started, byToken, names
	return nil
}

// Nudge asks Run to read the directory at once.
func (g *Registry) Nudge() {
	select {
	case g.nudge <- struct{}{}:
	default:
	}
}

// Run reads the directory at once, then every interval and after each Nudge,
// until ctx ends.
func (g *Registry) Run(ctx context.Context, every time.Duration, log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := g.Refresh(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "recipients not read", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-g.nudge:
		}
	}
}

// Ready returns ErrStale if the view is too old to let anyone in.
func (g *Registry) Ready() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.byToken == nil || g.now().Sub(g.readAt) > g.maxAge {
		return ErrStale
	}
	return nil
}

// Authenticate returns the recipient whose token this is, false if it is no
// one's or has expired, and ErrStale when the registry cannot tell.
func (g *Registry) Authenticate(token string) (Recipient, bool, error) {
	if err := g.Ready(); err != nil {
		return Recipient{}, false, err
	}
	sum := sha256.Sum256([]byte(token))
	g.mu.RLock()
	e, known := g.byToken[tokenID(token)]
	g.mu.RUnlock()
	same := subtle.ConstantTimeCompare(sum[:], e.sum[:]) == 1
	if !known || !same || !e.token.ExpiresAt.IsZero() && !g.now().Before(e.token.ExpiresAt) {
		return Recipient{}, false, nil
	}
	return e.recipient, true, nil
}

// Granted tells whether the named recipient may read the share now.
func (g *Registry) Granted(name, share string) (bool, error) {
	if err := g.Ready(); err != nil {
		return false, err
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	r, ok := g.names[name]
	return ok && r.Granted(share), nil
}

// tokenID cuts the id out of a token; anything else gives an id that no token
// has.
func tokenID(token string) string {
	const n = (idBytes*8 + 5) / 6
	if len(token) < len(tokenPrefix)+n || token[:len(tokenPrefix)] != tokenPrefix {
		return ""
	}
	return token[len(tokenPrefix) : len(tokenPrefix)+n]
}
