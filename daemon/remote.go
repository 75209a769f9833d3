package daemon

import (
	"bytes"
	"context"
	"time"

	"github.com/overlapd/overlapd/daemon/rpc"
	"github.com/overlapd/overlapd/daemon/tracing"
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
		list[i] = s.remote()
	}
	return list
}

// remote tells how a service stands.
func (s *Service) remote() rpc.Model {
	m := rpc.Model{Name: s.Name, Version: modelVersion, Ready: s.Ready(), Stats: s.Stats.remote()}
	sig := s.signature.Load()
	if sig == nil {
		return m
	}
	m.Loaded, m.Platform, m.Batched, m.MaxBatch = true, sig.info.Platform, sig.batched, s.MaxQueryBatch
	m.Merged = sig.batched && s.MaxBatch > 1
	m.Inputs, m.Outputs = remotePorts(sig.inputs), remotePorts(sig.outputs)
	m.Parameters = make(map[string]string)
	for _, p := range s.configParameters(sig.info) {
		m.Parameters[p.key] = p.value
	}
	return m
}

func remotePorts(ports []port) []rpc.Port {
	list := make([]rpc.Port, len(ports))
	for i := range ports {
		p := &ports[i]
		list[i] = rpc.Port{Name: p.name, Type: p.typ, Dims: p.dims, AnyRank: p.anyRank}
	}
	return list
}

// remote returns the numbers as they are now, each for itself.
func (s *Stats) remote() rpc.Stats {
	r := rpc.Stats{
		Queries: s.queries.Load(), Executions: s.executions.Load(),
		Success: s.success.remote(), Fail: s.fail.remote(), Queue: s.queue.remote(),
		ComputeInput: s.computeInput.remote(), ComputeInfer: s.computeInfer.remote(), ComputeOutput: s.computeOutput.remote(),
	}
	if ms := s.last.Load(); ms != 0 {
		r.Last = time.UnixMilli(ms)
	}
	return r
}

func (t *total) remote() rpc.Total {
	return rpc.Total{Count: t.count.Load(), Took: time.Duration(t.ns.Load())}
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
		return rpc.Answer{}, fault(notFound("unknown model %q", cut([]byte(q.Model))))
	}
	s, gone := r.hold(s)
	if gone != nil {
		return rpc.Answer{}, fault(gone)
	}
	defer s.letGo()
	if q.Version != "" && q.Version != modelVersion {
		return rpc.Answer{}, fault(notFound("model %q has only version %s", s.Name, modelVersion))
	}
	sig := s.signature.Load()
	if sig == nil {
		return rpc.Answer{}, fault(ErrUnavailable)
	}
	c := r.calls.Get().(*Call)
	defer r.done(c)
	c.trace, c.Arrival = trace, time.Now()
	if err := c.request.adopt(sig, q); err != nil {
		return rpc.Answer{}, fault(err)
	}
	if err := c.request.shorten(ctx, c.Arrival); err != nil {
		return rpc.Answer{}, fault(err)
	}
	if err := r.admit(c, s, sig); err != nil {
		return rpc.Answer{}, fault(err)
	}
	if err := r.backend.Submit(c); err != nil {
		r.backend.Free(s, c.Memory)
		refusal := asError(err)
		s.Stats.failed(refusal, time.Since(c.Arrival))
		return rpc.Answer{}, fault(refusal)
	}
	r.await(ctx, c)
	return r.collect(c, sig)
}

// shorten ends the query no later than its context.
func (r *request) shorten(ctx context.Context, arrival time.Time) *Error {
	end, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	left := end.Sub(arrival)
	if left <= 0 {
		return unavailable(ReasonDeadline, "the deadline of the call had passed when its request was read")
	}
	if r.timeout == 0 || left < r.timeout {
		r.timeout = left
	}
	return nil
}

// await returns when the call is answered. The end of the context cancels it.
func (r remote) await(ctx context.Context, c *Call) {
	select {
	case <-c.answer:
	case <-ctx.Done():
		r.backend.Cancel(c)
		<-c.answer
	}
}

// collect copies the outputs out of shared memory and gives the call back.
func (r remote) collect(c *Call, sig *signature) (rpc.Answer, error) {
	a := rpc.Answer{Version: modelVersion}
	err := c.reply.Err
	if err == nil && len(c.reply.Outputs) != len(sig.outputs) {
		r.log.Error().Str("service", c.Service.Name).Int("outputs", len(c.reply.Outputs)).
			Int("want", len(sig.outputs)).Msg("a reply has the wrong number of outputs")
		err = errInternal
	}
	if err == nil {
		c.noteEncoding()
		c.request.fillOutputs(sig)
		for _, o := range c.request.outputs {
			t, p := &c.reply.Outputs[o.port], &sig.outputs[o.port]
			a.Outputs = append(a.Outputs, rpc.Tensor{Name: p.name, Type: p.typ, Shape: append([]int64(nil), t.Shape...), Data: bytes.Clone(t.Data)})
		}
	}
	r.backend.Release(c)
	took := time.Since(c.Arrival)
	if err != nil {
		c.Service.Stats.failed(err, took)
		return rpc.Answer{}, fault(err)
	}
	c.Service.Stats.succeed(c.Size, c.Arrival.Add(took), took, c.reply.Timing)
	return a, nil
}

// fault returns an error as the gRPC server takes it.
func fault(e *Error) error {
	return &rpc.Fault{Status: e.Status, Reason: e.Reason, Message: e.Message, RetryAfter: e.RetryAfter}
}
