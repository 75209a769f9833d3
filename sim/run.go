package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// world is a run that goes on.
type world struct {
	scenario  *Scenario
	bound     []int // of each service the model on the device
	bind      []int // of each service the model of the predictor, nil for no predictor
	submitted []Query
	place     []int32 // of each query the device that it is on, or one of those below
	nodes     []*node
	dispatch  dispatcher
	central   central // queries that wait for a free device
	timers    timers
	deaths    []lifetime // of each worker
	now       time.Duration
	arriving  int // the next query
	left      int // queries that are not answered
	tally     tally
}

// Where a query may be besides a device.
const (
	notHere  = -1 // it has not arrived, or waits for a free device
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
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	w := &world{scenario: sc, dispatch: dispatcher{way: sc.dispatch(), rand: stream(sc.Seed, forDispatch, 0)}}
	var services []models.Service
	services, w.bound = sc.schedulerServices()
	if err := w.bindPredictor(services); err != nil {
		return nil, err
	}
	var err error
	if w.submitted, err = sc.submissions(); err != nil {
		return nil, err
	}
	w.central.w = w
	w.left = len(w.submitted)
	w.place = make([]int32, len(w.submitted))
	for i := range w.place {
		w.place[i] = notHere
	}
	for i := range sc.devices() {
		n, err := w.newNode(i, services)
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, n)
	}
	w.tally.begin(w)
	w.beginFaults(len(services))
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
	if w.tally.offered > maxLoad {
		rate := float64(len(w.submitted)) / w.submitted[len(w.submitted)-1].At.Seconds()
		return fmt.Errorf("%w: %.3g queries per second need %.0f times what the devices can do one query after another, which is about %.3g per second; give fewer queries per second, or more devices",
			ErrLoad, rate, w.tally.offered, rate/w.tally.offered)
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
	one := models.Group{Spans: make([]models.Span, 1)}
	estimate := make([]models.Estimate, 1)
	known := w.scenario.Device.Models()
	for i := range w.submitted {
		q := &w.submitted[i]
		one.Spans[0] = models.Span{Service: q.Service, End: known[w.bound[q.Service]].Operators, Size: q.Size, SeqLen: q.SeqLen}
		w.nodes[0].predictor.Predict([]models.Group{one}, estimate)
		work += estimate[0].Latency
	}
	return work.Seconds() / last.Seconds() / float64(len(w.nodes))
}

// step goes on to the next instant at which something happens.
func (w *world) step() error {
	at := never
	if w.arriving < len(w.submitted) {
		at = w.submitted[w.arriving].At
	}
	if len(w.timers.items) > 0 {
		at = min(at, w.timers.items[0].at)
	}
	for _, n := range w.nodes {
		at = min(at, n.next())
	}
	if at == never {
		return fmt.Errorf("%w: %d queries wait for ever", ErrInvariant, w.left)
	}
	w.now = max(w.now, at)
	if err := w.happen(); err != nil {
		return err
	}
	for _, n := range w.nodes {
		if n.touched || n.next() <= w.now {
			if err := n.decide(); err != nil {
				return err
			}
		}
	}
	return w.feed()
}

// happen takes in all that happens now.
func (w *world) happen() error {
	for _, n := range w.nodes {
		if n.running && n.round.End <= w.now {
			if err := n.finish(); err != nil {
				return err
			}
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
	if w.dispatch.way == Central {
		w.central.add(number)
		return nil
	}
	n := w.dispatch.choose(w.nodes)
	if n.arrive(number) {
		return n.settle()
	}
	return nil
}

// due is the deadline of a query.
func (w *world) due(q *Query) time.Duration { return q.At + w.scenario.Services[q.Service].Target }

// answered takes in how a query ended.
func (w *world) answered(n *node, a *overlap.Answer) error {
	number := int(a.Query) - 1
	if number < 0 || number >= len(w.place) || int(w.place[number]) != n.index {
		return fmt.Errorf("%w: query %d on device %d: %w", ErrInvariant, number, n.index, errTwice)
	}
	w.end(Answer{Device: n.index, Number: number, Ended: *a})
	return nil
}

// refused takes in that a query was not accepted.
func (w *world) refused(device, number int, err error) {
	ended := overlap.Answer{
		Query: models.QueryID(number + 1), Service: w.submitted[number].Service, Result: overlap.Dropped,
		Reason: overlap.ReasonOf(err), At: w.now,
	}
	w.end(Answer{Device: device, Number: number, Ended: ended, Refuse: err})
}

func (w *world) end(a Answer) {
	a.Query = w.submitted[a.Number]
	a.Due = w.due(&a.Query)
	a.InTime = a.Refuse == nil && a.Ended.Result == overlap.Finished && a.Ended.At <= a.Due
	w.place[a.Number] = answered
	w.left--
	w.tally.answered(&a)
	if w.scenario.Observer.Answer != nil {
		w.scenario.Observer.Answer(&a)
	}
}

// errLeft is why a query that waited for a free device was not served.
var errLeft = errors.New("its client has left")

// leave tells that a client has gone.
func (w *world) leave(number int) error {
	switch at := w.place[number]; {
	case at >= 0:
		return w.nodes[at].cancel(number)
	case at == notHere:
		w.end(Answer{Device: -1, Number: number, Ended: overlap.Answer{
			Query: models.QueryID(number + 1), Service: w.submitted[number].Service, Result: overlap.Cancelled,
			Reason: overlap.ReasonCancelled, At: w.now,
		}, Refuse: errLeft})
	}
	return nil
}
