package rpc

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// Errors for calls without a valid token.
var (
	errNoToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "this daemon requires a token: send the metadata authorization: Bearer TOKEN, with a token of its access.token_file"}
	errWrongToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "the token of this call is not valid: it may have been replaced in access.token_file"}
)

// openMethods need no token because probes have none. Checking a single service by name
// needs one, see health.Check.
var openMethods = map[string]bool{
	inference.GRPCInferenceService_ServerLive_FullMethodName:  true,
	inference.GRPCInferenceService_ServerReady_FullMethodName: true,
	grpc_health_v1.Health_Check_FullMethodName:                true,
}

// guard decides about calls before their request is read. With a nil access it lets
// everybody in. probes is the memory for calls that need no token. reflections limits the
// memory of reflection streams, as a part of that of all calls.
type guard struct {
	access              *access.Access
	unsent              *unsent
	probes, reflections *query.Budget
}

// allows returns an error unless the call has a valid token or none is needed.
func (g *guard) allows(ctx context.Context) *query.Error {
	if !g.access.Guarded() {
		return nil
	}
	sent := metadata.ValueFromIncomingContext(ctx, "authorization")
	switch {
	case len(sent) == 0:
		return errNoToken
	case len(sent) == 1 && g.access.Allows([]byte(sent[0])):
		return nil
	}
	return errWrongToken
}

// enter decides whether a call may begin, before its request is read. Every method passes
// here. It returns the memory that the call takes from, and a function to call when the
// call has ended.
func (g *guard) enter(ctx context.Context, method string) (memory *query.Budget, leave func(), fault *query.Error) {
	c := connOf(ctx)
	// The connection has sent a call, so it is not evicted as silent.
	c.asked.Do(c.place.Asked)
	memory = c.memory
	if openMethods[method] {
		memory = c.probes
	} else if fault := g.allows(ctx); fault != nil {
		return nil, nil, fault
	} else if c.place.Spare {
		return nil, nil, query.ErrConnections
	}
	h := ctx.Value(hurryKey{}).(*hurry)
	if !memory.Take(h.bytes) {
		// A full daemon is no fault of the client.
		c.calls.redeem()
		return nil, nil, query.ErrBodyMemory
	}
	return memory, func() {
		memory.Give(h.bytes)
		// A call counts as successful if a request came and the client did not reset it.
		if h.end(false) && !errors.Is(context.Cause(ctx), context.Canceled) {
			c.calls.redeem()
		}
	}, nil
}

// entered returns a service description whose methods all pass enter first, so that no
// method can bypass the guard.
func (g *guard) entered(d grpc.ServiceDesc) *grpc.ServiceDesc {
	methods, streams := d.Methods, d.Streams
	d.Methods, d.Streams = nil, nil
	for _, m := range methods {
		full, handle := "/"+d.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(service any, ctx context.Context, _ func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
			memory, leave, fault := g.enter(ctx, full)
			if fault != nil {
				return nil, fail(ctx, fault)
			}
			defer leave()
			plain(ctx)
			answer, err := handle(service, ctx, func(request any) error {
				return receiveControl(ctx, memory, false, request)
			}, i)
			if err != nil {
				return nil, refuse(ctx, err)
			}
			if m, ok := answer.(proto.Message); ok {
				if answer, fault = encoded(ctx, m); fault != nil {
					return nil, fail(ctx, fault)
				}
			}
			return answer, nil
		}
		d.Methods = append(d.Methods, m)
	}
	for _, m := range streams {
		full, handle := "/"+d.ServiceName+"/"+m.StreamName, m.Handler
		m.Handler = func(service any, call grpc.ServerStream) error {
			memory, leave, fault := g.enter(call.Context(), full)
			if fault != nil {
				return fail(call.Context(), fault)
			}
			defer leave()
			if full == inference.GRPCInferenceService_ModelStreamInfer_FullMethodName {
				// It accounts for the requests it reads itself.
				return handle(service, call)
			}
			if m.ClientStreams {
				if !g.reflections.Take(windowBytes) {
					return fail(call.Context(), errReflections)
				}
				defer g.reflections.Give(windowBytes)
			}
			return handle(service, &controlStream{call, memory, m.ClientStreams})
		}
		d.Streams = append(d.Streams, m)
	}
	return &d
}

// unknown answers a call to an unknown method. Without a token, the client does not learn
// that it is unknown.
func (g *guard) unknown(_ any, call grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(call)
	_, leave, fault := g.enter(call.Context(), method)
	if fault != nil {
		return fail(call.Context(), fault)
	}
	leave()
	if fault := query.NotOffered(method); fault != nil {
		return fail(call.Context(), fault)
	}
	return status.Errorf(codes.Unimplemented, "unknown method %q", query.Cut(method))
}

