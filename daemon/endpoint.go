package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
)

const (
	serverName = "overlapd"

	// responseBufferBytes is the write buffer of a connection: an answer of
	// a small model leaves in one system call.
	responseBufferBytes = 4 << 10

	// spareWorkers is how many more goroutines than connections may be alive,
	// because a connection is counted off a moment before its goroutine ends.
	spareWorkers = 64
)

// Host is what the endpoint asks of the rest of the daemon besides queries. Its
// methods are called from many goroutines at once, and none of them may block.
type Host interface {
	query.Directory

	// Live reports whether the scheduler goroutine makes progress.
	Live() bool

	// Ready reports whether every service can answer queries.
	Ready() bool

	// Status returns how the daemon stands. It is false if the
	// scheduler goroutine has ended or does not answer.
	Status() (*status.Status, bool)

	// Timelines returns what remembers the last rounds, of each instance.
	Timelines() []*timeline.Ring
}

// Endpoint serves the Open Inference Protocol over HTTP.
type Endpoint struct {
	backend        Host
	limits         config.Limits
	log            zerolog.Logger
	version        string
	server         *fasthttp.Server
	watch          *watch
	hosts          map[string]struct{}
	extensions     []string               // of the protocol, that the daemon has
	serverMetadata []byte                 // answer to /v2
	metrics        func() ([]byte, error) // answer to /metrics, nil for none
	tracer         *otlp.Tracer           // nil for none
	storage        *storage               // nil for one that nothing is known of
	access         *access.Access         // nil lets everybody in
	openMetrics    bool                   // /metrics needs no token

	stopping    atomic.Bool  // connections that have not said anything are closed
	memoryBytes atomic.Int64 // held by bodies; at most limits.MemoryBytes
	bodies      sync.Pool    // of *body
	exchanges   sync.Pool    // of *exchange
	watchers    watchers
}

// NewEndpoint returns an endpoint that listens nowhere yet. Version is what
// /v2 says of the daemon.
func NewEndpoint(b Host, l config.Limits, version string, log zerolog.Logger) (*Endpoint, error) {
	w, err := newWatch()
	if err != nil {
		return nil, err
	}
	e := &Endpoint{backend: b, limits: l, log: log, version: version, watch: w, hosts: hostSet(l.Hosts)}
	e.extend()
	e.bodies.New = func() any { return new(body) }
	e.exchanges.New = func() any { return &exchange{call: query.NewCall()} }
	e.server = &fasthttp.Server{
		Handler:                      e.Handle,
		ErrorHandler:                 e.refuseConnection,
		ExpectHandler:                e.expect,
		Name:                         serverName,
		Logger:                       quiet{log},
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

// labelEmulated makes every answer say that nothing is computed: the header
// Server, and the extensions of /v2.
func (e *Endpoint) labelEmulated() {
	e.server.Name = serverName + " (" + config.DeviceEmulated + ")"
	e.extend(config.DeviceEmulated)
}

// extend names the protocol's extensions that the daemon has, and more of its
// own.
func (e *Endpoint) extend(more ...string) {
	e.extensions = append(slices.Clone(protocolExtensions), more...)
	e.serverMetadata = appendServerMetadata(nil, e.version, e.extensions)
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
		seconds := retrySeconds(err.RetryAfter)
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, seconds)
	}
	b := ctx.Response.Body()[:0]
	b = appendString(append(b, `{"error":`...), err.Message)
	b = appendString(append(b, `,"reason":`...), err.Reason)
	ctx.Response.SetBody(append(b, '}'))
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
