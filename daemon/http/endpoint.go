// Package http serves the Open Inference Protocol (KServe V2) over HTTP with Triton's
// binary tensor extension. It also serves what the daemon publishes about itself: status,
// metrics, the timeline of rounds, live events and the dashboard page.
//
// Clients of OpenAI's and Cohere's protocols get embeddings and scores of texts below /v1.
//
// An [Endpoint] decodes a request into a [query.Call] and encodes the response; package
// query runs the query in between. Each request passes a gate, which finds the route and
// checks the token, and then goes to the inference or to one of the pages. Only package
// daemon creates endpoints.
//
// # Errors
//
// Every error is a JSON object {"error": "...", "reason": "..."}, and below /v1 one in OpenAI's
// form, whose code is the reason. The reason is meant for programs and is stable between versions; the text is not. A 503 has a Retry-After header
// in seconds.
//
// # Where the protocol leaves a choice
//
// In addition to those of package query:
//
//   - "data" may be flat, or nested exactly as the shape says.
//   - FP16 and BF16 have no JSON form, in either direction: use binary data.
//   - JSON has no NaN and no infinity. If an output contains one, the response is
//     400 with the reason "not_json"; ask for binary output instead.
//   - A raw binary request (Inference-Header-Content-Length: 0) is rejected.
//   - A client that shuts down its sending side counts as disconnected: its query
//     is cancelled.
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
	// responseBufferBytes is the write buffer of a connection. The response of a small
	// model fits, so it is sent with one system call.
	responseBufferBytes = 4 << 10

	// spareWorkers is how many goroutines beyond limits.connections may exist: those of
	// spare places, and those of connections whose place is freed a moment before their
	// goroutine ends.
	spareWorkers = 256
)

// Endpoint accepts connections and dispatches each authorized request to the inference or
// to the pages.
type Endpoint struct {
	limits    config.Limits
	access    *access.Access
	places    *query.Places
	server    *fasthttp.Server
	watch     *watch
	gate      gate
	bodies    *bodies
	inference *inference
	texts     *textInference
	pages     *pages
}

// NewEndpoint returns an endpoint. Serve starts it.
func NewEndpoint(l config.Limits, o Options) (*Endpoint, error) {
	w, err := newWatch(o.Lasting)
	if err != nil {
		return nil, err
	}
	q := o.Queries
	b := &bodies{memory: q.Memory, most: l.RequestBytes}
	n := newInference(q, b)
	e := &Endpoint{
		limits: l, access: o.Access, places: q.Connections, watch: w, bodies: b, inference: n,
		texts: &textInference{n, b, o.Texts},
		gate:  gate{queries: q, access: o.Access, most: l.RequestBytes, openMetrics: o.OpenMetrics, hosts: hostSet(l.Hosts)},
		pages: &pages{Options: o, heavy: make(turns, 1), bodies: &bodies{memory: q.Memory.Part(pageBytes)}},
	}
	e.server = newServer(e, q, l)
	return e, nil
}

// newServer returns the fasthttp server that reads requests for e.
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
		Logger:                       &q.Log, // at debug level: clients can cause any number of lines
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

// Serve answers the connections of ln until Shutdown. It may be called for several
// listeners.
func (e *Endpoint) Serve(ln net.Listener) error {
	err := e.server.Serve(&listener{
		Listener: ln, watch: e.watch, places: e.places, guarded: loopback(ln.Addr()),
		// fasthttp has no HTTP/2, so ALPN offers HTTP/1.1 only.
		tls: e.access.TLS("http/1.1"),
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting, waits until accepted requests are answered or ctx is done, and
// closes every connection. It must be called once. If the listening socket outlives the
// endpoint, the caller closes its listener first; each connection may then send one more
// request within unsentTime.
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

// Handle answers one request. It closes the connection afterwards if the endpoint is
// stopping.
func (e *Endpoint) Handle(ctx *fasthttp.RequestCtx) {
	e.answer(ctx)
	if e.watch.stopping() {
		ctx.SetConnectionClose()
	}
}

// answer dispatches a request that the gate admits to inference or to a page.
func (e *Endpoint) answer(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(headerTypeOptions, noSniff)
	// The gate comes first: nothing of the request may have an effect before it.
	r, s, err := e.gate.decide(ctx)
	if err != nil {
		writeError(ctx, err)
		leaveBody(ctx)
		return
	}
	if r.page == nil && r.text == nil && s.Asleep != nil {
		// Whether the model takes text is known once it is loaded.
		if s, err = e.inference.awake(ctx, s); err != nil {
			writeError(ctx, err)
			leaveBody(ctx)
			return
		}
	}
	switch {
	case r.text != nil:
		e.texts.answer(ctx, r.text)
		return
	case r.page == nil && s.Text != nil:
		e.texts.infer(ctx, s)
		return
	case r.page == nil:
		e.inference.answer(ctx, s, nil)
		return
	}
	if !r.body {
		leaveBody(ctx)
	}
	if r.heavy && !e.pages.heavy.take() {
		writeError(ctx, errCrowded)
		return
	}
	// The time of a heavy page determines the pause after it, see turns.
	began := time.Now()
	r.page(e.pages, ctx, s)
	if r.heavy {
		e.pages.heavy.give(time.Since(began))
	}
}

// refuseConnection answers what could not be read as a request, and closes the connection.
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
		writeError(ctx, query.Invalid("this is not a valid HTTP request"))
	}
	e.beginWriting(ctx)
	closeAfter(ctx)
}

// beginWriting starts the write timeout. fasthttp only does so for responses of Handle; for
// others the deadline of the previous response still applies, and on an idle connection it
// has passed.
func (e *Endpoint) beginWriting(ctx *fasthttp.RequestCtx) {
	// It fails if the connection is closed, and then the write will fail too.
	_ = ctx.Conn().SetWriteDeadline(time.Now().Add(e.limits.WriteTimeout))
}

// expect answers a client that asks whether to send its body (Expect: 100-continue), or one
// that gate.early treats as if it did. A client that sends the body without waiting still
// receives the error.
func (e *Endpoint) expect(ctx *fasthttp.RequestCtx) int {
	e.beginWriting(ctx)
	if _, _, err := e.gate.decide(ctx); err != nil {
		writeError(ctx, err)
		closeAfter(ctx)
		return err.Status
	}
	return http.StatusContinue
}
