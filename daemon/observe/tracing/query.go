// Package tracing defines the record of a traced query. The codecs and the scheduler
// goroutine fill a [Query] in turn as the query passes through them; package otlp converts
// it to spans and sends them. Nothing here depends on OpenTelemetry, and so neither does
// the scheduler goroutine.
package tracing

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxRuns is how many operator ranges of a query are recorded. Further ones are only
// counted.
const maxRuns = 256

// Query is the record of one query. It has one owner at a time: the endpoint, then the
// scheduler goroutine until it answers, then the endpoint again, which hands it to
// [otlp.Tracer.Finish].
type Query struct {
	// Parent is the trace context of the request.
	Parent  Parent
	Request Request

	// Service is empty if the service was not found.
	Service string

	// Device is what the query ran on.
	Device string

	// ID is the client's name for the query, Number the daemon's.
	ID     string
	Number uint64

	// Size is the batch dimension, or 0 if the request was not read that far.
	Size     int
	SeqLen   int
	Priority int

	// Began is when the request began, and Arrival when it had been read. Arrival and
	// Deadline are zero if it was not.
	Began    time.Time
	Arrival  time.Time
	Deadline time.Time

	// Epoch is the origin of the times in Runs and Answer.
	Epoch time.Time

	// Runs are in the order in which they were sent. LeftOut counts those beyond the limit.
	Runs    []Run
	LeftOut int

	// Answered is set if the scheduler has answered; then Answer is set.
	Answered bool

	// Encoding is when writing the response began, or zero. Ended is when it was complete.
	Encoding time.Time
	Ended    time.Time

	// Answer is how the scheduler answered. Reason is "none" for a finished query.
	Answer struct {
		At, Queue, Run time.Duration
		Result, Reason string
		Retries        int
	}

	// Status is what the client sees: the HTTP status or its equivalent, and the gRPC code.
	// Reason and Message are those of an error. Ours is set if the error is not the
	// client's fault.
	Status struct {
		Code            int
		GRPC            string
		Reason, Message string
		Ours            bool
	}
}

// Parent is the trace context of a request in the form of W3C Trace Context. Each field has
// all headers of that name.
type Parent struct {
	Traceparent []string
	Tracestate  []string
}

// Values of Request.Protocol.
const (
	HTTP = "http"
	GRPC = "grpc"
)

// Request describes the request of a query.
type Request struct {
	Protocol string

	// Method is the method of HTTP, or that of gRPC with its service.
	Method string

	// Route is the path with placeholders for its variable parts. It is set for HTTP only.
	Route  string
	Path   string
	Scheme string

	// Version is the version of the protocol, or "" if it is unknown.
	Version string

	// Server and Port are the host and port by which the client called the daemon. Port is
	// 0 if it named none.
	Server string
	Port   int

	// Client is the address of the client, or "" if it has none.
	Client    string
	UserAgent string
}

// SetPeers sets the client from its address, and the server from the host that the client
// named. A client on a Unix socket has no address.
func (r *Request) SetPeers(client net.Addr, host string) {
	if tcp, ok := client.(*net.TCPAddr); ok {
		r.Client = tcp.IP.String()
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		r.Server = host
		return
	}
	r.Server = name
	r.Port, _ = strconv.Atoi(port)
}

// Run is an operator range that ran for a query.
type Run struct {
	// Device is the name of the device in a pool, otherwise "".
	Device    string
	Round     uint64
	Batch     uint64
	BatchSize int

	// The range is operators [Start, End) of the Of that the model has. Reached is the next
	// operator to run.
	Start   int
	End     int
	Of      int
	Reached int
	Group   []Member
	Planned bool

	// Predicted and Bound are those of the group.
	Predicted time.Duration
	Bound     time.Duration
	Began     time.Duration

	// Ended is when the round ended, or 0 if the query was answered before.
	Ended time.Duration

	// Took is the measured time of the range, RoundTook that of the round.
	Took      time.Duration
	RoundTook time.Duration

	// Status is "done", "stopped", "lost" or "failed", or "" if the range had not ended.
	Status string
}

// Member is an operator range in a group. The query's own is among them.
type Member struct {
	Service    string
	Start, End int
}

// Ran records an operator range that was sent to a worker.
func (q *Query) Ran(r Run) {
	if len(q.Runs) == maxRuns {
		q.LeftOut++
		return
	}
	q.Runs = append(q.Runs, r)
}

// Last returns the last run if it belongs to the given round, otherwise nil.
func (q *Query) Last(round uint64) *Run {
	if n := len(q.Runs); n > 0 && q.Runs[n-1].Round == round {
		return &q.Runs[n-1]
	}
	return nil
}

// Forget clears a query for reuse and keeps its memory.
func (q *Query) Forget() {
	clear(q.Runs)
	*q = Query{Runs: q.Runs[:0]}
}

// ErrEndpoint is returned when the address of the collector cannot be used.
var ErrEndpoint = errors.New("the endpoint of a collector must be http:// or https://, a host, and a path if it is not /v1/traces")

// tracesPath is the path of a collector whose address has none.
const tracesPath = "/v1/traces"

// FromEnvironment reports whether the environment variables of OpenTelemetry name a
// collector.
func FromEnvironment() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

// CheckEndpoint validates the address of a collector and returns it with a path.
func CheckEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%w, not %q", ErrEndpoint, text)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}
