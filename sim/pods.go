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

// What Envoy's client-side weighted round robin has by default. Weights are new with every
// report.
const (
	errorPenalty = 1.0              // of the share of queries that violate their target
	blackout     = 10 * time.Second // after the start of a pod, in which its reports are not used
)

const (
	maxBalancers     = 1024
	defaultReportAge = time.Second
	minReportAge     = time.Millisecond

	// reportWindow is what utilization is the mean of: weights follow from those before, and
	// what waits at one instant would add up in them as noise.
	reportWindow = time.Second

	// maxStride is the weight of the pod that has the largest.
	maxStride = math.MaxUint16
)

// pods describe how pods come and go. One that drains is not ready any more, finishes what
// it has and is replaced; one that fails is replaced, and its queries are sent once more.
type pods struct {
	Starting   int           // of them are not ready before StartUp
	StartUp    time.Duration // from the start of a pod until it is ready
	DrainEvery time.Duration // so often the next one drains, never if 0
	FailEvery  time.Duration // so often one fails by chance, never if 0
}

// podTally counts what became of pods. Retried queries were sent to another pod.
type podTally struct {
	Drained int `json:"drained"`
	Failed  int `json:"failed"`
	Retried int `json:"retried"`
}

// cluster is the pods of a run and the balancers before them.
type cluster struct {
	*world
	pods      []pod
	ready     []int // pods that may be chosen, in their order
	balancers []*balancer
	via       []uint16 // the balancer of each query, nil where there is one
	retried   map[int]bool
	failing   *rand.Rand
	next      int             // to drain
	alone     []time.Duration // what a query of each service takes, in the mean
	reporting bool
	count     podTally
}

// pod is one device with a scheduler.
type pod struct {
	ready    bool // for balancers
	gone     bool // it has failed, which balancers learn when no report comes
	draining bool
	since    time.Duration // it is ready
	slow     float64
	open     int
	work     time.Duration // that its open queries take alone

	// The means of the last reportWindow, up to a time: of work in seconds, of the time in
	// which there was any, and of queries that ended and of those of them that violated
	// their target, per second.
	until                 time.Duration
	waits, busy, rps, eps float64

	reported time.Duration // mean of work, as last reported
	weight   float64       // as it follows from the last report; 0 before
	stride   uint16        // as balancers use it
}

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
		p.since, p.slow = -blackout, w.controls[i].nodes[0].slow // they have served before
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

// later has something happen to pods, or to one, after a time.
func (c *cluster) later(after time.Duration, kind timerKind, pod int) {
	c.timers.push(timer{at: c.now + after, kind: kind, worker: pod})
}

// measure finds out what a query of each service takes alone in the mean.
func (c *cluster) measure() {
	c.alone = make([]time.Duration, len(c.scenario.Services))
	counts := make([]time.Duration, len(c.alone))
	for i := range c.submitted {
		s := c.submitted[i].Service
		c.alone[s] += c.solo(&c.submitted[i])
		counts[s]++
	}
	for s := range c.alone {
		c.alone[s] /= max(counts[s], 1)
	}
}

func (c *cluster) of(number int) *balancer {
	if c.via == nil {
		return c.balancers[0]
	}
	return c.balancers[c.via[number]]
}

// moved counts a query that a pod has accepted, or one fewer.
func (c *cluster) moved(number, pod, queries int) {
	p, work := &c.pods[pod], time.Duration(0)
	if c.reporting {
		work = scaled(c.solo(&c.submitted[number]), p.slow) * time.Duration(queries)
	}
	p.pass(c.now)
	p.open += queries
	p.work += work
	c.of(number).add(pod, int64(queries), work)
	if p.draining && p.open == 0 {
		c.later(c.scenario.Pods.StartUp, podStarts, pod)
	}
}

// ended counts how a query ended for what its pod reports.
func (c *cluster) ended(device int, a *Answer) {
	if !c.reporting {
		return
	}
	p := &c.pods[device]
	p.pass(c.now)
	p.rps += 1 / reportWindow.Seconds()
	if !a.InTime {
		p.eps += 1 / reportWindow.Seconds()
	}
}

// pass has means forget by the time that has passed.
func (p *pod) pass(now time.Duration) {
	if now > p.until {
		keeps := math.Exp(-float64(now-p.until) / float64(reportWindow))
		p.waits += (p.work.Seconds() - p.waits) * (1 - keeps)
		p.busy += (float64(min(p.open, 1)) - p.busy) * (1 - keeps)
		p.rps, p.eps, p.until = p.rps*keeps, p.eps*keeps, now
	}
}

