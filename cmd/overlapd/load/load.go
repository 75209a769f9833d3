// Package load is the load generator behind "overlapd bench serve": it loads a
// daemon from outside, as any client does. [Run] asks a daemon for the metadata
// of some services, builds requests with seeded random tensors, sends them as
// [Options] ask for and returns a [Result].
//
// Open loop means that requests are due at times fixed beforehand. The latency
// of such a request counts from when it was due, also when every connection
// was busy at that time, so a stall of the daemon is seen by each request due
// during the stall and not only by the one that ran into it. Closed loop means
// connections that send their next request once they have the last answer.
//
// Each service has connections of its own. One service that hangs therefore
// does not delay the requests of another.
package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Limits of a run.
const (
	maxServices    = 64
	maxConnections = 4096
	maxInputs      = 1024
	maxRun         = 24 * time.Hour

	// openConnections is how many connections a service gets if requests are
	// due whether or not one is free.
	openConnections = 64
)

// errOptions is returned when the options of a run contradict each other or
// are out of bounds. The error names every fault.
var errOptions = errors.New("load: options")

// Options are what load to put on which services. Start from DefaultOptions.
type Options struct {
	URL      string // "http://host:port" or "https://host:port"
	Services []string

	Authorization string      // header of every request, "" for none
	TLS           *tls.Config // nil for Go's defaults

	// Rate is in requests per second, of all services together unless
	// RatePerService is set. With a rate the loop is open, without one closed.
	Rate           float64
	RatePerService bool
	Arrivals       string  // poisson, constant or gamma; open loop only
	CV             float64 // coefficient of variation of the gaps if Arrivals is gamma

	// Connections is the number of all connections, dealt out to the services
	// in turn. An open loop has 64 for each service if it is 0.
	Connections int

	Duration time.Duration // measured, after the warm-up
	Warmup   time.Duration

	// Timeout is for one answer; in an open loop it counts from when the request
	// is due.
	Timeout time.Duration

	// Target is the latency that counts as good; 0 means the target of the service.
	Target time.Duration

	// Dimensions that a model leaves open are Batch if they are the first of an
	// input, else SeqLen. Integers are below MaxID.
	Batch  int
	SeqLen int
	MaxID  int64

	Inputs int // different requests per service, sent in turn
	Seed   uint64

	JSONTensors  bool          // instead of binary tensors
	Verify       bool          // answers to the same input must be equal byte for byte
	QueryTimeout time.Duration // parameter "timeout" of each request, 0 for none
	Priority     int           // parameter "priority" of each request, 0 for none

	// Progress is called now and then with what was done and which part of the
	// run is over, 0 to 1. It may be nil.
	Progress func(doing string, done float64)

	// Version and Commit of overlapd are repeated in the result.
	Version, Commit string
}

// DefaultOptions returns options that lack only URL, Services and either Rate
// or Connections.
func DefaultOptions() Options {
	return Options{
		Arrivals: poisson,
		CV:       1,
		Duration: 10 * time.Second,
		Warmup:   time.Second,
		Timeout:  10 * time.Second,
		Batch:    1,
		SeqLen:   128,
		MaxID:    1000,
		Inputs:   8,
		Seed:     1,
	}
}

// open reports whether requests are due at times fixed beforehand.
func (o *Options) open() bool { return o.Rate > 0 }

// resolve fills in what the other options imply and reports every fault.
func (o Options) resolve() (Options, error) {
	if o.open() && o.Connections == 0 {
		o.Connections = openConnections * len(o.Services)
	}
	var list []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			list = append(list, fmt.Errorf(format, args...))
		}
	}
	u, err := url.Parse(o.URL)
	check(err == nil && (u.Scheme == "http" || u.Scheme == secureScheme) && u.Host != "" && (u.Path == "" || u.Path == "/"), "URL %q, want http://host:port or https://host:port", o.URL)
	n := len(o.Services)
	check(n > 0 && n <= maxServices, "%d services, want 1 to %d", n, maxServices)
	check(o.Rate >= 0, "rate %g is negative", o.Rate)
	check(o.Arrivals == poisson || o.Arrivals == constant || o.Arrivals == gamma, "unknown arrivals %q", o.Arrivals)
	check(o.Arrivals != gamma || o.CV >= 0.01 && o.CV <= 100, "cv %g of gamma arrivals, want 0.01 to 100", o.CV)
	check(o.Connections >= n && o.Connections <= maxConnections,
		"%d connections for %d services, want one each and at most %d", o.Connections, n, maxConnections)
	check(o.Duration > 0 && o.Duration <= maxRun, "duration %s, want up to %s", o.Duration, maxRun)
	check(o.Warmup >= 0 && o.Warmup <= maxRun, "warm-up %s, want 0 to %s", o.Warmup, maxRun)
	check(o.Timeout > 0 && o.Timeout <= maxLatency, "timeout %s, want up to %s", o.Timeout, maxLatency)
	check(o.Target >= 0, "target %s is negative", o.Target)
	due := o.Rate * (o.Duration + o.Warmup).Seconds()
	if o.RatePerService {
		due *= float64(n)
	}
	check(due <= maxArrivals, "%.0f requests due, want at most %d", due, maxArrivals)
	check(o.Batch >= 1, "batch %d, want 1 or more", o.Batch)
	check(o.SeqLen >= 1, "sequence length %d, want 1 or more", o.SeqLen)
	check(o.MaxID >= 1, "integers below %d, want 1 or more", o.MaxID)
	check(o.Inputs >= 1 && o.Inputs <= maxInputs, "%d inputs, want 1 to %d", o.Inputs, maxInputs)
	check(o.QueryTimeout >= 0, "query timeout %s is negative", o.QueryTimeout)
	check(o.Priority >= 0, "priority %d is negative", o.Priority)
	if len(list) > 0 {
		return o, fmt.Errorf("%w: %w", errOptions, errors.Join(list...))
	}
	return o, nil
}
