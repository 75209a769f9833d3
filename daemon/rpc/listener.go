package rpc

import (
	"context"
	"net"
	"sync"

	"golang.org/x/sys/unix"
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
		probe(c)
		if l.server.queries.Connections.Take(1) {
			open, end := context.WithCancel(context.Background())
			return &conn{Conn: c, server: l.server, open: open, end: end}, nil
		}
		_ = c.Close()
	}
}

// probe has the kernel find out when the client of a connection is gone without
// a word. One that cannot be asked that, such as over a Unix socket, cannot go
// like that either.
func probe(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeWait, Count: probes})
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheard.Milliseconds()))
		})
	}
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	server *Server
	once   sync.Once
	open   context.Context // until it is closed
	end    context.CancelFunc
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.server.queries.Connections.Give(1)
		c.end()
	})
	return c.Conn.Close()
}
