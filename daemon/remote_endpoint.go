package daemon

import (
	"context"
	"errors"
	"net"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
)

// remoteEndpoint is the endpoint of gRPC: nothing if it is off.
type remoteEndpoint struct {
	listener net.Listener
	server   *rpc.Server
}

// listen opens an address, unless it is "".
func (r *remoteEndpoint) listen(address string) (err error) {
	if address != "" {
		r.listener, err = http.Listen(address)
	}
	return err
}

// open makes the server.
func (r *remoteEndpoint) open(q *query.Server, l config.Limits, a *access.Access) {
	if r.listener != nil {
		r.server = rpc.New(q, l, a)
	}
}

func (r *remoteEndpoint) serve() error { return r.server.Serve(r.listener) }

func (r *remoteEndpoint) addr() net.Addr {
	if r.listener == nil {
		return nil
	}
	return r.listener.Addr()
}

// shutdown waits for the calls that were accepted, in a goroutine of its own,
// so that both protocols stop at once. What it returns is told once.
func (r *remoteEndpoint) shutdown(ctx context.Context) <-chan error {
	stopped := make(chan error, 1)
	if r.server == nil {
		stopped <- nil
		return stopped
	}
	go func() { stopped <- r.server.Shutdown(ctx) }()
	return stopped
}

// close closes the listener of a daemon that did not run.
func (r *remoteEndpoint) close() error {
	if r.listener == nil {
		return nil
	}
	if err := r.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
