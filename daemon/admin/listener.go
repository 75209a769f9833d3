package admin

import (
	"context"
	"net"
	"sync"
)

// Limits on connections. Who may not ask has few of his own, so that he cannot
// take those of who may.
const (
	maxConnections = 16
	maxRefused     = 4
)

// conn is a connection of which it is known who made it.
type conn struct {
	*net.UnixConn
	peer    Peer
	allowed bool
	free    func()
}

// Close gives the connection's place back.
func (c *conn) Close() error {
	c.free()
	return c.UnixConn.Close()
}

// listener accepts connections and asks who makes them.
type listener struct {
	*socket
	rule    rule
	ask     func(*net.UnixConn) (Peer, error)
	places  chan struct{} // taken by who may
	refused chan struct{} // taken by who may not
}

func newListener(s *socket, r rule, ask func(*net.UnixConn) (Peer, error)) *listener {
	return &listener{
		socket: s, rule: r, ask: ask,
		places: make(chan struct{}, maxConnections), refused: make(chan struct{}, maxRefused),
	}
}

// Accept returns the next connection that there is a place for. One too many
// is closed at once.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := l.ask(c)
		if err != nil { // it is gone already
			c.Close()
			continue
		}
		places, allowed := l.refused, l.rule.allows(peer)
		if allowed {
			places = l.places
		}
		select {
		case places <- struct{}{}:
			return &conn{c, peer, allowed, sync.OnceFunc(func() { <-places })}, nil
		default:
			c.Close()
		}
	}
}

// connKey is where a request's context has its connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}
