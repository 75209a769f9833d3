package rpc

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// A connection that is idle for probeAfter is probed by the kernel (TCP keepalive),
	// every probeWait, up to probeCount times. unheard limits how long sent data may stay
	// unacknowledged. When any of these fails, the client is gone and its queries are
	// cancelled.
	//
	// gRPC's own pings are not used for this: they depend on the wall clock, and would
	// consider every client gone for as long as the clock was set back.
	probeAfter = 30 * time.Second
	probeWait  = 5 * time.Second
	probeCount = 2
	unheard    = 10 * time.Second
)

// listener limits the number of connections. One over the limit is closed immediately,
// which its client sees as UNAVAILABLE.
//
// gRPC drops connections that it has not begun to serve when it is stopped. So Accept
// reports a closed listener only after gRPC has begun to serve all accepted ones: if the
// caller closes the listener, waits for Serve and then stops gRPC, no connection is lost.
type listener struct {
	net.Listener

	// fresh counts the connections that gRPC has not begun to serve.
	fresh          sync.WaitGroup
	places         *query.Places
	memory, probes *query.Budget
	writeTimeout   time.Duration
}

// Accept returns the next connection that has a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			l.fresh.Wait()
			return nil, err
		}
		probe(c)
		if place := l.places.Take(c.RemoteAddr()); place != nil {
			open, end := context.WithCancel(context.Background())
			taken := &conn{
				Conn: c, listener: l, place: place, open: open, end: end,
				memory: place.Share(l.memory), probes: place.Share(l.probes),
			}
			l.fresh.Add(1)
			taken.begin = sync.OnceFunc(l.fresh.Done)
			place.Silent(func() { _ = taken.Close() })
			return taken, nil
		}
		_ = c.Close()
	}
}

// probe lets the kernel detect a client that has disappeared without closing the
// connection. Other than TCP connections, such as Unix sockets, cannot end that way.
func probe(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeWait, Count: probeCount})
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheard.Milliseconds()))
		})
	}
}

// conn is a connection, which holds its place until it is closed. Its calls and incoming
// requests take its share of the memory, or of probes for calls that need no token.
type conn struct {
	net.Conn
	listener *listener
	place    *query.Place

	memory, probes *query.Budget
	calls          fruitless

	// begin is called once gRPC serves the connection, or when it is closed before.
	begin func()

	// asked reports the first call to the place, once.
	asked sync.Once
	once  sync.Once

	// open is done when the connection is closed.
	open context.Context
	end  context.CancelFunc
}

// Close closes the connection and frees its place. Further calls only repeat the close of
// the socket.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.begin()
		c.place.Leave()
		c.end()
	})
	return c.Conn.Close()
}

// linking are transport credentials that let a call find its connection.
type linking struct {
	credentials.TransportCredentials
}

// link is the AuthInfo that carries the connection.
type link struct {
	credentials.AuthInfo
	conn *conn
}

// ServerHandshake performs the handshake and wraps the connection so that its calls are
// counted.
func (l linking) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	of := c.(*conn)
	of.begin()
	secure, info, err := l.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return secure, info, err
	}
	return newFraming(secure, &of.calls), link{info, of}, nil
}

// connOf returns the connection of a call.
func connOf(ctx context.Context) *conn {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(link).conn
}
