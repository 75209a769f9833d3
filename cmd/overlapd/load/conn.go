package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
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
// time. One goroutine uses a conn.
type conn struct {
	run      context.Context // its end ends the request in flight, and every later one
	addr     string
	tls      *tls.Config // nil for none
	nc       net.Conn    // nil if there is none
	release  func() bool // lets go of the context
	reader   *bufio.Reader
	answer   fasthttp.Response
	lastUsed time.Time
}

func newConn(run context.Context, addr string, secure *tls.Config) *conn {
	return &conn{run: run, addr: addr, tls: secure, reader: bufio.NewReaderSize(nil, readBufferBytes)}
}

// do sends a request and reads its answer, which stays valid until the next
// call. It never sends a request twice.
func (c *conn) do(wire []byte, deadline time.Time) error {
	err := c.exchange(wire, deadline)
	if err != nil && c.run.Err() != nil {
		return errStopped
	}
	return err
}

func (c *conn) exchange(wire []byte, deadline time.Time) error {
	if err := c.open(deadline); err != nil {
		return err
	}
	_, writeErr := c.nc.Write(wire)
	// A refused request may be answered before it is written whole.
	err := c.answer.ReadLimitBody(c.reader, maxAnswerBytes)
	c.lastUsed = time.Now()
	if err != nil || writeErr != nil || c.answer.ConnectionClose() {
		c.close()
	}
	if err != nil {
		return errors.Join(writeErr, err)
	}
	return nil
}

// open sees to it that there is a connection, which gives up at the deadline.
func (c *conn) open(deadline time.Time) error {
	if c.nc != nil && time.Since(c.lastUsed) > idleCheck && closedByPeer(c.nc) {
		c.close()
	}
	if c.nc == nil {
		d := net.Dialer{Deadline: deadline}
		dial := d.DialContext
		if c.tls != nil {
			dial = (&tls.Dialer{NetDialer: &d, Config: c.tls}).DialContext
		}
		nc, err := dial(c.run, "tcp", c.addr)
		if err != nil {
			return err
		}
		c.nc = nc
		c.reader.Reset(nc)
		c.release = context.AfterFunc(c.run, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	}
	if err := c.nc.SetDeadline(deadline); err != nil {
		return err
	}
	return c.run.Err() // if the run has ended meanwhile, its deadline may have been set before this one
}

func (c *conn) close() {
	if c.nc != nil {
		c.release()
		c.nc.Close()
		c.nc = nil
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
