package daemon

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
)

func accessOptions(c *config.Config, changed func(error)) access.Options {
	return access.Options{
		TokenFile: c.Access.TokenFile, Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.ClientCA,
		MinVersion: c.TLS.MinVersion, Changed: changed,
	}
}

// CheckAccess reads the files that say who may ask. It returns what is unsafe
// about them and about the addresses, each with a remedy.
func CheckAccess(c *config.Config) (warnings []string, err error) {
	a, err := access.Open(accessOptions(c, nil))
	if err != nil {
		return c.Exposures(), err
	}
	return slices.Concat(c.Exposures(), a.Warnings(), c.OpenFolders(-1)), nil // who asks need not be the daemon's user
}

// remoteEndpoint is the endpoint of gRPC: nothing if it is off.
type remoteEndpoint struct {
	listener net.Listener
	server   *rpc.Server
}

// listen opens an address, unless it is "".
func (r *remoteEndpoint) listen(address string) (err error) {
	if address != "" {
		r.listener, err = access.Listen(address)
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
