package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The values of Scenario.Dispatch: how queries are distributed over several devices. Except
// with Pool, each device has a scheduler of its own. Unless a plan assigns the queries
// (Split), such devices are the pods of a cluster, and balancers choose a pod for each query.
const (
	// RoundRobin uses the pods in turn.
	RoundRobin = "round-robin"

	// Random chooses a pod at random.
	Random = "random"

	// LeastLoaded chooses the pod with the fewest unanswered queries of the same balancer.
	LeastLoaded = "least-loaded"

	// Pool uses one scheduler for all devices.
	Pool = "pool"

	// Split assigns services, or fractions of their queries, to devices by a static plan
	// like that of Nexus.
	Split = "split"

	// ORCA uses weights computed from the pods' reports, as Envoy and gRPC do.
	ORCA = "orca"

	// ORCATwo draws two pods and chooses the one with less work, which is the work it
	// reports plus that of the balancer's own queries.
	ORCATwo = "orca-two"
)

// dispatches lists the values of Scenario.Dispatch.
var dispatches = []string{RoundRobin, Random, LeastLoaded, Pool, Split, ORCA, ORCATwo}

// balancer chooses a pod for each of its queries. It knows the queries of other balancers
// only from the pods' reports.
type balancer struct {
	cluster     *cluster
	rand        *rand.Rand
	first, last int

	// open holds the number of the balancer's unanswered queries on each ready pod. held
	// holds the same for all pods.
	open least
	held []int64

	// turns counts for each service the steps of weighted. work is for each pod the
	// isolated latency of the balancer's unanswered queries.
	turns []uint64
	work  []time.Duration
}

// newBalancer creates the balancer with this number. Balancers start at different pods.
func newBalancer(c *cluster, number int) *balancer {
	pods := len(c.pods)
	first := number * pods / len(c.balancers)
	b := &balancer{
		cluster: c, rand: stream(c.world.scenario.Seed, forDispatch, number), first: first, last: first,
		open: newLeast(pods), held: make([]int64, pods), turns: make([]uint64, len(c.world.scenario.Services)), work: make([]time.Duration, pods),
	}
	for i := range b.turns {
		b.turns[i] = uint64(b.last)
	}
	return b
}

// choose returns a ready pod for a query of a service, or -1 if no pod is ready.
func (b *balancer) choose(service int) int {
	if len(b.cluster.ready) == 0 {
		return -1
	}
	switch b.cluster.world.scenario.Dispatch {
	case Random:
		return b.cluster.ready[b.rand.IntN(len(b.cluster.ready))]
	case LeastLoaded:
		least := b.open.smallest()
		return max(b.open.next(b.first, least), b.open.next(0, least)) // start at first, or all balancers would prefer the first pods
	case ORCA:
		return b.weighted(service)
	case ORCATwo:
		return b.lesser(service)
	}
	b.last++
	return b.cluster.ready[(b.last-1)%len(b.cluster.ready)]
}

// weighted chooses pods in proportion to their weights: a pod with half the largest weight
// gets every second turn. It is the static stride scheduler of gRFC A58. Envoy's scheduler
// has the same proportions.
func (b *balancer) weighted(service int) int {
	n := uint64(len(b.cluster.pods))
	for {
		turn := b.turns[service]
		b.turns[service]++
		i := turn % n
		p, weight := &b.cluster.pods[i], uint64(b.cluster.pods[i].stride)
		if p.ready && (weight*(turn/n)+i*(maxStride/2))%maxStride >= maxStride-weight {
			return int(i)
		}
	}
}

// lesser draws two pods and returns the one on which the query would finish earlier. It
// compares the reported mean of the pod's work plus the current work of this balancer's
// queries there. A report of the momentary queue would be worse: until the next report, all
// balancers would prefer the same pods.
func (b *balancer) lesser(service int) int {
	n := len(b.cluster.ready)
	first := b.rand.IntN(n)
	best, other := b.cluster.ready[first], b.cluster.ready[(first+1+b.rand.IntN(max(n-1, 1)))%n]
	takes := func(pod int) time.Duration {
		p := &b.cluster.pods[pod]
		return p.reported + b.work[pod] + scaled(b.cluster.alone[service], p.slow)
	}
	if takes(other) < takes(best) {
		best = other
	}
	return best
}

// add counts queries that the balancer sends to a pod. Negative numbers count queries that
// have ended.
func (b *balancer) add(pod int, queries int64, work time.Duration) {
	b.held[pod] += queries
	b.work[pod] += work
	if b.cluster.pods[pod].ready {
		b.open.set(pod, b.held[pod])
	}
}

// setReady sets whether balancers may choose a pod.
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
