package rpc

import (
	"context"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Caller is what a call says of itself and of who made it.
type Caller struct {
	Method      string // with its service, such as inference.GRPCInferenceService/ModelInfer
	Authority   string // that the client named
	UserAgent   string
	Client      net.Addr // nil if it is not known
	Traceparent []string // its context in a trace, as W3C Trace Context writes it
	Tracestate  []string
}

// CallerOf returns what the call of a context says. A stream says it once for
// all of its queries.
func CallerOf(ctx context.Context) Caller {
	method, _ := grpc.Method(ctx)
	c := Caller{Method: strings.TrimPrefix(method, "/")}
	if p, ok := peer.FromContext(ctx); ok {
		c.Client = p.Addr
	}
	one := func(key string) string {
		if v := metadata.ValueFromIncomingContext(ctx, key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	c.Authority, c.UserAgent = one(":authority"), one("user-agent")
	c.Traceparent = metadata.ValueFromIncomingContext(ctx, "traceparent")
	c.Tracestate = metadata.ValueFromIncomingContext(ctx, "tracestate")
	return c
}

// codeNames are the codes that calls end with, as the specification of gRPC
// writes them.
var codeNames = map[codes.Code]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.InvalidArgument: "INVALID_ARGUMENT", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
	codes.NotFound: "NOT_FOUND", codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.Unauthenticated: "UNAUTHENTICATED", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
}

// CodeName returns the name of the code that a call ends with, whose host
// returned err.
func CodeName(err error) string {
	code := codes.OK
	if err != nil {
		code = asFault(err).code()
	}
	if name, ok := codeNames[code]; ok {
		return name
	}
	return "UNKNOWN"
}
