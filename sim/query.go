package sim

import (
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Query is one query that a client submits.
type Query struct {
	At      time.Duration
	Service models.ServiceID
	Size    int
	SeqLen  int
	Leaves  time.Duration // when its client leaves, 0 for never
}

// Submissions returns the queries that a run of the scenario serves, so that a
// daemon can be asked the same.
func (sc *Scenario) Submissions() ([]Query, error) {
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	return sc.submissions()
}

func (sc *Scenario) submissions() ([]Query, error) {
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
	total := 0.0
	for i := range sc.Services {
		total += sc.Services[i].Share
	}
	ends := make([]float64, len(sc.Services))
	sum := 0.0
	for i := range sc.Services {
		if total == 0 {
			sum += 1 / float64(len(ends))
		} else {
			sum += sc.Services[i].Share / total
		}
		ends[i] = sum
	}
	return func(at float64) models.ServiceID {
		for i, end := range ends {
			if at < end {
				return models.ServiceID(i)
			}
		}
		for i := len(ends) - 1; i > 0; i-- { // the ends do not quite add up to 1
			if ends[i] > ends[i-1] {
				return models.ServiceID(i)
			}
		}
		return 0
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

// The purposes. A stream is of a purpose and, where each of several things has
// one, a number.
const (
	forTimes purpose = iota + 1
	forThinning
	forServices
	forSizes
	forSeqLens
	forClients
	forDispatch
	forNoise   // of each device
	forFaults  // of each worker
	forFailing // of each device
)

// stream returns the random numbers for one purpose.
func stream(seed uint64, p purpose, number int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(p)<<32|uint64(number)))
}
