package query

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
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
// longest sequence, 0 for any. Variants are the models that can answer its queries where
// there are several.
type Service struct {
	ID            models.ServiceID
	Name          string
	Policy        string
	QoSTarget     time.Duration
	QueueLimit    int
	MaxBatch      int
	MaxQueryBatch int
	MaxSeqLen     int
	Variants      []Variant
	Backend       Backend
	Stats         *stats

	*condition
	signature atomic.Pointer[Signature]
}

// Variant is one of several models that can answer the queries of a service. Of Accuracy
// more is better. Service is what stands behind it, which has workers of its own and is
// not published.
type Variant struct {
	Name     string
	Accuracy float64
	Service  *Service
}

// Each returns what has workers for the service: what stands behind its variants, or, if it
// has none, itself.
func (s *Service) Each() (all []*Service) {
	for _, v := range s.Variants {
		if v.Service != nil {
			all = append(all, v.Service)
		}
	}
	if len(s.Variants) == 0 {
		all = append(all, s)
	}
	return all
}

// condition is how a service stands, whatever its targets are changed to. One that is
// given up has no worker until RetryAt, in nanoseconds of Unix time, or until a person
// restarts it if that is 0; it stays so until that worker has loaded the model. One
// that is retired takes no further requests.
type condition struct {
	GivenUp atomic.Bool
	RetryAt atomic.Int64
	Retired atomic.Bool
	ready   atomic.Bool
	users   atomic.Int64

	quarantine quarantine
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
	if !s.Retired.Load() {
		return true
	}
	s.LetGo()
	return false
}

// LetGo ends a Hold that was true.
func (s *Service) LetGo() { s.users.Add(-1) }

// Users returns how many hold the service.
func (s *Service) Users() int64 { return s.users.Load() }

// Loaded sets what the model looks like. It fails if the protocol cannot
// carry the model's inputs or outputs. It may be called again after a restart
// of the worker; calls in flight keep what they were checked against.
func (s *Service) Loaded(i Info) error {
	sig, err := newSignature(s.Name, i)
	if err != nil {
		return err
	}
	if before := s.signature.Swap(sig); before != nil && before.Info.Hash != i.Hash {
		s.quarantine.clear() // they are not known to harm this model
	}
	return nil
}

// Signature returns what requests are checked against, nil until the model has
// been loaded for the first time.
func (s *Service) Signature() *Signature { return s.signature.Load() }

// NotReady returns what a client sees of a service that has no worker: it loads its
// model, or was given up, with when that ends.
func (s *Service) NotReady() *Error {
	if !s.GivenUp.Load() {
		return ErrUnavailable
	}
	ends, left := s.TriedAgain()
	return &Error{Status: http.StatusServiceUnavailable, Reason: ReasonGivenUp, RetryAfter: left,
		Message: fmt.Sprintf("service %s is given up, and the log and the status of overlapd say why; %s", s.Name, ends)}
}

// TriedAgain says in words when a service that was given up is tried again, and how
// long that is, 0 if it waits for a person.
func (s *Service) TriedAgain() (text string, left time.Duration) {
	at := s.RetryAt.Load()
	if at == 0 {
		return "it waits for overlapd restart " + s.Name, 0
	}
	if left = time.Until(time.Unix(0, at)); left <= 0 {
		return "it is being tried again now", defaultRetryAfter
	}
	return fmt.Sprintf("it is tried again in %v, or at once by overlapd restart %s", left.Round(time.Second), s.Name), left
}

// AnyReady reports whether services are ready as a daemon: one of them can answer
// queries, and none that has never done so still loads. Of all of them each must be
// able to.
func AnyReady(list []*Service, all bool) (ready bool) {
	for _, s := range list {
		switch {
		case s.Ready():
			ready = true
		case all, s.Signature() == nil && !s.GivenUp.Load():
			return false
		}
	}
	return ready
}

// SetReady sets whether the worker runs.
func (s *Service) SetReady(ready bool) { s.ready.Store(ready) }

// Ready reports whether the model is known and the worker runs.
func (s *Service) Ready() bool { return s.ready.Load() && s.signature.Load() != nil }

// hasVariants returns an error if the service has none that the parameter key could choose from.
func (s *Service) hasVariants(key string) *Error {
	if len(s.Variants) > 0 {
		return nil
	}
	return Invalid("the parameter %q chooses among the variants of a service, and %s has one model: leave it out", key, s.Name)
}

// variants lists the variants of a service, each with its accuracy.
func (s *Service) variants() string {
	list := make([]string, len(s.Variants))
	for i, v := range s.Variants {
		list[i] = fmt.Sprintf("%s (%v)", v.Name, v.Accuracy)
	}
	return strings.Join(list, ", ")
}

// Mergeable reports whether the first dimension of every input and output is a
// batch dimension that clients choose, so that queries can be merged.
func (s *Service) Mergeable() bool {
	sig := s.signature.Load()
	return sig != nil && sig.Batched
}

// Registry is what services are looked up in: any goroutine may read it while
// another publishes. A list is never changed: another one takes its place.
type Registry struct {
	now atomic.Pointer[[]*Service]
}

// Publish replaces the services.
func (r *Registry) Publish(list []*Service) { r.now.Store(&list) }

// InOrder sorts services by their names as these are listed, one with variants by that of
// its first, SERVICE/VARIANT. Others come last.
func InOrder(list []*Service, names []string) []*Service {
	at := func(s *Service) int {
		for i, name := range names {
			if of, _, _ := strings.Cut(name, "/"); of == s.Name {
				return i
			}
		}
		return len(names)
	}
	slices.SortStableFunc(list, func(a, b *Service) int { return at(a) - at(b) })
	return list
}

// Services implements Host.
func (r *Registry) Services() []*Service { return *r.now.Load() }

// Service implements Host.
func (r *Registry) Service(name []byte) *Service {
	for _, s := range *r.now.Load() {
		if s.Name == string(name) {
			return s
		}
	}
	return nil
}

// Running returns the service of a name, which may be that of a variant, SERVICE/VARIANT,
// or nil.
func (r *Registry) Running(name string) *Service {
	of, variant, is := strings.Cut(name, "/")
	s := r.Service([]byte(of))
	if s == nil || !is {
		return s
	}
	for _, v := range s.Variants {
		if v.Name == variant {
			return v.Service
		}
	}
	return nil
}
