package query

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Service is a service as clients see it. What its model looks like is known
// only once its worker has loaded it: see Loaded. When its targets are changed,
// another Service takes its place (see Successor), and requests go on with the
// one that they began with.
//
// MaxBatch is the largest batch that is formed by merging queries, 1 for none.
// MaxQueryBatch is the largest batch dimension of one query, and MaxSeqLen its
// longest sequence, 0 for any.
type Service struct {
	ID            models.ServiceID
	Name          string
	Policy        string
	QoSTarget     time.Duration
	QueueLimit    int
	MaxBatch      int
	MaxQueryBatch int
	MaxSeqLen     int
	Backend       Backend
	Stats         *stats

	*condition
	signature atomic.Pointer[Signature]
}

// condition is how a service stands, whatever its targets are changed to.
type condition struct {
	ready   atomic.Bool
	givenUp atomic.Bool
	retired atomic.Bool
	users   atomic.Int64
}

// NewService returns a service that is not loaded yet. The caller sets its
// targets before anybody else sees it.
func NewService(id models.ServiceID, name string) *Service {
	return &Service{ID: id, Name: name, Stats: new(stats), condition: new(condition)}
}

// Successor returns a service of the same name, backend, statistics and
// condition, for the caller to set its targets and to say what its model looks
// like. Whoever holds either, holds both.
func (s *Service) Successor() *Service {
	return &Service{
		ID: s.ID, Name: s.Name, Policy: s.Policy, Backend: s.Backend, Stats: s.Stats, condition: s.condition,
	}
}

// Hold keeps the service from being removed until LetGo. A request holds its
// service from before its body is read until its memory is given back. It is
// false if the service takes no requests any more: the directory then has
// another one of its name, or none.
func (s *Service) Hold() bool {
	s.users.Add(1)
	if !s.retired.Load() {
		return true
	}
	s.LetGo()
	return false
}

// LetGo ends a Hold that was true.
func (s *Service) LetGo() { s.users.Add(-1) }

// InUse reports whether anybody holds the service.
func (s *Service) InUse() bool { return s.users.Load() != 0 }

// Retire has the service take no further requests.
func (s *Service) Retire() { s.retired.Store(true) }

// Retired reports whether the service takes no further requests.
func (s *Service) Retired() bool { return s.retired.Load() }

// Loaded sets what the model looks like. It fails if the protocol cannot
// carry the model's inputs or outputs. It may be called again after a restart
// of the worker; calls in flight keep what they were checked against.
func (s *Service) Loaded(i Info) error {
	sig, err := newSignature(s.Name, i)
	if err != nil {
		return err
	}
	s.signature.Store(sig)
	return nil
}

// Signature returns what requests are checked against, nil until the model has
// been loaded for the first time.
func (s *Service) Signature() *Signature { return s.signature.Load() }

// SetReady sets whether the worker runs.
func (s *Service) SetReady(ready bool) { s.ready.Store(ready) }

// Ready reports whether the model is known and the worker runs.
func (s *Service) Ready() bool { return s.ready.Load() && s.signature.Load() != nil }

// SetGivenUp sets whether no worker of the service is expected any more.
func (s *Service) SetGivenUp(givenUp bool) { s.givenUp.Store(givenUp) }

// GivenUp reports whether no worker of the service is expected any more.
func (s *Service) GivenUp() bool { return s.givenUp.Load() }

// Mergeable reports whether the first dimension of every input and output is a
// batch dimension that clients choose, so that queries can be merged.
func (s *Service) Mergeable() bool {
	sig := s.signature.Load()
	return sig != nil && sig.Batched
}

// Registry is what services are looked up in: any goroutine may read it while
// another publishes.
type Registry struct {
	now atomic.Pointer[listing]
}

// listing is what a registry holds at a time. It is never changed: another one
// takes its place.
type listing struct {
	list  []*Service
	names map[string]*Service
}

// Publish replaces the services.
func (r *Registry) Publish(list []*Service) {
	l := &listing{list: list, names: make(map[string]*Service, len(list))}
	for _, s := range list {
		l.names[s.Name] = s
	}
	r.now.Store(l)
}

// InOrder sorts services by their names as these are listed. Others come last.
func InOrder(list []*Service, names []string) []*Service {
	at := func(s *Service) int {
		if i := slices.Index(names, s.Name); i >= 0 {
			return i
		}
		return len(names)
	}
	slices.SortStableFunc(list, func(a, b *Service) int { return at(a) - at(b) })
	return list
}

// Services implements Host.
func (r *Registry) Services() []*Service { return r.now.Load().list }

// Service implements Host.
func (r *Registry) Service(name []byte) *Service { return r.now.Load().names[string(name)] }
