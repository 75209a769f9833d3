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
	// refusalTime is for writing a refusal to a new connection, whose buffer holds it.
	refusalTime = 20 * time.Millisecond

	// lingerTime and lingerBytes bound how long and how much is read and
	// thrown away before a connection is closed with its request unread:
	// closing at once would take the answer from the client.
	lingerTime  = time.Second
	lingerBytes = 256 << 20
)

// conn is a client's connection: a socket, and TLS on it or nil. The watch knows
// it by its token.
type conn struct {
	net.Conn
	tls     *tls.Conn
	shaken  bool // the handshake of TLS is over
	watch   *watch
	place   *query.Place
	memory  *query.Budget // of the body that it sends; nil before the first
	guarded bool          // Host and Origin are checked
	token   uint64
	asked   bool        // a request has come
	spoken  atomic.Bool // the client has sent something
	linger  atomic.Bool // the client needs a moment to read the answer before it is closed
	closed  atomic.Bool

	here  context.Context // until the client has left
	leave context.CancelFunc
}

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

// share returns the connection's share of a memory, which is the same each time.
func (c *conn) share(memory *query.Budget) *query.Budget {
	if c.memory == nil {
		c.memory = c.place.Share(memory)
	}
	return c.memory
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

// handshakeTime is for a new connection to agree on keys. One that says
// nothing, or a byte now and then, is closed after it.
const handshakeTime = 10 * time.Second

// errPlain goes to a client that does not speak TLS where it is spoken.
const errPlain = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n" +
	"Connection: close\r\nContent-Length: 70\r\n\r\n" +
	`{"error":"this port speaks TLS: ask with https://","reason":"invalid"}`

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
	if errors.Is(err, os.ErrDeadlineExceeded) && c.watch.stopping() {
		err = query.ErrDraining
	}
	return n, err
}

// SetReadDeadline gives a request its time to come. Once the endpoint stops, it has no
// more than what is left of unsentTime.
func (c *conn) SetReadDeadline(t time.Time) error {
	if end := c.watch.end.Load(); end != nil && t.After(*end) {
		t = *end
	}
	return c.Conn.SetReadDeadline(t)
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
		_ = c.Conn.SetWriteDeadline(time.Now().Add(refusalTime))
		_, _ = io.WriteString(c.Conn, errPlain)
	}
	return err
}

// speaksHTTP reports whether what came instead of a handshake begins a request.
func speaksHTTP(begin [5]byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"} {
		if strings.HasPrefix(method, string(begin[:])) {
			return true
		}
	}
	return false
}

// closeSecure sends the alert that ends TLS, unless nobody would read it, and
// closes the connection.
func (c *conn) closeSecure() error {
	if c.tls == nil || c.linger.Load() || c.here.Err() != nil {
		return c.Conn.Close()
	}
	err := c.tls.Close()
	if errors.Is(err, net.ErrClosed) || c.here.Err() != nil {
		return nil // the client was quicker
	}
	return err
}

// watchEvents is how many departures one wait may report.
const watchEvents = 64

// watch learns that clients leave while their queries are queued or running;
// fasthttp does not look at a connection between request and answer. Every
// connection is registered once, with epoll, edge-triggered, so a request
// costs no system call. One goroutine waits.
//
// Tokens are never used twice: an event of a connection that is closed finds
// nothing, even if its descriptor belongs to another by then.
type watch struct {
	fd      int
	epoll   *os.File // owns fd
	done    chan struct{}
	lasting bool                      // the listening socket outlives the endpoint
	end     atomic.Pointer[time.Time] // when a request must have come; nil until the endpoint stops

	mu struct {
		sync.Mutex
		next  uint64
		conns map[uint64]*conn
	}
}

func newWatch(lasting bool) (*watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that the runtime waits for it
	}
	if err != nil {
		return nil, fmt.Errorf("watching connections: %w", err)
	}
	w := &watch{fd: fd, epoll: os.NewFile(uintptr(fd), "epoll"), lasting: lasting, done: make(chan struct{})}
	w.mu.conns = make(map[uint64]*conn)
	go w.run()
	return w, nil
}

// add starts watching c.
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
	e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(c.token)), Pad: int32(uint32(c.token >> 32))}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(fd), &e) })
	return errors.Join(err, failed)
}

// remove forgets c. Closing its descriptor takes it out of epoll.
func (w *watch) remove(c *conn) {
	w.mu.Lock()
	delete(w.mu.conns, c.token)
	w.mu.Unlock()
}

const (
	// unsentTime is how long a request that is half sent when the endpoint stops may
	// still take to come.
	unsentTime = time.Second

	// settleLook is how often settle looks whether connections are left.
	settleLook = 10 * time.Millisecond
)

// stopping reports whether the endpoint stops.
func (w *watch) stopping() bool { return w.end.Load() != nil }

// stop takes in no further connection, closes those whose clients have not said
// anything, and gives the others a moment to send what they have begun to. If the listening
// socket outlives the endpoint, it closes none: all have that moment, also those that were
// accepted but not added yet.
func (w *watch) stop() {
	end := time.Now().Add(unsentTime)
	w.end.Store(&end)
	w.close(func(c *conn) bool {
		// Nobody reads while a query is answered, so that the time is over for none.
		return !w.lasting && !c.spoken.Load() || c.SetReadDeadline(end) != nil
	})
}

// settle waits until no connection is left, for at most the time that stop gave them.
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

func (w *watch) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.conns)
}

// close closes some of the connections.
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

func (w *watch) run() {
	defer close(w.done)
	raw, err := w.epoll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, watchEvents)
	// It ends when epoll is closed.
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if n <= 0 && !errors.Is(err, unix.EINTR) {
				return false
			}
			for _, e := range events[:max(n, 0)] {
				w.mu.Lock()
				c := w.mu.conns[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]
				w.mu.Unlock()
				if c != nil {
					c.leave()
				}
			}
		}
	})
}

// Close closes the connections that are left and ends the goroutine.
func (w *watch) Close() error {
	w.close(func(*conn) bool { return true })
	err := w.epoll.Close()
	<-w.done
	return err
}
