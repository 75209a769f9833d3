package sim

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Defaults of Envoy's client-side weighted round robin. The simulation updates weights with
// every report.
const (
	// errorPenalty weights the fraction of queries that violate their target.
	errorPenalty = 1.0

	// blackout is how long after the start of a pod its reports are not used.
	blackout = 10 * time.Second
)

// Limits and defaults of pods.
const (
	maxBalancers     = 1024
	defaultReportAge = time.Second
	minReportAge     = time.Millisecond

	// reportWindow is the time constant of the means in a report. A report of the momentary
	// queue would be noise, which accumulates because weights influence later weights.
	reportWindow = time.Second

	// maxStride is the weight of the pod with the largest weight.
	maxStride = math.MaxUint16
)

// pods describes how pods start, drain and fail. A pod that drains takes no new queries,
// finishes those that it has, and is replaced. A pod that fails is replaced as well, and
// its queries are sent once more to other pods.
type pods struct {
	// Starting is the number of pods that become ready only after StartUp.
	Starting int

	// StartUp is the time from the start of a pod until it is ready.
	StartUp time.Duration

	// DrainEvery is the interval at which pods drain, one after another. 0 means never.
	DrainEvery time.Duration

	// FailEvery is the interval at which a random pod fails. 0 means never.
	FailEvery time.Duration
}

// podTally counts pods that drained or failed. Retried counts queries that were sent to a
// second pod.
type podTally struct {
	Drained int `json:"drained"`
	Failed  int `json:"failed"`
	Retried int `json:"retried"`
}

// cluster is the pods of a run with their balancers.
type cluster struct {
	world *world
	pods  []pod

	// ready lists the pods that may be chosen, in ascending order.
	ready []int

	balancers []*balancer

	// via holds the balancer of each query. It is nil if there is only one balancer.
	via []uint16

	retried map[int]bool
	failing *rand.Rand

	// next is the first candidate for the next pod to drain.
	next int

	// alone is the mean isolated latency of each service's queries.
	alone []time.Duration

	// reporting is set if the dispatch uses reports.
	reporting bool

	count podTally
}

// pod is a device with a scheduler of its own.
type pod struct {
	// ready is set if balancers may choose the pod.
	ready bool

	// gone is set if the pod has failed. Balancers notice that when its next report is
	// missing.
	gone bool

	draining bool

	// since is the time at which the pod became ready.
	since time.Duration

	slow float64

	// open is the number of the pod's unanswered queries. work is their isolated latency.
	open int
	work time.Duration

	// Exponential means over reportWindow, as of the time until: the work in seconds, the
	// fraction of the time with unanswered queries, ended queries per second, and ended
	// queries per second that violated their target.
	until                 time.Duration
	waits, busy, rps, eps float64

	// reported is the mean work in the last report.
	reported time.Duration

	// weight follows from the last report. It is 0 before the first.
	weight float64

	// stride is the weight in the form that balancers use.
	stride uint16
}

// newCluster creates the pods and balancers, and schedules the first changes of pods.
func newCluster(w *world) *cluster {
	sc := w.scenario
	c := &cluster{world: w, pods: make([]pod, len(w.controls)), balancers: make([]*balancer, max(sc.Balancers, 1)), retried: map[int]bool{}, failing: stream(sc.Seed, forPods, 0)}
	c.reporting = sc.Dispatch == ORCA || sc.Dispatch == ORCATwo
	for i := range c.balancers {
		c.balancers[i] = newBalancer(c, i)
	}
	if n := len(c.balancers); n > 1 {
		r := stream(sc.Seed, forBalancers, 0)
		c.via = make([]uint16, len(w.submitted))
		for i := range c.via {
			c.via[i] = uint16(r.IntN(n))
		}
	}
	for i := range c.pods {
		p := &c.pods[i]
		p.since, p.slow = -blackout, w.controls[i].nodes[0].slow // pods that are ready at time 0 count as running for long
		if i < len(c.pods)-sc.Pods.Starting {
			c.setReady(i, true)
		} else {
			c.later(sc.Pods.StartUp, podStarts, i)
		}
	}
	if c.reporting || sc.Pods.FailEvery > 0 {
		c.later(0, podsReport, 0)
	}
	if sc.Pods.DrainEvery > 0 {
		c.later(sc.Pods.DrainEvery, podDrains, 0)
	}
	if sc.Pods.FailEvery > 0 {
		c.later(sc.Pods.FailEvery, podFails, 0)
	}
	if c.reporting {
		c.measure()
	}
	return c
}

