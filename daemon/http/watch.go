package http

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

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
	epoll int
	wake  int // eventfd that ends the goroutine
	done  chan struct{}

	mu struct {
		sync.Mutex
		next  uint64
		conns map[uint64]*conn
	}
}

// wakeToken is the token of the eventfd.
const wakeToken = 0

func newWatch() (*watch, error) {
	w := &watch{done: make(chan struct{})}
	w.mu.conns = make(map[uint64]*conn)
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("watching connections: %w", err)
	}
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(fmt.Errorf("watching connections: %w", err), unix.Close(w.epoll))
	}
	if err = w.register(w.wake, unix.EPOLLIN, wakeToken); err != nil {
		return nil, errors.Join(err, unix.Close(w.wake), unix.Close(w.epoll))
	}
	go w.run()
	return w, nil
}

func (w *watch) register(fd int, events uint32, token uint64) error {
	e := unix.EpollEvent{Events: events, Fd: int32(uint32(token)), Pad: int32(uint32(token >> 32))}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("watching a connection: %w", err)
	}
	return nil
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
	w.mu.next++
	c.token = w.mu.next
	w.mu.conns[c.token] = c
	w.mu.Unlock()
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = w.register(int(fd), unix.EPOLLRDHUP|unix.EPOLLET, c.token)
	})
	return errors.Join(err, failed)
}

// remove forgets c. Closing its descriptor takes it out of epoll.
func (w *watch) remove(c *conn) {
	w.mu.Lock()
	delete(w.mu.conns, c.token)
	w.mu.Unlock()
}

// closeSilent closes the connections whose clients have not said anything, such
// as those that browsers open in advance: a shutdown would wait for them.
func (w *watch) closeSilent() {
	w.mu.Lock()
	var silent []*conn
	for _, c := range w.mu.conns {
		if !c.spoken.Load() {
			silent = append(silent, c)
		}
	}
	w.mu.Unlock()
	for _, c := range silent {
		c.leave()
		c.Close()
	}
}

func (w *watch) run() {
	defer close(w.done)
	events := make([]unix.EpollEvent, watchEvents)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		for _, e := range events[:max(n, 0)] {
			token := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
			if token == wakeToken {
				return
			}
			w.mu.Lock()
			c := w.mu.conns[token]
			w.mu.Unlock()
			if c != nil {
				c.leave()
			}
		}
	}
}

// Close closes the connections that are left and ends the goroutine.
func (w *watch) Close() error {
	w.mu.Lock()
	left := make([]*conn, 0, len(w.mu.conns))
	for _, c := range w.mu.conns {
		left = append(left, c)
	}
	w.mu.Unlock()
	for _, c := range left {
		c.leave()
		c.Close()
	}
	one := [8]byte{1}
	if _, err := unix.Write(w.wake, one[:]); err != nil {
		return fmt.Errorf("ending the watch: %w", err)
	}
	<-w.done
	return errors.Join(unix.Close(w.wake), unix.Close(w.epoll))
}