// errNoPod is why a query is refused that no pod is ready for.
var errNoPod = errors.New("no pod is ready")

// send hands a query to a pod.
func (c *cluster) send(number int) error {
	to := c.of(number).choose(int(c.submitted[number].Service))
	if to < 0 {
		c.refused(0, number, errNoPod)
		return nil
	}
	if c.pods[to].gone {
		return c.again(number, to)
	}
	if at := c.controls[to]; at.arrive(number) {
		return at.settle()
	}
	return nil
}

// again sends a query that a pod has lost to another, once.
func (c *cluster) again(number, lost int) error {
	q := &c.submitted[number]
	if c.retried[number] || c.now >= c.due(q) {
		c.end(lost, number, nil, &overlap.Answer{Query: models.QueryID(number + 1), Service: q.Service, Result: overlap.Failed, At: c.now})
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

// happen takes in what happens to pods.
func (c *cluster) happen(t *timer) error {
	switch t.kind {
	case podsReport:
		c.report()
		c.later(cmp.Or(c.scenario.ReportAge, defaultReportAge), podsReport, 0)
	case podStarts:
		return c.start(t.worker)
	case podDrains:
		c.drain()
		c.later(c.scenario.Pods.DrainEvery, podDrains, 0)
	default:
		c.later(c.scenario.Pods.FailEvery, podFails, 0)
		return c.fail()
	}
	return nil
}

// report has all pods tell what they have to do. That is in use until they do so again.
// Utilization is the share of its time that a pod is busy, and more by what part of its target
// a query that came now would use up: what waits, and the query itself, as the predictor says.
func (c *cluster) report() {
	for i := range c.pods {
		p := &c.pods[i]
		if p.gone {
			c.setReady(i, false)
		}
		if p.gone || !c.reporting {
			continue
		}
		p.pass(c.now)
		p.reported = time.Duration(p.waits * float64(time.Second))
		used := 0.0
		for s := range c.alone {
			used = max(used, (p.waits+scaled(c.alone[s], p.slow).Seconds())/c.scenario.Services[s].Target.Seconds())
		}
		if p.rps > 0 && p.busy > 0 {
			p.weight = p.rps / (p.busy*(1+used) + errorPenalty*p.eps/p.rps)
		}
	}
	c.weigh()
}

// weigh brings weights into the form in which they are used. A pod without one has the
// median of the others.
func (c *cluster) weigh() {
	if c.scenario.Dispatch != ORCA {
		return
	}
	known := make([]float64, 0, len(c.ready))
	usable := func(p *pod) bool { return p.weight > 0 && c.now >= p.since+blackout }
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

// start makes a pod ready, in the place of one that drained or failed if there was one.
func (c *cluster) start(number int) error {
	p := &c.pods[number]
	if p.draining {
		if err := c.renew(number); err != nil {
			return err
		}
	}
	p.gone, p.draining, p.since = false, false, c.now
	p.waits, p.busy, p.rps, p.eps, p.reported, p.weight = 0, 0, 0, 0, 0, 0
	c.setReady(number, true)
	c.weigh()
	return nil
}

// drain has the next pod that is ready finish, unless it is the only one.
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
		c.later(c.scenario.Pods.StartUp, podStarts, number)
	}
}

// fail loses a pod, drawn by chance, with all it has.
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
	c.later(c.scenario.Pods.StartUp, podStarts, number)
	for q, at := range c.with[:c.arriving] {
		if int(at) != number {
			continue
		}
		c.with[q] = notHere
		c.moved(q, number, -1)
		if err := c.again(q, number); err != nil {
			return err
		}
	}
	return nil
}

// renew puts a new scheduler, predictor and device into the place of a pod.
func (c *cluster) renew(number int) error {
	old := c.nodes[number]
	fresh, err := newControl(c.world, number, 1)
	if err != nil {
		return err
	}
	n := c.nodes[number]
	n.noise, n.failing, n.busy = old.noise, old.failing, old.busy
	if old.running {
		n.busy += max(min(c.now-old.round.Start, old.round.Took), 0)
	}
	c.replaced = append(c.replaced, old.control)
	c.controls[number] = fresh
	c.ends.set(number, int64(never))
	c.wakes.set(number, int64(never))
	return nil
}
