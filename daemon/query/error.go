package query

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Error is an error that a client sees. Status is that of HTTP, Reason one of the
// Reason constants, for programs, and Message is for people. With status 503,
// RetryAfter is when another try is worth it, rounded up to seconds.
type Error struct {
	Status     int
	Reason     string
	Message    string
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

// The reasons that an error may give. They are part of the protocol.
const (
	ReasonInvalid      = "invalid"         // the request is wrong
	ReasonNotFound     = "not_found"       // no such service, version or route
	ReasonMethod       = "method"          // the route does not take this method
	ReasonUnauthorized = "unauthorized"    // no token, or a wrong one
	ReasonForbidden    = "forbidden"       // foreign Host or Origin
	ReasonTooLarge     = "too_large"       // over a limit of the configuration
	ReasonEncoding     = "encoding"        // unknown Content-Encoding
	ReasonTimeout      = "timeout"         // the client was too slow
	ReasonNotJSON      = "not_json"        // an output has no JSON form
	ReasonLoading      = "loading"         // the service's worker is not there yet
	ReasonQueueFull    = "queue_full"      // the service's queue is full
	ReasonNoMemory     = "no_memory"       // no memory for another query now
	ReasonConnections  = "connections"     // too many connections
	ReasonDraining     = "draining"        // the daemon is stopping
	ReasonDeadline     = "deadline_passed" // dropped: its deadline passed while it waited
	ReasonCannotFinish = "cannot_finish"   // dropped: it would have ended after its deadline
	ReasonCancelled    = "cancelled"       // the client left
	ReasonWorkerLost   = "worker_lost"     // the worker died of the query, or there was no time to try again after it was lost
	ReasonModelFailed  = "model_failed"    // the model refused the values
	ReasonWatchers     = "watchers"        // too many clients watch the events
	ReasonInternal     = "internal"        // a defect in overlapd
)

// DefaultRetryAfter is what a 503 asks of the client if nothing better is
// known.
const DefaultRetryAfter = time.Second

// These errors are for Alloc.
var (
	// ErrNoMemory is returned when the shared memory of the service is in use
	// by other queries.
	ErrNoMemory = Unavailable(ReasonNoMemory, "the service has no memory for another query now")

	// ErrTooLarge is returned when the inputs of one query would not fit in
	// the shared memory of the service even if it were empty.
	ErrTooLarge = &Error{Status: http.StatusRequestEntityTooLarge, Reason: ReasonTooLarge,
		Message: "the inputs exceed the memory of the service (worker.input_bytes)"}
)

// These errors are for Submit.
var (
	// ErrQueueFull is returned when queue_limit queries of the service wait.
	ErrQueueFull = Unavailable(ReasonQueueFull, "the queue of the service is full")

	// ErrDraining is returned when the daemon is stopping.
	ErrDraining = Unavailable(ReasonDraining, "the daemon is stopping")

	// ErrUnavailable is returned when the service's worker is not there.
	ErrUnavailable = Unavailable(ReasonLoading, "the service is not ready")
)

// ErrInternal is what a client sees of a defect in overlapd.
var ErrInternal = &Error{Status: http.StatusInternalServerError, Reason: ReasonInternal,
	Message: "overlapd failed to answer; its log says more"}

// asError returns what a client sees of an error of a backend. What is not
// meant for clients stays in the daemon.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return ErrInternal
}

// Unavailable returns an error with status 503.
func Unavailable(reason, message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Reason: reason, Message: message,
		RetryAfter: DefaultRetryAfter}
}

// Invalid returns an error with status 400 and the reason "invalid".
func Invalid(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Reason: ReasonInvalid, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns an error with status 404.
func NotFound(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Reason: ReasonNotFound, Message: fmt.Sprintf(format, args...)}
}

// maxEcho bounds how much of a name that is not known goes into an error.
const maxEcho = 128

// Cut returns as much of what a client sent as may go into an error.
func Cut[S string | []byte](name S) S { return name[:min(len(name), maxEcho)] }