// later schedules an event of all pods, or of one, after a time.
func (c *cluster) later(after time.Duration, kind timerKind, pod int) {
	c.world.timers.push(timer{at: c.world.now + after, kind: kind, worker: pod})
}

// measure computes the mean isolated latency of each service's queries.
func (c *cluster) measure() {
	c.alone = make([]time.Duration, len(c.world.scenario.Services))
	counts := make([]time.Duration, len(c.alone))
	for i := range c.world.submitted {
		s := c.world.submitted[i].Service
		c.alone[s] += c.world.solo(&c.world.submitted[i])
		counts[s]++
	}
	for s := range c.alone {
		c.alone[s] /= max(counts[s], 1)
	}
}

// of returns the balancer of a query.
func (c *cluster) of(number int) *balancer {
	if c.via == nil {
		return c.balancers[0]
	}
	return c.balancers[c.via[number]]
}

// moved adds a query to a pod's counts if queries is 1, and removes it if queries is -1.
func (c *cluster) moved(number, pod, queries int) {
	p, work := &c.pods[pod], time.Duration(0)
	if c.reporting {
		work = scaled(c.world.solo(&c.world.submitted[number]), p.slow) * time.Duration(queries)
	}
	p.pass(c.world.now)
	p.open += queries
	p.work += work
	c.of(number).add(pod, int64(queries), work)
	if p.draining && p.open == 0 {
		c.later(c.world.scenario.Pods.StartUp, podStarts, pod)
	}
}

// ended counts the end of a query for the pod's report.
func (c *cluster) ended(device int, a *Answer) {
	if !c.reporting {
		return
	}
	p := &c.pods[device]
	p.pass(c.world.now)
	p.rps += 1 / reportWindow.Seconds()
	if !a.InTime {
		p.eps += 1 / reportWindow.Seconds()
	}
}

// pass updates the means for the time that has passed since the last update.
func (p *pod) pass(now time.Duration) {
	if now > p.until {
		keeps := math.Exp(-float64(now-p.until) / float64(reportWindow))
		p.waits += (p.work.Seconds() - p.waits) * (1 - keeps)
		p.busy += (float64(min(p.open, 1)) - p.busy) * (1 - keeps)
		p.rps, p.eps, p.until = p.rps*keeps, p.eps*keeps, now
	}
}

// errNoPod is the reason for rejecting a query if no pod is ready.
var errNoPod = errors.New("no pod is ready")

// send passes a query to a pod.
func (c *cluster) send(number int) error {
	to := c.of(number).choose(int(c.world.submitted[number].Service))
	if to < 0 {
		c.world.refused(0, number, errNoPod)
		return nil
	}
	if c.pods[to].gone {
		return c.again(number, to)
	}
	return c.world.controls[to].arrive(number)
}

// again sends a query that a pod has lost to another pod. A query is sent again only once,
// and fails otherwise.
func (c *cluster) again(number, lost int) error {
	q := &c.world.submitted[number]
	if c.retried[number] || c.world.now >= c.world.due(q) {
		c.world.end(lost, number, nil, &overlap.Answer{Query: models.QueryID(number + 1), Service: q.Service, Result: overlap.Failed, At: c.world.now})
		return nil
	}
	c.retried[number] = true
	c.count.Retried++
	ready := c.pods[lost].ready
	c.setReady(lost, false)
	err := c.send(number)
	c.setReady(lost, ready)
	return err
}

// happen processes an event of pods.
func (c *cluster) happen(t *timer) error {
	switch t.kind {
	case podsReport:
		c.report()
		c.later(cmp.Or(c.world.scenario.ReportAge, defaultReportAge), podsReport, 0)
	case podStarts:
		return c.start(t.worker)
	case podDrains:
		c.drain()
		c.later(c.world.scenario.Pods.DrainEvery, podDrains, 0)
	default:
		c.later(c.world.scenario.Pods.FailEvery, podFails, 0)
		return c.fail()
	}
	return nil
}

