package query

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/text/export"
)

// ModelVersion is the version of a service whose configuration names none.
const ModelVersion = "1"

// versionOf separates the name and the version of a model in the name of a service. Of the
// versions of a model, the highest has the plain name.
const versionOf = ":"

// ModelOf returns the name of a model as clients know it: that of its service without the
// version.
func ModelOf(service string) string {
	name, rest, versioned := strings.Cut(service, versionOf)
	if !versioned {
		return name
	}
	if _, variant, is := strings.Cut(rest, "/"); is {
		return name + "/" + variant
	}
	return name
}

// Service is a service as clients see it. The shape of its model is known once a worker has
// loaded it, see Loaded. When a reload changes its targets, another Service replaces it,
// see Successor; requests finish with the one they began with.
//
// MaxBatch is the largest batch that dynamic batching forms, 1 for none. MaxQueryBatch is
// the largest batch dimension of one query. MaxSeqLen is the longest sequence, 0 for any.
// Variants are the models that can answer, if there is more than one. Text is how its queries
// are made of text, or nil if they cannot be. Name is unique; the services of several versions
// of a model share what [ModelOf] returns for it.
type Service struct {
	ID            models.ServiceID
	Name          string
	Version       string
	Policy        string
	QoSTarget     time.Duration
	QueueLimit    int
	MaxBatch      int
	MaxQueryBatch int
	MaxSeqLen     int
	Variants      []Variant
	Text          *export.Text
	Backend       Backend
	Stats         *stats

	// Asleep is nil if the service has workers, or is about to have them.
	Asleep Sleeper

	*condition
	signature atomic.Pointer[Signature]
}

// Sleeper loads the models of services that are on disk. Its methods may block.
type Sleeper interface {
	// Wake returns nil once the model of a service is in memory. It fails if a query that
	// arrived at a time cannot be in time then, if the model cannot be loaded, or if left is
	// closed before.
	Wake(s *Service, arrival time.Time, left <-chan struct{}) *Error

	// Known returns what requests are checked against once the model is in memory.
	Known(s *Service) (*Signature, *Error)

	// OnDemand reports whether queries wake a service. Otherwise only a request to load it
	// does.
	OnDemand() bool
}

// Variant is one of several models that can answer the queries of a service. A higher
// Accuracy is better. Service is internal: it has workers of its own and is not published.
type Variant struct {
	Name     string
	Accuracy float64
	Service  *Service
}

// Each returns the services that have workers: those of the variants, or s itself if it has
// none.
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

// condition is the state of a service that outlives a change of its targets. A service with
// GivenUp has failed permanently and has no worker until RetryAt (nanoseconds of Unix
// time), or until it is restarted by hand if RetryAt is 0. GivenUp stays set until that
// worker has loaded the model.
// A Retired service accepts no further requests.
type condition struct {
	GivenUp atomic.Bool
	RetryAt atomic.Int64
	Retired atomic.Bool
	ready   atomic.Bool
	users   atomic.Int64

	quarantine quarantine
}

// NewService returns a service whose model is not loaded. The caller sets its targets
// before publishing it.
func NewService(id models.ServiceID, name string) *Service {
	return &Service{ID: id, Name: name, Version: ModelVersion, Stats: new(stats), condition: new(condition)}
}

// number returns the version as a number, for comparisons.
func (s *Service) number() int {
	n, _ := strconv.Atoi(s.Version)
	return n
}

// Successor returns a service that shares the name, backend, statistics and condition of s.
// The caller sets its targets and its model. Holding either holds both.
func (s *Service) Successor() *Service {
	return &Service{
		ID: s.ID, Name: s.Name, Version: s.Version, Policy: s.Policy, Backend: s.Backend, Stats: s.Stats, condition: s.condition,
	}
}

// Hold keeps the service from being removed until LetGo. A request holds its service from
// before its body is read until its memory is released. Hold returns false if the service
// is retired; the registry then has another service of that name, or none.
func (s *Service) Hold() bool {
	// Counting before checking closes the race with a removal, which sets Retired before it
	// reads Users.
	s.users.Add(1)
	if !s.Retired.Load() {
		return true
	}
	s.LetGo()
	return false
}

// LetGo ends a successful Hold.
func (s *Service) LetGo() { s.users.Add(-1) }

// Users returns the number of current holds.
func (s *Service) Users() int64 { return s.users.Load() }

// Loaded sets the shape of the model. It fails if the protocols cannot carry an input or
// output. It is called again when a worker restarts; queries in flight keep the signature
// they were checked against.
func (s *Service) Loaded(i Info) error {
	sig, err := newSignature(s.Name, i)
	if err != nil {
		return err
	}
	if before := s.signature.Swap(sig); before != nil && before.Info.Hash != i.Hash {
		// Inputs that killed the previous model may be harmless to this one.
		s.quarantine.clear()
	}
	return nil
}

