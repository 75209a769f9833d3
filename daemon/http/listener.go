package http

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
)

// acceptPause is the pause before accepting again when descriptors or memory run out.
const acceptPause = 20 * time.Millisecond

// errConnections is the complete response to a connection over the limit.
const errConnections = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n" +
	"Retry-After: 1\r\nConnection: close\r\nContent-Length: 68\r\n\r\n" +
	`{"error":"too many connections are open now","reason":"connections"}`

// loopback reports whether a TCP address is only reachable from this host.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// listener accepts connections, limits their number and adds each to the watch.
type listener struct {
	net.Listener
	watch  *watch
	places *query.Places

	// guarded is set if Host and Origin are checked.
	guarded bool

	// tls is nil for plain HTTP.
	tls *tls.Config
}

// Accept returns the next connection that has a place. Passing errors, such as running out
// of descriptors, do not end it: the daemon must survive a flood of connections.
func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			if passing(err) {
				time.Sleep(acceptPause)
				continue
			}
			return nil, err
		}
		place := l.places.Take(nc.RemoteAddr())
		if place == nil {
			refuse(nc, l.tls != nil)
			nc.Close()
			continue
		}
		c := newConn(nc, l, place)
		// Without the watch, a departed client would not be noticed, so the connection is
		// dropped.
		if err := l.watch.add(c); err != nil {
			c.Close()
			continue
		}
		place.Silent(func() {
			refuse(nc, l.tls != nil)
			c.leave()
			c.Close()
		})
		return c, nil
	}
}

// newConn returns a connection, with TLS if the listener has it. The handshake happens on
// the first read, in the goroutine of the connection, so that a slow client does not block
// accepting.
func newConn(nc net.Conn, l *listener, place *query.Place) *conn {
	c := &conn{Conn: nc, watch: l.watch, place: place, guarded: l.guarded}
	c.here, c.leave = context.WithCancel(context.Background())
	if l.tls != nil {
		c.tls = tls.Server(nc, l.tls)
	}
	return c
}

// passing reports whether an error of accept is temporary.
func passing(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO, syscall.EPERM}, errno)
}

// refuse writes the rejection. It does not block, because the response fits into the send
// buffer of a new connection. A client that expects a TLS handshake gets no response.
func refuse(nc net.Conn, secure bool) {
	if !secure {
		_ = nc.SetWriteDeadline(time.Now().Add(refusalTime))
		_, _ = io.WriteString(nc, errConnections)
	}
}
