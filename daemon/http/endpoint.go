// Package http serves the Open Inference Protocol over HTTP, with Triton's
// binary tensor extension, and what the daemon says of itself: its status, its
// metrics, the rounds that it decided, as they happen, and the dashboard's page.
// An [Endpoint] reads a request into a [query.Call] and writes the answer; what
// becomes of the query in between is package query's. Only package daemon makes
// one.
//
// # Answers that are not outputs
//
// Every error is a JSON object {"error": "...", "reason": "..."}. The reason
// is made for programs and stays the same between versions; the text is not.
// A 503 carries Retry-After in seconds.
//
// # Choices where the protocol leaves one
//
// Besides those of package query:
//
//   - "data" may be flat, or nested exactly as the shape says.
//   - FP16 and BF16 have no JSON form, in either direction: use binary data.
//   - JSON has no NaN and no infinity. An output that holds one is answered
//     with 400 and the reason "not_json"; ask for binary output instead.
//   - A raw binary request (Inference-Header-Content-Length: 0) is refused.
//   - A client that shuts down its sending side has left: its query is
//     cancelled.
package http

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// responseBufferBytes is the write buffer of a connection: an answer of
	// a small model leaves in one system call.
	responseBufferBytes = 4 << 10

	// spareWorkers is how many more goroutines than limits.connections may be alive:
	// those of spare places, and of connections that are counted off a moment before
	// their goroutine ends.
	spareWorkers = 256
)

// Endpoint serves the Open Inference Protocol over HTTP: it accepts connections,
// and hands each request that may ask to the inference or to the pages.
type Endpoint struct {
	limits    config.Limits
	access    *access.Access
	places    *query.Places
	server    *fasthttp.Server
	watch     *watch
	gate      gate
	bodies    *bodies
	inference *inference
	pages     *pages
}

// NewEndpoint returns an endpoint that listens nowhere yet.
func NewEndpoint(l config.Limits, o Options) (*Endpoint, error) {
	w, err := newWatch(o.Lasting)
	if err != nil {
		return nil, err
	}
	q := o.Queries
	b := &bodies{memory: q.Memory, most: l.RequestBytes, compress: l.CompressBytes}
	e := &Endpoint{
		limits: l, access: o.Access, places: q.Connections, watch: w, bodies: b, inference: newInference(q, b),
		gate:  gate{queries: q, access: o.Access, most: l.RequestBytes, openMetrics: o.OpenMetrics, hosts: hostSet(l.Hosts)},
		pages: &pages{Options: o, heavy: make(turns, 1), bodies: &bodies{memory: q.Memory.Part(pageBytes), compress: l.CompressBytes}},
	}
	e.server = newServer(e, q, l)
	return e, nil
}

// newServer returns what reads requests for an endpoint.
func newServer(e *Endpoint, q *query.Server, l config.Limits) *fasthttp.Server {
	name := query.DaemonName
	if label := q.Label; label != "" {
		name += " (" + label + ")"
	}
	return &fasthttp.Server{
		Handler:                      e.Handle,
		ErrorHandler:                 e.refuseConnection,
		HeaderReceived:               e.gate.early,
		ExpectHandler:                e.expect,
		Name:                         name,
		Logger:                       &q.Log, // at the debug level: a client can cause any number of lines
		Concurrency:                  l.Connections + spareWorkers,
		ReadBufferSize:               int(l.HeaderBytes),
		WriteBufferSize:              responseBufferBytes,
		MaxRequestBodySize:           int(l.RequestBytes),
		ReadTimeout:                  l.ReadTimeout,
		WriteTimeout:                 l.WriteTimeout,
		IdleTimeout:                  l.IdleTimeout,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		CloseOnShutdown:              true,
	}
}

// Serve answers the connections of ln until Shutdown. It may be called for
// several listeners.
func (e *Endpoint) Serve(ln net.Listener) error {
	err := e.server.Serve(&listener{
		Listener: ln, watch: e.watch, places: e.places, guarded: loopback(ln.Addr()),
		tls: e.access.TLS("http/1.1"), // what clients may ask for by ALPN: fasthttp has no HTTP/2
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting, waits until the requests that were accepted are
// answered or ctx ends, and closes every connection. It is called once. If the listening
// socket outlives the endpoint, its listener must be closed before; each connection then has
// a moment in which one more request is answered.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	e.watch.stop()
	if e.watch.lasting {
		e.watch.settle(ctx)
	}
	err := e.server.ShutdownWithContext(ctx)
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, e.watch.Close())
}

// Handle answers one request, the last of its connection if the endpoint stops.
func (e *Endpoint) Handle(ctx *fasthttp.RequestCtx) {
	e.answer(ctx)
	if e.watch.stopping() {
		ctx.SetConnectionClose()
	}
}

func (e *Endpoint) answer(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(headerTypeOptions, noSniff)
	r, s, err := e.gate.decide(ctx)
	if err != nil {
		writeError(ctx, err)
		leaveBody(ctx)
		return
	}
	if r.page == nil {
		e.inference.answer(ctx, s)
		return
	}
	leaveBody(ctx)
	if r.heavy && !e.pages.heavy.take() {
		writeError(ctx, errCrowded)
		return
	}
	began := time.Now()
	r.page(e.pages, ctx, s)
	if r.heavy {
		e.pages.heavy.give(time.Since(began))
	}
}

// refuseConnection answers what could not be read as a request.
func (e *Endpoint) refuseConnection(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var fault *query.Error
	var netErr net.Error
	switch {
	case errors.As(err, &fault):
		writeError(ctx, fault)
	case errors.As(err, &small):
		writeError(ctx, &query.Error{Status: http.StatusRequestHeaderFieldsTooLarge, Reason: query.ReasonTooLarge,
			Message: "the header of the request exceeds limits.header_bytes"})
	case errors.As(err, &netErr) && netErr.Timeout():
		writeError(ctx, errSlowClient)
	default:
		writeError(ctx, query.Invalid("this is not an HTTP request that can be read"))
	}
	e.beginWriting(ctx)
	closeAfter(ctx)
}

// beginWriting gives what is written now the time of an answer. For what does
// not come from Handle, fasthttp leaves that of the answer before, which is over
// if the connection has rested.
func (e *Endpoint) beginWriting(ctx *fasthttp.RequestCtx) {
	// It fails for a connection that is closed, as writing does.
	_ = ctx.Conn().SetWriteDeadline(time.Now().Add(e.limits.WriteTimeout))
}

// expect decides about a body that the client asks leave to send, or that it need not
// (see gate.early). One that did not wait for it can read the answer all the same.
func (e *Endpoint) expect(ctx *fasthttp.RequestCtx) int {
	e.beginWriting(ctx)
	if _, _, err := e.gate.decide(ctx); err != nil {
		writeError(ctx, err)
		closeAfter(ctx)
		return err.Status
	}
	return http.StatusContinue
}
