package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

const (
	readBufferBytes = 16 << 10 // an answer's header must fit
	maxAnswerBytes  = 1 << 30

	// idleCheck is after how long an unused connection is looked at before it
	// is used, because the daemon may have closed it.
	idleCheck = time.Second
)

// errStopped is returned when a request is given up because the run ends.
var errStopped = errors.New("load: stopped")

// conn is one connection to the daemon. It writes requests made beforehand and
// reads answers with the parser of fasthttp. The client of fasthttp cannot give
// up a request in flight, hides which connection a request takes and keeps a
// goroutine after its last connection; it also needs a tenth more processor
// time. One goroutine uses a conn; only abort may be called from another.
type conn struct {
	addr     string
	tls      *tls.Config // nil for none
	reader   *bufio.Reader
	answer   fasthttp.Response
	lastUsed time.Time
	dialing  context.Context // ends with abort
	stopDial context.CancelFunc

	mu struct {
		sync.Mutex
		nc      net.Conn
		stopped bool
	}
}

func newConn(addr string, secure *tls.Config) *conn {
	c := &conn{addr: addr, tls: secure, reader: bufio.NewReaderSize(nil, readBufferBytes)}
	c.dialing, c.stopDial = context.WithCancel(context.Background())
	return c
}

// do sends a request and reads its answer, which stays valid until the next
// call. It never sends a request twice.
func (c *conn) do(wire []byte, deadline time.Time) error {
	nc, err := c.open(deadline)
	if err != nil {
		return c.stoppedOr(err)
	}
	_, writeErr := nc.Write(wire)
	// A refused request may be answered before it is written whole.
	err = c.answer.ReadLimitBody(c.reader, maxAnswerBytes)
	c.lastUsed = time.Now()
	if err == nil && writeErr == nil && !c.answer.ConnectionClose() {
		return nil
	}
	c.close()
	if err == nil {
		return nil
	}
	return c.stoppedOr(errors.Join(writeErr, err))
}

// open returns a connection that gives up at the deadline.
func (c *conn) open(deadline time.Time) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.nc != nil && time.Since(c.lastUsed) > idleCheck && closedByPeer(c.mu.nc) {
		c.closeLocked()
	}
	if c.mu.nc == nil {
		if err := c.dialLocked(deadline); err != nil {
			return nil, err
		}
	}
	if c.mu.stopped {
		return nil, errStopped
	}
	return c.mu.nc, c.mu.nc.SetDeadline(deadline)
}

// dialLocked lets go of the lock while it dials, so that abort can end that.
func (c *conn) dialLocked(deadline time.Time) error {
	if c.mu.stopped {
		return errStopped
	}
	d := net.Dialer{Deadline: deadline}
	dial := d.DialContext
	if c.tls != nil {
		dial = (&tls.Dialer{NetDialer: &d, Config: c.tls}).DialContext
	}
	c.mu.Unlock()
	nc, err := dial(c.dialing, "tcp", c.addr)
	c.mu.Lock()
	if err != nil {
		return err
	}
	c.mu.nc = nc
	c.reader.Reset(nc)
	return nil
}

// abort ends the request in flight and every later one.
func (c *conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.stopped = true
	c.stopDial()
	if c.mu.nc != nil {
		_ = c.mu.nc.SetDeadline(time.Unix(1, 0))
	}
}

func (c *conn) stoppedOr(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return errStopped
	}
	return err
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked()
}

func (c *conn) closeLocked() {
	if c.mu.nc != nil {
		c.mu.nc.Close()
		c.mu.nc = nil
	}
}

// closedByPeer reports whether a connection on which no answer is due has been
// closed, or holds bytes that nobody asked for.
func closedByPeer(nc net.Conn) bool {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	closed := true
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		closed = !errors.Is(err, unix.EAGAIN)
	})
	return closed || err != nil
}

// reasonOf returns why an answer counts as an error, "" if it is none.
func reasonOf(err error) string {
	var ne net.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, fasthttp.ErrTimeout), errors.As(err, &ne) && ne.Timeout():
		return "timeout"
	}
	return "connection"
}
