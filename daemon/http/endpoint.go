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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
)

const (
	// responseBufferBytes is the write buffer of a connection: an answer of
	// a small model leaves in one system call.
	responseBufferBytes = 4 << 10

	// spareWorkers is how many more goroutines than connections may be alive,
	// because a connection is counted off a moment before its goroutine ends.
	spareWorkers = 64
)

// Host is what the endpoint asks of the rest of the daemon besides queries.
type Host interface {
	// Status returns how the daemon stands. It is false if the scheduler
	// goroutine has ended or does not answer.
	Status() (*status.Status, bool)

	// Timelines returns what remembers the last rounds, of each instance.
	Timelines() []*timeline.Ring
}

// Options is what an endpoint needs besides the configuration. Access, Metrics
// and NotStored may be nil: then everybody is let in, there is no /metrics, and
// the status names nothing that is not stored.
type Options struct {
	Queries *query.Server
	Host    Host
	Access  *access.Access

	// Metrics returns the answer to /metrics, which needs no token if
	// OpenMetrics is set.
	Metrics     func() ([]byte, error)
	OpenMetrics bool

	// NotStored returns a sentence for each thing that is not stored now.
	NotStored func() []string
}

// Endpoint serves the Open Inference Protocol over HTTP.
type Endpoint struct {
	queries        *query.Server
	host           Host
	limits         config.Limits
	log            zerolog.Logger
	server         *fasthttp.Server
	watch          *watch
	hosts          map[string]struct{}
	serverMetadata []byte // answer to /v2
	metrics        func() ([]byte, error)
	access         *access.Access
	openMetrics    bool
	notStored      func() []string

	stopping  atomic.Bool // connections that have not said anything are closed
	exchanges sync.Pool   // of *exchange
	watchers  watchers
}

// New returns an endpoint that listens nowhere yet.
func New(l config.Limits, o Options) (*Endpoint, error) {
	w, err := newWatch()
	if err != nil {
		return nil, err
	}
	e := &Endpoint{
		queries: o.Queries, host: o.Host, limits: l, log: o.Queries.Log, watch: w, hosts: hostSet(l.Hosts),
		metrics: o.Metrics, access: o.Access, openMetrics: o.OpenMetrics, notStored: o.NotStored,
		serverMetadata: appendServerMetadata(nil, o.Queries.Version, o.Queries.Extensions()),
	}
	e.exchanges.New = func() any { return &exchange{endpoint: e} }
	name := query.Name
	if label := o.Queries.Label; label != "" {
		name += " (" + label + ")"
	}
	e.server = &fasthttp.Server{
		Handler:                      e.Handle,
		ErrorHandler:                 e.refuseConnection,
		ExpectHandler:                e.expect,
		Name:                         name,
		Logger:                       quiet{e.log},
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
	return e, nil
}

// Serve answers the connections of ln until Shutdown. It may be called for
// several listeners.
func (e *Endpoint) Serve(ln net.Listener) error {
	err := e.server.Serve(&listener{Listener: ln, endpoint: e, guarded: loopback(ln.Addr()), tls: e.access.TLS(protocolHTTP)})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting, waits until the requests that were accepted are
// answered or ctx ends, and closes every connection. It is called once.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	e.stopping.Store(true)
	e.watch.closeSilent()
	err := e.server.ShutdownWithContext(ctx)
	return errors.Join(err, e.watch.Close())
}

// Handle answers one request.
func (e *Endpoint) Handle(ctx *fasthttp.RequestCtx) {
	r, err := e.decide(ctx)
	if err != nil {
		writeError(ctx, err)
		e.leaveBody(ctx)
		return
	}
	if r.kind == routeInfer {
		e.infer(ctx, r.service)
		return
	}
	e.leaveBody(ctx)
	e.answer(ctx, r)
}

// refuseConnection answers what could not be read as a request.
func (e *Endpoint) refuseConnection(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
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

// expect decides about a body that the client asks leave to send. One that did
// not wait for it can read the answer all the same.
func (e *Endpoint) expect(ctx *fasthttp.RequestCtx) int {
	e.beginWriting(ctx)
	_, err := e.decide(ctx)
	if err == nil && int64(ctx.Request.Header.ContentLength()) > e.limits.RequestBytes {
		err = e.errBodyTooLarge()
	}
	if err != nil {
		writeError(ctx, err)
		closeAfter(ctx)
		return err.Status
	}
	return http.StatusContinue
}

// writeError answers with an error.
func writeError(ctx *fasthttp.RequestCtx, err *query.Error) {
	ctx.Response.ResetBody()
	ctx.SetStatusCode(err.Status)
	ctx.SetContentType(contentJSON)
	if err.Status == http.StatusUnauthorized {
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, challenge)
	}
	if err.Status == http.StatusServiceUnavailable {
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, retrySeconds(err.RetryAfter))
	}
	b := ctx.Response.Body()[:0]
	b = appendString(append(b, `{"error":`...), err.Message)
	b = appendString(append(b, `,"reason":`...), err.Reason)
	ctx.Response.SetBody(append(b, '}'))
}

// retrySeconds returns the value of Retry-After: whole seconds, at least one.
func retrySeconds(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}

// closeAfter closes the connection once the answer is out, and not before the
// client had a moment to read it.
func closeAfter(ctx *fasthttp.RequestCtx) {
	ctx.SetConnectionClose()
	if c, ok := ctx.Conn().(*conn); ok {
		c.linger.Store(true)
	}
}

// quiet sends what fasthttp has to say about broken connections to the debug
// level: a client can cause any number of such lines.
type quiet struct{ log zerolog.Logger }

func (q quiet) Printf(format string, args ...any) {
	q.log.Debug().Msgf(strings.TrimSpace(format), args...)
}
