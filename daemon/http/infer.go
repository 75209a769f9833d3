package http

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// headerLength is the length of the JSON before the binary data (Triton's binary tensor
	// extension).
	headerLength = "Inference-Header-Content-Length"

	// headerVariant is the name of the variant that answered.
	headerVariant = "Overlapd-Variant"

	// headerLoad is an ORCA load report.
	headerLoad = "Endpoint-Load-Metrics"

	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"

	// Routes of inference as trace spans name them.
	routePlain     = "/v2/models/{model}/infer"
	routeVersioned = "/v2/models/{model}/versions/{version}/infer"
)

// inference answers inference requests.
type inference struct {
	queries   *query.Server
	exchanges sync.Pool // *exchange
}

// newInference returns an inference whose exchanges read and send bodies by b.
func newInference(q *query.Server, b *bodies) *inference {
	n := &inference{queries: q}
	n.exchanges.New = func() any { return &exchange{bodies: b} }
	return n
}

// exchange is an inference request and its response. It is the codec that [query.Server]
// drives, and it is pooled.
type exchange struct {
	bodies  *bodies
	ctx     *fasthttp.RequestCtx
	decoder decoder

	// read is set once the body has been read, or Decode has begun to.
	read bool

	// body is the body if it was read before Decode, else nil.
	body *query.Body
}

// answer answers an inference request to s. body is its body, or nil if it has not been read.
func (n *inference) answer(ctx *fasthttp.RequestCtx, s *query.Service, body *query.Body) {
	trace := n.beginTrace(ctx, s, inferRoute(ctx))
	x := n.exchanges.Get().(*exchange)
	x.ctx, x.read, x.body = ctx, body != nil, body
	failed := n.queries.Answer(s, x, trace, here(ctx).Done())
	if failed != nil {
		if !x.read {
			// Decode did not run, so the body is still unread.
			leaveBody(ctx)
		}
		writeError(ctx, failed)
	}
	n.reportLoad(ctx, s.Name)
	if x.body != nil {
		x.body.Release() // Decode did not run
	}
	x.decoder.forget()
	x.ctx, x.body = nil, nil
	n.exchanges.Put(x)
	n.queries.EndTrace(trace, failed, "")
}

// here returns a context that is done once the client has disconnected.
func here(ctx *fasthttp.RequestCtx) context.Context {
	if c, ok := ctx.Conn().(*conn); ok {
		return c.here
	}
	return context.Background()
}

// arrivalKey is the user value of a request that has waited for its model: when it arrived.
type arrivalKey struct{}

// arrivalOf returns when a request arrived whose body has just been read.
func arrivalOf(ctx *fasthttp.RequestCtx) time.Time {
	if at, ok := ctx.UserValue(arrivalKey{}).(time.Time); ok {
		return at
	}
	return time.Now()
}

// awake waits for the model of a service that is on disk.
func (n *inference) awake(ctx *fasthttp.RequestCtx, s *query.Service) (*query.Service, *query.Error) {
	arrival := time.Now()
	ctx.SetUserValue(arrivalKey{}, arrival)
	return n.queries.Awake(s, arrival, here(ctx).Done())
}

// reportLoad adds the load of a service to the response if the client asks for it, in its form.
// An unknown form is ignored, because the header is only a hint.
func (n *inference) reportLoad(ctx *fasthttp.RequestCtx, service string) {
	form := ctx.Request.Header.Peek(query.HeaderLoadForm)
	if form == nil || n.queries.Load == nil {
		return
	}
	for _, known := range []string{query.LoadText, query.LoadJSON, query.LoadBinary} {
		if !strings.EqualFold(string(form), known) {
			continue
		}
		if report := n.queries.Load(service, known); report != "" {
			ctx.Response.Header.Set(headerLoad, report)
		}
	}
}

