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

// front is where clients come in: the endpoints of both protocols and their sockets.
//
// A socket that was inherited is lasting: it stays open when the daemon stops, connections
// wait there, and the next daemon accepts them. So nothing is accepted before there is
// somebody to answer, and at the end nothing that was accepted is refused.
type front struct {
	endpoint *http.Endpoint
	listener net.Listener
	rpc      *rpc.Server // nil where gRPC is off, with its listener
	remote   net.Listener

	lasting   bool
	accepting sync.WaitGroup // while connections are accepted, or will be
	served    chan error     // what ended accepting, one for each protocol
}

// listen takes the sockets that were inherited and opens the others.
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

// open accepts connections, if a socket is lasting not before ready returns, and not at all
// if it returns false. It calls opened when it does.
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

func (f *front) accept(opened func()) {
	f.accepting.Go(func() { f.served <- f.endpoint.Serve(f.listener) })
	if f.rpc != nil {
		f.accepting.Go(func() { f.served <- f.rpc.Serve(f.remote) })
	}
	opened()
}

// close ends accepting. What was accepted is served on.
func (f *front) close() error {
	var errs []error
	for _, l := range []net.Listener{f.listener, f.remote} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	f.accepting.Wait()
	return errors.Join(errs...)
}

// shutdown ends both protocols, with answers to what was accepted while ctx lasts.
func (f *front) shutdown(ctx context.Context) error {
	var remote error
	var both sync.WaitGroup // so that both stop at once
	if f.rpc != nil {
		both.Go(func() { remote = f.rpc.Shutdown(ctx) })
	}
	err := f.endpoint.Shutdown(ctx)
	both.Wait()
	return errors.Join(err, remote)
}
