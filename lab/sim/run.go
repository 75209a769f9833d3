package sim

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// world is a run in progress.
type world struct {
	scenario *Scenario

	// bound holds the position of each service's model on the device. bind holds the
	// position of each service's model in the predictor, and is nil without a predictor.
	bound []int
	bind  []int

	// with holds for each of the submitted queries the number of the control that has it,
	// or notHere or answered. arriving is the position of the next query to arrive. left is
	// the number of unanswered queries.
	submitted []Query
	with      []int32

	// bad holds the queries on which the model fails.
	bad map[models.QueryID]bool

	arriving int
	left     int

	// ends holds the time at which the round of each lane ends. wakes holds the time at
	// which each control must decide next, which is the present if something has happened.
	// replaced holds controls of pods that were replaced.
	nodes    []*node
	lanes    []*lane
	ends     least
	controls []*control
	wakes    least
	replaced []*control
	services []models.Service
	solos    map[models.Span]time.Duration
	cluster  *cluster

	// split is nil unless the dispatch is Split.
	split *split

	moves  moves
	timers timers
	deaths []*rand.Rand
	now    time.Duration
	tally  tally

	// answer is the last answer. It is a field so that answering does not allocate.
	answer Answer
}

// Values of world.with for queries that no control has.
const (
	// notHere is the value for a query that has not arrived.
	notHere = -1

	// answered is the value for a query that has been answered.
	answered = -2
)

// Run serves the queries of a scenario and returns the result.
func Run(sc Scenario) (*Result, error) {
	w, err := newWorld(&sc)
	if err != nil {
		return nil, err
	}
	for w.left > 0 {
		if err := w.step(); err != nil {
			return nil, fmt.Errorf("seed %d at %v: %w", sc.Seed, w.now, err)
		}
	}
	return w.result(), nil
}

// newWorld prepares a run.
func newWorld(sc *Scenario) (*world, error) {
	submitted, err := sc.Submissions()
	if err != nil {
		return nil, err
	}
	if sc.Policy == staticPolicy {
		if err := sc.divide(); err != nil {
			return nil, err
		}
	}
	w := &world{scenario: sc, submitted: submitted, left: len(submitted), nodes: make([]*node, sc.devices()), solos: map[models.Span]time.Duration{}}
	w.services, w.bound = sc.schedulerServices()
	if err := w.bindPredictor(w.services); err != nil {
		return nil, err
	}
	w.timers.before = timer.before
	w.moves = newMoves(sc)
	w.with = make([]int32, len(w.submitted))
	for i := range w.with {
		w.with[i] = notHere
	}
	w.spoil()
	controls, each := sc.devices(), 1
	if sc.Dispatch == Pool {
		controls, each = each, controls
	}
	w.wakes = newLeast(controls)
	if sc.Dispatch == Split {
		w.split = newSplit(sc, submitted, w.bound)
		w.split.limit(w.services)
	}
	for i := range controls {
		c, err := newControl(w, i, each)
		if err != nil {
			return nil, err
		}
		w.controls = append(w.controls, c)
	}
	w.ends = newLeast(len(w.lanes))
	w.cluster = newCluster(w)
	w.tally.services = make([]serviceTally, len(w.services))
	w.beginFaults(len(w.services))
	return w, w.checkLoad()
}

// bindPredictor finds the services' models in the predictor. A single service needs no
// predictor, because it forms no groups.
func (w *world) bindPredictor(services []models.Service) error {
	f := w.scenario.Predictor
	if f == nil || len(services) == 1 {
		return nil
	}
	served := make([]predictor.Served, len(services))
	for i, s := range services {
		served[i] = predictor.Served{Service: s.Name, Model: w.scenario.Services[i].model(), Operators: s.Operators}
	}
	device := w.scenario.DeviceName
	if device == "" || f.Device == "" { // measurements do not always name their device
		device = f.Device
	}
	bind, err := f.Match(device, served)
	w.bind = bind
	return err
}

// checkLoad returns an error if the load exceeds the devices so far that almost all queries
// would be dropped.
func (w *world) checkLoad() error {
	w.tally.offered = w.offered()
	merged := 1 // batching may serve this many queries in little more than the time of one
	for i := range w.scenario.Services {
		merged = max(merged, w.scenario.Services[i].MaxBatch)
	}
	if w.tally.offered > maxLoad*float64(merged) {
		rate := float64(len(w.submitted)) / w.submitted[len(w.submitted)-1].At.Seconds()
		return fmt.Errorf("%w: %s queries per second are %.0f times what the devices can answer one after another, which is about %s per second; give fewer queries per second, or more devices",
			ErrLoad, stats.Digits(3, rate), w.tally.offered, stats.Digits(3, rate/w.tally.offered))
	}
	return nil
}