// Signature returns what requests are checked against, or nil until the model has been
// loaded once.
func (s *Service) Signature() *Signature { return s.signature.Load() }

// NotReady returns the error for a service without a worker. Either clients have not loaded
// the model, or it is still loading, or the service failed permanently; then the error says
// when it is retried.
func (s *Service) NotReady() *Error {
	switch {
	case s.unloaded():
		return &Error{Status: http.StatusServiceUnavailable, Reason: ReasonUnloaded,
			Message: fmt.Sprintf("the model of service %s is not loaded: POST /v2/repository/models/%s/load", s.Name, ModelOf(s.Name))}
	case !s.GivenUp.Load():
		return ErrUnavailable
	}
	ends, left := s.TriedAgain()
	return &Error{Status: http.StatusServiceUnavailable, Reason: ReasonGivenUp, RetryAfter: left,
		Message: fmt.Sprintf("service %s has failed permanently; overlapd status and the log have the reason; %s", s.Name, ends)}
}

// unloaded reports whether the model is loaded by a request only.
func (s *Service) unloaded() bool { return s.Asleep != nil && !s.Asleep.OnDemand() }

// TriedAgain describes when a permanently failed service is retried. left is 0 if it waits
// for a restart by hand.
func (s *Service) TriedAgain() (text string, left time.Duration) {
	at := s.RetryAt.Load()
	if at == 0 {
		return "fix the cause, then run: overlapd restart " + s.Name, 0
	}
	if left = time.Until(time.Unix(0, at)); left <= 0 {
		return "it is being restarted now", defaultRetryAfter
	}
	return fmt.Sprintf("it is restarted in %v, or immediately by: overlapd restart %s", left.Round(time.Second), s.Name), left
}

// AnyReady reports whether the daemon counts as ready with these services. With all set,
// every service must be ready. Otherwise one must be, and none may still be loading for the
// first time: a permanently failed service does not keep the others from serving. Services
// whose models are on disk do not count; if there are no others, the daemon is ready.
func AnyReady(list []*Service, all bool) (ready bool) {
	ready = len(list) > 0 && !slices.ContainsFunc(list, func(s *Service) bool { return s.Asleep == nil })
	for _, s := range list {
		switch {
		case s.Asleep != nil:
		case s.Ready():
			ready = true
		case all, s.Signature() == nil && !s.GivenUp.Load():
			return false
		}
	}
	return ready
}

// SetReady sets whether a worker of the service is running.
func (s *Service) SetReady(ready bool) { s.ready.Store(ready) }

// Ready reports whether the service answers queries: the model is known and a worker is
// running, or one is started for the first of them.
func (s *Service) Ready() bool {
	return s.ready.Load() && s.signature.Load() != nil || s.Asleep != nil && s.Asleep.OnDemand()
}

// hasVariants returns an error that names the parameter key if the service has no variants.
func (s *Service) hasVariants(key string) *Error {
	if len(s.Variants) > 0 {
		return nil
	}
	return Invalid("the parameter %q chooses among the variants of a service, but %s has one model: leave it out", key, s.Name)
}

// variants lists the variants and their accuracies, for errors and the configuration.
func (s *Service) variants() string {
	list := make([]string, len(s.Variants))
	for i, v := range s.Variants {
		list[i] = fmt.Sprintf("%s (%v)", v.Name, v.Accuracy)
	}
	return strings.Join(list, ", ")
}

// Mergeable reports whether queries can be batched: the first dimension of every input and
// output is a batch dimension that clients choose.
func (s *Service) Mergeable() bool {
	sig := s.signature.Load()
	return sig != nil && sig.Batched
}

// Registry holds the published services. Any goroutine may read it while another publishes.
// What was published is immutable; Publish replaces it as a whole.
type Registry struct {
	now atomic.Pointer[published]
}

type published struct {
	list  []*Service
	named map[string]*Service
}

// Publish replaces the services.
func (r *Registry) Publish(list []*Service) {
	p := &published{list, make(map[string]*Service, len(list))}
	for _, s := range list {
		p.named[s.Name] = s
	}
	r.now.Store(p)
}

// InOrder sorts services by the position of their name in names and returns list. A name
// may also be SERVICE/VARIANT; the first one of a service counts. Services without a name
// in the list come last.
func InOrder(list []*Service, names []string) []*Service {
	at := make(map[string]int, len(names))
	for i := len(names) - 1; i >= 0; i-- {
		of, _, _ := strings.Cut(names[i], "/")
		at[of] = i - len(names)
	}
	slices.SortStableFunc(list, func(a, b *Service) int { return at[a.Name] - at[b.Name] })
	return list
}

// Services implements Host.
func (r *Registry) Services() []*Service { return r.now.Load().list }

// Service implements Host.
func (r *Registry) Service(name []byte) *Service { return r.now.Load().named[string(name)] }

// Running returns the service with this name, or that behind a variant if the name is
// SERVICE/VARIANT. It returns nil if there is none.
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
