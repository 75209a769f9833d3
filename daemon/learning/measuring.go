package learning

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// Timing is how long the group of a round took: its latency as predictors see it,
// and by the device's own clock, 0 if that has none.
type Timing struct{ Latency, Device time.Duration }

// measuring is a session that measures groups of the daemon's services, and the
// step of it that was given out last.
type measuring struct {
	session  *training.Session // nil if nothing is to be measured
	device   string
	services []models.ServiceID // by the position of their subject in the session

	step    training.Step
	began   time.Duration
	running bool // the step was given out and is not finished

	stepGeneration int // the choice of the Learner for which the step was begun
}

// rounds returns the rounds of a step, in terms of services.
func (m *measuring) rounds(step *training.Step) []models.Group {
	var rounds []models.Group
	if len(step.Prepare.Spans) > 0 {
		rounds = append(rounds, m.served(step.Prepare))
	}
	if step.Kind != training.StepOperators {
		return append(rounds, m.served(step.Group))
	}
	whole := m.served(step.Group).Spans[0]
	for i := range whole.End {
		one := whole
		one.Start, one.End = i, i+1
		rounds = append(rounds, models.Group{Spans: []models.Span{one}})
	}
	return rounds
}

// served returns a group of the session with services in the place of subjects.
func (m *measuring) served(g models.Group) models.Group {
	spans := make([]models.Span, len(g.Spans))
	for i, s := range g.Spans {
		s.Service = m.services[s.Service]
		spans[i] = s
	}
	return models.Group{Spans: spans}
}

// subject returns the position of a service in the session, or -1.
func (m *measuring) subject(service models.ServiceID) models.ServiceID {
	return models.ServiceID(slices.Index(m.services, service))
}
