package fakemps

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotReady is returned by Connect when the server takes no client: it
// starts, or has faulted.
var ErrNotReady = errors.New("fakemps: server is not ready")

// Client is this process as a client of MPS.
type Client struct {
	Server  int // its PID
	control net.Conn
	server  *os.File // a descriptor of its process
	lost    chan struct{}
}

// Connect makes this process a client of the daemon that serves pipe, as
// cuInit does. It returns an error if there is none: a real client would go on
// without MPS.
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
	if ended(uintptr(fd)) { // and its daemon does not know yet
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

// ended reports whether the process of a descriptor is gone.
func ended(pidfd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}

// Lost is closed when the server is gone: a real client's next CUDA call
// fails then.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Close ends the client.
func (c *Client) Close() {
	c.server.Close()
	c.control.Close()
	<-c.lost
}

// Fault makes a server fault, as a client's bad kernel does. It recovers when
// all its clients are gone.
func Fault(pipe string, server int) error {
	conn, err := send(pipe, fmt.Sprint("fault ", server))
	if err != nil {
		return err
	}
	_, _ = conn.Read(make([]byte, packet)) // it is done
	return conn.Close()
}
