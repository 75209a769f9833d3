package daemon

import (
	"bytes"
	"context"
	"time"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
)

// remote is what the gRPC server asks.
type remote struct{ *query.Server }

// newRemote returns the gRPC server.
func newRemote(q *query.Server, l config.Limits, a *access.Access) *rpc.Server {
	guard := rpc.Guard{TLS: a.TLS(rpc.ProtocolHTTP2)}
	if a.Guarded() {
		guard.Allows = a.Allows
	}
	return rpc.New(remote{q}, rpc.Limits{
		MessageBytes: l.RequestBytes, MemoryBytes: l.MemoryBytes, HeaderBytes: l.HeaderBytes,
		Connections: l.Connections, ReadTimeout: l.ReadTimeout, WriteTimeout: l.WriteTimeout, IdleTimeout: l.IdleTimeout,
	}, guard)
}

// Identity implements rpc.Host.
func (r remote) Identity() rpc.Identity {
	return rpc.Identity{Name: query.Name, Version: r.Version, Extensions: r.Extensions()}
}

// Models implements rpc.Host.
func (r remote) Models() []rpc.Model {
	services := r.Services()
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
	for _, p := range s.Parameters(&sig.Info) {
		m.Parameters[p[0]] = p[1]
	}
	return m
}

// Infer implements rpc.Host.
func (r remote) Infer(ctx context.Context, q *rpc.Query) (rpc.Answer, error) {
	trace := r.beginTrace(ctx, q)
	var version []byte
	if q.Version != "" {
		version = []byte(q.Version)
	}
	x := &remoteExchange{ctx: ctx, query: q, answer: rpc.Answer{Version: query.ModelVersion}}
	s, failed := r.Find([]byte(q.Model), version)
	if failed == nil {
		failed = r.Serve(s, x, trace, ctx.Done())
	}
	var err error
	if failed != nil {
		err = &rpc.Fault{Status: failed.Status, Reason: failed.Reason, Message: failed.Message, RetryAfter: failed.RetryAfter}
	}
	r.EndTrace(trace, failed, rpc.CodeName(err))
	return x.answer, err
}

// remoteExchange is a query over gRPC and its answer.
type remoteExchange struct {
	ctx    context.Context
	query  *rpc.Query
	answer rpc.Answer
}

// Decode implements query.Codec.
func (x *remoteExchange) Decode(c *query.Call) *query.Error {
	c.Arrival = time.Now()
	if err := adopt(c, x.query); err != nil {
		return err
	}
	if err := shorten(c, x.ctx); err != nil {
		return err
	}
	return c.Admit(func(dst []byte, in *query.Input) (int, *query.Error) { return copy(dst, in.Data), nil })
}

// shorten ends the query no later than its context.
func shorten(c *query.Call, ctx context.Context) *query.Error {
	end, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	left := end.Sub(c.Arrival)
	if left <= 0 {
		return query.Unavailable(query.ReasonDeadline, "the deadline of the call had passed when its request was read")
	}
	if c.Timeout == 0 || left < c.Timeout {
		c.Timeout = left
	}
	return nil
}

// Encode implements query.Codec: it copies the outputs out of shared memory.
func (x *remoteExchange) Encode(c *query.Call) *query.Error {
	for _, o := range c.Outputs {
		t, p := &c.Reply.Outputs[o.Port], &c.Signature.Outputs[o.Port]
		x.answer.Outputs = append(x.answer.Outputs, rpc.Tensor{Name: p.Name, Type: p.Type, Shape: append([]int64(nil), t.Shape...), Data: bytes.Clone(t.Data)})
	}
	return nil
}

// adopt takes a query that came as bytes already, and checks it as if it had
// come as JSON.
func adopt(c *query.Call, q *rpc.Query) *query.Error {
	if err := c.SetID([]byte(q.ID)); err != nil {
		return err
	}
	c.Timeout, c.Priority = q.Timeout, q.Priority
	for i := range q.Inputs {
		if err := adoptInput(c, &q.Inputs[i]); err != nil {
			return err
		}
	}
	for _, name := range q.Outputs {
		n := query.Find(c.Signature.Outputs, []byte(name))
		if n < 0 {
			return query.Invalid("the model has no output %q", query.Cut(name))
		}
		if err := c.Ask(query.Output{Port: n, Binary: true}); err != nil {
			return err
		}
	}
	c.AskAll(true)
	return c.Check()
}

func adoptInput(c *query.Call, t *rpc.Tensor) *query.Error {
	n := query.Find(c.Signature.Inputs, []byte(t.Name))
	if n < 0 {
		return query.Invalid("the model has no input %q", query.Cut(t.Name))
	}
	in := query.Input{Tensor: query.Tensor{Type: t.Type, Data: t.Data}}
	for _, d := range t.Shape {
		if err := in.AddDimension(d); err != nil {
			return err
		}
	}
	return c.Give(n, &in)
}

// beginTrace returns where to record a call, or nil if it is not traced.
func (r remote) beginTrace(ctx context.Context, q *rpc.Query) *tracing.Query {
	if r.Tracer == nil {
		return nil
	}
	c := rpc.CallerOf(ctx)
	t := r.Tracer.Begin(tracing.Parent{Traceparent: c.Traceparent, Tracestate: c.Tracestate})
	if t == nil {
		return nil
	}
	t.Began, t.Service = time.Now(), q.Model
	t.Request = tracing.Request{Protocol: tracing.GRPC, Method: c.Method, UserAgent: c.UserAgent}
	t.Request.SetPeers(c.Client, c.Authority)
	return t
}
