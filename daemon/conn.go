package daemon

import (
	"crypto/tls"
	"errors"
	"github.com/overlapd/overlapd/daemon/query"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

const (
	// socketMode lets the group of the daemon connect to its Unix socket.
	socketMode = 0o660

	// acceptPause is how long accepting rests when descriptors run out.
	acceptPause = 20 * time.Millisecond

	// lingerTime and lingerBytes bound how long and how much is read and
	// thrown away before a connection is closed with its request unread:
	// closing at once would take the answer from the client.
	lingerTime  = time.Second
	lingerBytes = 256 << 20
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
	endpoint *Endpoint
	guarded  bool        // Host and Origin are checked
	tls      *tls.Config // nil for none
	open     atomic.Int64
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
		if l.open.Add(1) > int64(l.endpoint.limits.Connections) {
			l.open.Add(-1)
			refuse(nc, l.tls != nil)
			continue
		}
		c := &conn{Conn: nc, listener: l}
		if l.tls != nil {
			c.secure(l.tls)
		}
		if err := l.endpoint.watch.add(c); err != nil || l.endpoint.stopping.Load() {
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
		_ = nc.SetWriteDeadline(time.Now().Add(acceptPause))
		_, _ = io.WriteString(nc, errConnections)
	}
	nc.Close()
}

// conn is a client's connection. It knows the call that it waits for, so that
// the watch can cancel it.
type conn struct {
	net.Conn           // the socket
	tls      *tls.Conn // on it, nil for none
	shaken   bool      // its handshake is over
	listener *listener
	token    uint64      // in the watch
	spoken   atomic.Bool // the client has sent something
	linger   atomic.Bool
	closed   atomic.Bool

	mu struct {
		sync.Mutex
		call *query.Call // submitted and not yet read
		left bool
	}
}

// begin names the call that the connection waits for. The call is cancelled
// at once if the client has left already.
func (c *conn) begin(call *query.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.left {
		call.Service.Backend.Cancel(call)
		return
	}
	c.mu.call = call
}

// end says that the answer has come. Cancel is not called after it returns.
func (c *conn) end() {
	c.mu.Lock()
	c.mu.call = nil
	c.mu.Unlock()
}

// leave says that the client has gone.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.left = true
	if c.mu.call != nil {
		c.mu.call.Service.Backend.Cancel(c.mu.call)
		c.mu.call = nil
	}
}

func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if c.linger.Load() {
		c.drain()
	}
	c.listener.endpoint.watch.remove(c)
	err := c.closeSecure()
	c.listener.open.Add(-1)
	return err
}

// drain ends our side and reads what the client still sends.
func (c *conn) drain() {
	if c.tls != nil {
		_ = c.tls.CloseWrite() // it fails if there was no handshake
	}
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, lingerBytes))
}
