package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/stats"
)

// The processes by which queries come: Arrivals.Process.
const (
	Constant = "constant" // at equal distances
	Poisson  = "poisson"
	Gamma    = "gamma" // distances of a gamma distribution; its shape below 1 makes bursts
	MMPP     = "mmpp"  // Poisson, whose rate changes with a hidden state
	Times    = "times" // at given times
	Loads    = "loads" // Poisson, whose rate is given for every minute
)

var processes = []string{Constant, Poisson, Gamma, MMPP, Times, Loads}

// Limits of arrivals.
const (
	maxQPS    = 1e9
	maxStates = 64
	minKeep   = 1e-6
	maxSwaps  = 1e4                  // of states between two queries, in the mean
	maxTime   = 365 * 24 * time.Hour // at which a query may come
)

// Arrivals describe when queries come.
type Arrivals struct {
	Process string `json:"process"`

	// QPS is the rate of constant, poisson and gamma in queries per second, Shape that
	// of gamma.
	QPS   float64 `json:"qps"`
	Shape float64 `json:"shape"`

	// States are those of mmpp.
	States []State `json:"states"`

	// Times are when the queries of times come, in ascending order; Loads are how many
	// of loads come in each minute.
	Times []time.Duration `json:"-"`
	Loads []float64       `json:"-"`

	// Scale multiplies the rate of any process, 0 is 1. Keep is the share of the
	// queries that is kept, each by chance; 0 keeps all.
	Scale float64 `json:"scale"`
	Keep  float64 `json:"keep"`
}

// State is one of mmpp, with so many queries per second. After an exponential time
// with the given mean comes one of the others, each as likely.
type State struct {
	QPS     float64 `json:"qps"`
	Seconds float64 `json:"seconds"`
}

func (a *Arrivals) check(queries int) error {
	finite := a.Process == Times || a.Process == Loads
	switch {
	case !within(a.Scale, 0, maxQPS) || !within(a.Keep, 0, 1) || a.Keep > 0 && a.Keep < minKeep:
		return fault("scaled by %v, of which %v are kept: want a factor and a share, at least %v", a.Scale, a.Keep, minKeep)
	case queries == 0 && !finite:
		return fault("no number of queries, and %s goes on for ever", a.Process)
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

func fault(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrArrivals, fmt.Sprintf(format, args...))
}

func (a *Arrivals) checkRate() error {
	if !within(a.QPS, 0, maxQPS) || a.QPS == 0 {
		return fault("%v queries per second: want more than 0, at most %v", a.QPS, maxQPS)
	}
	if a.Process == Gamma && !within(a.Shape, 1e-3, 1e6) {
		return fault("shape %v: want 0.001 to 1000000", a.Shape)
	}
	return nil
}

func (a *Arrivals) checkTimes() error {
	if len(a.Times) == 0 {
		return fault("the trace is empty")
	}
	for i, at := range a.Times {
		if at < 0 || at > maxTime || i > 0 && at < a.Times[i-1] {
			return fault("time %d is %v: want times in ascending order, from 0 to %v", i, at, maxTime)
		}
	}
	return nil
}

func (a *Arrivals) checkLoads() error {
	total := 0.0
	for i, load := range a.Loads {
		if !within(load, 0, maxQPS*60) {
			return fault("minute %d has a load of %v: want 0 or more queries", i, load)
		}
		total += load
	}
	if total == 0 {
		return fault("no minute has a load")
	}
	return nil
}

func (a *Arrivals) checkStates() error {
	if n := len(a.States); n < 2 || n > maxStates {
		return fault("mmpp with %d states: want 2 to %d", n, maxStates)
	}
	queries := 0.0 // while each state lasts once
	for i, s := range a.States {
		if !within(s.QPS, 0, maxQPS) || s.Seconds <= 0 {
			return fault("state %d has %v queries per second for %v s: want 0 or more, for more than 0", i, s.QPS, s.Seconds)
		}
		queries += s.QPS * s.Seconds
	}
	switch {
	case queries == 0:
		return fault("no state of mmpp has queries")
	case queries*maxSwaps < float64(len(a.States)):
		return fault("states change more than %v times from one query to the next; give longer states, or more queries per second", maxSwaps)
	}
	return nil
}

// within is false for what is no number.
func within(x, low, high float64) bool { return x >= low && x <= high }

// times returns when queries come, n of them, or all if there are fewer or n is
// 0.
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
			return nil, fmt.Errorf("%w: query %d comes after %v; give more queries per second, or fewer queries", ErrArrivals, len(list), maxTime)
		}
		if keep < 1 && thinning.Float64() >= keep {
			continue
		}
		list = append(list, time.Duration(math.Round(seconds*float64(time.Second))))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no query is left; keep more of them", ErrArrivals)
	}
	return list, nil
}

// process returns a function that returns the times of queries one after the
// other, in seconds.
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

// modulated is a Poisson process whose rate is that of the state.
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

// minutes is a Poisson process whose rate is that of the minute.
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

// Query is one query that a client submits at a time. Its client leaves at Leaves, or
// never if that is 0.
type Query struct {
	At      time.Duration
	Service models.ServiceID
	Size    int
	SeqLen  int
	Leaves  time.Duration

	// Timeout is the deadline that the client asks for, 0 for the target of the service,
	// which a longer one is cut to.
	Timeout time.Duration
}

// Submissions returns the queries that a run of the scenario serves, so that a
// daemon can be asked the same.
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

// oneOf draws from a list. It takes a number from the stream in any case, so
// that a change of one list changes nothing else.
func oneOf(list []int, without int, r *rand.Rand) int {
	at := r.Float64()
	if len(list) == 0 {
		return without
	}
	return list[int(at*float64(len(list)))]
}

// picker returns a function from [0, 1) to services, by their shares.
func (sc *Scenario) picker() func(float64) models.ServiceID {
	total, asked := 0.0, 0.0
	for i := range sc.Services {
		if sc.asked(i) {
			total, asked = total+sc.Services[i].Share, asked+1
		}
	}
	ends := make([]float64, len(sc.Services))
	sum, last := 0.0, 0 // that has a share
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
		return models.ServiceID(last) // the ends do not quite add up to 1
	}
}

// leaves draws when the client of a query that comes at a time leaves, 0 for never.
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

// purpose names a stream of random numbers.
type purpose uint64

// The purposes. Where each of several things has a stream of its own, it has a number
// besides: each device for forNoise and forFailing, each worker for forFaults.
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

// stream returns the random numbers for one purpose.
func stream(seed uint64, p purpose, number int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(p)<<32|uint64(number)))
}
