package rpc

import (
	"net"
	"sync"
)

// listener bounds the number of connections. One over the limit is closed at
// once, which its client sees as UNAVAILABLE.
type listener struct {
	net.Listener
	server *Server
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.server.open.Add(1) <= int64(l.server.limits.Connections) {
			return &conn{Conn: c, server: l.server}, nil
		}
		l.server.open.Add(-1)
		_ = c.Close()
	}
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	server *Server
	once   sync.Once
}

func (c *conn) Close() error {
	c.once.Do(func() { c.server.open.Add(-1) })
	return c.Conn.Close()
}
