package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// refusalTime is the write timeout for rejecting a new connection. Its empty send
	// buffer has room for the response, so it is not expected to elapse.
	refusalTime = 20 * time.Millisecond

	// lingerTime and lingerBytes limit how long and how much is read and discarded before a
	// connection is closed with its request unread. Closing right away would reset the
	// connection, and the client could lose the response.
	lingerTime  = time.Second
	lingerBytes = 256 << 20
)

// conn is a client connection: a socket, with TLS on top if tls is not nil. A conn has one
// goroutine that reads and writes; the watch and evictions call leave and Close from
// others.
type conn struct {
	net.Conn
	tls *tls.Conn

	// shaken is set after the TLS handshake.
	shaken bool
	watch  *watch
	place  *query.Place

	// memory is the connection's share of the budget for bodies, nil before the first one.
	memory *query.Budget

	// guarded is set if Host and Origin are checked, see gate.check.
	guarded bool

	// token identifies the connection in the watch. It is never reused.
	token uint64

	// asked is set after the first request, spoken after the first byte.
	asked  bool
	spoken atomic.Bool

	// linger makes Close wait for the client to read the response.
	linger atomic.Bool
	closed atomic.Bool

	// here is done once the client has disconnected.
	here  context.Context
	leave context.CancelFunc
}

// Close closes the connection and frees its place. Further calls have no effect.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if c.linger.Load() {
		c.drain()
	}
	c.watch.remove(c)
	err := c.closeSecure()
	c.place.Leave()
	return err
}

// share returns the connection's share of a memory budget. Every call passes the same
// budget, so the share is kept.
func (c *conn) share(memory *query.Budget) *query.Budget {
	if c.memory == nil {
		c.memory = c.place.Share(memory)
	}
	return c.memory
}

// drain closes the sending side and discards what the client still sends, see lingerTime.
func (c *conn) drain() {
	if c.tls != nil {
		_ = c.tls.CloseWrite() // fails without a handshake
	}
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, lingerBytes))
}

// handshakeTime is the timeout of the TLS handshake as a whole, which a client cannot
// extend by sending a byte now and then.
const handshakeTime = 10 * time.Second

// errPlain is the response to plain HTTP on a port that speaks TLS.
const errPlain = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n" +
	"Connection: close\r\nContent-Length: 70\r\n\r\n" +
	`{"error":"this port speaks TLS: ask with https://","reason":"invalid"}`

// Read returns decrypted data from the client. It performs the TLS handshake first.
func (c *conn) Read(p []byte) (n int, err error) {
	if c.tls == nil {
		n, err = c.Conn.Read(p)
	} else if err = c.shake(); err == nil {
		n, err = c.tls.Read(p)
	}
	if n > 0 && !c.spoken.Load() {
		c.spoken.Store(true)
	}
	// The deadline was moved to stop the endpoint, so the client was not too slow.
	if errors.Is(err, os.ErrDeadlineExceeded) && c.watch.stopping() {
		err = query.ErrDraining
	}
	return n, err
}

// SetReadDeadline sets the deadline for reading a request. While the endpoint stops, it is
// capped at the end of unsentTime, however often fasthttp sets it.
func (c *conn) SetReadDeadline(t time.Time) error {
	if end := c.watch.end.Load(); end != nil && t.After(*end) {
		t = *end
	}
	return c.Conn.SetReadDeadline(t)
}

// Write sends data, encrypted if the connection uses TLS.
func (c *conn) Write(p []byte) (int, error) {
	if c.tls == nil {
		return c.Conn.Write(p)
	}
	return c.tls.Write(p)
}

// shake performs the TLS handshake unless it is done. A client that speaks plain HTTP gets
// an explanation.
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
		_ = c.Conn.SetWriteDeadline(time.Now().Add(refusalTime))
		_, _ = io.WriteString(c.Conn, errPlain)
	}
	return err
}

// speaksHTTP reports whether the bytes received instead of a TLS record begin an HTTP
// request.
func speaksHTTP(begin [5]byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"} {
		if strings.HasPrefix(method, string(begin[:])) {
			return true
		}
	}
	return false
}

// closeSecure closes the connection. It sends the closing alert of TLS first, unless the
// client has gone or was already sent one.
func (c *conn) closeSecure() error {
	if c.tls == nil || c.linger.Load() || c.here.Err() != nil {
		return c.Conn.Close()
	}
	err := c.tls.Close()
	if errors.Is(err, net.ErrClosed) || c.here.Err() != nil {
		return nil // the client closed first
	}
	return err
}

// watchEvents is the number of events that one epoll wait may return.
const watchEvents = 64

