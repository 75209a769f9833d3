package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
)

// The values of Arrivals.Process.
const (
	// Constant arrivals come at equal intervals.
	Constant = "constant"

	// Poisson arrivals come at exponentially distributed intervals.
	Poisson = "poisson"

	// Gamma arrivals come at gamma-distributed intervals. A shape below 1 makes them
	// bursty.
	Gamma = "gamma"

	// MMPP is a Markov-modulated Poisson process: its rate depends on a hidden state.
	MMPP = "mmpp"

	// Times arrivals come at given times.
	Times = "times"

	// Loads is a Poisson process with a given rate for every minute.
	Loads = "loads"
)

// processes lists the values of Arrivals.Process.
var processes = []string{Constant, Poisson, Gamma, MMPP, Times, Loads}

// Limits of arrivals.
const (
	maxQPS    = 1e9
	maxStates = 64
	minKeep   = 1e-6

	// maxSwaps limits the mean number of state changes of MMPP between two queries.
	maxSwaps = 1e4

	// maxTime is the latest time of an arrival, and the longest duration in a scenario.
	maxTime = 365 * 24 * time.Hour
)

// Arrivals describes when queries arrive.
type Arrivals struct {
	Process string `json:"process"`

	// QPS is the rate of Constant, Poisson and Gamma in queries per second. Shape is the
	// shape parameter of Gamma.
	QPS   float64 `json:"qps"`
	Shape float64 `json:"shape"`

	// States are the states of MMPP.
	States []State `json:"states"`

	// Times are the arrival times of Times, in ascending order. Loads holds the number of
	// queries in each minute of Loads.
	Times []time.Duration `json:"-"`
	Loads []float64       `json:"-"`

	// Scale multiplies the rate of any process. 0 means 1. Keep is the fraction of the
	// queries that is kept, chosen at random. 0 keeps all.
	Scale float64 `json:"scale"`
	Keep  float64 `json:"keep"`
}

// State is a state of MMPP, with its rate in queries per second. A state lasts for an
// exponentially distributed time with the mean Seconds. Then one of the others follows, all
// with the same probability.
type State struct {
	QPS     float64 `json:"qps"`
	Seconds float64 `json:"seconds"`
}

// check returns an error if the arrivals are invalid. queries is the number of queries of
// the scenario.
func (a *Arrivals) check(queries int) error {
	finite := a.Process == Times || a.Process == Loads
	switch {
	case !within(a.Scale, 0, maxQPS) || !within(a.Keep, 0, 1) || a.Keep > 0 && a.Keep < minKeep:
		return fault("scale %v and keep %v: want a scale from 0 to 1e9, and a keep of 0 or from %v to 1", a.Scale, a.Keep, minKeep)
	case queries == 0 && !finite:
		return fault("no number of queries: give one, because the process %s is endless", a.Process)
	}
	switch a.Process {
	case Constant, Poisson, Gamma:
		return a.checkRate()
	case MMPP:
		return a.checkStates()
	case Times:
		return a.checkTimes()
	case Loads:
		return a.checkLoads()
	}
	return fault("unknown process %q: want %s", a.Process, strings.Join(processes, ", "))
}

// fault returns an error that wraps ErrArrivals.
func fault(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrArrivals, fmt.Sprintf(format, args...))
}

// checkRate checks the fields of Constant, Poisson and Gamma.
func (a *Arrivals) checkRate() error {
	if !within(a.QPS, 0, maxQPS) || a.QPS == 0 {
		return fault("%v queries per second: want more than 0, at most %v", a.QPS, maxQPS)
	}
	if a.Process == Gamma && !within(a.Shape, 1e-3, 1e6) {
		return fault("shape %v: want 0.001 to 1000000", a.Shape)
	}
	return nil
}

// checkTimes checks the field of Times.
func (a *Arrivals) checkTimes() error {
	if len(a.Times) == 0 {
		return fault("the trace is empty: give at least one time")
	}
	for i, at := range a.Times {
		if at < 0 || at > maxTime || i > 0 && at < a.Times[i-1] {
			return fault("time %d is %v: want times in ascending order, from 0 to %v", i, at, maxTime)
		}
	}
	return nil
}

