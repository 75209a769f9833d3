package rpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// hurryKey is where a context keeps the timer of its request.
type hurryKey struct{}

// hurry ends a call whose request does not arrive in time. A stream may be
// quiet for as long as its client is there.
func (s *Server) hurry(ctx context.Context, call *tap.Info) (context.Context, error) {
	if !strings.HasPrefix(call.FullMethodName, unaryPrefix) || call.FullMethodName == inference.GRPCInferenceService_ModelStreamInfer_FullMethodName {
		return ctx, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(s.limits.ReadTimeout, cancel)
	return context.WithValue(ctx, hurryKey{}, timer), nil
}

// unaryPrefix starts the names of the calls that bring one request.
const unaryPrefix = "/inference.GRPCInferenceService/"

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
