package journal

import (
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Scheduler is an overlap.Scheduler that records what it is told and what it
// decides. It is used in the same way, by one goroutine.
type Scheduler struct {
	*overlap.Scheduler
	sink  sink // nil if nothing is recorded
	asked asked
	line  line
	now   time.Duration // the latest time seen, as the scheduler takes it
	busy  bool          // a round runs

	answered, released int // of what has ended, those that are recorded
}

// sink takes records.
type sink interface {
	// begin is called before an event changes anything, and tells what
	// becomes of its record.
	begin() taking

	// checkpoint takes the state before the event, where begin asked for it.
	checkpoint(now time.Duration, state overlap.Snapshot)

	// record takes the record of the event. It keeps no part of it.
	record(line []byte)
}

// taking is what a sink does with the record of an event.
type taking uint8

const (
	takesNothing    taking = iota // it is lost
	takesRecord                   // record follows
	takesCheckpoint               // checkpoint follows, then record
)

// New returns an idle scheduler that records to w, which belongs to it from
// then on, or every fault of the configuration. If w is nil, it records
// nothing.
func New(config overlap.Config, w *Writer, header Header) (*Scheduler, error) {
	if w == nil {
		return newScheduler(config, nil)
	}
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
	if s.asked.Predictor = config.Predictor; to != nil && config.Predictor != nil {
		config.Predictor = &s.asked
	}
	var err error
	s.Scheduler, err = overlap.New(config)
	return s, err
}

// begin starts an event. It returns its time, and whether it is recorded.
func (s *Scheduler) begin(now time.Duration) (time.Duration, bool) {
	before := s.now
	s.now = max(s.now, now)
	if s.sink == nil {
		return s.now, false
	}
	on := true
	switch s.sink.begin() {
	case takesNothing:
		on = false
	case takesCheckpoint:
		s.sink.checkpoint(before, s.Snapshot())
	}
	s.asked.begin(on)
	return s.now, on
}

// questions adds what the predictor was asked during the event.
func (s *Scheduler) questions() {
	if s.asked.any() {
		s.line.text(`,"p":`)
		s.line.buf = append(s.line.buf, s.asked.line.buf...)
		s.line.text("]")
	}
}

// unchanged reports whether nothing was asked and nothing ended so far. An event
// of which nothing else could follow is not worth a line, not even one that end
// leaves out.
func (s *Scheduler) unchanged() bool {
	answers, released := s.Ended()
	return !s.asked.any() && len(answers) == s.answered && len(released) == s.released
}

// end adds what ended with the event and hands the record over. If the event
// may be idle, and nothing was asked and nothing ended, it has changed nothing
// but the time, which later records tell: it is left out.
func (s *Scheduler) end(on, idle bool) {
	answers, released := s.Ended()
	fresh, given := answers[s.answered:], released[s.released:]
	s.answered, s.released = len(answers), len(released)
	if !on || idle && !s.asked.any() && len(fresh)+len(given) == 0 {
		return
	}
	s.line.answers(fresh)
	s.line.released(given)
	s.line.end()
	s.sink.record(s.line.buf)
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
	now, on := s.begin(now)
	err := s.Scheduler.Arrive(now, q)
	if on {
		s.line.begin(eventArrive, now)
		s.line.query(&q)
		s.questions()
		s.line.word(`,"err":`, failureName(err))
	}
	s.end(on, false)
	return err
}

// Next is that of overlap.Scheduler.
func (s *Scheduler) Next(now time.Duration) (overlap.Round, bool) {
	now, on := s.begin(now)
	busy := s.busy
	r, ok := s.Scheduler.Next(now)
	s.busy = busy || ok
	idle := busy || !ok && s.Idle() // there was nothing to choose from
	if on = on && !(idle && s.unchanged()); on {
		s.line.begin(eventNext, now)
		s.questions()
		if ok {
			e := s.Explain()
			s.line.explanation(&e)
			s.line.round(&r)
		}
	}
	s.end(on, idle)
	return r, ok
}

// Plan is that of overlap.Scheduler.
func (s *Scheduler) Plan(now time.Duration) {
	now, on := s.begin(now)
	s.Scheduler.Plan(now)
	if on = on && !s.unchanged(); on {
		s.line.begin(eventPlan, now)
		s.questions()
	}
	s.end(on, true) // to plan, it asks
}

// Finish is that of overlap.Scheduler.
func (s *Scheduler) Finish(now time.Duration, o overlap.Outcome) error {
	now, on := s.begin(now)
	err := s.Scheduler.Finish(now, o)
	s.busy = s.busy && errors.Is(err, overlap.ErrUnknownRound)
	if on {
		s.line.begin(eventFinish, now)
		s.line.outcome(&o)
		s.questions()
		s.line.word(`,"err":`, failureName(err))
	}
	s.end(on, false)
	return err
}

// Cancel is that of overlap.Scheduler.
func (s *Scheduler) Cancel(now time.Duration, id models.QueryID) (stop models.BatchID, running bool) {
	now, on := s.begin(now)
	stop, running = s.Scheduler.Cancel(now, id)
	if on {
		s.line.begin(eventCancel, now)
		s.line.uint(`,"id":`, uint64(id))
		s.questions()
		s.line.some(`,"stop":`, int64(stop))
		if running {
			s.line.int(`,"running":`, 1)
		}
	}
	s.end(on, false)
	return stop, running
}

// Down is that of overlap.Scheduler.
func (s *Scheduler) Down(now time.Duration, id models.ServiceID) {
	now, on := s.begin(now)
	s.Scheduler.Down(now, id)
	s.service(on, eventDown, now, id)
}

// Up is that of overlap.Scheduler.
func (s *Scheduler) Up(now time.Duration, id models.ServiceID) {
	now, on := s.begin(now)
	s.Scheduler.Up(now, id)
	s.service(on, eventUp, now, id)
}

func (s *Scheduler) service(on bool, e event, now time.Duration, id models.ServiceID) {
	if on {
		s.line.begin(e, now)
		s.line.int(`,"sv":`, int64(id))
		s.questions()
	}
	s.end(on, false)
}

// Load is that of overlap.Scheduler.
func (s *Scheduler) Load(now time.Duration, m models.Service) error {
	now, on := s.begin(now)
	err := s.Scheduler.Load(now, m)
	s.definition(on, eventLoad, now, &m, err)
	return err
}

// Add is that of overlap.Scheduler.
func (s *Scheduler) Add(now time.Duration, m models.Service) error {
	now, on := s.begin(now)
	err := s.Scheduler.Add(now, m)
	s.definition(on, eventAdd, now, &m, err)
	return err
}

// Change is that of overlap.Scheduler.
func (s *Scheduler) Change(now time.Duration, m models.Service) error {
	now, on := s.begin(now)
	err := s.Scheduler.Change(now, m)
	s.definition(on, eventChange, now, &m, err)
	return err
}

// definition records an event that holds the definition of a service.
func (s *Scheduler) definition(on bool, e event, now time.Duration, m *models.Service, err error) {
	if on {
		s.line.begin(e, now)
		s.line.text(`,"service":`)
		text, jsonErr := json.Marshal(m)
		if jsonErr != nil {
			text = []byte("null") // it holds nothing that could not be written
		}
		s.line.buf = append(s.line.buf, text...)
		s.questions()
		s.line.word(`,"err":`, failureName(err))
	}
	s.end(on, false)
}

// Remove is that of overlap.Scheduler.
func (s *Scheduler) Remove(now time.Duration, id models.ServiceID) error {
	now, on := s.begin(now)
	err := s.Scheduler.Remove(now, id)
	if on {
		s.line.begin(eventRemove, now)
		s.line.int(`,"sv":`, int64(id))
		s.questions()
		s.line.word(`,"err":`, failureName(err))
	}
	s.end(on, false)
	return err
}

// Drain is that of overlap.Scheduler.
func (s *Scheduler) Drain(now time.Duration) {
	now, on := s.begin(now)
	s.Scheduler.Drain(now)
	if on {
		s.line.begin(eventDrain, now)
		s.questions()
	}
	s.end(on, false)
}
