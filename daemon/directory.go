package daemon

import "sync/atomic"

// directory is which services can be asked for. It is never changed: another
// one takes its place.
type directory struct {
	list  []*Service // in the order of the configuration
	names map[string]*Service
}

// registry holds the directory of now. Any goroutine may read it.
type registry struct{ now atomic.Pointer[directory] }

// publish puts another directory in the place of the one before.
func (r *registry) publish(list []*Service) {
	d := &directory{list: list, names: make(map[string]*Service, len(list))}
	for _, s := range list {
		d.names[s.Name] = s
	}
	r.now.Store(d)
}

// Services implements Backend.
func (r *registry) Services() []*Service { return r.now.Load().list }

// Service implements Backend.
func (r *registry) Service(name []byte) *Service { return r.now.Load().names[string(name)] }
