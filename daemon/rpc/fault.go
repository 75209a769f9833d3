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

// reasonTrailer is the trailer that carries the reason of an error.
const reasonTrailer = "overlapd-reason"

// codesOf are the codes of gRPC for the statuses of HTTP. One that is missing is
// Internal.
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

// codeOf returns the code of gRPC for an error, OK for none. A query whose time
// is over is not the same as one that was turned away in time: only the second
// is worth another try.
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

// codeName returns the name of the code for an error, as the specification of
// gRPC writes it.
func codeName(err *query.Error) string { return code.Code(codeOf(err)).String() }

// statusOf returns an error as gRPC sends it. The reason is in an ErrorInfo, in
// capitals as its definition wants.
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

// refuse is fail for what reading a request returned, or for why nobody reads it any
// more: gRPC's own errors stay.
func refuse(ctx context.Context, err error) error {
	var f *query.Error
	if errors.As(err, &f) || errors.As(context.Cause(ctx), &f) {
		return fail(ctx, f)
	}
	return err
}

// fail returns the status of an error, and puts its reason into the trailer.
func fail(ctx context.Context, err *query.Error) error {
	// It fails only outside of a call, which tests are.
	_ = grpc.SetTrailer(ctx, metadata.Pairs(reasonTrailer, err.Reason))
	return statusOf(err)
}