// watch detects that clients disconnect while their queries are queued or running. fasthttp
// does not look at a connection between request and response. Every connection is added to
// an epoll instance once, edge-triggered, so that a request costs no additional system
// call. One goroutine waits for events.
//
// A token is never reused, so an event of a closed connection finds nothing, even if its
// descriptor belongs to another connection by then.
type watch struct {
	fd int

	// epoll owns fd.
	epoll *os.File
	done  chan struct{}

	// lasting is set if the listening socket outlives the endpoint, see [Options].
	lasting bool

	// end is when requests in transit must have arrived, nil until the endpoint stops.
	end atomic.Pointer[time.Time]

	mu struct {
		sync.Mutex
		next  uint64
		conns map[uint64]*conn
	}
}

// newWatch returns a running watch. Close stops its goroutine.
func newWatch(lasting bool) (*watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // lets the runtime's poller wait for it
	}
	if err != nil {
		return nil, fmt.Errorf("watching connections: %w", err)
	}
	w := &watch{fd: fd, epoll: os.NewFile(uintptr(fd), "epoll"), lasting: lasting, done: make(chan struct{})}
	w.mu.conns = make(map[uint64]*conn)
	go w.run()
	return w, nil
}

// add starts watching c. It fails if the endpoint is stopping, unless the listening socket
// outlives it.
func (w *watch) add(c *conn) error {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return errors.New("watching a connection: it has no descriptor")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	w.mu.Lock()
	if w.stopping() && !w.lasting {
		w.mu.Unlock()
		return errors.New("watching a connection: the endpoint is stopping")
	}
	w.mu.next++
	c.token = w.mu.next
	w.mu.conns[c.token] = c
	w.mu.Unlock()
	// EpollEvent has 64 bits of user data in two fields, which hold the token.
	e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(c.token)), Pad: int32(uint32(c.token >> 32))}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(fd), &e) })
	return errors.Join(err, failed)
}

// remove forgets c. The kernel removes its descriptor from epoll when it is closed.
func (w *watch) remove(c *conn) {
	w.mu.Lock()
	delete(w.mu.conns, c.token)
	w.mu.Unlock()
}

const (
	// unsentTime is how long a request that was partly sent when the endpoint stops may
	// take to arrive completely.
	unsentTime = time.Second

	// settleLook is how often settle checks for open connections.
	settleLook = 10 * time.Millisecond
)

// stopping reports whether the endpoint is stopping.
func (w *watch) stopping() bool { return w.end.Load() != nil }

// stop begins to shut down. It accepts no further connections, closes those that have sent
// nothing, and gives the others unsentTime to complete their request. If the listening
// socket outlives the endpoint, clients cannot know that it stops: then no connection is
// closed and all get that time, including those accepted but not yet added.
func (w *watch) stop() {
	end := time.Now().Add(unsentTime)
	w.end.Store(&end)
	w.close(func(c *conn) bool {
		// A connection whose query is running is not being read, so the deadline does not
		// affect it.
		return !w.lasting && !c.spoken.Load() || c.SetReadDeadline(end) != nil
	})
}

// settle waits until all connections are closed, at most for the time that stop gave them.
func (w *watch) settle(ctx context.Context) {
	ctx, cancel := context.WithDeadline(ctx, *w.end.Load())
	defer cancel()
	tick := time.NewTicker(settleLook)
	defer tick.Stop()
	for w.open() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// open returns the number of open connections.
func (w *watch) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.conns)
}

// close closes the connections for which the callback returns true. It calls the callback
// and Close without the lock, because Close takes it.
func (w *watch) close(which func(*conn) bool) {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.mu.conns))
	w.mu.Unlock()
	for _, c := range all {
		if which(c) {
			c.leave()
			c.Close()
		}
	}
}

// run waits for events and marks the clients of those connections as gone.
func (w *watch) run() {
	defer close(w.done)
	raw, err := w.epoll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, watchEvents)
	// Read returns when Close closes the epoll descriptor. Returning false from the
	// callback waits for the descriptor to become readable.
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if n <= 0 && !errors.Is(err, unix.EINTR) {
				return false
			}
			for _, e := range events[:max(n, 0)] {
				w.mu.Lock()
				// The token from the two halves of the user data, see add.
				c := w.mu.conns[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]
				w.mu.Unlock()
				if c != nil {
					c.leave()
				}
			}
		}
	})
}

// Close closes the remaining connections and stops the goroutine.
func (w *watch) Close() error {
	w.close(func(*conn) bool { return true })
	err := w.epoll.Close()
	<-w.done
	return err
}
