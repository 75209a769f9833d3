package rpc

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/daemon/text"
	"github.com/overlapd/overlapd/models"
)

// answerer answers inference requests.
type answerer struct {
	queries *query.Server
	texts   *text.Server
	guard   *guard

	// most is the largest request in bytes.
	most int64

	// stopping is closed when the daemon stops.
	stopping <-chan struct{}
}

// receiver returns a receiver for the requests of a call.
func (a *answerer) receiver(ctx context.Context) receiver {
	return receiver{connOf(ctx).memory, a.queries.Memory, a.most}
}

// modelInfer implements ModelInfer. It replaces the generated handler, which would decode
// the request before its memory is accounted.
func (a *answerer) modelInfer(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	in, err := incomingOf(ctx)
	if err != nil {
		return nil, err
	}
	r := a.receiver(ctx)
	b, err := r.receiveOnly(in)
	if err != nil {
		return nil, err
	}
	arrived(ctx)
	x := new(exchange)
	r.decode(b, x)
	// answer releases the request, so the name is read before.
	x.service = x.request.ModelName
	answer, fault := a.answer(ctx, x)
	a.reportLoad(ctx, x.service)
	if fault != nil {
		return nil, fault
	}
	return answer, nil
}

// answer answers a request and releases its memory.
func (a *answerer) answer(ctx context.Context, x *exchange) (*outgoing, *query.Error) {
	defer x.release()
	if x.fault != nil {
		return nil, x.fault
	}
	x.ctx, x.arrival = ctx, time.Now()
	trace := a.beginTrace(ctx, x.request.ModelName)
	v, err := find(a.queries, x.request.ModelName, x.request.ModelVersion)
	if err == nil {
		x.service = v.Name
		if x.ofTexts() { // the tokenizer of a model on disk is not known before the model is loaded
			v, err = a.queries.Awake(v, x.arrival, ctx.Done())
		}
	}
	switch {
	case err != nil:
	case v.Text != nil && x.ofTexts():
		err = a.answerTexts(v, x, trace)
	default:
		err = a.queries.Answer(v, x, trace, ctx.Done())
	}
	// DEADLINE_EXCEEDED is what a client of gRPC expects when its own deadline is missed.
	if err != nil && x.ranOut(err) {
		late := *err
		late.Status = http.StatusGatewayTimeout
		err = &late
	}
	a.queries.EndTrace(trace, err, codeName(err))
	return x.answer, err
}

// ranOut reports whether a query ended because of a deadline set by its client rather than
// the target of the service.
func (x *exchange) ranOut(err *query.Error) bool {
	switch err.Reason {
	case query.ReasonCancelled:
		return errors.Is(x.ctx.Err(), context.DeadlineExceeded)
	case query.ReasonCannotFinish:
		return x.hurried
	}
	// codeOf maps a deadline that has passed in any case.
	return false
}

// ofTexts reports whether a request has strings. No model that takes text has an input of them, so any
// other request is one of tensors.
func (x *exchange) ofTexts() bool {
	return slices.ContainsFunc(x.request.Inputs, func(in *inference.ModelInferRequest_InferInputTensor) bool {
		return in.GetDatatype() == models.String.Protocol()
	})
}

// answerTexts answers a request of texts.
func (a *answerer) answerTexts(v *query.Service, x *exchange, trace *tracing.Query) *query.Error {
	c, err := text.TensorCall(v)
	if err == nil {
		err = x.read(c)
	}
	if err != nil {
		return err
	}
	// The texts are copied out of the input.
	held := int64(len(c.Given[0].Data))
	if !a.queries.Memory.Take(held) {
		return query.ErrBodyMemory
	}
	defer a.queries.Memory.Give(held)
	r := &text.Request{Service: v, Arrival: c.Arrival, Memory: a.queries.Memory, Trace: trace}
	if err := text.TakeTexts(r, c); err != nil {
		return err
	}
	answer, err := a.texts.Answer(x.ctx, r)
	if err != nil {
		return err
	}
	defer answer.Release()
	if err := text.SetOutputs(c, r, answer); err != nil {
		return err
	}
	return x.Encode(c)
}

// Decode fills the call from the request.
func (x *exchange) Decode(c *query.Call) *query.Error {
	if err := x.read(c); err != nil {
		return err
	}
	return c.Admit(func(dst []byte, in *query.Input) (int, *query.Error) { return copy(dst, in.Data), nil })
}

// read sets the fields of a call from the request.
func (x *exchange) read(c *query.Call) *query.Error {
	c.Arrival = x.arrival
	if p, ok := peer.FromContext(x.ctx); ok {
		c.Sender = query.Sender(p.Addr)
	}
	if err := x.fill(c); err != nil {
		return err
	}
	if err := shorten(x.ctx, c); err != nil {
		return err
	}
	x.hurried = c.Timeout > 0 && c.Timeout < c.Service.QoSTarget
	return nil
}

// shorten limits the timeout of a call to the deadline of its context. It fails if that has
// passed.
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

// beginTrace returns a record for a query, or nil if it is not traced. Every query of a
// stream has the parent in the metadata of the stream.
func (a *answerer) beginTrace(ctx context.Context, model string) *tracing.Query {
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
	q.Began, q.Service = time.Now(), model
	q.Request = tracing.Request{Protocol: tracing.GRPC, Method: strings.TrimPrefix(method, "/"), UserAgent: one("user-agent")}
	if p, ok := peer.FromContext(ctx); ok {
		q.Request.SetPeers(p.Addr, one(":authority"))
	}
	return q
}
