package query

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
)

// DaemonName is the server name in the protocols' metadata.
const DaemonName = "overlapd"

// HeaderLoadForm is the request header (or metadata key) that asks for an ORCA load report
// with the response. Its value is one of the forms below. LoadMessage is the Protocol
// Buffers message, for gRPC only.
const (
	HeaderLoadForm = "endpoint-load-metrics-format"

	LoadText    = "TEXT"
	LoadJSON    = "JSON"
	LoadBinary  = "BIN"
	LoadMessage = ""
)

// Host is what the protocols need of the daemon besides queries. Its methods are called
// from many goroutines at once, and none of them may block.
type Host interface {
	// Services returns all services in the order of the configuration. The slice is
	// immutable: when services change, the next call returns another one.
	Services() []*Service

	// Service returns the service with this name, or nil.
	Service(name []byte) *Service

	// Live reports whether the scheduler goroutine makes progress.
	Live() bool

	// NotReady returns the error that a readiness check reports, or nil if the daemon is
	// ready. A daemon is not ready while services load, see [AnyReady], and once it is
	// drained.
	NotReady() *Error
}

// repository loads and unloads models for clients. Its methods are called from many
// goroutines at once and block until the change is made. If ctx ends before, they return an
// error, and the change continues.
type repository interface {
	// Load loads all versions of a model.
	Load(ctx context.Context, model string) *Error

	// Unload unloads all versions of a model.
	Unload(ctx context.Context, model string) *Error
}

// tracer samples and records queries.
type tracer interface {
	// Begin returns a record for the query, or nil if the query is not sampled.
	Begin(parent tracing.Parent) *tracing.Query

	// Finish hands over a completed record.
	Finish(q *tracing.Query)
}

// Server answers the queries of all protocols. It holds what they share: the services, the
// memory of requests and responses in flight, and the open connections. Its fields are set
// before it is used and do not change. Label is "emulated" on an emulated device, otherwise
// empty. Tracer may be nil.
type Server struct {
	Host
	Repository  repository
	Memory      *Budget
	Connections *Places
	Version     string
	Label       string
	Tracer      tracer
	Log         zerolog.Logger

	// Load returns the load of a service ("" for all together) as an ORCA report in one of
	// the forms of [HeaderLoadForm], or "" if the load is not known yet. It may be nil.
	Load func(service, form string) string

	calls sync.Pool // *Call
}

// codec decodes one request and encodes its response.
type codec interface {
	// Decode reads the request into c, sets its Arrival once it has been read completely,
	// and calls Check and Admit.
	Decode(c *Call) *Error

	// Encode writes the response. c.Reply has as many outputs as the model. They lie in
	// shared memory that is reclaimed when Encode returns.
	Encode(c *Call) *Error
}

// Answer runs one query: it decodes the request with by, submits it, waits for the backend,
// and encodes the response. If it returns an error, nothing was written and the caller must
// write the error. When left is closed because the client has disconnected, the query is
// cancelled, but Answer still returns only after the backend has answered.
func (s *Server) Answer(v *Service, by codec, trace *tracing.Query, left <-chan struct{}) *Error {
	v, woken, gone := s.hold(v, left)
	if gone != nil {
		return gone
	}
	defer v.LetGo()
	sig := v.Signature()
	if sig == nil {
		refusal := v.NotReady()
		v.Stats.TurnAway(refusal)
		return refusal
	}
	c, ok := s.calls.Get().(*Call)
	if !ok {
		c = &Call{answer: make(chan struct{}, 1)}
	}
	c.reset(v, sig)
	c.Trace = trace
	defer s.done(c)
	if err := by.Decode(c); err != nil {
		v.Stats.TurnAway(err)
		return err
	}
	if !woken.IsZero() {
		c.Arrival = woken
	}
	if err := v.submit(c); err != nil {
		v.Backend.Free(v, c.Memory)
		refusal := asError(err)
		v.Stats.failed(refusal, time.Since(c.Arrival))
		v.Stats.TurnAway(refusal)
		return refusal
	}
	c.wait(left)
	if c.Reply.Deadly {
		v.quarantine.add(c.inputsHash(), time.Now())
	}
	err := s.encode(by, c)
	v.Backend.Release(c)
	if err != nil {
		v.Stats.failed(err, time.Since(c.Arrival))
		return err
	}
	now := time.Now()
	v.Stats.succeeded(c, now)
	for i := range v.Variants {
		if ran := &v.Variants[i]; ran.Name == c.Reply.Variant && ran.Service != nil {
			ran.Service.Stats.succeeded(c, now)
		}
	}
	return nil
}