// offered returns the sum of the queries' isolated latencies over the time in which they
// arrive, per device.
func (w *world) offered() float64 {
	last := w.submitted[len(w.submitted)-1].At
	if len(w.submitted) < 2 || last == 0 {
		return 0
	}
	var work time.Duration
	for i := range w.submitted {
		work += w.solo(&w.submitted[i])
	}
	devices := len(w.nodes)
	if w.scenario.Policy == staticPolicy {
		devices = 1 // the shares of static belong to one device
	}
	return work.Seconds() / last.Seconds() / float64(devices)
}

// solo returns the isolated latency of a query as predicted before the run.
func (w *world) solo(q *Query) time.Duration {
	whole := models.Span{Service: q.Service, End: w.services[q.Service].Operators, Size: q.Size, SeqLen: q.SeqLen}
	took, asked := w.solos[whole]
	if !asked {
		alone := models.Group{Spans: []models.Span{whole}}
		if w.scenario.Policy == staticPolicy {
			alone.Spans[0].Service = models.ServiceID(w.bound[q.Service])
			took = w.scenario.Device.Latency(alone)
		} else {
			var estimate [1]models.Estimate
			w.nodes[0].predictor.Predict([]models.Group{alone}, estimate[:])
			took = estimate[0].Latency
		}
		w.solos[whole] = took
	}
	return took
}

// step advances to the next instant at which something happens, and lets the schedulers
// decide.
func (w *world) step() error {
	at := time.Duration(min(w.ends.smallest(), w.wakes.smallest()))
	if w.arriving < len(w.submitted) {
		at = min(at, w.submitted[w.arriving].At)
	}
	if len(w.timers.items) > 0 {
		at = min(at, w.timers.items[0].at)
	}
	if at == never {
		return fmt.Errorf("%w: %d queries are never answered", ErrInvariant, w.left)
	}
	w.now = max(w.now, at)
	if err := w.happen(); err != nil {
		return err
	}
	for i := range w.wakes.until(w.now) {
		if err := w.controls[i].decide(); err != nil {
			return err
		}
	}
	return nil
}

// happen processes all events of this instant.
func (w *world) happen() error {
	for i := range w.ends.until(w.now) {
		if err := w.lanes[i].finish(); err != nil {
			return err
		}
	}
	for len(w.timers.items) > 0 && w.timers.items[0].at <= w.now {
		if err := w.fire(w.timers.pop()); err != nil {
			return err
		}
	}
	for w.arriving < len(w.submitted) && w.submitted[w.arriving].At <= w.now {
		if err := w.arrive(w.arriving); err != nil {
			return err
		}
		w.arriving++
	}
	return nil
}

// arrive submits a query to a control.
func (w *world) arrive(number int) error {
	if at := w.submitted[number].Leaves; at > 0 {
		w.timers.push(timer{at: at, kind: clientLeaves, query: number})
	}
	if w.scenario.Observer.Arrive != nil {
		w.scenario.Observer.Arrive(&w.submitted[number])
	}
	if w.split == nil {
		return w.cluster.send(number)
	}
	return w.controls[w.split.next(w.submitted[number].Service)].arrive(number)
}

// due returns the deadline of a query.
func (w *world) due(q *Query) time.Duration {
	target := w.scenario.Services[q.Service].Target
	return q.At + min(cmp.Or(q.Timeout, target), target)
}

// answered records an answer of a scheduler. It returns an error if the scheduler does not
// have the query.
func (w *world) answered(c *control, a *overlap.Answer) error {
	number, device := int(a.Query)-1, c.nodes[a.Device].index
	if number < 0 || number >= len(w.with) || int(w.with[number]) != c.number {
		return fmt.Errorf("%w: query %d on device %d: %w", ErrInvariant, number, device, errTwice)
	}
	w.end(device, number, nil, a)
	return nil
}

// errTwice is returned for an answer to a query that the scheduler does not have.
var errTwice = errors.New("a second answer, or an answer to a query that the device does not have")

// refused records that a query was rejected.
func (w *world) refused(device, number int, err error) {
	w.end(device, number, err, &overlap.Answer{
		Query: models.QueryID(number + 1), Service: w.submitted[number].Service, Result: overlap.Dropped, Reason: overlap.ReasonOf(err), At: w.now,
	})
}

