package executor

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/segments/wire"
)

// backlogBytes limits the bytes queued for a worker that does not read.
const backlogBytes = 2 * wire.MaxFrameBytes

// errBacklog is returned when the queue of unread bytes would exceed backlogBytes.
var errBacklog = errors.New("worker does not read")

// conn is the daemon's end of a worker's socket. A send never blocks: the writer
// goroutine sends what the socket did not take.
type conn struct {
	// Only the reader uses Socket.Poll and reads from the socket.
	*wire.Socket
	fd int

	// flush wakes the writer when there is a backlog.
	flush chan struct{}

	mu struct {
		sync.Mutex
		backlog []byte

		// writing is set while the writer holds bytes that must precede any others.
		writing bool
		closed  bool
	}
}

// newConn returns a connection and its other end. An inside worker needs an end
// that does not block, so that its goroutine waits in Go's poller.
func newConn(otherBlocks bool) (*conn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	err = os.NewSyscallError("fcntl", unix.SetNonblock(pair[1], !otherBlocks)) // before os.NewFile, which registers a non-blocking descriptor with the poller
	own, other := os.NewFile(uintptr(pair[0]), "daemon"), os.NewFile(uintptr(pair[1]), "worker")
	socket, serr := wire.NewSocket(own)
	if err := errors.Join(err, serr); err != nil {
		return nil, nil, errors.Join(err, own.Close(), other.Close())
	}
	return &conn{Socket: socket, fd: pair[0], flush: make(chan struct{}, 1)}, other, nil
}

// send sends a frame, or queues it behind earlier ones. Frames arrive in the order
// of the calls.
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

// try writes as much as the socket takes without blocking.
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

// write sends backlogs until done is closed.
func (c *conn) write(done <-chan struct{}) {
	for {
		select {
		case <-c.flush:
		case <-done:
			return
		}
		for data := c.take(); data != nil; data = c.take() {
			if _, err := c.Write(data); err != nil {
				return // the reader gets the same error and loses the worker
			}
		}
	}
}

func (c *conn) take() []byte {
	// take returns the backlog for the writer, or nil when everything was sent.
	c.mu.Lock()
	defer c.mu.Unlock()
	data := c.mu.backlog
	c.mu.backlog = nil
	c.mu.writing = data != nil
	return data
}

// shutdown ends both directions. Bytes that have arrived can still be read.
func (c *conn) shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.closed {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
}

// close frees the descriptor. The reader and the writer must have ended.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	c.File.Close()
}
