package rpc

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// protocolHTTP2 is what clients of gRPC ask for by ALPN.
const protocolHTTP2 = "h2"

var (
	errNoToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "this daemon wants a token: send the metadata authorization: Bearer TOKEN, with a token of its access.token_file"}
	errWrongToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "the token of this call is not one of the daemon's: it may have been replaced in access.token_file"}
)

// openMethods need no token, because probes have none. To Check a service by name
// needs one all the same, see health.
var openMethods = map[string]bool{
	inference.GRPCInferenceService_ServerLive_FullMethodName:  true,
	inference.GRPCInferenceService_ServerReady_FullMethodName: true,
	grpc_health_v1.Health_Check_FullMethodName:                true,
}

// credentialsOf returns how connections are encrypted. A handshake has as long as
// a connection has to begin, see handshakeTime.
func credentialsOf(a *access.Access) credentials.TransportCredentials {
	config := a.TLS(protocolHTTP2)
	if config == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(config)
}

// allows refuses a call without a token, if it needs one.
func (s *Server) allows(ctx context.Context) *query.Error {
	if !s.access.Guarded() {
		return nil
	}
	sent := metadata.ValueFromIncomingContext(ctx, "authorization")
	switch {
	case len(sent) == 0:
		return errNoToken
	case len(sent) == 1 && s.access.Allows([]byte(sent[0])):
		return nil
	}
	return errWrongToken
}

// enter decides whether a call may begin. It is asked before anything of its
// request is read, by every method that there is. What it returns is called when
// a call that may has ended.
func (s *Server) enter(ctx context.Context, method string) (leave func(), fault *query.Error) {
	memory := s.queries.Memory
	if openMethods[method] {
		memory = s.probes
	} else if fault := s.allows(ctx); fault != nil {
		return nil, fault
	}
	if !memory.Take(callBytes) {
		return nil, query.ErrBodyMemory
	}
	return func() {
		memory.Give(callBytes)
		arrived(ctx)
	}, nil
}

// enterStream is enter for a call that may stay for as long as it likes.
func (s *Server) enterStream(ctx context.Context, method string) (leave func(), fault *query.Error) {
	end, fault := s.enter(ctx, method)
	if fault != nil {
		return nil, fault
	}
	if !s.streams.Take(callBytes) {
		end()
		return nil, errStreams
	}
	return func() {
		s.streams.Give(callBytes)
		end()
	}, nil
}

// register serves what d describes. Every method is entered first, so that
// there is no path around the guard.
func (s *Server) register(d grpc.ServiceDesc, service any) {
	methods, streams := d.Methods, d.Streams
	d.Methods, d.Streams = nil, nil
	for _, m := range methods {
		full, handle := "/"+d.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(service any, ctx context.Context, read func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
			leave, fault := s.enter(ctx, full)
			if fault != nil {
				return nil, fail(ctx, fault)
			}
			defer leave()
			return handle(service, ctx, read, i)
		}
		d.Methods = append(d.Methods, m)
	}
	for _, m := range streams {
		full, handle := "/"+d.ServiceName+"/"+m.StreamName, m.Handler
		m.Handler = func(service any, g grpc.ServerStream) error {
			leave, fault := s.enterStream(g.Context(), full)
			if fault != nil {
				return fail(g.Context(), fault)
			}
			defer leave()
			return handle(service, g)
		}
		d.Streams = append(d.Streams, m)
	}
	s.grpc.RegisterService(&d, service)
}

// unknown answers a call of a method that there is not. Who may not ask does
// not learn that.
func (s *Server) unknown(_ any, g grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(g)
	leave, fault := s.enter(g.Context(), method)
	if fault != nil {
		return fail(g.Context(), fault)
	}
	leave()
	return status.Errorf(codes.Unimplemented, "unknown method %q", query.Cut(method))
}

// hurryKey is where a context keeps the timer of its request.
type hurryKey struct{}

// quiet are the methods whose clients may stay and ask nothing. All others
// bring one request, and at once.
var quiet = map[string]bool{
	inference.GRPCInferenceService_ModelStreamInfer_FullMethodName:         true,
	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      true,
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: true,
}

// hurry ends a call whose request does not arrive in time. A stream may be
// quiet for as long as its client is there; a request that it has begun to send
// has as long as that of any other call.
func (s *Server) hurry(ctx context.Context, call *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(s.limits.ReadTimeout, cancel)
	if quiet[call.FullMethodName] {
		timer.Stop()
	}
	return context.WithValue(ctx, hurryKey{}, timer), nil
}

// begun starts the time for the next request of a stream, which has begun to come.
func (s *Server) begun(ctx context.Context) {
	if timer, ok := ctx.Value(hurryKey{}).(*time.Timer); ok {
		timer.Reset(s.limits.ReadTimeout)
	}
}

// arrived stops the time for a request, which is there.
func arrived(ctx context.Context) {
	if timer, ok := ctx.Value(hurryKey{}).(*time.Timer); ok {
		timer.Stop()
	}
}

// unhurry calls arrived for every call that has been read.
func unhurry(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	return handle(ctx, request)
}
