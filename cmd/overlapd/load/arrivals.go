package load

import (
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
)

// The distributions of the gaps between the times at which requests are due in an
// open loop, by their coefficient of variation.
const (
	poisson  = "poisson"  // 1
	constant = "constant" // 0
	gamma    = "gamma"    // any above 0
)

// maxArrivals limits the requests that one service may be due in one run.
const maxArrivals = 20_000_000

// schedule returns the times in [from, to) at which requests are due. The same
// seed and stream give the same times. Phase shifts constant arrivals by that
// part of a gap, so that those of several services do not coincide.
func schedule(a string, rate, cv float64, from, to time.Duration, phase float64, seed, stream uint64) []time.Duration {
	r := rand.New(rand.NewPCG(seed, stream))
	mean := float64(time.Second) / rate
	gap, at := r.ExpFloat64, float64(from)
	switch a {
	case constant:
		gap = func() float64 { return 1 }
		at += (phase - 1) * mean
	case gamma:
		shape := 1 / (cv * cv)
		gap = func() float64 { return stats.Gamma(shape, r) / shape }
	}
	due := make([]time.Duration, 0, int(float64(to-from)/mean*1.05)+16)
	for len(due) < maxArrivals {
		at += gap() * mean
		if at >= float64(to) {
			break
		}
		due = append(due, time.Duration(at))
	}
	return due
}
