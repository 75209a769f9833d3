package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/tap"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

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

// begun says that the next request of a stream has begun to come.
func (s *Server) begun(ctx context.Context) {
	if timer, ok := ctx.Value(hurryKey{}).(*time.Timer); ok {
		timer.Reset(s.limits.ReadTimeout)
	}
}

// arrived says that the request of a call is there.
func arrived(ctx context.Context) {
	if timer, ok := ctx.Value(hurryKey{}).(*time.Timer); ok {
		timer.Stop()
	}
}

// unhurry says so for every call.
func unhurry(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	return handle(ctx, request)
}
