package rpc

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/overlapd/overlapd/daemon/query"
)

// reasonTrailer is the trailer with the reason of an error, a Reason constant of package
// query.
const reasonTrailer = "overlapd-reason"

// codesOf maps HTTP statuses to gRPC codes. A missing status maps to Internal.
var codesOf = map[int]codes.Code{
	http.StatusBadRequest:            codes.InvalidArgument,
	http.StatusUnauthorized:          codes.Unauthenticated,
	http.StatusForbidden:             codes.PermissionDenied,
	http.StatusNotFound:              codes.NotFound,
	http.StatusRequestTimeout:        codes.DeadlineExceeded,
	http.StatusRequestEntityTooLarge: codes.ResourceExhausted,
	http.StatusNotImplemented:        codes.Unimplemented,
	http.StatusServiceUnavailable:    codes.Unavailable,
}

// codeOf returns the gRPC code for an error, or OK for nil. A query whose deadline has
// passed gets DEADLINE_EXCEEDED although its HTTP status is 503: unlike an early rejection
// it is not worth a retry, and clients retry UNAVAILABLE.
func codeOf(err *query.Error) codes.Code {
	switch {
	case err == nil:
		return codes.OK
	case err.Status == http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	case err.Reason == query.ReasonDeadline:
		return codes.DeadlineExceeded
	case err.Reason == query.ReasonCancelled:
		return codes.Canceled
	}
	return cmp.Or(codesOf[err.Status], codes.Internal)
}

// codeName returns the name of the gRPC code for an error as the gRPC specification spells
// it.
func codeName(err *query.Error) string { return code.Code(codeOf(err)).String() }

// statusOf converts an error to a gRPC status. Its ErrorInfo has the reason in upper case,
// as the definition of ErrorInfo requires.
func statusOf(err *query.Error) error {
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: strings.ToUpper(err.Reason), Domain: query.DaemonName},
	}
	if err.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(err.RetryAfter)})
	}
	s := status.New(codeOf(err), err.Message)
	if with, err := s.WithDetails(details...); err == nil {
		s = with
	}
	return s.Err()
}

// refuse converts an error of reading a request to a gRPC status. It finds an *query.Error
// in err or in the cause of ctx, and passes gRPC's own errors through.
func refuse(ctx context.Context, err error) error {
	var f *query.Error
	if errors.As(err, &f) || errors.As(context.Cause(ctx), &f) {
		return fail(ctx, f)
	}
	return err
}

// fail returns the status for an error and sets its reason as a trailer.
func fail(ctx context.Context, err *query.Error) error {
	// It fails only outside of a call, that is, in tests.
	_ = grpc.SetTrailer(ctx, metadata.Pairs(reasonTrailer, err.Reason))
	return statusOf(err)
}
