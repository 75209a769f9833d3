package daemon

import (
	"slices"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
)

// front is the [query.Host] of several instances.
type front struct {
	backends []*loop.Backend
	order    func() []string // the names of the services
	all      bool            // must be ready
}

// Services implements Host. A service that is about to serve comes last.
func (f *front) Services() (all []*query.Service) {
	for _, b := range f.backends {
		all = append(all, b.Services()...)
	}
	return query.InOrder(all, f.order())
}

// Service implements Host.
func (f *front) Service(name []byte) *query.Service {
	for _, b := range f.backends {
		if s := b.Service(name); s != nil {
			return s
		}
	}
	return nil
}

// Live implements Host: one scheduler that hangs is a daemon that does.
func (f *front) Live() bool {
	return !slices.ContainsFunc(f.backends, func(b *loop.Backend) bool { return !b.Live() })
}

func (f *front) Ready() bool {
	draining := slices.ContainsFunc(f.backends, func(b *loop.Backend) bool { return b.Draining() })
	return !draining && query.AnyReady(f.Services(), f.all)
}
