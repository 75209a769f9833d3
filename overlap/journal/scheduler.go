package journal

import (
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Scheduler is an overlap.Scheduler that records its events and what it
// decides. It is used in the same way, by one goroutine.
type Scheduler struct {
	*overlap.Scheduler
	sink    sink
	on      bool // while an event is recorded
	pool    bool // there are several devices
	planned bool // in a pool: there may be a plan
	routed  bool // a service has, or had, pipelines
	text    line // what was asked in the event that is recorded
	record  record
	now     time.Duration // the latest time seen, as the scheduler takes it

	answered, released, stopped, moved int // how many of what has ended is recorded
}

// sink takes records.
type sink interface {
	// begin is called before an event changes anything in a scheduler whose
	// latest time is now, and reports whether the record of the event is taken.
	begin(now time.Duration, s *overlap.Scheduler) bool

	// record takes the record of the event. It keeps no part of it.
	record(r *record)
}

// New returns an idle scheduler that records to w, which belongs to it from
// then on, or every fault of the configuration.
func New(config overlap.Config, w *Writer, header Header) (*Scheduler, error) {
	w.use(header, config)
	return newScheduler(config, w)
}

func newScheduler(config overlap.Config, to sink) (*Scheduler, error) {
	s := &Scheduler{sink: to, now: math.MinInt64, pool: len(config.Devices) > 1}
	config.Devices, config.Selector = s.listen(config.Devices), s.listenTo(config.Selector)
	s.routed = slices.ContainsFunc(config.Services, func(m models.Service) bool { return len(m.Pipelines) > 0 })
	var err error
	s.Scheduler, err = overlap.New(config)
	return s, err
}

// listen returns predictors that write down what each of some is asked, one for those
// that are the same.
func (s *Scheduler) listen(to []overlap.Predictor) []overlap.Predictor {
	all := make([]overlap.Predictor, len(to))
	for i, p := range to {
		if like := slices.Index(to[:i], p); like >= 0 {
			all[i] = all[like]
		} else if p != nil {
			all[i] = &asked{p, s}
		}
	}
	return all
}

// asked is a predictor that writes down what it was asked and what it answered.
type asked struct {
	overlap.Predictor
	by *Scheduler
}

// Predict implements overlap.Predictor.
func (a *asked) Predict(groups []models.Group, estimates []models.Estimate) {
	a.Predictor.Predict(groups, estimates)
	if a.by.on {
		a.by.text.call(groups, estimates)
	}
}

// listenTo returns a selector that writes down what one answers, nil for none.
func (s *Scheduler) listenTo(to overlap.Selector) overlap.Selector {
	if to == nil {
		return nil
	}
	return selecting{to, s}
}

// selecting is a selector that writes down what it answered.
type selecting struct {
	overlap.Selector
	by *Scheduler
}

// Select implements overlap.Selector.
func (x selecting) Select(of string, waiting int, slack time.Duration) (variant string) {
	variant = x.Selector.Select(of, waiting, slack)
	if x.by.on {
		x.by.record.Variants = append(x.by.record.Variants, variant)
	}
	return variant
}

// any reports whether anything was asked in the event that is recorded.
func (s *Scheduler) any() bool { return len(s.text) > 1 || len(s.record.Variants) > 0 }

// begin starts an event, and returns its record.
func (s *Scheduler) begin(e event, now time.Duration) *record {
	s.on, s.text = s.sink.begin(s.now, s.Scheduler), append(s.text[:0], '[')
	s.now = max(s.now, now)
	s.record.clear(e, s.now)
	return &s.record
}

// end adds what was asked and what ended to the record, and hands it over.
func (s *Scheduler) end(err error) {
	answers, released, stops, moves := s.Ended()
	if s.on {
		r := &s.record
		if len(s.text) > 1 {
			s.text = append(s.text, ']')
			r.Asked = []byte(s.text)
		}
		r.Failure = failureName(err)
		r.ended(answers[s.answered:], released[s.released:], stops[s.stopped:], moves[s.moved:])
		s.sink.record(r)
	}
	s.on = false
	s.count()
}

// count takes what has ended so far as recorded.
func (s *Scheduler) count() {
	answers, released, stops, moves := s.Ended()
	s.answered, s.released, s.stopped, s.moved = len(answers), len(released), len(stops), len(moves)
}

// endIdle is end for an event that may have changed nothing but the time, which
// later records hold: if nothing was asked and nothing ended, it is left out.
func (s *Scheduler) endIdle() {
	answers, released, stops, moves := s.Ended()
	if s.any() || len(answers)+len(released)+len(stops)+len(moves) != s.answered+s.released+s.stopped+s.moved {
		s.end(nil)
	}
	s.on = false
}

// Answers is that of overlap.Scheduler.
func (s *Scheduler) Answers() []overlap.Answer {
	s.answered = 0
	return s.Scheduler.Answers()
}

// Released is that of overlap.Scheduler.
func (s *Scheduler) Released() []overlap.Held {
	s.released = 0
	return s.Scheduler.Released()
}

// Stops is that of overlap.Scheduler.
func (s *Scheduler) Stops() []overlap.Held {
	s.stopped = 0
	return s.Scheduler.Stops()
}

// Moves is that of overlap.Scheduler.
func (s *Scheduler) Moves() []overlap.Move {
	s.moved = 0
	return s.Scheduler.Moves()
}

// Arrive is that of overlap.Scheduler.
func (s *Scheduler) Arrive(now time.Duration, q models.Query) error {
	s.begin(eventArrive, now).tellQuery(&q)
	err := s.Scheduler.Arrive(s.now, q)
	s.end(err)
	return err
}

// Next is that of overlap.Scheduler.
func (s *Scheduler) Next(now time.Duration) (overlap.Round, bool) {
	r := s.begin(eventNext, now)
	round, ok := s.Scheduler.Next(s.now)
	if !ok && (s.planned || s.routed) {
		// A device that is free and gets nothing overturns the plan for another, and what
		// waits for a reservation may have been told to wait for more.
		s.end(nil)
		return round, ok
	}
	if !ok {
		s.endIdle()
		return round, ok
	}
	s.planned = false
	if s.on {
		e := s.Explain()
		r.decide(&round, &e)
	}
	s.end(nil)
	return round, ok
}

// Plan is that of overlap.Scheduler.
func (s *Scheduler) Plan(now time.Duration) {
	s.begin(eventPlan, now)
	s.Scheduler.Plan(s.now)
	s.planned = s.pool && (s.planned || s.any())
	s.endIdle() // to plan, it asks
}

// Finish is that of overlap.Scheduler.
func (s *Scheduler) Finish(now time.Duration, o models.Outcome) error {
	s.begin(eventFinish, now).tellOutcome(&o)
	err := s.Scheduler.Finish(s.now, o)
	s.end(err)
	return err
}

// Moved is that of overlap.Scheduler.
func (s *Scheduler) Moved(now time.Duration, m overlap.Move, took time.Duration, status models.Status) error {
	r := s.begin(eventMoved, now)
	r.Service, r.Batch, r.Device, r.To, r.Took, r.Status = m.Service, m.Batch, m.Device, m.To, took, status.String()
	err := s.Scheduler.Moved(s.now, m, took, status)
	s.end(err)
	return err
}

// Cancel is that of overlap.Scheduler.
func (s *Scheduler) Cancel(now time.Duration, id models.QueryID) (stop overlap.Held, running bool) {
	r := s.begin(eventCancel, now)
	stop, running = s.Scheduler.Cancel(s.now, id)
	if r.ID, r.Stop = id, stop.Batch; running {
		r.Running = 1
	}
	s.end(nil)
	return stop, running
}

// Down is that of overlap.Scheduler.
func (s *Scheduler) Down(now time.Duration, id models.ServiceID, device int) {
	r := s.begin(eventDown, now)
	r.Service, r.Device = id, device
	s.Scheduler.Down(s.now, id, device)
	s.end(nil)
}

// Up is that of overlap.Scheduler.
func (s *Scheduler) Up(now time.Duration, id models.ServiceID, device int) {
	r := s.begin(eventUp, now)
	r.Service, r.Device = id, device
	s.Scheduler.Up(s.now, id, device)
	s.end(nil)
}

// Remove is that of overlap.Scheduler.
func (s *Scheduler) Remove(now time.Duration, id models.ServiceID) error {
	s.begin(eventRemove, now).Service = id
	err := s.Scheduler.Remove(s.now, id)
	s.end(err)
	return err
}

// Load is that of overlap.Scheduler.
func (s *Scheduler) Load(now time.Duration, m models.Service) error {
	return s.define(eventLoad, now, m, s.Scheduler.Load)
}

// Add is that of overlap.Scheduler.
func (s *Scheduler) Add(now time.Duration, m models.Service) error {
	return s.define(eventAdd, now, m, s.Scheduler.Add)
}

// Change is that of overlap.Scheduler.
func (s *Scheduler) Change(now time.Duration, m models.Service) error {
	return s.define(eventChange, now, m, s.Scheduler.Change)
}

// define records an event that brings the definition of a service.
func (s *Scheduler) define(e event, now time.Duration, m models.Service, do func(time.Duration, models.Service) error) error {
	s.begin(e, now).Defined = &m
	s.routed = s.routed || len(m.Pipelines) > 0
	err := do(s.now, m)
	s.end(err)
	return err
}

// Drain is that of overlap.Scheduler.
func (s *Scheduler) Drain(now time.Duration) {
	s.begin(eventDrain, now)
	s.Scheduler.Drain(s.now)
	s.end(nil)
}
