package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The ways to spread queries over several devices: Scenario.Dispatch. Where each device
// has a scheduler of its own, it is a pod of a cluster, and balancers choose one for each
// query.
const (
	RoundRobin  = "round-robin"
	Random      = "random"
	LeastLoaded = "least-loaded" // to the device with the fewest queries of the balancer that are not answered
	Pool        = "pool"         // one scheduler decides for all devices
	Split       = "split"        // each device has some services to itself, or parts of them, by a plan in the manner of Nexus
	ORCA        = "orca"         // by weights that follow from what pods report, as Envoy and gRPC compute them
	ORCATwo     = "orca-two"     // of two devices by chance, to the one that reports less, its own queries added
)

var dispatches = []string{RoundRobin, Random, LeastLoaded, Pool, Split, ORCA, ORCATwo}

// balancer chooses a pod for each of its queries. Of those of others it knows only what
// pods report.
type balancer struct {
	*cluster
	rand        *rand.Rand
	first, last int
	open        least   // of its queries those not answered, of pods that are ready
	held        []int64 // the same, of all pods

	// turns counts for each service the steps of its weighted round. work is what its queries
	// that are not answered take alone.
	turns []uint64
	work  []time.Duration
}

func newBalancer(c *cluster, number int) *balancer {
	pods := len(c.pods)
	first := number * pods / len(c.balancers)
	b := &balancer{
		cluster: c, rand: stream(c.scenario.Seed, forDispatch, number), first: first, last: first,
		open: newLeast(pods), held: make([]int64, pods), turns: make([]uint64, len(c.scenario.Services)), work: make([]time.Duration, pods),
	}
	for i := range b.turns {
		b.turns[i] = uint64(b.last)
	}
	return b
}

// choose returns a pod that is ready for a query of a service, -1 if none is.
func (b *balancer) choose(service int) int {
	if len(b.ready) == 0 {
		return -1
	}
	switch b.scenario.Dispatch {
	case Random:
		return b.ready[b.rand.IntN(len(b.ready))]
	case LeastLoaded:
		least := b.open.smallest()
		return max(b.open.next(b.first, least), b.open.next(0, least)) // or all balancers would prefer the first pods
	case ORCA:
		return b.weighted(service)
	case ORCATwo:
		return b.lesser(service)
	}
	b.last++
	return b.ready[(b.last-1)%len(b.ready)]
}

// weighted takes pods in turns, of which one with half the largest weight has every second:
// the static stride scheduler of gRFC A58. Envoy's keeps the same proportions.
func (b *balancer) weighted(service int) int {
	n := uint64(len(b.pods))
	for {
		turn := b.turns[service]
		b.turns[service]++
		i := turn % n
		p, weight := &b.pods[i], uint64(b.pods[i].stride)
		if p.ready && (weight*(turn/n)+i*(maxStride/2))%maxStride >= maxStride-weight {
			return int(i)
		}
	}
}

// lesser takes of two pods the one on which a query would take less of its target, going by
// the mean of what others and it have sent there and by what it has there now. What waits at
// one instant, as old as a report, would have all balancers prefer the same pods for long.
func (b *balancer) lesser(service int) int {
	n := len(b.ready)
	first := b.rand.IntN(n)
	best, other := b.ready[first], b.ready[(first+1+b.rand.IntN(max(n-1, 1)))%n]
	takes := func(pod int) time.Duration {
		p := &b.pods[pod]
		return p.reported + b.work[pod] + scaled(b.alone[service], p.slow)
	}
	if takes(other) < takes(best) {
		best = other
	}
	return best
}

// add counts a query that goes to a pod or comes back.
func (b *balancer) add(pod int, queries int64, work time.Duration) {
	b.held[pod] += queries
	b.work[pod] += work
	if b.pods[pod].ready {
		b.open.set(pod, b.held[pod])
	}
}

// setReady tells which pods may be chosen.
func (c *cluster) setReady(pod int, ready bool) {
	c.pods[pod].ready = ready
	if at, found := slices.BinarySearch(c.ready, pod); ready && !found {
		c.ready = slices.Insert(c.ready, at, pod)
	} else if !ready && found {
		c.ready = slices.Delete(c.ready, at, at+1)
	}
	for _, b := range c.balancers {
		open := int64(math.MaxInt64)
		if ready {
			open = b.held[pod]
		}
		b.open.set(pod, open)
	}
}
