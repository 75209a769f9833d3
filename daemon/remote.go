package daemon

import (
	"bytes"
	"context"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
)

// remote is the endpoint as the gRPC server asks it: what a call may be, and
// what becomes of it, is the same over both protocols.
type remote struct{ *Endpoint }

// newRemote returns the gRPC server of an endpoint.
func newRemote(e *Endpoint) *rpc.Server {
	l := &e.limits
	guard := rpc.Guard{TLS: e.access.TLS(rpc.ProtocolHTTP2)}
	if e.access.Guarded() {
		guard.Allows = e.access.Allows
	}
	return rpc.New(remote{e}, rpc.Limits{
		MessageBytes: l.RequestBytes, MemoryBytes: l.MemoryBytes, HeaderBytes: l.HeaderBytes,
		Connections: l.Connections, ReadTimeout: l.ReadTimeout, WriteTimeout: l.WriteTimeout, IdleTimeout: l.IdleTimeout,
	}, guard)
}

// Live implements rpc.Host.
func (r remote) Live() bool { return r.backend.Live() }

// Ready implements rpc.Host.
func (r remote) Ready() bool { return r.backend.Ready() }

// Identity implements rpc.Host.
func (r remote) Identity() rpc.Identity {
	return rpc.Identity{Name: serverName, Version: r.version, Extensions: r.extensions}
}

// Models implements rpc.Host.
func (r remote) Models() []rpc.Model {
	services := r.backend.Services()
	list := make([]rpc.Model, len(services))
	for i, s := range services {
		list[i] = modelOf(s)
	}
	return list
}

// modelOf returns how a service stands.
func modelOf(s *query.Service) rpc.Model {
	m := rpc.Model{Name: s.Name, Version: query.ModelVersion, Ready: s.Ready(), Stats: s.Stats.Counts()}
	sig := s.Signature()
	if sig == nil {
		return m
	}
	m.Loaded, m.Platform, m.Batched, m.MaxBatch = true, sig.Info.Platform, sig.Batched, s.MaxQueryBatch
	m.Merged = sig.Batched && s.MaxBatch > 1
	m.Inputs, m.Outputs = sig.Inputs, sig.Outputs
	m.Parameters = make(map[string]string)
	for _, p := range configParameters(s, &sig.Info) {
		m.Parameters[p.key] = p.value
	}
	return m
}

// Infer implements rpc.Host.
func (r remote) Infer(ctx context.Context, q *rpc.Query) (rpc.Answer, error) {
	trace := r.beginTrace(ctx, q)
	a, err := r.query(ctx, q, trace)
	r.endTrace(trace, err)
	return a, err
}

// query is that of the endpoint with another request in front and another
// answer behind.
func (r remote) query(ctx context.Context, q *rpc.Query, trace *tracing.Query) (rpc.Answer, error) {
	s := r.backend.Service([]byte(q.Model))
	if s == nil {
		return rpc.Answer{}, fault(query.NotFound("unknown model %q", query.Cut([]byte(q.Model))))
	}
	s, gone := r.hold(s)
	if gone != nil {
		return rpc.Answer{}, fault(gone)
	}
	defer s.LetGo()
	if q.Version != "" && q.Version != query.ModelVersion {
		return rpc.Answer{}, fault(query.NotFound("model %q has only version %s", s.Name, query.ModelVersion))
	}
	sig := s.Signature()
	if sig == nil {
		return rpc.Answer{}, fault(query.ErrUnavailable)
	}
	x := r.exchanges.Get().(*exchange)
	c := x.call
	defer r.done(x)
	c.Trace, c.Arrival = trace, time.Now()
	if err := adopt(&c.Request, sig, q); err != nil {
		return rpc.Answer{}, fault(err)
	}
	if err := shorten(&c.Request, ctx, c.Arrival); err != nil {
		return rpc.Answer{}, fault(err)
	}
	if err := r.admit(c, s, sig); err != nil {
		return rpc.Answer{}, fault(err)
	}
	if err := s.Backend.Submit(c); err != nil {
		s.Backend.Free(s, c.Memory)
		refusal := query.AsError(err)
		s.Stats.Failed(refusal, time.Since(c.Arrival))
		return rpc.Answer{}, fault(refusal)
	}
	r.await(ctx, c)
	return r.collect(c, sig)
}

// shorten ends the query no later than its context.
func shorten(r *query.Request, ctx context.Context, arrival time.Time) *query.Error {
	end, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	left := end.Sub(arrival)
	if left <= 0 {
		return query.Unavailable(query.ReasonDeadline, "the deadline of the call had passed when its request was read")
	}
	if r.Timeout == 0 || left < r.Timeout {
		r.Timeout = left
	}
	return nil
}

// await returns when the call is answered. The end of the context cancels it.
func (r remote) await(ctx context.Context, c *query.Call) {
	select {
	case <-c.Answered():
	case <-ctx.Done():
		c.Service.Backend.Cancel(c)
		<-c.Answered()
	}
}

// collect copies the outputs out of shared memory and gives the call back.
func (r remote) collect(c *query.Call, sig *query.Signature) (rpc.Answer, error) {
	a := rpc.Answer{Version: query.ModelVersion}
	err := c.Reply.Err
	if err == nil && len(c.Reply.Outputs) != len(sig.Outputs) {
		r.log.Error().Str("service", c.Service.Name).Int("outputs", len(c.Reply.Outputs)).
			Int("want", len(sig.Outputs)).Msg("a reply has the wrong number of outputs")
		err = query.ErrInternal
	}
	if err == nil {
		noteEncoding(c)
		c.Request.FillOutputs(sig)
		for _, o := range c.Request.Outputs {
			t, p := &c.Reply.Outputs[o.Port], &sig.Outputs[o.Port]
			a.Outputs = append(a.Outputs, rpc.Tensor{Name: p.Name, Type: p.Type, Shape: append([]int64(nil), t.Shape...), Data: bytes.Clone(t.Data)})
		}
	}
	c.Service.Backend.Release(c)
	took := time.Since(c.Arrival)
	if err != nil {
		c.Service.Stats.Failed(err, took)
		return rpc.Answer{}, fault(err)
	}
	c.Service.Stats.Succeeded(c, c.Arrival.Add(took))
	return a, nil
}

// fault returns an error as the gRPC server takes it.
func fault(e *query.Error) error {
	return &rpc.Fault{Status: e.Status, Reason: e.Reason, Message: e.Message, RetryAfter: e.RetryAfter}
}
