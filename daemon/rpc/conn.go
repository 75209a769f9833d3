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
	// probeAfter is how long a connection is quiet before the kernel asks
	// whether its client is still there, probeCount how often it asks, and probeWait
	// how long it waits for an answer each time. What is sent to a client that is
	// gone has unheard to be acknowledged. Its queries are cancelled then.
	//
	// The pings of gRPC are not for this: they go by the clock on the wall, and
	// take everybody for gone for as long as that was set back.
	probeAfter = 30 * time.Second
	probeWait  = 5 * time.Second
	probeCount = 2
	unheard    = 10 * time.Second
)

// listener bounds the number of connections. One over the limit is closed at
// once, which its client sees as UNAVAILABLE.
//
// gRPC closes a connection that it has not begun to serve when it is told to stop. So Accept
// does not report that the listener is closed before gRPC has begun with all: whoever closes
// it, waits for Serve, and then stops gRPC, loses none.
type listener struct {
	net.Listener
	fresh          sync.WaitGroup // the connections that gRPC has not begun with
	places         *query.Places
	memory, probes *query.Budget
	writeTimeout   time.Duration
}

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

// probe has the kernel find out when the client of a connection is gone without
// a word. One that cannot be asked that, such as over a Unix socket, cannot go
// like that either.
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

// conn is a connection that is counted until it is closed. Its calls, and what has come of
// their requests, take its share of the memory, or of that for calls that need no token.
type conn struct {
	net.Conn
	listener *listener
	place    *query.Place

	memory, probes *query.Budget
	calls          fruitless

	begin func() // called once gRPC has begun with it, or it is closed
	asked sync.Once
	once  sync.Once
	open  context.Context // until it is closed
	end   context.CancelFunc
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.begin()
		c.place.Leave()
		c.end()
	})
	return c.Conn.Close()
}

// linking has calls know their connection.
type linking struct {
	credentials.TransportCredentials
}

// link is what calls know.
type link struct {
	credentials.AuthInfo
	conn *conn
}

// ServerHandshake agrees with a client.
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
