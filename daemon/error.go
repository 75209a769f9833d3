package daemon

import (
	"fmt"
	"net/http"
	"time"
)

// Error is an error that a client sees.
type Error struct {
	Status     int           // of HTTP
	Reason     string        // for programs, one of the Reason constants
	Message    string        // for people
	RetryAfter time.Duration // with status 503; rounded up to seconds
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
	ReasonWorkerLost   = "worker_lost"     // the worker was lost and there was no time to try again
	ReasonModelFailed  = "model_failed"    // the model refused the values
	ReasonInternal     = "internal"        // a defect in overlapd
)

// DefaultRetryAfter is what a 503 asks of the client if nothing better is
// known.
const DefaultRetryAfter = time.Second

// These errors are for Alloc.
var (
	// ErrNoMemory is returned when the shared memory of the service is in use
	// by other queries.
	ErrNoMemory = unavailable(ReasonNoMemory, "the service has no memory for another query now")

	// ErrTooLarge is returned when the inputs of one query would not fit in
	// the shared memory of the service even if it were empty.
	ErrTooLarge = &Error{Status: http.StatusRequestEntityTooLarge, Reason: ReasonTooLarge,
		Message: "the inputs exceed the memory of the service (worker.input_bytes)"}
)

// These errors are for Submit.
var (
	// ErrQueueFull is returned when queue_limit queries of the service wait.
	ErrQueueFull = unavailable(ReasonQueueFull, "the queue of the service is full")

	// ErrDraining is returned when the daemon is stopping.
	ErrDraining = unavailable(ReasonDraining, "the daemon is stopping")

	// ErrUnavailable is returned when the service's worker is not there.
	ErrUnavailable = unavailable(ReasonLoading, "the service is not ready")
)

func unavailable(reason, message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Reason: reason, Message: message,
		RetryAfter: DefaultRetryAfter}
}

func invalid(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Reason: ReasonInvalid, Message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Reason: ReasonNotFound, Message: fmt.Sprintf(format, args...)}
}
