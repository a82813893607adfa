package bus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Defaults of Options.
const (
	// DefaultTimeout bounds one request to the server: a publication, an
	// acknowledgement, a look-up.
	DefaultTimeout = 5 * time.Second
	// DefaultHeartbeat is the interval at which a silent watch or follower is
	// told that it is still current. Two missing ones end it.
	DefaultHeartbeat = time.Second

	reconnectWait = 50 * time.Millisecond // first; then up to reconnectMax
	reconnectMax  = 2 * time.Second
	pingInterval  = 2 * time.Second
)

// InProcess opens connections to a server of the same process; package embedded
// implements it.
type InProcess interface {
	InProcessConn() (net.Conn, error)
}

// Options of Connect. Either URL or InProcess is set.
type Options struct {
	// URL names one or more servers, separated by commas: nats://host:port or
	// tls://host:port. It may hold user and password; no error or log line of
	// this package repeats them.
	URL string
	// InProcess connects without a network; URL is then ignored.
	InProcess InProcess

	CredentialsFile string // JWT and seed, as made by nsc
	NKeyFile        string // nkey seed
	Token           string // static token
	CAFile          string // PEM; trusts these instead of the system's roots
	CertFile        string // PEM client certificate, with KeyFile
	KeyFile         string

	Name      string        // shown by the server's monitoring
	Timeout   time.Duration // of one request; DefaultTimeout if zero
	Heartbeat time.Duration // of watches and followers; DefaultHeartbeat if zero
	Logger    *slog.Logger  // connection changes; none if nil

	// Intercept, when not nil, is called in place of every operation and decides
	// whether to do it: for metrics, and for fault sweeps. What do returns
	// matches this package's errors.
	Intercept func(ctx context.Context, op Op, do func(context.Context) error) error
}

// Op names an operation for Options.Intercept.
type Op struct {
	Kind   string // publish, fetch, ack, nak, term, progress, erase, kv.get, kv.put, ...
	Target string // subject, stream/durable, or bucket/key; never a value
}

// Bus is a connection to JetStream that reconnects until it is closed.
type Bus struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	timeout   time.Duration
	heartbeat time.Duration
	log       *slog.Logger
	intercept func(context.Context, Op, func(context.Context) error) error
	closed    chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change of the connection
	streams map[string]jetstream.Stream
	pinned  map[string]*Consumer // by stream/durable
}

// Connect opens a connection. ErrDisconnected when no server answers, or it
// refuses the credentials; a service that starts before its server tries again.
// Once there was a connection, losses are repaired in the background, forever.
// The Bus is closed by Drain or Close.
func Connect(ctx context.Context, o Options) (*Bus, error) {
	b := &Bus{
		timeout: o.Timeout, heartbeat: o.Heartbeat, log: o.Logger, intercept: o.Intercept,
		closed: make(chan struct{}), changed: make(chan struct{}),
		streams: map[string]jetstream.Stream{}, pinned: map[string]*Consumer{},
	}
	if b.timeout <= 0 {
		b.timeout = DefaultTimeout
	}
	if b.heartbeat <= 0 {
		b.heartbeat = DefaultHeartbeat
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	opts, err := b.natsOptions(o)
	if err != nil {
		return nil, err
	}
	servers := o.URL
	switch {
	case o.InProcess != nil:
		servers = nats.DefaultURL // named in no connection
		opts = append(opts, nats.InProcessServer(o.InProcess))
	case servers == "":
		return nil, errors.New("connect to NATS: no URL is configured")
	}

	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(servers, opts...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("connect to %s: %w: %w", Redact(o.URL), ErrDisconnected, scrub(r.err, o.URL))
		}
		b.nc = r.nc
	case <-ctx.Done():
		go func() { // the dial ends by its own timeout
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, fmt.Errorf("connect to %s: %w", Redact(o.URL), ctx.Err())
	}
	b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(b.timeout))
	if err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	return b, nil
}

func (b *Bus) natsOptions(o Options) ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(attempts int) time.Duration {
			return min(reconnectWait<<min(attempts, 10), reconnectMax)
		}),
		// Nothing is buffered while disconnected: what cannot be sent now is
		// refused now, so that it is known not to be stored.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.DrainTimeout(b.timeout),
		nats.Timeout(b.timeout),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if nc.IsClosed() || nc.IsDraining() { // we did it
				b.signal()
				return
			}
			b.log.Warn("disconnected from NATS", slog.Any("error", scrub(err, o.URL)))
			b.signal()
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			b.log.Info("reconnected to NATS")
			b.signal()
		}),
		nats.ClosedHandler(func(*nats.Conn) {
			b.signal()
			close(b.closed)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.log.Warn("NATS connection", slog.Any("error", scrub(err, o.URL)))
		}),
	}
	if o.CredentialsFile != "" {
		if _, err := os.Stat(o.CredentialsFile); err != nil {
			return nil, fmt.Errorf("read NATS credentials: %w", err)
		}
		opts = append(opts, nats.UserCredentials(o.CredentialsFile))
	}
	if o.NKeyFile != "" {
		nkey, err := nats.NkeyOptionFromSeed(o.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read NATS nkey: %w", err)
		}
		opts = append(opts, nkey)
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	if o.CAFile != "" || o.CertFile != "" {
		cfg, err := tlsConfig(o)
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.Secure(cfg))
	}
	return opts, nil
}