// receiveControl reads a request of a call other than inference. It behaves like gRPC but
// accounts for the memory. Unless several is set, the call must bring exactly one request.
func receiveControl(ctx context.Context, memory *query.Budget, several bool, request any) error {
	in, err := incomingOf(ctx)
	if err != nil {
		return err
	}
	var b *query.Body
	if r := (receiver{memory, memory, controlBytes}); several {
		b, err = r.receive(in, func() { begun(ctx) })
	} else {
		b, err = r.receiveOnly(in)
	}
	ended(ctx, err == nil)
	if err == errTooLarge {
		err = errLargeControl
	}
	if err != nil {
		return err
	}
	defer b.Release()
	if m, ok := request.(proto.Message); !ok || proto.Unmarshal(b.Bytes, m) != nil {
		return errMalformed
	}
	return nil
}

// controlStream is a stream whose requests take memory of its call.
type controlStream struct {
	grpc.ServerStream
	memory  *query.Budget
	several bool
}

// RecvMsg reads the next request.
func (s *controlStream) RecvMsg(request any) error {
	if err := receiveControl(s.Context(), s.memory, s.several, request); err != nil {
		return refuse(s.Context(), err)
	}
	return nil
}

// hurryKey is the context key of the hurry of a call.
type hurryKey struct{}

// quiet are the streaming methods whose clients may stay silent. All other calls must send
// their one request within the read timeout.
var quiet = map[string]bool{
	inference.GRPCInferenceService_ModelStreamInfer_FullMethodName:         true,
	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      true,
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: true,
}

// errSlowClient is the error for a request that does not arrive in time.
var errSlowClient = &query.Error{Status: http.StatusRequestTimeout, Reason: query.ReasonTimeout,
	Message: "the request did not arrive in time (limits.read_timeout)"}

// unsentTime is how long a request that was partly sent when the daemon stops may take to
// arrive completely.
const unsentTime = time.Second

// unsent tracks the requests that are expected. Each must arrive within timeout, or within
// unsentTime once the daemon stops.
type unsent struct {
	timeout time.Duration
	mu      struct {
		sync.Mutex
		expected map[*hurry]bool
		stopping bool
	}
}

// hurry is the timer for the next request of a call. bytes is the memory accounted to the
// call for being open.
type hurry struct {
	of    *unsent
	timer *time.Timer
	bytes int64

	// came is set once a request has arrived. It is guarded by the mutex of unsent.
	came bool
}

// hurry is gRPC's tap: it runs for each call before its handler has a goroutine. It starts
// a timer that cancels the call if its request does not arrive in time. A stream may be
// silent for as long as it likes, but a request that it has begun must arrive like any
// other.
func (g *guard) hurry(ctx context.Context, call *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	h := &hurry{of: g.unsent, bytes: openBytes}
	for name, values := range call.Header {
		for _, v := range values {
			h.bytes += int64(len(name) + len(v))
		}
	}
	h.timer = time.AfterFunc(h.of.timeout, func() { cancel(h.late()) })
	ctx = context.WithValue(ctx, hurryKey{}, h)
	if quiet[call.FullMethodName] {
		h.timer.Stop()
	} else {
		h.begin()
	}
	return ctx, nil
}

// begin starts the timer for a request.
func (h *hurry) begin() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.mu.expected[h] = true
	if h.timer.Reset(h.of.timeout); h.of.mu.stopping {
		h.timer.Reset(min(h.of.timeout, unsentTime))
	}
}

// late returns the reason for cancelling a call whose request did not arrive in time.
func (h *hurry) late() *query.Error {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	delete(h.of.mu.expected, h)
	if h.of.mu.stopping {
		return query.ErrDraining
	}
	return errSlowClient
}

// stop shortens the time of all expected requests, so that they delay stopping by
// unsentTime at most.
func (u *unsent) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.stopping = true
	for h := range u.mu.expected {
		h.timer.Reset(min(u.timeout, unsentTime))
	}
}

// begun starts the timer for a request of a stream whose first bytes have arrived.
func begun(ctx context.Context) {
	if h, ok := ctx.Value(hurryKey{}).(*hurry); ok {
		h.begin()
	}
}

// arrived stops the timer of a request that has arrived.
func arrived(ctx context.Context) { ended(ctx, true) }

// ended stops the timer of a request that has arrived or will not.
func ended(ctx context.Context, came bool) {
	if h, ok := ctx.Value(hurryKey{}).(*hurry); ok {
		h.end(came)
	}
}

// end stops the timer and reports whether the call has ever brought a request.
func (h *hurry) end(came bool) bool {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	delete(h.of.mu.expected, h)
	h.timer.Stop()
	h.came = h.came || came
	return h.came
}