// report updates the reports of all pods, which stay in use until the next call. The
// reported utilization is the fraction of time that the pod is busy, increased by the
// fraction of its target that a query arriving now would use up, for the queued work and
// for itself.
func (c *cluster) report() {
	for i := range c.pods {
		p := &c.pods[i]
		if p.gone {
			c.setReady(i, false)
		}
		if p.gone || !c.reporting {
			continue
		}
		p.pass(c.world.now)
		p.reported = time.Duration(p.waits * float64(time.Second))
		used := 0.0
		for s := range c.alone {
			used = max(used, (p.waits+scaled(c.alone[s], p.slow).Seconds())/c.world.scenario.Services[s].Target.Seconds())
		}
		if p.rps > 0 && p.busy > 0 {
			p.weight = p.rps / (p.busy*(1+used) + errorPenalty*p.eps/p.rps)
		}
	}
	c.weigh()
}

// weigh converts the weights into strides. A pod without a usable weight gets the median of
// the others.
func (c *cluster) weigh() {
	if c.world.scenario.Dispatch != ORCA {
		return
	}
	known := make([]float64, 0, len(c.ready))
	usable := func(p *pod) bool { return p.weight > 0 && c.world.now >= p.since+blackout }
	for _, i := range c.ready {
		if usable(&c.pods[i]) {
			known = append(known, c.pods[i].weight)
		}
	}
	middle, largest := 1.0, 1.0
	if len(known) > 0 {
		slices.Sort(known)
		middle, largest = known[len(known)/2], known[len(known)-1]
	}
	for _, i := range c.ready {
		p, weight := &c.pods[i], middle
		if usable(p) {
			weight = p.weight
		}
		p.stride = uint16(max(math.Round(weight/largest*maxStride), 1))
	}
}

// start makes a pod ready. If the pod has drained, it gets a new scheduler first; one that
// failed already has one.
func (c *cluster) start(number int) error {
	p := &c.pods[number]
	if p.draining {
		if err := c.renew(number); err != nil {
			return err
		}
	}
	p.gone, p.draining, p.since = false, false, c.world.now
	p.waits, p.busy, p.rps, p.eps, p.reported, p.weight = 0, 0, 0, 0, 0, 0
	c.setReady(number, true)
	c.weigh()
	return nil
}

// drain starts to drain the next ready pod, unless it is the only one.
func (c *cluster) drain() {
	if len(c.ready) < 2 {
		return
	}
	at, _ := slices.BinarySearch(c.ready, c.next)
	number := c.ready[at%len(c.ready)]
	c.next = number + 1
	p := &c.pods[number]
	if p.gone {
		return
	}
	c.count.Drained++
	p.draining = true
	c.setReady(number, false)
	c.weigh()
	if p.open == 0 {
		c.later(c.world.scenario.Pods.StartUp, podStarts, number)
	}
}

// fail makes a random pod fail, with all of its queries.
func (c *cluster) fail() error {
	if len(c.ready) == 0 {
		return nil
	}
	number := c.ready[c.failing.IntN(len(c.ready))]
	p := &c.pods[number]
	if p.gone {
		return nil
	}
	c.count.Failed++
	p.gone = true
	if err := c.renew(number); err != nil {
		return err
	}
	c.later(c.world.scenario.Pods.StartUp, podStarts, number)
	for q, at := range c.world.with[:c.world.arriving] {
		if int(at) != number {
			continue
		}
		c.world.with[q] = notHere
		c.moved(q, number, -1)
		if err := c.again(q, number); err != nil {
			return err
		}
	}
	return nil
}

// renew replaces the scheduler, the predictor and the device of a pod. The random numbers
// and the busy time continue.
func (c *cluster) renew(number int) error {
	old := c.world.nodes[number]
	fresh, err := newControl(c.world, number, 1)
	if err != nil {
		return err
	}
	n := c.world.nodes[number]
	n.noise, n.failing, n.busy = old.noise, old.failing, old.busy
	for _, l := range old.lanes {
		if l.running {
			n.busy += l.part(max(min(c.world.now-l.round.Start, l.round.Took), 0))
		}
		c.world.ends.set(l.number, int64(never))
	}
	c.world.replaced = append(c.world.replaced, old.control)
	c.world.controls[number] = fresh
	c.world.wakes.set(number, int64(never))
	return nil
}