// checkLoads checks the field of Loads.
func (a *Arrivals) checkLoads() error {
	total := 0.0
	for i, load := range a.Loads {
		if !within(load, 0, maxQPS*60) {
			return fault("minute %d has a load of %v: want 0 or more queries", i, load)
		}
		total += load
	}
	if total == 0 {
		return fault("no minute has a load: give at least one that has")
	}
	return nil
}

// checkStates checks the field of MMPP.
func (a *Arrivals) checkStates() error {
	if n := len(a.States); n < 2 || n > maxStates {
		return fault("mmpp with %d states: want 2 to %d", n, maxStates)
	}
	queries := 0.0 // while each state lasts once
	for i, s := range a.States {
		if !within(s.QPS, 0, maxQPS) || s.Seconds <= 0 {
			return fault("state %d has %v queries per second for %v s: want 0 or more queries per second, for more than 0 s", i, s.QPS, s.Seconds)
		}
		queries += s.QPS * s.Seconds
	}
	switch {
	case queries == 0:
		return fault("no state of mmpp has queries: give at least one a rate above 0")
	case queries*maxSwaps < float64(len(a.States)):
		return fault("states change more than %v times from one query to the next; give longer states, or more queries per second", maxSwaps)
	}
	return nil
}

// within reports whether x lies in [low, high]. It returns false for NaN.
func within(x, low, high float64) bool { return x >= low && x <= high }

// times returns the arrival times of n queries, or of all if there are fewer or n is 0. r
// drives the process, and thinning chooses the queries that are kept.
func (a *Arrivals) times(n int, r, thinning *rand.Rand) ([]time.Duration, error) {
	scale, keep, most := cmp.Or(a.Scale, 1), cmp.Or(a.Keep, 1), cmp.Or(n, MaxQueries)
	next := a.process(r)
	list := make([]time.Duration, 0, n)
	for len(list) < most {
		seconds, ok := next()
		if !ok {
			break
		}
		if seconds /= scale; seconds > maxTime.Seconds() {
			return nil, fmt.Errorf("%w: query %d would arrive after %v; give more queries per second, or fewer queries", ErrArrivals, len(list), maxTime)
		}
		if keep < 1 && thinning.Float64() >= keep {
			continue
		}
		list = append(list, time.Duration(math.Round(seconds*float64(time.Second))))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no query is left; keep a larger share of them", ErrArrivals)
	}
	return list, nil
}

// process returns a function that returns the arrival times one after another, in seconds,
// and false after the last.
func (a *Arrivals) process(r *rand.Rand) func() (float64, bool) {
	at := 0.0
	switch a.Process {
	case Poisson:
		return func() (float64, bool) { at += r.ExpFloat64() / a.QPS; return at, true }
	case Gamma:
		return func() (float64, bool) { at += stats.Gamma(a.Shape, r) / (a.Shape * a.QPS); return at, true }
	case MMPP:
		return a.modulated(r)
	case Times:
		i := -1
		return func() (float64, bool) {
			if i++; i >= len(a.Times) {
				return 0, false
			}
			return a.Times[i].Seconds(), true
		}
	case Loads:
		return a.minutes(r)
	}
	i := -1.0
	return func() (float64, bool) { i++; return i / a.QPS, true }
}

// modulated is process for MMPP. It draws the amount of expected arrivals until the next
// query, and consumes it at the rate of each state.
func (a *Arrivals) modulated(r *rand.Rand) func() (float64, bool) {
	at, state := 0.0, r.IntN(len(a.States))
	until := r.ExpFloat64() * a.States[state].Seconds
	return func() (float64, bool) {
		for work := r.ExpFloat64(); ; {
			rate := a.States[state].QPS
			if work <= (until-at)*rate {
				at += work / rate
				return at, true
			}
			work -= (until - at) * rate
			at = until
			state = (state + 1 + r.IntN(len(a.States)-1)) % len(a.States)
			until += r.ExpFloat64() * a.States[state].Seconds
		}
	}
}

