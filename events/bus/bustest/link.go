package bustest

import (
	"errors"
	"net"
	"sync"
)

// Link is a way to the server that one replica uses (bus.Options.InProcess) and
// that can be cut while others stay connected.
type Link struct {
	server *Server

	mu    sync.Mutex
	cut   bool
	conns []*conn
}

// Link returns a new, working link.
func (s *Server) Link() *Link { return &Link{server: s} }

// Cut breaks the link's connections and refuses new ones until Heal.
func (l *Link) Cut() {
	l.mu.Lock()
	l.cut = true
	l.mu.Unlock()
	l.each((*conn).Close)
}

// Freeze lets bytes vanish in both directions while the connections look alive,
// as behind a silent firewall, until Heal.
func (l *Link) Freeze() {
	l.mu.Lock()
	l.cut = true
	l.mu.Unlock()
	l.each((*conn).freeze)
}

// Heal lets connections through again; the old ones are broken.
func (l *Link) Heal() {
	l.each((*conn).Close)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.conns = false, nil
}

func (l *Link) each(do func(*conn) error) {
	l.mu.Lock()
	conns := append([]*conn(nil), l.conns...)
	l.mu.Unlock()
	for _, c := range conns {
		_ = do(c)
	}
}

// InProcessConn connects unless the link is cut.
func (l *Link) InProcessConn() (net.Conn, error) {
	inner, err := l.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, frozen: make(chan struct{}), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.Join(errors.New("the link is cut"), inner.Close())
	}
	l.conns = append(l.conns, c)
	return c, nil
}

type conn struct {
	net.Conn
	freezing, closing sync.Once
	frozen, closed    chan struct{}
}

func (c *conn) freeze() error {
	c.freezing.Do(func() { close(c.frozen) })
	return nil
}

// Close closes the connection and wakes readers that it froze.
func (c *conn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *conn) Write(p []byte) (int, error) {
	select {
	case <-c.frozen:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}
