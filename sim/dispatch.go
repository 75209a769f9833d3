package sim

import (
	"cmp"
	"math/rand/v2"
)

// The ways to spread queries over several devices: Scenario.Dispatch.
const (
	RoundRobin  = "round-robin"
	Random      = "random"
	LeastLoaded = "least-loaded" // to the device with the fewest queries that are not answered
	Central     = "central"      // all wait together, and a device that runs nothing gets the earliest deadline
	Pool        = "pool"         // one scheduler decides for all devices
	Split       = "split"        // each device has some services to itself, or parts of them, by a plan in the manner of Nexus
)

var dispatches = []string{RoundRobin, Random, LeastLoaded, Central, Pool, Split}

// dispatcher chooses a device for each query.
type dispatcher struct {
	way  string
	rand *rand.Rand
	last int
}

// choose returns the device for a query, of so many, which have open queries. For Central it is not asked.
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

// central holds the queries that wait for a free device, the earliest deadline
// first.
type central struct {
	ordered[int]
	w *world
}

// earlier orders queries by their deadlines, and those of one by their numbers.
func (w *world) earlier(a, b int) bool {
	return cmp.Or(cmp.Compare(w.due(&w.submitted[a]), w.due(&w.submitted[b])), cmp.Compare(a, b)) < 0
}

// take takes out the first query that a device can run, or that is too late for
// any. Those for workers that the device has lost are left to others.
func (c *central) take(n *node) (number int, ok bool) {
	var aside []int
	for !ok && len(c.items) > 0 {
		number = c.pop()
		q := &c.w.submitted[number]
		switch {
		case c.w.with[number] == answered:
		case n.down[q.Service] && c.w.due(q) > c.w.now:
			aside = append(aside, number)
		default:
			ok = true
		}
	}
	for _, a := range aside {
		c.add(a)
	}
	return number, ok
}

// feed gives queries to the devices that run nothing. One that a device does
// not start, because it might end late, waits there and does not keep the
// device from the others.
func (w *world) feed() error {
	if w.central.Len() == 0 {
		return nil
	}
	for _, n := range w.nodes {
		for !n.running {
			number, ok := w.central.take(n)
			if !ok {
				break
			}
			n.arrive(number)
			if err := n.decide(); err != nil {
				return err
			}
		}
	}
	return nil
}