// minutes is process for Loads. It works like modulated, with the rate of each minute.
func (a *Arrivals) minutes(r *rand.Rand) func() (float64, bool) {
	const minute = 60.0
	at, number := 0.0, 0
	return func() (float64, bool) {
		for work := r.ExpFloat64(); number < len(a.Loads); number++ {
			rate, until := a.Loads[number]/minute, float64(number+1)*minute
			if work <= (until-at)*rate {
				at += work / rate
				return at, true
			}
			work -= (until - at) * rate
			at = until
		}
		return 0, false
	}
}

// Query is a query that a client submits at the time At. The client leaves at the time
// Leaves, or never if that is 0.
type Query struct {
	At      time.Duration
	Service models.ServiceID
	Size    int
	SeqLen  int
	Leaves  time.Duration

	// Timeout is the relative deadline that the client asks for. 0 means the target of the
	// service, which is also the maximum.
	Timeout time.Duration
}

// Submissions returns the queries that a run of the scenario serves. It is exported so that
// the same queries can be sent to a daemon.
func (sc *Scenario) Submissions() ([]Query, error) {
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	if sc.Given != nil {
		return sc.Given, nil
	}
	times, err := sc.Arrivals.times(sc.Queries, stream(sc.Seed, forTimes, 0), stream(sc.Seed, forThinning, 0))
	if err != nil {
		return nil, err
	}
	pick := sc.picker()
	services, sizes, seqLens, clients := stream(sc.Seed, forServices, 0), stream(sc.Seed, forSizes, 0),
		stream(sc.Seed, forSeqLens, 0), stream(sc.Seed, forClients, 0)
	queries := make([]Query, len(times))
	for i, at := range times {
		s := pick(services.Float64())
		sv := &sc.Services[s]
		queries[i] = Query{
			At: at, Service: s,
			Size:   oneOf(sv.Sizes, 1, sizes),
			SeqLen: oneOf(sv.SeqLens, 0, seqLens),
			Leaves: sc.Clients.leaves(at, sv.Target, clients),
		}
	}
	return queries, nil
}

// oneOf draws an element of a list, or returns without if the list is empty. It always
// consumes one random number, so that a change of one list does not change other draws.
func oneOf(list []int, without int, r *rand.Rand) int {
	at := r.Float64()
	if len(list) == 0 {
		return without
	}
	return list[int(at*float64(len(list)))]
}

// picker returns a function that maps a number in [0, 1) to a service according to the
// shares.
func (sc *Scenario) picker() func(float64) models.ServiceID {
	total, asked := 0.0, 0.0
	for i := range sc.Services {
		if sc.asked(i) {
			total, asked = total+sc.Services[i].Share, asked+1
		}
	}
	ends := make([]float64, len(sc.Services))
	sum, last := 0.0, 0 // last is the last service with a share
	for i := range sc.Services {
		share := sc.Services[i].Share / total
		if total == 0 {
			share = 1 / asked
		}
		if !sc.asked(i) {
			share = 0
		}
		if share > 0 {
			last = i
		}
		sum += share
		ends[i] = sum
	}
	return func(at float64) models.ServiceID {
		if i := slices.IndexFunc(ends, func(end float64) bool { return at < end }); i >= 0 {
			return models.ServiceID(i)
		}
		return models.ServiceID(last) // because of rounding, the shares may add up to less than 1
	}
}

// leaves draws when the client of a query that arrives at the given time leaves. It returns
// 0 for never.
func (c *clients) leaves(at, target time.Duration, r *rand.Rand) time.Duration {
	leaving, within := r.Float64() < c.Leaving, r.Float64()
	switch {
	case leaving:
		return at + max(time.Duration(within*float64(target)), 1)
	case c.Timeout > 0:
		return at + c.Timeout
	}
	return 0
}

// purpose identifies a stream of random numbers.
type purpose uint64

// The purposes. forNoise and forFailing have a stream for each device, and forFaults has
// one for each worker; the number of a stream distinguishes them.
const (
	forTimes purpose = iota + 1
	forThinning
	forServices
	forSizes
	forSeqLens
	forClients
	forDispatch
	forNoise
	forFaults
	forFailing
	forPods
	forBalancers
	forBad
)

// stream returns the random numbers for a purpose. number distinguishes streams with the
// same purpose.
func stream(seed uint64, p purpose, number int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(p)<<32|uint64(number)))
}
