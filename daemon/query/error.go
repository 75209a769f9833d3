package query

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"
)

// Error is an error that a client sees. Status is the HTTP status, Reason one of the Reason
// constants, for programs, and Message is for people. RetryAfter applies to status 503: it
// says when a retry is worthwhile, and is rounded up to seconds on the wire. Parameter names
// the part of the request that is wrong, for protocols whose errors name it.
type Error struct {
	Status     int
	Reason     string
	Message    string
	Parameter  string
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

// Reasons of errors. They are part of the protocol: clients compare them, so they must not
// change.
const (
	ReasonInvalid      = "invalid"         // the request is malformed
	ReasonNotFound     = "not_found"       // no such service, version or route
	ReasonNotOffered   = "not_offered"     // a Triton extension that overlapd does not implement
	ReasonMethod       = "method"          // the route does not take this method
	ReasonUnauthorized = "unauthorized"    // no token, or a wrong one
	ReasonForbidden    = "forbidden"       // a Host or Origin that is not allowed
	ReasonTooLarge     = "too_large"       // a limit of the configuration is exceeded
	ReasonEncoding     = "encoding"        // unknown Content-Encoding
	ReasonTimeout      = "timeout"         // the client was too slow
	ReasonNotJSON      = "not_json"        // an output has no JSON form
	ReasonLoading      = "loading"         // the service's worker has not loaded the model yet
	ReasonUnloaded     = "unloaded"        // clients load models, and none has loaded this one
	ReasonGivenUp      = "given_up"        // the service failed permanently: its worker died too often, or the model cannot be served
	ReasonQuarantined  = "quarantined"     // a worker died of the same inputs, or the query was among several that killed one
	ReasonQueueFull    = "queue_full"      // the service's queue is full
	ReasonNoMemory     = "no_memory"       // no memory for another query at the moment
	ReasonConnections  = "connections"     // too many connections
	ReasonDraining     = "draining"        // the daemon is stopping
	ReasonDeadline     = "deadline_passed" // dropped: the deadline passed in the queue
	ReasonCannotFinish = "cannot_finish"   // dropped: the query would have ended after its deadline
	ReasonCancelled    = "cancelled"       // the client disconnected
	ReasonWorkerLost   = "worker_lost"     // the query killed the worker, or the worker was lost and no time was left to retry
	ReasonModelFailed  = "model_failed"    // the model rejected the values
	ReasonWatchers     = "watchers"        // too many clients watch the live events
	ReasonInternal     = "internal"        // a defect in overlapd
)

// defaultRetryAfter is the RetryAfter of a 503 when no better estimate is known.
const defaultRetryAfter = time.Second

// Errors of Backend.Alloc.
var (
	// ErrNoMemory is returned when other queries use the shared memory of the service.
	ErrNoMemory = Unavailable(ReasonNoMemory, "the service has no memory for another query at the moment")

	// ErrTooLarge is returned when the inputs of one query would not fit into the shared
	// memory of the service even if it were empty.
	ErrTooLarge = &Error{Status: http.StatusRequestEntityTooLarge, Reason: ReasonTooLarge,
		Message: "the inputs exceed the memory of the service (worker.input_bytes)"}
)

// Errors of Backend.Submit, and of the health checks.
var (
	// ErrQueueFull is returned when queue_limit queries of the service are queued.
	ErrQueueFull = Unavailable(ReasonQueueFull, "the queue of the service is full")

	// ErrDraining is returned when the daemon is stopping.
	ErrDraining = Unavailable(ReasonDraining, "the daemon is stopping")

	// ErrDrained is the readiness of a drained daemon, one that is about to be stopped. It
	// still answers queries.
	ErrDrained = Unavailable(ReasonDraining, "the daemon is draining: it is about to be stopped")

	// ErrUnavailable is returned when the service has no running worker yet.
	ErrUnavailable = Unavailable(ReasonLoading, "the service is not ready")
)

// ErrConnections is returned for any request but a probe on a spare place, see [Places].
var ErrConnections = Unavailable(ReasonConnections, "too many connections are open now")

// ErrInternal is what a client sees of a defect in overlapd. Details are only logged.
var ErrInternal = &Error{Status: http.StatusInternalServerError, Reason: ReasonInternal,
	Message: "overlapd failed to answer; see its log"}

// asError returns err if it is an *Error, and ErrInternal otherwise: other errors may
// contain paths and are not meant for clients.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return ErrInternal
}

// Unavailable returns an error with status 503 and the default RetryAfter.
func Unavailable(reason, message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Reason: reason, Message: message,
		RetryAfter: defaultRetryAfter}
}

// Invalid returns an error with status 400 and the reason "invalid".
func Invalid(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Reason: ReasonInvalid, Message: fmt.Sprintf(format, args...)}
}

// Of returns the error with the part of the request that is wrong.
func (e *Error) Of(part string) *Error {
	named := *e
	named.Parameter = part
	return &named
}

// NotFound returns an error with status 404.
func NotFound(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Reason: ReasonNotFound, Message: fmt.Sprintf(format, args...)}
}

// errSharedMemory is returned for tensors that the client keeps in shared memory of its
// own.
var errSharedMemory = notOffered("shared memory is not supported, neither the parameters shared_memory_* nor the calls: send tensors in the request, as binary data; they are copied once")

// notOffered returns an error with status 501.
func notOffered(message string) *Error {
	return &Error{Status: http.StatusNotImplemented, Reason: ReasonNotOffered, Message: message}
}

// extensions are the Triton extensions that overlapd does not implement. Each is matched by
// its HTTP path or gRPC method and has an error that names the alternative.
var extensions = []struct {
	asked *regexp.Regexp
	err   *Error
}{
	{regexp.MustCompile(`^/v2/(system|cuda)sharedmemory(/|$)|/(System|Cuda)SharedMemory[A-Za-z]+$`), errSharedMemory},
	{regexp.MustCompile(`^/v2/(models/[^/]+/(versions/[^/]+/)?)?trace/setting$|/TraceSetting$`),
		notOffered("traces cannot be set by request: set them in [tracing] of the configuration; overlapd trace records a running daemon")},
	{regexp.MustCompile(`^/v2/logging$|/LogSettings$`),
		notOffered("the log cannot be set by request: change log_level in the configuration, and run overlapd reload")},
}

// NotOffered returns the error for an HTTP path or gRPC method of an unsupported Triton
// extension, or nil for any other.
func NotOffered[S string | []byte](asked S) *Error {
	for _, x := range extensions {
		if x.asked.MatchString(string(asked)) {
			return x.err
		}
	}
	return nil
}

// maxEcho limits how many bytes of an unknown name an error repeats.
const maxEcho = 128

// Cut shortens a string from a client to what an error may repeat.
func Cut[S string | []byte](name S) S { return name[:min(len(name), maxEcho)] }
