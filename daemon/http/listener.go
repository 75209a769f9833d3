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

// acceptPause is how long accepting rests when descriptors run out.
const acceptPause = 20 * time.Millisecond

// errConnections goes to a connection over the limit, whole.
const errConnections = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n" +
	"Retry-After: 1\r\nConnection: close\r\nContent-Length: 68\r\n\r\n" +
	`{"error":"too many connections are open now","reason":"connections"}`

// loopback reports whether only this machine can reach a TCP address.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// listener accepts connections, bounds their number and has each watched.
type listener struct {
	net.Listener
	watch   *watch
	places  *query.Places
	guarded bool        // Host and Origin are checked
	tls     *tls.Config // nil for none
}

// Accept never gives up because of a moment's lack of descriptors.
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

// newConn returns a connection, encrypted if those of its listener are. The handshake is the
// first read's, in the goroutine of the connection: accepting never waits for a
// client.
func newConn(nc net.Conn, l *listener, place *query.Place) *conn {
	c := &conn{Conn: nc, watch: l.watch, place: place, guarded: l.guarded}
	c.here, c.leave = context.WithCancel(context.Background())
	if l.tls != nil {
		c.tls = tls.Server(nc, l.tls)
	}
	return c
}

// passing reports whether accepting may work again later.
func passing(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO, syscall.EPERM}, errno)
}

// refuse never waits: the send buffer of a new connection holds the answer. A
// client that expects a handshake gets none.
func refuse(nc net.Conn, secure bool) {
	if !secure {
		_ = nc.SetWriteDeadline(time.Now().Add(refusalTime))
		_, _ = io.WriteString(nc, errConnections)
	}
}