// end records how a query ended, and tells the observer.
func (w *world) end(device, number int, refuse error, ended *overlap.Answer) {
	a := &w.answer
	*a = Answer{Device: device, Number: number, Query: w.submitted[number], Refuse: refuse, Ended: *ended}
	a.Due = w.due(&a.Query)
	a.InTime = a.Refuse == nil && a.Ended.Result == overlap.Finished && a.Ended.At <= a.Due
	w.with[a.Number] = answered
	w.left--
	w.cluster.ended(device, a)
	w.tally.answered(a)
	if w.scenario.Observer.Answer != nil {
		w.scenario.Observer.Answer(a)
	}
}

// leave cancels a query whose client has left, unless it has ended.
func (w *world) leave(number int) error {
	if at := w.with[number]; at >= 0 {
		return w.controls[at].cancel(number)
	}
	return nil
}

// beginFaults schedules the first death of each worker. A worker belongs to one service on
// one device, and has random numbers of its own, so that its death does not change the
// others.
func (w *world) beginFaults(services int) {
	if w.scenario.Faults.Every == 0 {
		return
	}
	for i := range len(w.nodes) * services {
		w.deaths = append(w.deaths, stream(w.scenario.Seed, forFaults, i))
		if !w.nodes[i/services].down[i%services] { // otherwise the service has no worker on this device
			w.live(i, 0)
		}
	}
}

// spoil draws the queries on which the model fails.
func (w *world) spoil() {
	share, random := w.scenario.Faults.Bad, stream(w.scenario.Seed, forBad, 0)
	w.bad = map[models.QueryID]bool{}
	for i := range w.submitted {
		if share > 0 && random.Float64() < share {
			w.bad[models.QueryID(i+1)] = true
		}
	}
}

// live schedules the death of a worker.
func (w *world) live(worker int, from time.Duration) {
	mean := float64(w.scenario.Faults.Every)
	lives := min(w.deaths[worker].ExpFloat64()*mean, float64(maxTime))
	w.timers.push(timer{at: from + max(time.Duration(lives), 1), kind: workerDies, worker: worker})
}

// fire processes a timer.
func (w *world) fire(t timer) error {
	services := len(w.scenario.Services)
	switch t.kind {
	case podStarts, podsReport, podDrains, podFails:
		return w.cluster.happen(&t)
	case moveEnds:
		return w.arrived(t.move)
	case overrunEnds:
		return t.late.land()
	case clientLeaves:
		return w.leave(t.query)
	case workerDies:
		w.timers.push(timer{at: t.at + w.scenario.Faults.Restart, kind: workerBack, worker: t.worker})
		return w.nodes[t.worker/services].die(models.ServiceID(t.worker % services))
	}
	w.live(t.worker, t.at)
	return w.nodes[t.worker/services].back(models.ServiceID(t.worker % services))
}

// timer is an event at a known time: of a query's client, a worker, a pod, a moving batch
// or an overrun. seq orders events of one kind at one instant, which makes runs
// reproducible.
type timer struct {
	at     time.Duration
	kind   timerKind
	seq    int
	query  int
	worker int
	move   *moving
	late   *late
}

// timerKind is the kind of an event. Events of one instant are processed in the order of
// their kinds.
type timerKind uint8

const (
	moveEnds timerKind = iota
	overrunEnds
	workerBack
	workerDies
	clientLeaves
	podStarts
	podsReport
	podDrains
	podFails
)

// before orders timers by time, then by kind, then by the order in which they were added.
func (t timer) before(o timer) bool {
	return cmp.Or(cmp.Compare(t.at, o.at), cmp.Compare(t.kind, o.kind), cmp.Compare(t.seq, o.seq)) < 0
}

// timers holds the timers that have not fired. The next one is first.
type timers struct {
	ordered[timer]
	seq int
}

// push adds a timer.
func (h *timers) push(t timer) {
	h.seq++
	t.seq = h.seq
	h.add(t)
}

// ordered is a heap for container/heap, ordered by before.
type ordered[T any] struct {
	items  []T
	before func(a, b T) bool
}

func (h *ordered[T]) Len() int           { return len(h.items) }
func (h *ordered[T]) Less(i, j int) bool { return h.before(h.items[i], h.items[j]) }
func (h *ordered[T]) Swap(i, j int)      { h.items[i], h.items[j] = h.items[j], h.items[i] }
func (h *ordered[T]) Push(x any)         { h.items = append(h.items, x.(T)) }

func (h *ordered[T]) Pop() any {
	last := len(h.items) - 1
	x := h.items[last]
	h.items = h.items[:last]
	return x
}

func (h *ordered[T]) add(x T) { heap.Push(h, x) }
func (h *ordered[T]) pop() T  { return heap.Pop(h).(T) }
