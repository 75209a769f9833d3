package query

import (
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
)

// DaemonName is what the daemon calls itself.
const DaemonName = "overlapd"

// HeaderLoadForm is the header of a request, or the key of its metadata, by which a client
// asks for a load report (ORCA) with the answer, in one of these forms. A LoadMessage is
// the message in Protocol Buffers, for gRPC.
const (
	HeaderLoadForm = "endpoint-load-metrics-format"

	LoadText    = "TEXT"
	LoadJSON    = "JSON"
	LoadBinary  = "BIN"
	LoadMessage = ""
)

// Host is what the protocols ask of the rest of the daemon besides queries. Its
// methods are called from many goroutines at once, and none of them may block.
type Host interface {
	// Services returns every service in the order of the configuration. The
	// slice never changes: when services come or go, the next call returns
	// another.
	Services() []*Service

	// Service returns the service of a name, or nil.
	Service(name []byte) *Service

	// Live reports whether the scheduler goroutine makes progress.
	Live() bool

	// NotReady returns what a client sees of a daemon that is not ready, see [AnyReady], or
	// that is to be stopped; nil of one that is ready.
	NotReady() *Error
}

// tracer records the queries that it wants to.
type tracer interface {
	// Begin returns where to record a query, or nil if it is not traced.
	Begin(parent tracing.Parent) *tracing.Query

	// Finish takes what was recorded.
	Finish(q *tracing.Query)
}

// Server has the queries of all protocols answered. What the protocols share is
// in it: the services, the memory of requests and answers under way
// (limits.memory_bytes), the connections that are open (limits.connections), and
// how a query is answered. Its fields are set before it is used. Label is
// "emulated" if nothing is computed, and Tracer may be nil.
type Server struct {
	Host
	Memory      *Budget
	Connections *Places
	Version     string
	Label       string
	Tracer      tracer
	Log         zerolog.Logger

	// Load returns how loaded a service is, "" for all of them, in a form that a client asks
	// for in [HeaderLoadForm], or "" if that is not known. It may be nil.
	Load func(service, form string) string

	calls sync.Pool // *Call
}

// Find returns the service of a name and a version, nil for the only one.
func (s *Server) Find(name, version []byte) (*Service, *Error) {
	v := s.Service(name)
	if v == nil {
		return nil, NotFound("unknown model %q", Cut(name))
	}
	if version != nil && string(version) != ModelVersion {
		return nil, NotFound("model %q has only version %s", v.Name, ModelVersion)
	}
	return v, nil
}

// codec is a request of a protocol and its answer.
type codec interface {
	// Decode reads the request into a call, sets its Arrival when it has been
	// read, and checks and admits it.
	Decode(c *Call) *Error

	// Encode writes the answer. The outputs of c.Reply are as many as the
	// model's; they lie in shared memory, which is given back afterwards.
	Encode(c *Call) *Error
}

// Answer answers the query that by reads, unless it returns an error. It
// returns only after the backend has answered, whatever happens; when left is
// closed, because the client has left, the query is cancelled.
func (s *Server) Answer(v *Service, by codec, trace *tracing.Query, left <-chan struct{}) *Error {
	v, gone := s.hold(v)
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

// holdTries is how many services one after another may have taken the place of another
// while a request looks for one. It takes a reload for each.
const holdTries = 8

// hold holds a service that was found a moment ago, or the one that has taken
// its place since.
func (s *Server) hold(v *Service) (*Service, *Error) {
	for range holdTries {
		if v.Hold() {
			return v, nil
		}
		name := v.Name
		if v = s.Service([]byte(name)); v == nil {
			return nil, NotFound("unknown model %q", name)
		}
	}
	return nil, ErrUnavailable
}

// encode has the answer written, if there is one.
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

// done takes back a call that the backend does not know, or no longer.
func (s *Server) done(c *Call) {
	if q := c.Trace; q != nil {
		q.Arrival, q.Number = c.Arrival, uint64(c.QueryID)
		if c.Size > 0 { // it was read as far as that
			q.ID, q.Size, q.SeqLen, q.Priority, q.Deadline = string(c.ID), c.Size, c.SeqLen, c.Priority, c.Deadline()
		}
	}
	c.forget()
	s.calls.Put(c)
}

// EndTrace hands in what was recorded of a request, which may be nothing. Code
// is what gRPC calls its end, "" over HTTP. That a client left is not our fault.
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
