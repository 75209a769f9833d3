package http

import (
	"context"
	"crypto/tls"
	"errors"
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
		if !l.endpoint.queries.Connections.Take(1) {
			refuse(nc, l.tls != nil)
			continue
		}
		c := &conn{Conn: nc, listener: l, left: make(chan struct{})}
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

// conn is a client's connection: a socket, and TLS on it or nil. The watch knows
// it by its token.
type conn struct {
	net.Conn
	tls      *tls.Conn
	shaken   bool // the handshake of TLS is over
	listener *listener
	token    uint64
	spoken   atomic.Bool // the client has sent something
	linger   atomic.Bool // the client needs a moment to read the answer before it is closed
	closed   atomic.Bool

	leaving sync.Once
	left    chan struct{} // closed when the client has left
}

// leave records that the client has left: its query is cancelled.
func (c *conn) leave() { c.leaving.Do(func() { close(c.left) }) }

// gone reports whether the client has left.
func (c *conn) gone() bool {
	select {
	case <-c.left:
		return true
	default:
		return false
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
	c.listener.endpoint.queries.Connections.Give(1)
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

const (
	// handshakeTime is for a new connection to agree on keys. One that says
	// nothing, or a byte now and then, is closed after it.
	handshakeTime = 10 * time.Second

	// protocolHTTP is what clients may ask for by ALPN: fasthttp has no HTTP/2.
	protocolHTTP = "http/1.1"

	maxHandshakePeek = 5 // bytes that TLS calls the header of a record
)

// errPlain goes to a client that does not speak TLS where it is spoken.
const errPlain = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n" +
	"Connection: close\r\nContent-Length: 70\r\n\r\n" +
	`{"error":"this port speaks TLS: ask with https://","reason":"invalid"}`

// secure has a connection encrypted. The handshake is the first read's, in the
// goroutine of the connection: accepting never waits for a client.
func (c *conn) secure(config *tls.Config) { c.tls = tls.Server(c.Conn, config) }

// Read reads what the client has sent, decrypted.
func (c *conn) Read(p []byte) (n int, err error) {
	if c.tls == nil {
		n, err = c.Conn.Read(p)
	} else if err = c.shake(); err == nil {
		n, err = c.tls.Read(p)
	}
	if n > 0 && !c.spoken.Load() {
		c.spoken.Store(true)
	}
	return n, err
}

// Write sends, encrypted.
func (c *conn) Write(p []byte) (int, error) {
	if c.tls == nil {
		return c.Conn.Write(p)
	}
	return c.tls.Write(p)
}

// shake agrees on keys, once.
func (c *conn) shake() error {
	if c.shaken {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	err := c.tls.HandshakeContext(ctx)
	c.shaken = err == nil
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && speaksHTTP(record.RecordHeader) {
		c.linger.Store(true)
		_ = c.Conn.SetWriteDeadline(time.Now().Add(acceptPause)) // the buffer of a new connection holds it
		_, _ = io.WriteString(c.Conn, errPlain)
	}
	return err
}

// speaksHTTP reports whether what came instead of a handshake begins a request.
func speaksHTTP(begin [maxHandshakePeek]byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"} {
		if strings.HasPrefix(method, string(begin[:])) {
			return true
		}
	}
	return false
}

// closeSecure says goodbye, unless nobody would hear it, and closes.
func (c *conn) closeSecure() error {
	if c.tls == nil || c.linger.Load() || c.gone() {
		return c.Conn.Close()
	}
	err := c.tls.Close()
	if errors.Is(err, net.ErrClosed) || c.gone() {
		return nil // the client was quicker
	}
	return err
}
