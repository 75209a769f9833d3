package daemon

import (
	"errors"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// quietBefore is for how long no query must have come before a group is measured.
// Who sends one query after another is not to wait for a measurement each time.
const quietBefore = 200 * time.Millisecond

// profiling runs the steps of a session while the scheduler has nothing to
// run. A query that comes meanwhile waits for the operators that run to end.
type profiling struct {
	keeper  *keeper
	machine measurement

	session  *training.Session // nil if nothing is to be measured
	device   string
	services []models.ServiceID // by position of their subject in the session
	limit    time.Duration      // on all steps, 0 for none
	step     training.Step
	began    time.Time
	ended    chan struct{} // is closed when no round runs any more, if somebody waits for that
}

// begin measures what the session wants.
func (p *profiling) begin(s *training.Session, device string, services []models.ServiceID, limit time.Duration) {
	p.session, p.device, p.services, p.limit = s, device, services, limit
}

// end measures no further. What runs is told to stop, and counts for nothing.
func (p *profiling) end() {
	p.session = nil
	p.machine.stop()
}

// quit ends and closes ended when no round runs any more.
func (p *profiling) quit(ended chan struct{}) {
	p.end()
	if p.machine.active() {
		p.ended = ended
	} else {
		close(ended)
	}
}

// spent reports whether the time to measure is.
func (p *profiling) spent() bool { return p.limit > 0 && p.session.Progress().Spent >= p.limit }

// pending reports whether there is something to measure, now or later.
func (p *profiling) pending() bool { return p.session != nil && !p.machine.active() }

// next starts the next step, unless the executor is closed. It reports false
// if there is none: all is measured, or the time is spent.
func (p *profiling) next() bool {
	for {
		if p.spent() {
			return false
		}
		step, ok := p.session.Next()
		if !ok {
			return false
		}
		p.step, p.began = step, time.Now()
		err := p.machine.start(p.rounds(&step))
		if err == nil {
			return true
		}
		if errors.Is(err, executor.ErrClosed) {
			p.end()
			return true
		}
		p.session.Failed(-1, err, time.Since(p.began))
	}
}

// rounds returns the rounds of a step, in terms of services.
func (p *profiling) rounds(step *training.Step) []models.Group {
	var rounds []models.Group
	if len(step.Prepare.Spans) > 0 {
		rounds = append(rounds, p.served(step.Prepare))
	}
	if step.Kind != training.StepOperators {
		return append(rounds, p.served(step.Group))
	}
	whole := p.served(step.Group).Spans[0]
	for i := range whole.End {
		one := whole
		one.Start, one.End = i, i+1
		rounds = append(rounds, models.Group{Spans: []models.Span{one}})
	}
	return rounds
}

// served returns a group of the session with services in the place of
// subjects.
func (p *profiling) served(g models.Group) models.Group {
	spans := make([]models.Span, len(g.Spans))
	for i, s := range g.Spans {
		s.Service = p.services[s.Service]
		spans[i] = s
	}
	return models.Group{Spans: spans}
}

// finish takes in a round of the step. If queries wait, the step is given up
// and run again later.
func (p *profiling) finish(o *executor.Outcome, wanted bool) {
	over, err := p.machine.finish(o, wanted)
	spent := time.Since(p.began)
	switch {
	case !over:
	case p.session == nil: // it was ended meanwhile
	case errors.Is(err, errDisturbed):
		p.session.Again(spent)
	case err != nil:
		p.session.Failed(p.culprit(o), err, spent)
	case p.step.Kind == training.StepOperators:
		p.tookOperators(spent)
	default:
		p.took(spent)
	}
	if over && p.ended != nil {
		close(p.ended)
		p.ended = nil
	}
}

// culprit returns the subject whose span failed, or -1 if it was not just one.
func (p *profiling) culprit(o *executor.Outcome) models.ServiceID {
	found := models.ServiceID(-1)
	for i := range o.Spans {
		if o.Spans[i].Status == executor.Done {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = p.subject(o.Spans[i].Span.Service)
	}
	return found
}

// subject returns the position of a service in the session, or -1.
func (p *profiling) subject(service models.ServiceID) models.ServiceID {
	for i, id := range p.services {
		if id == service {
			return models.ServiceID(i)
		}
	}
	return -1
}

func (p *profiling) took(spent time.Duration) {
	rounds := p.machine.took
	timed := rounds[len(rounds)-1]
	row, ok := p.session.Took(timed.latency, timed.device, spent)
	if !ok {
		return
	}
	d := &training.Dataset{Device: p.device, Models: p.session.Models(), Rows: []training.Row{row}}
	p.keeper.keep("storing a measured group", func(s *training.Store) error { return s.Append(d) })
}

func (p *profiling) tookOperators(spent time.Duration) {
	times := make([]time.Duration, len(p.machine.took))
	for i, t := range p.machine.took {
		times[i] = t.latency
	}
	if model, result, ok := p.session.TookOperators(times, spent); ok {
		device := p.device
		p.keeper.keep("storing operator times", func(s *training.Store) error { return s.PutOperators(device, model, result) })
	}
}

// cold tells that the worker of a service was started anew.
func (p *profiling) cold(service models.ServiceID) {
	if i := p.subject(service); p.session != nil && i >= 0 {
		p.session.Cold(i)
	}
}
