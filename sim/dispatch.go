package sim

import "math/rand/v2"

// The ways to spread queries over several devices: Scenario.Dispatch.
const (
	RoundRobin  = "round-robin"
	Random      = "random"
	LeastLoaded = "least-loaded" // to the device with the fewest queries that are not answered
	Pool        = "pool"         // one scheduler decides for all devices
	Split       = "split"        // each device has some services to itself, or parts of them, by a plan in the manner of Nexus
)

var dispatches = []string{RoundRobin, Random, LeastLoaded, Pool, Split}

// dispatcher chooses a device for each query.
type dispatcher struct {
	way  string
	rand *rand.Rand
	last int
}

// choose returns the device for a query, of so many, which have open queries.
func (d *dispatcher) choose(open *least, devices int) int {
	switch d.way {
	case Random:
		return d.rand.IntN(devices)
	case LeastLoaded:
		return open.next(0, open.smallest())
	}
	d.last++
	return (d.last - 1) % devices
}
