package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// ReasonTrailer is the trailer that carries the reason of an error.
	ReasonTrailer = "overlapd-reason"

	// ErrorDomain is the domain of the ErrorInfo in a status.
	ErrorDomain = "overlapd"
)

// Reasons of the daemon that decide about the code of a status.
const (
	reasonInvalid   = "invalid"
	reasonNotFound  = "not_found"
	reasonMemory    = "no_memory"
	reasonLoading   = "loading"
	reasonDraining  = "draining"
	reasonDeadline  = "deadline_passed"
	reasonCancelled = "cancelled"
	reasonInternal  = "internal"

	reasonTooLarge     = "too_large"
	reasonUnauthorized = "unauthorized"
)

// retryAfter is what an error of the server's own asks of the client.
const retryAfter = time.Second

// Fault is an error that a client sees, with the status of HTTP that stands
// for it.
type Fault struct {
	Status     int
	Reason     string // for programs
	Message    string // for people
	RetryAfter time.Duration
}

func (f *Fault) Error() string { return f.Message }

func invalid(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusBadRequest, Reason: reasonInvalid, Message: fmt.Sprintf(format, args...)}
}

func unavailable(reason, message string) *Fault {
	return &Fault{Status: http.StatusServiceUnavailable, Reason: reason, Message: message, RetryAfter: retryAfter}
}

var errDraining = unavailable(reasonDraining, "the daemon is stopping")

// asFault returns what a client sees of an error of the host.
func asFault(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Status: http.StatusInternalServerError, Reason: reasonInternal,
		Message: "overlapd failed to answer; its log says more"}
}

// code returns the code of gRPC. A query whose time is over is not the same as
// one that was turned away in time: only the second is worth another try.
func (f *Fault) code() codes.Code {
	switch f.Reason {
	case reasonDeadline:
		return codes.DeadlineExceeded
	case reasonCancelled:
		return codes.Canceled
	}
	switch f.Status {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusRequestTimeout:
		return codes.DeadlineExceeded
	case http.StatusRequestEntityTooLarge:
		return codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	}
	return codes.Internal
}

// status returns the fault as gRPC sends it. The reason is in an ErrorInfo, in
// capitals as its definition wants.
func (f *Fault) status() error {
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: strings.ToUpper(f.Reason), Domain: ErrorDomain},
	}
	if f.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)})
	}
	s := status.New(f.code(), f.Message)
	if with, err := s.WithDetails(details...); err == nil {
		s = with
	}
	return s.Err()
}

// refuse is fail for what reading a request returned: gRPC's own errors stay.
func refuse(ctx context.Context, err error) error {
	var f *Fault
	if errors.As(err, &f) {
		return fail(ctx, f)
	}
	return err
}

// fail returns the status of an error, and puts its reason into the trailer.
func fail(ctx context.Context, err error) error {
	f := asFault(err)
	// It fails only outside of a call, which tests are.
	_ = grpc.SetTrailer(ctx, metadata.Pairs(ReasonTrailer, f.Reason))
	return f.status()
}