func tlsConfig(o Options) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read NATS CA: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read NATS CA %s: no certificate in PEM form", o.CAFile)
		}
	}
	if o.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read NATS client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// Connected reports whether a server is reachable at this moment.
func (b *Bus) Connected() bool { return b.nc.IsConnected() }

// Changed returns a channel that is closed at the next change of the
// connection. Take it before reading Connected.
func (b *Bus) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// WaitConnected returns nil once a server is reachable.
func (b *Bus) WaitConnected(ctx context.Context) error {
	for {
		changed := b.Changed()
		if b.Connected() {
			return nil
		}
		if b.nc.IsClosed() {
			return fmt.Errorf("wait for NATS: %w", ErrDisconnected)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *Bus) signal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}

// Drain ends the bus in order: tables are let go for other replicas,
// subscriptions are drained, what was published is flushed, the connection is
// closed. When ctx ends first it is cut short. The Bus cannot be used again.
func (b *Bus) Drain(ctx context.Context) error {
	b.mu.Lock()
	pinned := slices.Collect(maps.Values(b.pinned))
	b.mu.Unlock()
	for _, c := range pinned {
		if b.Connected() {
			_ = c.unpin(ctx) // otherwise the pin runs out
		}
	}
	if err := b.nc.Drain(); err != nil {
		b.nc.Close() // closed already, or disconnected: nothing to flush
	}
	select {
	case <-b.closed:
		return nil
	case <-ctx.Done():
		b.nc.Close()
		return fmt.Errorf("drain NATS: %w", ctx.Err())
	}
}

// Close cuts the connection without waiting for anything.
func (b *Bus) Close() { b.nc.Close() }

// run calls do with a deadline, inside the interceptor.
func (b *Bus) run(ctx context.Context, kind, target string, do func(context.Context) error) error {
	return b.around(ctx, kind, target, func(ctx context.Context) error {
		if !b.Connected() {
			return errOffline
		}
		ctx, cancel := context.WithTimeout(ctx, b.timeout)
		defer cancel()
		ctx, cancel = b.whileConnected(ctx)
		defer cancel()
		return cause(ctx, do(ctx))
	})
}

// whileConnected returns a context that ends, with ErrDisconnected for its
// cause, when the connection of this moment breaks: answers do not come over
// another.
func (b *Bus) whileConnected(parent context.Context) (context.Context, context.CancelFunc) {
	connection := b.nc.Stats().Reconnects
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		for {
			changed := b.Changed()
			if !b.Connected() || b.nc.Stats().Reconnects != connection {
				cancel(ErrDisconnected)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// cause prefers that the connection broke over how that was noticed.
func cause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrDisconnected) {
		return ErrDisconnected
	}
	return err
}

func (b *Bus) around(ctx context.Context, kind, target string, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	classified := func(ctx context.Context) error { return classify(do(ctx)) }
	if b.intercept == nil {
		return classified(ctx)
	}
	return b.intercept(ctx, Op{Kind: kind, Target: target}, classified)
}

// Redact returns a list of server URLs without user, password and query, for
// people and logs.
func Redact(servers string) string {
	if servers == "" {
		return "NATS in this process"
	}
	list := strings.Split(servers, ",")
	for i, s := range list {
		u, err := parseServer(s)
		if err != nil || u.Host == "" {
			list[i] = "[unreadable URL]"
			continue
		}
		list[i] = (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	}
	return strings.Join(list, ",")
}

// parseServer reads one server of a list; host:port alone is allowed.
func parseServer(s string) (*url.URL, error) {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	return url.Parse(s)
}

// scrub hides an error of nats.go that repeats a configured URL with its
// credentials; it keeps what errors.Is finds.
func scrub(err error, servers string) error {
	if err == nil {
		return io.EOF
	}
	for s := range strings.SplitSeq(servers, ",") {
		u, perr := parseServer(s)
		if perr != nil || u.User != nil {
			return &scrubbed{err}
		}
	}
	return err
}

type scrubbed struct{ err error }

func (s *scrubbed) Error() string {
	for _, known := range []error{
		nats.ErrNoServers, nats.ErrAuthorization, nats.ErrTimeout, nats.ErrStaleConnection,
		nats.ErrSecureConnRequired, nats.ErrAuthExpired, io.EOF,
	} {
		if errors.Is(s.err, known) {
			return known.Error()
		}
	}
	return fmt.Sprintf("connection error (%T)", s.err)
}

func (s *scrubbed) Unwrap() error { return s.err }
