package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"
)

// Limits of a run.
const (
	maxServices    = 64
	maxConnections = 4096
	maxInputs      = 1024
	maxSamples     = maxArrivals
	maxRun         = 24 * time.Hour

	// openConnections is how many connections a service gets if requests are
	// due whether or not one is free.
	openConnections = 64
)

// ErrOptions is returned when the options of a run contradict each other or
// are out of bounds. The error names every fault.
var ErrOptions = errors.New("load: options")

// Options say what load to put on which services. Start from DefaultOptions.
type Options struct {
	URL      string   // of the daemon, "http://host:port" or "https://host:port"
	Services []string // at least one

	Authorization string      // header of every request, "" for none
	TLS           *tls.Config // of connections to https://, nil for Go's defaults

	// Scenario may be empty: it is then Open if Rate is set and Closed if not.
	Scenario Scenario

	Rate           float64  // requests per second of an open loop, of all services together
	RatePerService bool     // Rate is of each service
	Arrivals       Arrivals // of an open loop
	CV             float64  // of the gaps if Arrivals is Gamma

	// Connections is the number of all connections, dealt out to the services
	// in turn. 0 means what the scenario needs; Closed has no such number.
	Connections int

	Duration time.Duration // measured, after the warm-up
	Warmup   time.Duration
	Timeout  time.Duration // for one answer; in an open loop it counts from when the request is due
	Target   time.Duration // 0 means what the daemon says, if it says it
	Samples  int           // requests of Offline, of all services together

	Batch  int                // for the first dimension of an input if it is not fixed
	SeqLen int                // for every other dimension that is not fixed
	Shapes map[string][]int64 // by input name, instead of what the metadata says
	MaxID  int64              // integers are below it
	Inputs int                // different requests per service, sent in turn
	Seed   uint64

	JSONTensors  bool          // instead of binary tensors
	Verify       bool          // answers to the same input must be equal byte for byte
	QueryTimeout time.Duration // parameter "timeout" of each request, 0 for none
	Priority     int           // parameter "priority" of each request, 0 for none

	// Progress is where a progress line goes; nil means none, and so does a
	// file that is not a terminal.
	Progress io.Writer

	Version string // of overlapd, for the result
	Commit  string // of overlapd, for the result
}

// DefaultOptions returns options that lack only URL, Services and either Rate,
// Connections or Scenario.
func DefaultOptions() Options {
	return Options{
		Arrivals: Poisson,
		CV:       1,
		Duration: 10 * time.Second,
		Warmup:   time.Second,
		Timeout:  10 * time.Second,
		Samples:  24576,
		Batch:    1,
		SeqLen:   128,
		MaxID:    1000,
		Inputs:   8,
		Seed:     1,
	}
}

// resolve fills in what the other options imply and reports every fault.
func (o Options) resolve() (Options, error) {
	if o.Scenario == "" {
		o.Scenario = Closed
		if o.Rate > 0 {
			o.Scenario = Open
		}
	}
	if o.Connections == 0 {
		o.Connections = o.Scenario.connections() * len(o.Services)
	}
	faults := append(o.shapeFaults(), o.loadFaults()...)
	if len(faults) > 0 {
		return o, fmt.Errorf("%w: %w", ErrOptions, errors.Join(faults...))
	}
	return o, nil
}

// connections returns how many a service needs, 0 if the user must say it.
func (s Scenario) connections() int {
	switch s {
	case SingleStream:
		return 1
	case MultiStream:
		return volleySize
	case Open, Server, Offline:
		return openConnections
	}
	return 0
}

type faults []error

func (f *faults) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// loadFaults checks when and how often requests are sent.
func (o *Options) loadFaults() []error {
	var f faults
	s, n := o.Scenario, len(o.Services)
	f.check(s.known(), "unknown scenario %q", s)
	f.check(n > 0 && n <= maxServices, "%d services, want 1 to %d", n, maxServices)
	f.check(!s.openLoop() || o.Rate > 0, "scenario %s needs a rate", s)
	f.check(s.openLoop() || o.Rate == 0, "scenario %s has no rate", s)
	f.check(o.Arrivals.known(), "unknown arrivals %q", o.Arrivals)
	f.check(s != Server || o.Arrivals == Poisson, "scenario server has poisson arrivals, not %s", o.Arrivals)
	f.check(o.Arrivals != Gamma || o.CV >= 0.01 && o.CV <= 100, "cv %g of gamma arrivals, want 0.01 to 100", o.CV)
	f.check(s != Closed || o.Connections > 0, "neither a rate nor connections")
	f.check(o.Connections >= n && o.Connections <= maxConnections,
		"%d connections for %d services, want one each and at most %d", o.Connections, n, maxConnections)
	need := s.connections() * n
	f.check(s != SingleStream && s != MultiStream || o.Connections == need,
		"scenario %s has %d connections, not %d", s, need, o.Connections)
	f.check(o.Duration > 0 && o.Duration <= maxRun, "duration %s, want up to %s", o.Duration, maxRun)
	f.check(o.Warmup >= 0 && o.Warmup <= maxRun, "warm-up %s, want 0 to %s", o.Warmup, maxRun)
	f.check(o.Timeout > 0 && o.Timeout <= maxLatency, "timeout %s, want up to %s", o.Timeout, maxLatency)
	f.check(o.Target >= 0, "target %s is negative", o.Target)
	f.check(s != Offline || o.Samples >= n && o.Samples <= maxSamples, "%d samples, want one per service and at most %d", o.Samples, maxSamples)
	due := o.Rate * (o.Duration + o.Warmup).Seconds()
	if o.RatePerService {
		due *= float64(n)
	}
	f.check(due <= maxArrivals, "%.0f requests due, want at most %d", due, maxArrivals)
	return f
}

// shapeFaults checks what the requests hold and where they go.
func (o *Options) shapeFaults() []error {
	var f faults
	u, err := url.Parse(o.URL)
	f.check(err == nil && (u.Scheme == "http" || u.Scheme == secureScheme) && u.Host != "" && (u.Path == "" || u.Path == "/"), "URL %q, want http://host:port or https://host:port", o.URL)
	f.check(o.Batch >= 1, "batch %d, want 1 or more", o.Batch)
	f.check(o.SeqLen >= 1, "sequence length %d, want 1 or more", o.SeqLen)
	f.check(o.MaxID >= 1, "integers below %d, want 1 or more", o.MaxID)
	f.check(o.Inputs >= 1 && o.Inputs <= maxInputs, "%d inputs, want 1 to %d", o.Inputs, maxInputs)
	f.check(o.QueryTimeout >= 0, "query timeout %s is negative", o.QueryTimeout)
	f.check(o.Priority >= 0, "priority %d is negative", o.Priority)
	for name, shape := range o.Shapes {
		_, err := elements(shape)
		f.check(err == nil, "shape of %q: %v", name, err)
	}
	return f
}
