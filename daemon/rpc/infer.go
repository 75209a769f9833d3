package rpc

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// answerer answers the requests to infer.
type answerer struct {
	queries  *query.Server
	guard    *guard
	receiver receiver
	stopping <-chan struct{}
}

// modelInfer reads the request of a ModelInfer and has it answered.
func (a *answerer) modelInfer(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	m := new(message)
	if err := a.receiver.receiveOnly(ctx, m); err != nil {
		return nil, refuse(ctx, err)
	}
	arrived(ctx)
	r, err := a.answer(ctx, m)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return outgoingOf(ctx, r), nil
}

// exchange is an inference request and its answer.
type exchange struct {
	ctx     context.Context
	request *request
	answer  *inference.ModelInferResponse
}

// answer answers a request and gives back its memory.
func (a *answerer) answer(ctx context.Context, m *message) (*inference.ModelInferResponse, *query.Error) {
	defer m.release()
	if m.fault != nil {
		return nil, m.fault
	}
	r, err := decode(&m.request)
	if err != nil {
		return nil, err
	}
	trace := a.beginTrace(ctx, r)
	x := &exchange{ctx: ctx, request: r}
	v, err := find(a.queries, r.model, r.version)
	if err == nil {
		err = a.queries.Answer(v, x, trace, ctx.Done())
	}
	a.queries.EndTrace(trace, err, codeName(err))
	return x.answer, err
}

// Decode reads the request into a call.
func (x *exchange) Decode(c *query.Call) *query.Error {
	c.Arrival = time.Now()
	if err := x.request.fill(c); err != nil {
		return err
	}
	if err := shorten(x.ctx, c); err != nil {
		return err
	}
	return c.Admit(func(dst []byte, in *query.Input) (int, *query.Error) { return copy(dst, in.Data), nil })
}

// shorten ends the query no later than its context.
func shorten(ctx context.Context, c *query.Call) *query.Error {
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

// Encode writes the answer. The outputs are copied out of shared memory.
func (x *exchange) Encode(c *query.Call) *query.Error {
	outputs := make([]query.Tensor, len(c.Outputs))
	for i, o := range c.Outputs {
		outputs[i] = c.Reply.Outputs[o.Port]
		outputs[i].Name, outputs[i].Type = c.Signature.Outputs[o.Port].Name, c.Signature.Outputs[o.Port].Type
	}
	x.answer = x.request.respond(outputs)
	return nil
}

// respond writes an answer in the form that is wanted, or raw if an output has
// no other. It copies the outputs.
func (r *request) respond(outputs []query.Tensor) *inference.ModelInferResponse {
	a := &inference.ModelInferResponse{ModelName: r.model, ModelVersion: query.ModelVersion, Id: r.id}
	if r.final {
		a.Parameters = map[string]*inference.InferParameter{
			"triton_final_response": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}},
		}
	}
	for i := range outputs {
		o := &outputs[i]
		a.Outputs = append(a.Outputs, &inference.ModelInferResponse_InferOutputTensor{
			Name: o.Name, Datatype: o.Type.Protocol(), Shape: slices.Clone(o.Shape),
		})
	}
	if !r.raw && fillTyped(a, outputs) {
		return a
	}
	for i := range outputs {
		a.Outputs[i].Contents = nil
		a.RawOutputContents = append(a.RawOutputContents, bytes.Clone(outputs[i].Data))
	}
	return a
}

// fillTyped fills in typed contents, or reports that there are none for one of the
// outputs.
func fillTyped(a *inference.ModelInferResponse, outputs []query.Tensor) bool {
	for i := range outputs {
		c, ok := unpack(outputs[i].Type, outputs[i].Data)
		if !ok {
			return false
		}
		a.Outputs[i].Contents = c
	}
	return true
}

// beginTrace returns where to record a query, or nil if it is not traced. A
// stream remembers once for all of its queries where they come from.
func (a *answerer) beginTrace(ctx context.Context, r *request) *tracing.Query {
	if a.queries.Tracer == nil {
		return nil
	}
	q := a.queries.Tracer.Begin(tracing.Parent{
		Traceparent: metadata.ValueFromIncomingContext(ctx, "traceparent"), Tracestate: metadata.ValueFromIncomingContext(ctx, "tracestate"),
	})
	if q == nil {
		return nil
	}
	one := func(key string) string { return strings.Join(metadata.ValueFromIncomingContext(ctx, key), ", ") }
	method, _ := grpc.Method(ctx)
	q.Began, q.Service = time.Now(), r.model
	q.Request = tracing.Request{Protocol: tracing.GRPC, Method: strings.TrimPrefix(method, "/"), UserAgent: one("user-agent")}
	if p, ok := peer.FromContext(ctx); ok {
		q.Request.SetPeers(p.Addr, one(":authority"))
	}
	return q
}
