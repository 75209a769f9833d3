package daemon

import (
	"slices"

	"github.com/overlapd/overlapd/daemon/config"
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

// gather publishes the services of all instances in an order.
func (f *front) gather(order []config.Service) {
	var list []*query.Service
	for i := range order {
		for _, b := range f.backends {
			if s := b.Service([]byte(order[i].Name)); s != nil {
				list = append(list, s)
			}
		}
	}
	f.Publish(list)
}

// front hands each call to the instance that has its service.
type front struct {
	query.Registry
	backends []*loop.Backend
}

// Service implements face. Its instance knows first what has taken the place of a
// service: until that is gathered, the instance is asked.
func (f *front) Service(name []byte) *query.Service {
	s := f.Registry.Service(name)
	if s != nil && s.Retired() {
		return s.Backend.(*loop.Backend).Service(name)
	}
	return s
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