// Known returns what requests to a service are checked against, or why that is not known.
func (s *Service) Known() (*Signature, *Error) {
	switch sig := s.Signature(); {
	case sig != nil:
		return sig, nil
	case s.Asleep != nil:
		return s.Asleep.Known(s)
	}
	return nil, s.NotReady()
}

// holdTries limits how many replacements hold follows. Each takes a reload or an eviction between
// finding a service and holding it.
const holdTries = 8

// hold returns v, held, or the service that has replaced it since it was found. If its model is on
// disk it waits until that is loaded, and returns since when: the deadline of the query counts from
// then. It fails if v was removed, or if the query would be late.
func (s *Server) hold(v *Service, left <-chan struct{}) (_ *Service, woken time.Time, err *Error) {
	for range holdTries {
		if v.Asleep != nil {
			if woken.IsZero() {
				woken = time.Now()
			}
			if v, err = s.Awake(v, woken, left); err != nil {
				return nil, woken, err
			}
		}
		if v.Hold() {
			return v, woken, nil
		}
		name := v.Name
		if v = s.Service([]byte(name)); v == nil {
			return nil, woken, NotFound("unknown model %q", name)
		}
	}
	return nil, woken, ErrUnavailable
}

// Awake returns the service that serves in the place of v once its model is loaded, or v itself if
// that is not on disk. It fails if a query that arrived at a time would be late then.
func (s *Server) Awake(v *Service, arrival time.Time, left <-chan struct{}) (*Service, *Error) {
	for range holdTries {
		if v.Asleep == nil {
			return v, nil
		}
		if err := v.Asleep.Wake(v, arrival, left); err != nil {
			v.Stats.TurnAway(err)
			return nil, err
		}
		name := v.Name
		if v = s.Service([]byte(name)); v == nil {
			return nil, NotFound("unknown model %q", name)
		}
	}
	return nil, ErrUnavailable
}

// encode writes the response, or returns the error of the reply.
func (s *Server) encode(by codec, c *Call) *Error {
	if c.Reply.Err != nil {
		return c.Reply.Err
	}
	if c.Trace != nil {
		c.Trace.Encoding = time.Now()
	}
	if got, want := len(c.Reply.Outputs), len(c.Signature.Outputs); got != want {
		s.Log.Error().Str("service", c.Service.Name).Int("outputs", got).Int("want", want).
			Msg("a reply has the wrong number of outputs")
		return ErrInternal
	}
	return by.Encode(c)
}

// done completes the trace of a call and returns it to the pool. The backend must not know
// the call (any more).
func (s *Server) done(c *Call) {
	if q := c.Trace; q != nil {
		q.Arrival, q.Number = c.Arrival, uint64(c.QueryID)
		// Decode got as far as Admit, so the fields below are set.
		if c.Size > 0 {
			q.ID, q.Size, q.SeqLen, q.Priority, q.Deadline = string(c.ID), c.Size, c.SeqLen, c.Priority, c.Deadline()
		}
	}
	c.forget()
	s.calls.Put(c)
}

// EndTrace completes the record of a request and hands it to the tracer. q may be nil. code
// is the gRPC status code, or "" over HTTP. A cancelled query is not counted as the
// daemon's fault.
func (s *Server) EndTrace(q *tracing.Query, failed *Error, code string) {
	if q == nil {
		return
	}
	q.Ended, q.Status.Code, q.Status.GRPC = time.Now(), http.StatusOK, code
	if failed != nil {
		q.Status.Code, q.Status.Reason, q.Status.Message = failed.Status, failed.Reason, failed.Message
		q.Status.Ours = failed.Status >= http.StatusInternalServerError && failed.Reason != ReasonCancelled
	}
	s.Tracer.Finish(q)
}
