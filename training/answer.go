package training

import (
	"errors"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/stats"
)

// maxAttempts is how often a measurement may fail before it is given up.
const maxAttempts = 2

// Took answers a StepGroup: the latency of the timed group was took, and device
// by the device's own clock, 0 if it has none; all of the step, with what was
// prepared, spent. It returns the row of a group that has been run often enough.
func (s *Session) Took(took, device, spent time.Duration) (Row, bool) {
	step, ok := s.answer(spent)
	if !ok || step.Kind != StepGroup {
		return Row{}, false
	}
	if step.Warmup {
		s.warm[inputOf(step.Group.Spans[0])] = true
		return Row{}, false
	}
	s.runs = append(s.runs, micros(took))
	if device > 0 {
		s.device = append(s.device, micros(device))
	}
	if !s.enough() {
		return Row{}, false
	}
	row := newRow(s.current.group, s.runs)
	if len(s.device) == len(s.runs) {
		row.Device = stats.Median(s.device)
	}
	s.finish()
	if step.Reference {
		s.drift.compare(s.current.reference, row.Median)
		return Row{}, false
	}
	s.drift.remember(s.current.reference, row.Median)
	return row, true
}

// TookOperators answers a StepOperators with the time of each operator, in the
// engine if that is known apart from sending and waiting. It returns what the
// operators take when they have been run often enough.
func (s *Session) TookOperators(took []time.Duration, spent time.Duration) (Model, OperatorTimes, bool) {
	step, ok := s.answer(spent)
	if !ok || step.Kind != StepOperators || len(took) != s.current.group.Spans[0].End {
		return Model{}, OperatorTimes{}, false
	}
	times := make([]float64, len(took))
	sum := 0.0
	for i, t := range took {
		times[i] = micros(t)
		sum += times[i]
	}
	s.operators = append(s.operators, times)
	s.runs = append(s.runs, sum)
	if !s.enough() {
		return Model{}, OperatorTimes{}, false
	}
	span := s.current.group.Spans[0]
	result := OperatorTimes{Size: span.Size, SeqLen: span.SeqLen, Repeats: len(s.runs), Micros: stats.Medians(s.operators)}
	s.finish()
	return s.options.Subjects[span.Service].Model, result, true
}

// Again answers a step that something disturbed: it is to be run again.
func (s *Session) Again(spent time.Duration) { s.answer(spent) }

// errUnknown stands for a failure without a reason.
var errUnknown = errors.New("no reason given")

// Failed answers a step that could not be run, because of the model at this
// position, or of -1 if that is not known. The measurement is tried once more.
// A model that fails then is not measured on this batch size and sequence
// length any more.
func (s *Session) Failed(model models.ServiceID, err error, spent time.Duration) {
	step, ok := s.answer(spent)
	if !ok {
		return
	}
	if err == nil {
		err = errUnknown
	}
	for _, span := range step.Group.Spans {
		if model < 0 || span.Service == model {
			s.Cold(span.Service)
		}
	}
	if s.attempts++; s.attempts < maxAttempts {
		s.runs, s.device, s.operators = s.runs[:0], s.device[:0], s.operators[:0]
		return
	}
	s.giveUp(step, model, err)
}

// giveUp skips the current task, and whatever else has its faulty input.
func (s *Session) giveUp(step Step, model models.ServiceID, err error) {
	skip := Skip{Group: step.Group, Err: err}
	for _, span := range step.Group.Spans {
		if span.Service == model || len(step.Group.Spans) == 1 {
			skip.Model, skip.Size, skip.SeqLen = s.options.Subjects[span.Service].Model.Name, span.Size, span.SeqLen
			s.broken[inputOf(span)] = true
		}
	}
	s.skips = append(s.skips, skip)
	s.skip()
}

// Cold tells that the worker of a model was started anew: its next runs are
// warm-ups.
func (s *Session) Cold(model models.ServiceID) {
	for in := range s.warm {
		if in.model == int(model) {
			delete(s.warm, in)
		}
	}
}

// answer takes back the step that was given out.
func (s *Session) answer(spent time.Duration) (Step, bool) {
	if !s.given {
		return Step{}, false
	}
	s.given = false
	s.clock.add(spent)
	return s.step, true
}

// enough reports whether the current task has been run often enough.
func (s *Session) enough() bool {
	n := len(s.runs)
	return n >= s.options.MaxRepeats || n >= s.options.MinRepeats && relativeError(s.runs) <= s.options.Precision
}
