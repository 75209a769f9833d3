package learning

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// Result is what became of a step.
type Result struct {
	Took    []Timing         // of its rounds, in their order
	Err     error            // why the step failed, nil if it did not; ErrDisturbed to run it again
	Culprit models.ServiceID // whose span failed, -1 if it was not just one
}

// Timing is how long the group of a round took: its latency as predictors see it,
// and by the device's own clock, 0 if that has none.
type Timing struct{ Latency, Device time.Duration }

// Arrived is called for every query: measuring waits until none has come for
// Quiet.
func (l *Learner) Arrived(now time.Duration) { l.arrived = now }

// Pending reports whether there is something to measure, now or later.
func (l *Learner) Pending() bool { return l.session != nil && !l.running }

// Services returns the services that are measured. Their workers must be ready
// when Next is called.
func (l *Learner) Services() []models.ServiceID { return l.services }

// QuietAt returns from when on a step may be measured.
func (l *Learner) QuietAt() time.Duration { return l.arrived + Quiet }

// Next returns the rounds of the step to measure now, which are to be run one
// after another. Finished is due for them. There are none when all is measured,
// or the time for it is spent: then fitting begins.
func (l *Learner) Next(now time.Duration) []models.Group {
	if l.session == nil {
		return nil
	}
	if l.options.Limit <= 0 || l.session.Progress().Spent < l.options.Limit {
		if step, ok := l.session.Next(); ok {
			l.step, l.began, l.running, l.stepOf = step, now, true, l.generation
			return l.rounds(&step)
		}
	}
	l.measured()
	return nil
}

// rounds returns the rounds of a step, in terms of services.
func (l *Learner) rounds(step *training.Step) []models.Group {
	var rounds []models.Group
	if len(step.Prepare.Spans) > 0 {
		rounds = append(rounds, l.served(step.Prepare))
	}
	if step.Kind != training.StepOperators {
		return append(rounds, l.served(step.Group))
	}
	whole := l.served(step.Group).Spans[0]
	for i := range whole.End {
		one := whole
		one.Start, one.End = i, i+1
		rounds = append(rounds, models.Group{Spans: []models.Span{one}})
	}
	return rounds
}

// served returns a group of the session with services in the place of subjects.
func (l *Learner) served(g models.Group) models.Group {
	spans := make([]models.Span, len(g.Spans))
	for i, s := range g.Spans {
		s.Service = l.services[s.Service]
		spans[i] = s
	}
	return models.Group{Spans: spans}
}

// subject returns the position of a service in the session, or -1.
func (l *Learner) subject(service models.ServiceID) models.ServiceID {
	for i, id := range l.services {
		if id == service {
			return models.ServiceID(i)
		}
	}
	return -1
}

// Finished takes in how the step went that Next has returned. One that Stop came
// in between of counts for nothing.
func (l *Learner) Finished(now time.Duration, r Result) {
	l.running = false
	spent := now - l.began
	switch {
	case l.session == nil || l.stepOf != l.generation:
	case errors.Is(r.Err, ErrDisturbed):
		l.session.Again(spent)
	case r.Err != nil:
		l.session.Failed(l.subject(r.Culprit), r.Err, spent)
	case l.step.Kind == training.StepOperators:
		l.tookOperators(r.Took, spent)
	default:
		l.tookGroup(r.Took[len(r.Took)-1], spent)
	}
}

func (l *Learner) tookGroup(t Timing, spent time.Duration) {
	row, ok := l.session.Took(t.Latency, t.Device, spent)
	if !ok {
		return
	}
	d := &training.Dataset{Device: l.device, Models: l.session.Models(), Rows: []training.Row{row}}
	l.store("storing a measured group", func(s *training.Store) error { return s.Append(d) })
}

func (l *Learner) tookOperators(took []Timing, spent time.Duration) {
	times := make([]time.Duration, len(took))
	for i, t := range took {
		times[i] = t.Latency
	}
	if model, result, ok := l.session.TookOperators(times, spent); ok {
		device := l.device
		l.store("storing operator times", func(s *training.Store) error { return s.PutOperators(device, model, result) })
	}
}

// Cold is called when the worker of a service was started anew: its first run on
// inputs of a size does not count.
func (l *Learner) Cold(service models.ServiceID) {
	if i := l.subject(service); l.session != nil && i >= 0 {
		l.session.Cold(i)
	}
}

// measured ends the session: nothing is left to measure, or no time.
func (l *Learner) measured() {
	p := l.session.Progress()
	l.progress = p
	list := l.session.Models()
	l.session = nil
	if !l.offline { // else they are reported
		l.work.Measured = p
	}
	reason := fmt.Sprintf("%d of %d measurements are made", p.Done-p.Skipped, p.Total)
	if p.Skipped > 0 {
		reason += fmt.Sprintf(", %d cannot be", p.Skipped)
	}
	if p.Done < p.Total {
		reason += fmt.Sprintf(", and the time for them, %v, is spent", l.options.Limit)
	}
	if !l.options.CanFit {
		l.enter(Solo, reason+"; make a predictor of them with overlapd train")
		return
	}
	l.enter(Training, reason)
	l.work.Read = &Read{generation: l.generation, device: l.device, models: list}
}
