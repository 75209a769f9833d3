package daemon

import (
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
)

// Service is a service as the endpoint sees it. What its model looks like is
// known only once its worker has loaded it: see Loaded. When its targets are
// changed, another Service takes its place, and requests go on with the one that
// they began with.
type Service struct {
	ID            models.ServiceID
	Name          string
	Policy        string
	QoSTarget     time.Duration
	QueueLimit    int
	MaxBatch      int // largest batch that is formed by merging queries, 1 for none
	MaxQueryBatch int // largest batch dimension of one query
	MaxSeqLen     int // longest sequence of one query, 0 for any
	Stats         *Stats

	*condition
	home      *backend // that serves it, nil in tests
	signature atomic.Pointer[signature]
}

// condition is how a service stands, whatever its targets are changed to.
type condition struct {
	ready   atomic.Bool
	givenUp atomic.Bool  // no worker of it is expected any more
	retired atomic.Bool  // it takes no further requests
	users   atomic.Int64 // requests that use it, from before their body is read until their memory is given back
}

// Info is what the worker of a service learned of its model.
type Info struct {
	Inputs    []models.TensorSpec
	Outputs   []models.TensorSpec
	Operators int
	Cut       string // why so many, "" if the configuration says it
	Hash      string // sha256 of the model file, hex
	Platform  string // what runs it: "onnxruntime_onnx" or "emulated"
	Device    string // what it runs on, in words
	Versions  map[string]string
}

// NewService returns the service of a configuration entry, not loaded yet.
func NewService(id models.ServiceID, c config.Service, policy string) *Service {
	return &Service{
		ID: id, Name: c.Name, Policy: policy, QoSTarget: c.Target, QueueLimit: c.QueueLimit,
		MaxBatch: c.MaxBatch, MaxQueryBatch: c.MaxQueryBatch,
		Stats: new(Stats), condition: new(condition),
	}
}

// with returns the service with other targets. Who holds either, holds both.
// The new one is to be told how its model looks like.
func (s *Service) with(c *config.Service) *Service {
	next := NewService(s.ID, *c, s.Policy)
	next.Stats, next.condition, next.home = s.Stats, s.condition, s.home
	return next
}

// hold keeps the service from being removed until letGo. It is false if the
// service takes no requests any more: the directory then has another one of
// its name, or none.
func (s *Service) hold() bool {
	s.users.Add(1)
	if !s.retired.Load() {
		return true
	}
	s.letGo()
	return false
}

func (s *Service) letGo() { s.users.Add(-1) }

// Loaded tells what the model looks like. It fails if the protocol cannot
// carry the model's inputs or outputs. It may be called again after a restart
// of the worker; calls in flight keep what they were checked against.
func (s *Service) Loaded(i Info) error {
	sig, err := newSignature(s, i)
	if err != nil {
		return err
	}
	s.signature.Store(sig)
	return nil
}

// SetReady tells whether the worker runs.
func (s *Service) SetReady(ready bool) { s.ready.Store(ready) }

// Ready reports whether the model is known and the worker runs.
func (s *Service) Ready() bool { return s.ready.Load() && s.signature.Load() != nil }

// Batched reports whether the first dimension of every input and output is a
// batch dimension that clients choose, so that queries can be merged.
func (s *Service) Batched() bool {
	sig := s.signature.Load()
	return sig != nil && sig.batched
}
