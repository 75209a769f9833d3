package journal

import (
	"errors"
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Scheduler is an overlap.Scheduler that records its events and what it
// decides. It is used in the same way, by one goroutine.
type Scheduler struct {
	*overlap.Scheduler
	sink   sink
	asked  asked
	record record
	now    time.Duration // the latest time seen, as the scheduler takes it
	busy   bool          // a round runs

	answered, released int // how many of what has ended is recorded
}

// sink takes records.
type sink interface {
	// begin is called before an event changes anything, and returns what
	// becomes of its record.
	begin() taking

	// checkpoint takes the state before the event, where begin asked for it.
	checkpoint(now time.Duration, state overlap.Snapshot)

	// record takes the record of the event. It keeps no part of it.
	record(r *record)
}

// taking is what a sink does with the record of an event.
type taking uint8

const (
	takesNothing    taking = iota // it is lost
	takesRecord                   // record follows
	takesCheckpoint               // checkpoint follows, then record
)

// New returns an idle scheduler that records to w, which belongs to it from
// then on, or every fault of the configuration.
func New(config overlap.Config, w *Writer, header Header) (*Scheduler, error) {
	s, err := newScheduler(config, w)
	if err == nil {
		err = w.use(header, config)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newScheduler(config overlap.Config, to sink) (*Scheduler, error) {
	s := &Scheduler{sink: to, now: math.MinInt64}
	if s.asked.Predictor = config.Predictor; config.Predictor != nil {
		config.Predictor = &s.asked
	}
	var err error
	s.Scheduler, err = overlap.New(config)
	return s, err
}

// asked is a predictor that writes down what it was asked and what it answered.
type asked struct {
	overlap.Predictor
	on   bool
	text line
}

// Predict implements overlap.Predictor.
func (a *asked) Predict(groups []models.Group, estimates []models.Estimate) {
	a.Predictor.Predict(groups, estimates)
	if a.on {
		a.text.call(groups, estimates)
	}
}

func (a *asked) any() bool { return len(a.text) > 1 }

// begin starts an event, and returns its record, nil if that would be lost.
func (s *Scheduler) begin(e event, now time.Duration) *record {
	before := s.now
	s.now = max(s.now, now)
	taking := s.sink.begin()
	if taking == takesCheckpoint {
		s.sink.checkpoint(before, s.Snapshot())
	}
	s.asked.on, s.asked.text = taking != takesNothing, append(s.asked.text[:0], '[')
	if !s.asked.on {
		return nil
	}
	s.record.clear(e, s.now)
	return &s.record
}

// end adds what was asked and what ended to the record, and hands it over.
func (s *Scheduler) end(r *record, err error) {
	s.asked.on = false
	answers, released := s.Ended()
	fresh, given := answers[s.answered:], released[s.released:]
	s.answered, s.released = len(answers), len(released)
	if r == nil {
		return
	}
	if s.asked.any() {
		s.asked.text = append(s.asked.text, ']')
		r.Asked = []byte(s.asked.text)
	}
	r.Failure = failureName(err)
	r.ended(fresh, given)
	s.sink.record(r)
}

// endIdle is end for an event that may have changed nothing but the time, which
// later records hold: if nothing was asked and nothing ended, it is left out.
func (s *Scheduler) endIdle(r *record) {
	answers, released := s.Ended()
	if !s.asked.any() && len(answers) == s.answered && len(released) == s.released {
		s.asked.on = false
		return
	}
	s.end(r, nil)
}

// Answers is that of overlap.Scheduler.
func (s *Scheduler) Answers() []overlap.Answer {
	s.answered = 0
	return s.Scheduler.Answers()
}

// Released is that of overlap.Scheduler.
func (s *Scheduler) Released() []overlap.Release {
	s.released = 0
	return s.Scheduler.Released()
}

// Arrive is that of overlap.Scheduler.
func (s *Scheduler) Arrive(now time.Duration, q models.Query) error {
	r := s.begin(eventArrive, now)
	err := s.Scheduler.Arrive(s.now, q)
	if r != nil {
		r.tellQuery(&q)
	}
	s.end(r, err)
	return err
}

// Next is that of overlap.Scheduler.
func (s *Scheduler) Next(now time.Duration) (overlap.Round, bool) {
	r := s.begin(eventNext, now)
	busy := s.busy
	round, ok := s.Scheduler.Next(s.now)
	s.busy = busy || ok
	if r != nil && ok {
		e := s.Explain()
		r.decide(&round, &e)
	}
	if busy || !ok && s.Idle() { // there was nothing to choose from
		s.endIdle(r)
	} else {
		s.end(r, nil)
	}
	return round, ok
}

// Plan is that of overlap.Scheduler.
func (s *Scheduler) Plan(now time.Duration) {
	r := s.begin(eventPlan, now)
	s.Scheduler.Plan(s.now)
	s.endIdle(r) // to plan, it asks
}

// Finish is that of overlap.Scheduler.
func (s *Scheduler) Finish(now time.Duration, o models.Outcome) error {
	r := s.begin(eventFinish, now)
	err := s.Scheduler.Finish(s.now, o)
	s.busy = s.busy && errors.Is(err, overlap.ErrUnknownRound)
	if r != nil {
		r.tellOutcome(&o)
	}
	s.end(r, err)
	return err
}

// Cancel is that of overlap.Scheduler.
func (s *Scheduler) Cancel(now time.Duration, id models.QueryID) (stop models.BatchID, running bool) {
	r := s.begin(eventCancel, now)
	stop, running = s.Scheduler.Cancel(s.now, id)
	if r != nil {
		if r.ID, r.Stop = id, stop; running {
			r.Running = 1
		}
	}
	s.end(r, nil)
	return stop, running
}

// Down is that of overlap.Scheduler.
func (s *Scheduler) Down(now time.Duration, id models.ServiceID) {
	r := s.begin(eventDown, now)
	s.Scheduler.Down(s.now, id)
	s.endService(r, id, nil)
}

// Up is that of overlap.Scheduler.
func (s *Scheduler) Up(now time.Duration, id models.ServiceID) {
	r := s.begin(eventUp, now)
	s.Scheduler.Up(s.now, id)
	s.endService(r, id, nil)
}

// Remove is that of overlap.Scheduler.
func (s *Scheduler) Remove(now time.Duration, id models.ServiceID) error {
	r := s.begin(eventRemove, now)
	err := s.Scheduler.Remove(s.now, id)
	s.endService(r, id, err)
	return err
}

// endService ends an event that brings no more than a service.
func (s *Scheduler) endService(r *record, id models.ServiceID, err error) {
	if r != nil {
		r.Service = id
	}
	s.end(r, err)
}

// Load is that of overlap.Scheduler.
func (s *Scheduler) Load(now time.Duration, m models.Service) error {
	r := s.begin(eventLoad, now)
	err := s.Scheduler.Load(s.now, m)
	s.endDefined(r, m, err)
	return err
}

// Add is that of overlap.Scheduler.
func (s *Scheduler) Add(now time.Duration, m models.Service) error {
	r := s.begin(eventAdd, now)
	err := s.Scheduler.Add(s.now, m)
	s.endDefined(r, m, err)
	return err
}

// Change is that of overlap.Scheduler.
func (s *Scheduler) Change(now time.Duration, m models.Service) error {
	r := s.begin(eventChange, now)
	err := s.Scheduler.Change(s.now, m)
	s.endDefined(r, m, err)
	return err
}

// endDefined ends an event that brings the definition of a service.
func (s *Scheduler) endDefined(r *record, m models.Service, err error) {
	if r != nil {
		r.Defined = &m
	}
	s.end(r, err)
}

// Drain is that of overlap.Scheduler.
func (s *Scheduler) Drain(now time.Duration) {
	r := s.begin(eventDrain, now)
	s.Scheduler.Drain(s.now)
	s.end(r, nil)
}
