package sim

import "math/rand/v2"

// Dispatch names how queries are spread over several devices.
type Dispatch string

// The ways to spread.
const (
	RoundRobin  Dispatch = "round-robin"
	Random      Dispatch = "random"
	LeastLoaded Dispatch = "least-loaded" // to the device with the fewest queries that are not answered
	Central     Dispatch = "central"      // all wait together, and a device that runs nothing gets the earliest deadline
)

// Dispatches lists them.
func Dispatches() []Dispatch { return []Dispatch{RoundRobin, Random, LeastLoaded, Central} }

// dispatcher chooses a device for each query.
type dispatcher struct {
	way  Dispatch
	rand *rand.Rand
	last int
}

// choose returns the device for a query. For Central it is not asked.
func (d *dispatcher) choose(nodes []*node) *node {
	switch d.way {
	case Random:
		return nodes[d.rand.IntN(len(nodes))]
	case LeastLoaded:
		best := nodes[0]
		for _, n := range nodes[1:] {
			if n.open < best.open {
				best = n
			}
		}
		return best
	}
	d.last++
	return nodes[(d.last-1)%len(nodes)]
}
