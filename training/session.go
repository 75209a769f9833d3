package training

import (
	"github.com/overlapd/overlapd/models"
)

// Session decides what is run next while operator groups are measured. It is a
// pure state machine: whoever drives it runs the step that Next returns and
// tells it what came of it with Took, TookOperators, Failed or Again, exactly
// one of them for each step. It is not safe for concurrent use.
//
// First each model runs alone with each of its batch sizes and sequence
// lengths, then groups are sampled, the reference groups first. Measurements
// that are stored already are not made again.
type Session struct {
	options SessionOptions
	plan    []task // that are not begun
	planned [taskKinds]int
	total   int
	done    int
	skipped int

	current task
	active  bool // current is being measured
	step    Step // given out and not answered
	given   bool
	batch   models.BatchID

	runs      []float64   // microseconds, of the current task
	device    []float64   // microseconds by the device's clock, of those runs that have them
	operators [][]float64 // microseconds by run and operator
	attempts  int

	warm   map[input]bool
	broken map[input]bool
	skips  []Skip

	clock clock
	drift drift
}

// NewSession returns a session at its first step. The rows and operator times
// that are stored for the same device are not measured again; rows of other
// models do no harm. The same options make the same plan, so that a session
// that was interrupted goes on.
func NewSession(o SessionOptions, stored *Dataset, operators map[string][]OperatorTimes) (*Session, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Session{options: o, warm: map[input]bool{}, broken: map[input]bool{}, drift: drift{limit: o.DriftLimit}}
	sampler, err := NewSampler(o.Sampling)
	if err != nil {
		return nil, err
	}
	s.makePlan(sampler, indexRows(o.Subjects, stored), operators)
	return s, nil
}

// Models returns the models that spans and rows name by position.
func (s *Session) Models() []Model {
	list := make([]Model, len(s.options.Subjects))
	for i, subject := range s.options.Subjects {
		list[i] = subject.Model
	}
	return list
}

// Next returns the step to run now, and false when the session is at its end.
// It returns the same step until that is answered.
func (s *Session) Next() (Step, bool) {
	if s.given {
		return s.step, true
	}
	if !s.active && !s.nextTask() {
		return Step{}, false
	}
	s.step, s.given = s.nextStep(), true
	return s.step, true
}

// nextStep warms up what is cold before it measures.
func (s *Session) nextStep() Step {
	for _, span := range s.current.group.Spans {
		if in := inputOf(span); !s.warm[in] {
			step := s.newStep(StepGroup, models.Group{Spans: []models.Span{s.options.Subjects[in.model].whole(in)}})
			step.Warmup = true
			return step
		}
	}
	step := s.newStep(s.current.stepKind(), s.current.group)
	step.Reference = s.current.kind == taskReference
	return step
}

// newStep gives the spans batches of their own, and adds what must run before.
func (s *Session) newStep(kind StepKind, g models.Group) Step {
	step := Step{Kind: kind}
	for _, span := range g.Spans {
		s.batch++
		span.Batch = s.batch
		step.Group.Spans = append(step.Group.Spans, span)
		if span.Start > 0 {
			before := span
			before.Start, before.End = 0, span.Start
			step.Prepare.Spans = append(step.Prepare.Spans, before)
		}
		if span.End < s.options.Subjects[span.Service].Model.Operators {
			step.Paused = append(step.Paused, span)
		}
	}
	return step
}

// Skips returns what could not be measured.
func (s *Session) Skips() []Skip { return s.skips }

// Drift returns what running the reference groups again has shown.
func (s *Session) Drift() Drift { return s.drift.report() }

// Progress returns how far the session is.
func (s *Session) Progress() Progress {
	return Progress{Done: s.done, Total: s.total, Skipped: s.skipped, Spent: s.clock.spent, Left: s.left()}
}
