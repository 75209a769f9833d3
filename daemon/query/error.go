package query

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
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
	ReasonNotOffered   = "not_offered"     // an extension of Triton's that overlapd does without
	ReasonMethod       = "method"          // the route does not take this method
	ReasonUnauthorized = "unauthorized"    // no token, or a wrong one
	ReasonForbidden    = "forbidden"       // foreign Host or Origin
	ReasonTooLarge     = "too_large"       // over a limit of the configuration
	ReasonEncoding     = "encoding"        // unknown Content-Encoding
	ReasonTimeout      = "timeout"         // the client was too slow
	ReasonNotJSON      = "not_json"        // an output has no JSON form
	ReasonLoading      = "loading"         // the service's worker is not there yet
	ReasonGivenUp      = "given_up"        // the service's worker was lost too often, or its model cannot be served
	ReasonQuarantined  = "quarantined"     // a worker has died of the same inputs, or several of such queries
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

// defaultRetryAfter is what a 503 asks of the client if nothing better is
// known.
const defaultRetryAfter = time.Second

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

	// ErrDrained is returned of the health of a daemon that is to be stopped. It still answers.
	ErrDrained = Unavailable(ReasonDraining, "the daemon is drained: it is about to be stopped")

	// ErrUnavailable is returned when the service's worker is not there.
	ErrUnavailable = Unavailable(ReasonLoading, "the service is not ready")
)

// ErrConnections is for what is asked on a spare place, and is no probe.
var ErrConnections = Unavailable(ReasonConnections, "too many connections are open now")

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
		RetryAfter: defaultRetryAfter}
}

// Invalid returns an error with status 400 and the reason "invalid".
func Invalid(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Reason: ReasonInvalid, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns an error with status 404.
func NotFound(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Reason: ReasonNotFound, Message: fmt.Sprintf(format, args...)}
}

// errSharedMemory is for tensors that are not in the request.
var errSharedMemory = notOffered("memory of clients is not offered, neither the parameters shared_memory_* nor the calls: send tensors in the request, as binary data; they are copied once")

func notOffered(message string) *Error {
	return &Error{Status: http.StatusNotImplemented, Reason: ReasonNotOffered, Message: message}
}

// extensions are those of Triton that overlapd does without, by their paths over HTTP
// and their methods over gRPC, with what does their work here.
var extensions = []struct {
	asked *regexp.Regexp
	err   *Error
}{
	{regexp.MustCompile(`^/v2/repository/.*/(un)?load$|/RepositoryModel(Load|Unload)$`),
		notOffered("models are not loaded and unloaded by request: change the services of the configuration, and run overlapd reload")},
	{regexp.MustCompile(`^/v2/(system|cuda)sharedmemory(/|$)|/(System|Cuda)SharedMemory[A-Za-z]+$`), errSharedMemory},
	{regexp.MustCompile(`^/v2/(models/[^/]+/(versions/[^/]+/)?)?trace/setting$|/TraceSetting$`),
		notOffered("traces are not set by request: the table [tracing] of the configuration sets them; overlapd trace records a running daemon")},
	{regexp.MustCompile(`^/v2/logging$|/LogSettings$`),
		notOffered("the log is not set by request: change log_level in the configuration, and run overlapd reload")},
}

// NotOffered returns what is said of a path or method of an extension of Triton's that
// overlapd does without, nil for any other.
func NotOffered[S string | []byte](asked S) *Error {
	for _, x := range extensions {
		if x.asked.MatchString(string(asked)) {
			return x.err
		}
	}
	return nil
}

// maxEcho bounds how much of a name that is not known goes into an error.
const maxEcho = 128

// Cut returns as much of what a client sent as may go into an error.
func Cut[S string | []byte](name S) S { return name[:min(len(name), maxEcho)] }
