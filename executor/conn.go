package executor

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/segments/wire"
)

// backlogBytes bounds what waits for a worker that does not read.
const backlogBytes = 2 * wire.MaxFrameBytes

// errBacklog is returned when a worker does not read what it is sent.
var errBacklog = errors.New("worker does not read")

// conn is the daemon's end of a worker's socket. A send never waits: what the
// socket does not take goes to the writer.
type conn struct {
	*wire.Socket // its Poll and what it reads are the reader's
	fd           int
	flush        chan struct{} // wakes the writer when there is a backlog

	mu struct {
		sync.Mutex
		backlog []byte
		writing bool // the writer has bytes that come before any other
		closed  bool
	}
}

// newConn returns a connection and the other end of it. An end that does not block
// waits in Go's poller.
func newConn(otherBlocks bool) (*conn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	err = os.NewSyscallError("fcntl", unix.SetNonblock(pair[1], !otherBlocks)) // before it is a file
	own, other := os.NewFile(uintptr(pair[0]), "daemon"), os.NewFile(uintptr(pair[1]), "worker")
	socket, serr := wire.NewSocket(own)
	if err := errors.Join(err, serr); err != nil {
		return nil, nil, errors.Join(err, own.Close(), other.Close())
	}
	return &conn{Socket: socket, fd: pair[0], flush: make(chan struct{}, 1)}, other, nil
}

// send sends a frame, in the order of the calls.
func (c *conn) send(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return os.ErrClosed
	}
	if !c.mu.writing {
		n, err := c.try(frame)
		if err != nil {
			return err
		}
		frame = frame[n:]
	}
	if len(frame) == 0 {
		return nil
	}
	if len(c.mu.backlog)+len(frame) > backlogBytes {
		return errBacklog
	}
	c.mu.backlog = append(c.mu.backlog, frame...)
	c.mu.writing = true
	select {
	case c.flush <- struct{}{}:
	default:
	}
	return nil
}

// try writes what the socket takes at once.
func (c *conn) try(frame []byte) (int, error) {
	for {
		n, err := unix.SendmsgN(c.fd, frame, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			return 0, os.NewSyscallError("sendmsg", err)
		}
	}
}

// write sends backlogs until the connection is shut down.
func (c *conn) write(done <-chan struct{}) {
	for {
		select {
		case <-c.flush:
		case <-done:
			return
		}
		for data := c.take(); data != nil; data = c.take() {
			if _, err := c.Write(data); err != nil {
				return // the reader finds out as well
			}
		}
	}
}

func (c *conn) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	data := c.mu.backlog
	c.mu.backlog = nil
	c.mu.writing = data != nil
	return data
}

// shutdown ends both directions. What has arrived can still be read.
func (c *conn) shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.closed {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
}

// close frees the descriptor. Reader and writer have ended.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	c.File.Close()
}
