package daemon

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/rpc"
)

// front holds the endpoints of both protocols and their sockets.
//
// An inherited socket is lasting: it stays open when the daemon stops, connections queue
// there, and the next daemon accepts them. Therefore nothing is accepted before it can be
// answered, and nothing that was accepted is rejected at the end.
type front struct {
	endpoint *http.Endpoint
	listener net.Listener

	// rpc and remote are nil without gRPC.
	rpc    *rpc.Server
	remote net.Listener

	lasting bool

	// accepting counts the goroutines that accept connections, or wait for it.
	accepting sync.WaitGroup

	// served receives why accepting has ended, once for each protocol.
	served chan error
}

// listen uses the inherited sockets and opens the others.
func (f *front) listen(c *config.Config, o *Options) (err error) {
	f.listener, f.remote, f.served = o.Listener, o.GRPCListener, make(chan error, 2)
	f.lasting = f.listener != nil || f.remote != nil
	if f.listener == nil {
		if f.listener, err = access.Listen(c.Listen); err != nil {
			return err
		}
	}
	if f.remote == nil && c.GRPCListen != "" {
		f.remote, err = access.Listen(c.GRPCListen)
	}
	return err
}

// open starts accepting connections and calls opened. With a lasting socket it first waits
// for ready, and does not accept if that returns false.
func (f *front) open(ready func() bool, opened func()) {
	if !f.lasting {
		f.accept(opened)
		return
	}
	f.accepting.Go(func() {
		if ready() {
			f.accept(opened)
		}
	})
}

// accept starts a goroutine for each protocol.
func (f *front) accept(opened func()) {
	f.accepting.Go(func() { f.served <- f.endpoint.Serve(f.listener) })
	if f.rpc != nil {
		f.accepting.Go(func() { f.served <- f.rpc.Serve(f.remote) })
	}
	opened()
}

// close stops accepting. Accepted connections are still served.
func (f *front) close() error {
	var errs []error
	for _, l := range []net.Listener{f.listener, f.remote} {
		if l == nil {
			continue
		}
		// The endpoints close their listeners too.
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	f.accepting.Wait()
	return errors.Join(errs...)
}

// shutdown stops both protocols at the same time. Accepted requests are answered until ctx
// is done.
func (f *front) shutdown(ctx context.Context) error {
	var remote error
	var both sync.WaitGroup // both protocols stop at the same time
	if f.rpc != nil {
		both.Go(func() { remote = f.rpc.Shutdown(ctx) })
	}
	err := f.endpoint.Shutdown(ctx)
	both.Wait()
	return errors.Join(err, remote)
}
