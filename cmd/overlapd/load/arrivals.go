package load

import (
	"math"
	"math/rand/v2"
	"time"
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
	gap := gaps(a, cv, rand.New(rand.NewPCG(seed, stream)))
	mean := float64(time.Second) / rate
	due := make([]time.Duration, 0, int(float64(to-from)/mean*1.05)+16)
	at := float64(from)
	if a == constant {
		at += (phase - 1) * mean
	}
	for len(due) < maxArrivals {
		at += gap() * mean
		if at >= float64(to) {
			break
		}
		due = append(due, time.Duration(at))
	}
	return due
}

// gaps returns a source of gaps with mean 1.
func gaps(a string, cv float64, r *rand.Rand) func() float64 {
	switch a {
	case constant:
		return func() float64 { return 1 }
	case gamma:
		shape := 1 / (cv * cv)
		return func() float64 { return gammaVariate(r, shape) / shape }
	}
	return r.ExpFloat64
}

// gammaVariate returns a value of the gamma distribution with scale 1, by the
// method of Marsaglia and Tsang. A shape below 1 is reached from shape + 1.
func gammaVariate(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gammaVariate(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
