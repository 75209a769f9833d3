package daemon

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
)

// What the endpoint notes of a query that is traced. Without tracing, and for
// the queries that are not, all of it is a look at a nil pointer.

const (
	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"

	// Routes of inference, as spans name them.
	routePlain     = "/v2/models/{model}/infer"
	routeVersioned = "/v2/models/{model}/versions/{version}/infer"
)

// beginTrace returns where to note a request, or nil if it is not traced.
func (e *Endpoint) beginTrace(ctx *fasthttp.RequestCtx, s *query.Service) *tracing.Query {
	if e.tracer == nil {
		return nil
	}
	h := &ctx.Request.Header
	q := e.tracer.Begin(tracing.Parent{
		Traceparent: texts(h.PeekAll(headerTraceparent)), Tracestate: texts(h.PeekAll(headerTracestate)),
	})
	if q == nil {
		return nil
	}
	q.Began, q.Service = ctx.Time(), s.Name
	q.Request = tracing.Request{
		Protocol: tracing.HTTP, Method: string(h.Method()), Path: string(ctx.URI().PathOriginal()), Scheme: "http",
		Version: strings.TrimPrefix(string(h.Protocol()), "HTTP/"), UserAgent: string(h.UserAgent()), Client: hostOf(ctx.RemoteAddr()),
	}
	if ctx.IsTLS() {
		q.Request.Scheme = "https"
	}
	q.Request.Route = routePlain
	if strings.Contains(q.Request.Path, string(versionsPrefix)) {
		q.Request.Route = routeVersioned
	}
	q.Request.Server, q.Request.Port = splitHost(string(h.Host()))
	return q
}

// endTrace hands in what was noted of a request, which may be nothing.
func (e *Endpoint) endTrace(q *tracing.Query, failed *query.Error) {
	if q == nil {
		return
	}
	q.Ended, q.Status = time.Now(), tracing.Status{Code: http.StatusOK}
	if failed != nil {
		q.Status = statusOf(failed)
	}
	e.tracer.End(q)
}

// statusOf is what a client sees of an error. That it left is not our fault.
func statusOf(err *query.Error) tracing.Status {
	return tracing.Status{
		Code: err.Status, Reason: err.Reason, Message: err.Message,
		Ours: err.Status >= http.StatusInternalServerError && err.Reason != query.ReasonCancelled,
	}
}

// beginTrace returns where to note a call, or nil if it is not traced.
func (r remote) beginTrace(ctx context.Context, q *rpc.Query) *tracing.Query {
	if r.tracer == nil {
		return nil
	}
	c := rpc.CallerOf(ctx)
	t := r.tracer.Begin(tracing.Parent{Traceparent: c.Traceparent, Tracestate: c.Tracestate})
	if t == nil {
		return nil
	}
	t.Began, t.Service = time.Now(), q.Model
	t.Request = tracing.Request{Protocol: tracing.GRPC, Method: c.Method, UserAgent: c.UserAgent, Client: hostOf(c.Client)}
	t.Request.Server, t.Request.Port = splitHost(c.Authority)
	return t
}

// endTrace hands in what was noted of a call, which may be nothing.
func (r remote) endTrace(q *tracing.Query, failed error) {
	if q == nil {
		return
	}
	q.Ended, q.Status = time.Now(), tracing.Status{Code: http.StatusOK, GRPC: rpc.CodeName(failed)}
	if f, ok := failed.(*rpc.Fault); ok {
		name := q.Status.GRPC
		q.Status = statusOf(&query.Error{Status: f.Status, Reason: f.Reason, Message: f.Message})
		q.Status.GRPC = name
	}
	r.tracer.End(q)
}

// noteTrace notes what a call was, before it is used again.
func noteTrace(c *query.Call) {
	q := c.Trace
	if q == nil {
		return
	}
	c.Trace = nil
	q.Arrival, q.Number = c.Arrival, uint64(c.QueryID)
	if c.Service != nil { // it was read as far as that
		q.ID, q.Size, q.SeqLen, q.Priority, q.Deadline = string(c.ID), c.Size, c.SeqLen, c.Priority, c.Deadline()
	}
}

// noteEncoding notes that the answer is about to be written.
func noteEncoding(c *query.Call) {
	if c.Trace != nil {
		c.Trace.Encoding = time.Now()
	}
}

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

// hostOf returns the address of a client without its port, "" on a socket of
// this machine.
func hostOf(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return ""
}

// splitHost splits what a client calls the daemon. The port is 0 if it names
// none.
func splitHost(host string) (name string, port int) {
	name, text, err := net.SplitHostPort(host)
	if err != nil {
		return host, 0
	}
	port, _ = strconv.Atoi(text)
	return name, port
}