// Decode reads the request into c. It releases the body before the query is queued, so that
// a long queue holds no request bodies.
func (x *exchange) Decode(c *query.Call) *query.Error {
	x.read = true
	b, err := x.body, (*query.Error)(nil)
	if x.body = nil; b == nil {
		b, err = x.bodies.read(x.ctx)
	}
	if err != nil {
		return err
	}
	defer b.Release()
	c.Arrival = arrivalOf(x.ctx)
	c.Sender = query.Sender(x.ctx.RemoteAddr())
	head, err := jsonBytes(x.ctx, len(b.Bytes))
	if err != nil {
		return err
	}
	if err := x.decoder.decode(c, b.Bytes, head); err != nil {
		return err
	}
	return c.Admit(writeInput)
}

// jsonBytes returns the length of the JSON at the start of a body.
func jsonBytes(ctx *fasthttp.RequestCtx, bodyBytes int) (int, *query.Error) {
	v := ctx.Request.Header.Peek(headerLength)
	if v == nil {
		return bodyBytes, nil
	}
	// A proxy may take the first and this daemon the last, so two are ambiguous.
	if len(ctx.Request.Header.PeekAll(headerLength)) > 1 {
		return 0, query.Invalid(headerLength + " is given twice")
	}
	n, err := strconv.ParseUint(string(v), 10, 63)
	switch {
	case err != nil:
		return 0, query.Invalid(headerLength + " must be a number of bytes")
	case n == 0:
		return 0, query.Invalid("raw binary requests are not supported: describe the inputs in JSON")
	case n > uint64(bodyBytes):
		return 0, query.Invalid(headerLength+" is %d, but the body has %d bytes", n, bodyBytes)
	}
	return int(n), nil
}

// inferRoute returns the route of an inference request as trace spans name it.
func inferRoute(ctx *fasthttp.RequestCtx) string {
	if bytes.Contains(ctx.URI().PathOriginal(), versionsPrefix) {
		return routeVersioned
	}
	return routePlain
}

// beginTrace returns a record for the request, or nil if it is not traced.
func (n *inference) beginTrace(ctx *fasthttp.RequestCtx, s *query.Service, route string) *tracing.Query {
	if n.queries.Tracer == nil {
		return nil
	}
	h := &ctx.Request.Header
	q := n.queries.Tracer.Begin(tracing.Parent{
		Traceparent: texts(h.PeekAll(headerTraceparent)), Tracestate: texts(h.PeekAll(headerTracestate)),
	})
	if q == nil {
		return nil
	}
	q.Began, q.Service = ctx.Time(), s.Name
	q.Request = tracing.Request{
		Protocol: tracing.HTTP, Method: string(h.Method()), Path: string(ctx.URI().PathOriginal()), Scheme: "http",
		Version: strings.TrimPrefix(string(h.Protocol()), "HTTP/"), UserAgent: string(h.UserAgent()),
	}
	if ctx.IsTLS() {
		q.Request.Scheme = "https"
	}
	q.Request.Route = route
	q.Request.SetPeers(ctx.RemoteAddr(), string(h.Host()))
	return q
}

// texts copies header values, which are only valid during the request.
func texts(values [][]byte) []string {
	if len(values) == 0 {
		return nil
	}
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// Encode writes the requested outputs in the order of the request. It copies them, because
// their shared memory is reclaimed when it returns.
func (x *exchange) Encode(c *query.Call) *query.Error {
	ctx := x.ctx
	b, err := replyBody(x.bodies.memory, c)
	if err != nil {
		return err
	}
	// The head has the text of outputs that are not binary. Binary data follows it.
	text, err := appendReplyHead(b.Bytes, c)
	if err != nil {
		b.Release()
		return err
	}
	head := len(text)
	for _, o := range c.Outputs {
		if o.Binary {
			text = append(text, c.Reply.Outputs[o.Port].Data...)
		}
	}
	ctx.SetContentType(contentJSON)
	if slices.ContainsFunc(c.Outputs, func(o query.Output) bool { return o.Binary }) {
		ctx.SetContentType(contentBinary)
		ctx.Response.Header.Set(headerLength, strconv.Itoa(head))
	}
	if v := c.Reply.Variant; v != "" {
		ctx.Response.Header.Set(headerVariant, v)
	}
	b.Bytes = text
	// The text may have outgrown the room that was accounted for it.
	b.Settle()
	x.bodies.send(ctx, b)
	return nil
}
