package fakemps

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotReady is returned by Connect if the server accepts no clients, because it is
// starting or has a fault.
var ErrNotReady = errors.New("fakemps: server is not ready")

// Client is this process as a client of MPS.
type Client struct {
	// Server is the PID of the server.
	Server  int
	control net.Conn

	// server is a pidfd of the server.
	server *os.File
	lost   chan struct{}
}

// Connect makes this process a client of the daemon that serves pipe, as cuInit does. It
// returns an error if there is no daemon; a real client would continue without MPS.
func Connect(pipe string) (*Client, error) {
	control, err := send(pipe, fmt.Sprint("connect ", os.Getpid()))
	if err != nil {
		return nil, err
	}
	c := &Client{control: control, lost: make(chan struct{})}
	buf := make([]byte, packet)
	n, err := control.Read(buf)
	if err == nil {
		if c.Server, err = strconv.Atoi(string(buf[:n])); err != nil {
			err = fmt.Errorf("%w: %q", ErrNotReady, buf[:n])
		}
	}
	var fd int
	if err == nil {
		fd, err = unix.PidfdOpen(c.Server, unix.PIDFD_NONBLOCK)
	}
	if err != nil {
		control.Close()
		return nil, err
	}
	c.server = os.NewFile(uintptr(fd), "pidfd")
	if ended(uintptr(fd)) { // its daemon has not noticed yet
		return nil, errors.Join(ErrNotReady, c.server.Close(), control.Close())
	}
	go func() {
		defer close(c.lost)
		if raw, err := c.server.SyscallConn(); err == nil {
			_ = raw.Read(ended)
		}
	}()
	return c, nil
}

// ended reports whether the process of a pidfd has ended.
func ended(pidfd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}

// Lost returns a channel that is closed when the server is gone. A real client's next CUDA
// call fails then.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Close disconnects the client.
func (c *Client) Close() {
	c.server.Close()
	c.control.Close()
	<-c.lost
}

// Fault puts a server into the state FAULT, as a client's bad kernel does. It recovers when
// all its clients are gone.
func Fault(pipe string, server int) error {
	conn, err := send(pipe, fmt.Sprint("fault ", server))
	if err != nil {
		return err
	}
	_, _ = conn.Read(make([]byte, packet)) // wait until it is done
	return conn.Close()
}
