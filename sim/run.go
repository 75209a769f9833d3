package sim

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/stats"
)

// world is a run that goes on.
type world struct {
	scenario *Scenario

	// bound holds the model on the device of each service, bind that of the predictor;
	// it is nil if there is no predictor.
	bound []int
	bind  []int

	// with holds the number of the control that has each of the submitted queries, or
	// one of those below. The next one to come is at arriving, and left are not answered.
	submitted []Query
	with      []int32
	bad       map[models.QueryID]bool // that the model fails on
	arriving  int
	left      int

	// ends holds when the round of each device ends. wakes holds for each control when
	// something happens to it by the passing of time, and the present where something
	// has happened that it has not decided about. Some were replaced.
	nodes    []*node
	ends     least
	controls []*control
	wakes    least
	replaced []*control
	services []models.Service
	solos    map[models.Span]time.Duration
	cluster  *cluster
	split    *split // nil unless queries go by a plan
	moves    moves
	timers   timers
	deaths   []*rand.Rand
	now      time.Duration
	tally    tally
	answer   Answer // that was given last, here so that answering does not allocate
}

// Who may have a query besides a control.
const (
	notHere  = -1 // it has not arrived
	answered = -2
)

// Run serves the queries of a scenario.
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
	w.ends, w.wakes = newLeast(sc.devices()), newLeast(controls)
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
	w.cluster = newCluster(w)
	w.tally.services = make([]serviceTally, len(w.services))
	w.beginFaults(len(w.services))
	return w, w.checkLoad()
}

// bindPredictor finds the models of the predictor. One service alone has no
// groups for it.
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
	if device == "" || f.Device == "" { // measurements do not always say what they are of
		device = f.Device
	}
	bind, err := f.Match(device, served)
	w.bind = bind
	return err
}

// checkLoad refuses what no device can hold.
func (w *world) checkLoad() error {
	w.tally.offered = w.offered()
	merged := 1 // as many queries at least as may take little longer than one
	for i := range w.scenario.Services {
		merged = max(merged, w.scenario.Services[i].MaxBatch)
	}
	if w.tally.offered > maxLoad*float64(merged) {
		rate := float64(len(w.submitted)) / w.submitted[len(w.submitted)-1].At.Seconds()
		return fmt.Errorf("%w: %s queries per second need %.0f times what the devices can do one query after another, which is about %s per second; give fewer queries per second, or more devices",
			ErrLoad, stats.Digits(3, rate), w.tally.offered, stats.Digits(3, rate/w.tally.offered))
	}
	return nil
}

// offered is the time that the queries take alone, in proportion to the time in
// which they come.
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
		devices = 1 // which its shares are of
	}
	return work.Seconds() / last.Seconds() / float64(devices)
}

// solo is the time that a query takes alone, as it is predicted before the run.
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

// step goes on to the next instant at which something happens.
func (w *world) step() error {
	at := time.Duration(min(w.ends.smallest(), w.wakes.smallest()))
	if w.arriving < len(w.submitted) {
		at = min(at, w.submitted[w.arriving].At)
	}
	if len(w.timers.items) > 0 {
		at = min(at, w.timers.items[0].at)
	}
	if at == never {
		return fmt.Errorf("%w: %d queries wait for ever", ErrInvariant, w.left)
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

// happen takes in all that happens now.
func (w *world) happen() error {
	for i := range w.ends.until(w.now) {
		if err := w.nodes[i].finish(); err != nil {
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
	if c := w.controls[w.split.next(w.submitted[number].Service)]; c.arrive(number) {
		return c.settle()
	}
	return nil
}

// due is the deadline of a query.
func (w *world) due(q *Query) time.Duration {
	target := w.scenario.Services[q.Service].Target
	return q.At + min(cmp.Or(q.Timeout, target), target)
}

// answered takes in how a query ended.
func (w *world) answered(c *control, a *overlap.Answer) error {
	number, device := int(a.Query)-1, c.nodes[a.Device].index
	if number < 0 || number >= len(w.with) || int(w.with[number]) != c.number {
		return fmt.Errorf("%w: query %d on device %d: %w", ErrInvariant, number, device, errTwice)
	}
	w.end(device, number, nil, a)
	return nil
}

var errTwice = errors.New("a second answer, or one to nobody")

// refused takes in that a query was not accepted.
func (w *world) refused(device, number int, err error) {
	w.end(device, number, err, &overlap.Answer{
		Query: models.QueryID(number + 1), Service: w.submitted[number].Service, Result: overlap.Dropped, Reason: overlap.ReasonOf(err), At: w.now,
	})
}

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

// leave takes in that a client has gone.
func (w *world) leave(number int) error {
	if at := w.with[number]; at >= 0 {
		return w.controls[at].cancel(number)
	}
	return nil
}

// beginFaults starts the lives of all workers: of each service on each device. Each
// has its own random numbers, so that the death of one changes no other.
func (w *world) beginFaults(services int) {
	if w.scenario.Faults.Every == 0 {
		return
	}
	for i := range len(w.nodes) * services {
		w.deaths = append(w.deaths, stream(w.scenario.Seed, forFaults, i))
		if !w.nodes[i/services].down[i%services] { // else there is none
			w.live(i, 0)
		}
	}
}

// spoil draws the queries that the model fails on.
func (w *world) spoil() {
	share, random := w.scenario.Faults.Bad, stream(w.scenario.Seed, forBad, 0)
	w.bad = map[models.QueryID]bool{}
	for i := range w.submitted {
		if share > 0 && random.Float64() < share {
			w.bad[models.QueryID(i+1)] = true
		}
	}
}

// live has a worker die after a time.
func (w *world) live(worker int, from time.Duration) {
	mean := float64(w.scenario.Faults.Every)
	lives := min(w.deaths[worker].ExpFloat64()*mean, float64(maxTime))
	w.timers.push(timer{at: from + max(time.Duration(lives), 1), kind: workerDies, worker: worker})
}

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

// timer is something that happens at a time known before, to the client of a query, to
// a worker, to a batch that moves or to an overrun. seq orders what is of one kind at one instant, so that a run is the
// same each time.
type timer struct {
	at     time.Duration
	kind   timerKind
	seq    int
	query  int
	worker int
	move   *moving
	late   *late
}

// timerKind orders what happens at one instant.
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

// before orders timers by time, what happens at one instant by its kind.
func (t timer) before(o timer) bool {
	return cmp.Or(cmp.Compare(t.at, o.at), cmp.Compare(t.kind, o.kind), cmp.Compare(t.seq, o.seq)) < 0
}

// timers are those that have not fired, the next one first.
type timers struct {
	ordered[timer]
	seq int
}

func (h *timers) push(t timer) {
	h.seq++
	t.seq = h.seq
	h.add(t)
}

// ordered is a heap for container/heap.
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
