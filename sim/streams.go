package sim

import "math/rand/v2"

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
