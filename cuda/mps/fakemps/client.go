package fakemps

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

// ErrNotReady is returned by Connect when the server takes no client: it
// starts, or has faulted.
var ErrNotReady = errors.New("fakemps: server is not ready")

// Client is this process as a client of MPS.
type Client struct {
	Server  int // its PID
	control net.Conn
	server  net.Conn
	lost    chan struct{}
}

// Connect makes this process a client of the daemon that serves pipe, as
// cuInit does. It returns an error if there is none: a real client would go on
// without MPS.
func Connect(pipe string) (*Client, error) {
	control, err := net.Dial(network, controlSocket(pipe))
	if err != nil {
		return nil, err
	}
	c := &Client{control: control, lost: make(chan struct{})}
	if err := c.join(pipe); err != nil {
		control.Close()
		return nil, err
	}
	go func() {
		defer close(c.lost)
		_, _ = io.Copy(io.Discard, c.server)
	}()
	return c, nil
}

func (c *Client) join(pipe string) error {
	if _, err := fmt.Fprintf(c.control, "connect %d", os.Getpid()); err != nil {
		return err
	}
	buf := make([]byte, packet)
	n, err := c.control.Read(buf)
	if err != nil {
		return err
	}
	if c.Server, err = strconv.Atoi(string(buf[:n])); err != nil {
		return fmt.Errorf("%w: %q", ErrNotReady, buf[:n])
	}
	c.server, err = net.Dial(network, serverSocket(pipe, c.Server))
	return err
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
	conn, err := net.Dial(network, controlSocket(pipe))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "fault %d", server); err != nil {
		return err
	}
	_, _ = conn.Read(make([]byte, packet)) // it is done
	return nil
}
