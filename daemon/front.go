package daemon

import (
	"slices"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
)

// face is what the daemon's endpoints ask.
type face interface {
	query.Host
	Status() (*status.Status, bool)
	Timelines() []*timeline.Ring
}

// front hands each call to the instance that has its service.
type front struct {
	backends []*loop.Backend
	order    func() []string // the names of the services
}

// Services implements face. A service that is about to serve comes last.
func (f *front) Services() (all []*query.Service) {
	for _, b := range f.backends {
		all = append(all, b.Services()...)
	}
	return query.InOrder(all, f.order())
}

// Service implements face.
func (f *front) Service(name []byte) *query.Service {
	for _, b := range f.backends {
		if s := b.Service(name); s != nil {
			return s
		}
	}
	return nil
}

// Live implements face: one scheduler that hangs is a daemon that does.
func (f *front) Live() bool {
	return !slices.ContainsFunc(f.backends, func(b *loop.Backend) bool { return !b.Live() })
}

func (f *front) Ready() bool {
	return !slices.ContainsFunc(f.backends, func(b *loop.Backend) bool { return !b.Ready() })
}

// Status implements face.
func (f *front) Status() (*status.Status, bool) {
	parts := make([]*status.Status, len(f.backends))
	for i, b := range f.backends {
		s, ok := b.Status()
		if !ok {
			return nil, false
		}
		parts[i] = s
	}
	var names []string
	for _, s := range f.Services() {
		names = append(names, s.Name)
	}
	return status.Join(parts, names), true
}

// Timelines implements face.
func (f *front) Timelines() (all []*timeline.Ring) {
	for _, b := range f.backends {
		all = append(all, b.Timelines()...)
	}
	return all
}
