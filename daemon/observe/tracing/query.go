// Package tracing is what is recorded of a query that is traced: the codecs and the
// scheduler goroutine write a [Query] in turn, as the query goes through their
// hands. What becomes of it is the business of package otlp; nothing here knows of
// OpenTelemetry, so that the scheduler goroutine does not.
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

// maxRuns is how many spans of operators are kept of one query. Those beyond are
// counted.
const maxRuns = 256

// Query is what was recorded of one query. Whoever has it writes it: first the
// endpoint, then the scheduler goroutine until it answers, then the endpoint
// again, which gives it back to [otlp.Tracer.Finish].
type Query struct {
	Parent   Parent // the context that its request carried
	Request  Request
	Service  string // "" if it was not found
	Device   string // what it ran on
	ID       string // the client's name for it
	Number   uint64 // the daemon's
	Size     int    // its batch dimension, 0 if it was not read as far as that
	SeqLen   int
	Priority int

	Began    time.Time // its request
	Arrival  time.Time // when its request had been read; zero if it was not
	Deadline time.Time // zero as well if it was not
	Epoch    time.Time // from which the times of Runs and Answer count
	Runs     []Run     // in the order in which they were sent
	LeftOut  int       // runs beyond the limit
	Answered bool      // the scheduler did, and Answer is set
	Encoding time.Time // from when on the answer was written; zero if none was
	Ended    time.Time // when it had been written

	// Answer is how the scheduler answered. Its reason is "none" if the query finished.
	Answer struct {
		At, Queue, Run time.Duration
		Result, Reason string
		Retries        int
	}

	// Status is what the client sees: the status of HTTP, or its like, and that of
	// gRPC. Reason and Message are those of an error, which is Ours if it is not the
	// client's.
	Status struct {
		Code            int
		GRPC            string
		Reason, Message string
		Ours            bool
	}
}

// Parent is the context that a request carries, as W3C Trace Context writes it.
type Parent struct {
	Traceparent []string // all headers of that name
	Tracestate  []string
}

// Values of Request.Protocol.
const (
	HTTP = "http"
	GRPC = "grpc"
)

// Request is how a query came.
type Request struct {
	Protocol  string // "http" or "grpc"
	Method    string // HTTP's; or gRPC's, with its service
	Route     string // HTTP's, with the names of what varies
	Path      string
	Scheme    string
	Version   string // the protocol's, "" if unknown
	Server    string // host as the client named it, without the port
	Port      int    // as the client named it, 0 for none
	Client    string // address of the client, "" for none
	UserAgent string
}

// SetPeers sets the client, from its address, and the server, from what the
// client calls it. A client on a socket of this machine has no address.
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

// Run is a span of operators that ran for a query.
type Run struct {
	Device    string // of a pool, by its name, else ""
	Round     uint64
	Batch     uint64
	BatchSize int
	Start     int // operators [Start, End)
	End       int
	Of        int // operators of the model
	Reached   int // the next operator to run
	Group     []Member
	Planned   bool
	Predicted time.Duration // the group's
	Bound     time.Duration
	Began     time.Duration
	Ended     time.Duration // when the round ended; 0 if the query was answered before
	Took      time.Duration // the span's time, as measured
	RoundTook time.Duration
	Status    string // "done", "stopped", "lost", "failed"; "" if it was not over
}

// Member is a span of a group, the query's own among them.
type Member struct {
	Service    string
	Start, End int
}

// Ran adds a span that is sent.
func (q *Query) Ran(r Run) {
	if len(q.Runs) == maxRuns {
		q.LeftOut++
		return
	}
	q.Runs = append(q.Runs, r)
}

// Last returns the run of a round, if it is the last one, or nil.
func (q *Query) Last(round uint64) *Run {
	if n := len(q.Runs); n > 0 && q.Runs[n-1].Round == round {
		return &q.Runs[n-1]
	}
	return nil
}

// Forget empties a query, and keeps its memory.
func (q *Query) Forget() {
	clear(q.Runs)
	*q = Query{Runs: q.Runs[:0]}
}

// ErrEndpoint is returned when the address of the collector cannot be used.
var ErrEndpoint = errors.New("the endpoint of a collector is http:// or https://, a host, and a path if it is not /v1/traces")

// tracesPath is where a collector takes spans, unless its address has a path.
const tracesPath = "/v1/traces"

// FromEnvironment reports whether the environment names a collector, with the
// variables that OpenTelemetry defines.
func FromEnvironment() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

// CheckEndpoint returns the address that spans are sent to.
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
