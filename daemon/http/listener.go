package http

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// socketMode lets the group of the daemon connect to its Unix socket.
	socketMode = 0o660

	// acceptPause is how long accepting rests when descriptors run out.
	acceptPause = 20 * time.Millisecond
)

// errConnections goes to a connection over the limit, whole.
const errConnections = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n" +
	"Retry-After: 1\r\nConnection: close\r\nContent-Length: 68\r\n\r\n" +
	`{"error":"too many connections are open now","reason":"connections"}`

// Listen opens the address of a configuration: "host:port" or "unix:/path".
// The socket of a daemon that died is taken over; that of a living one is
// not.
func Listen(address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, config.UnixPrefix)
	if !unix {
		return net.Listen("tcp", address)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// removeStale removes a socket that nobody listens to. Anything else at path
// stays, and listening then fails.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return nil //nolint:nilerr // listening says what stands in its way
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return &net.OpError{Op: "listen", Net: "unix", Addr: &net.UnixAddr{Name: path, Net: "unix"}, Err: syscall.EADDRINUSE}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	return os.Remove(path)
}

// loopback reports whether only this machine can reach a TCP address.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// listener accepts connections, bounds their number and has each watched.
type listener struct {
	net.Listener
	watch   *watch
	places  *query.Budget
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
		if !l.places.Take(1) {
			refuse(nc, l.tls != nil)
			continue
		}
		c := &conn{Conn: nc, watch: l.watch, places: l.places, guarded: l.guarded, left: make(chan struct{})}
		if l.tls != nil {
			c.secure(l.tls)
		}
		if err := l.watch.add(c); err != nil {
			c.Close()
			continue
		}
		return c, nil
	}
}

// passing reports whether accepting may work again later.
func passing(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO, syscall.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// refuse never waits: the send buffer of a new connection holds the answer. A
// client that expects a handshake gets none.
func refuse(nc net.Conn, secure bool) {
	if !secure {
		_ = nc.SetWriteDeadline(time.Now().Add(refusalTime))
		_, _ = io.WriteString(nc, errConnections)
	}
	nc.Close()
}
