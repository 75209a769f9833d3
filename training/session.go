package training

import (
	"maps"
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/stats"
)

// Session decides what is run next while operator groups are measured. It is a
// pure state machine: whoever drives it runs the step that Next returns and
// reports what came of it with Took, TookOperators, Failed or Again, exactly
// one of them for each step. It is not safe for concurrent use.
//
// First each model runs alone with each of its batch sizes and sequence
// lengths, then groups are sampled, the reference groups first. Measurements
// that are stored already are not made again.
type Session struct {
	options sessionOptions

	// plan holds the tasks that are not begun, planned how many there are of each kind.
	plan    []task
	planned [taskKinds]int
	total   int
	done    int
	skipped int

	// current is measured while the session is active. step is given out, and not
	// answered, while given is set.
	current task
	active  bool
	step    Step
	given   bool
	batch   models.BatchID

	// The runs of the current task in microseconds: by the host's clock, by the device's
	// where a run has that, and by run and operator.
	runs      []float64
	device    []float64
	operators [][]float64
	attempts  int

	warm   map[input]bool
	broken map[input]bool
	skips  []skip

	clock clock
	drift drift
}

// NewSession returns a session at its first step. The rows and operator times
// that are stored for the same device are not measured again; rows of other
// models do no harm. The same options make the same plan, so that a session
// that was interrupted goes on.
func NewSession(o sessionOptions, stored *Dataset, operators map[string][]OperatorTimes) *Session {
	s := &Session{options: o, warm: map[input]bool{}, broken: map[input]bool{}, drift: drift{limit: o.DriftLimit}}
	s.makePlan(newSampler(o.sampling), indexRows(o.Subjects, stored), operators)
	return s
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
			step := s.newStep(models.Group{Spans: []models.Span{s.options.Subjects[in.model].whole(in)}})
			step.Warmup = true
			return step
		}
	}
	step := s.newStep(s.current.group)
	step.Operators = s.current.kind == taskOperators
	step.Reference = s.current.kind == taskReference
	return step
}

// newStep gives the spans batches of their own, and adds what must run before.
func (s *Session) newStep(g models.Group) (step Step) {
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

// Progress returns how far the session has come.
func (s *Session) Progress() Progress {
	return Progress{
		Done: s.done, Total: s.total, Skipped: s.skipped, Spent: s.clock.spent, Left: s.left(),
		Skips: s.skips, Drift: s.drift.report(),
	}
}

// maxAttempts is how often a measurement may fail before it is given up.
const maxAttempts = 2

// Took answers a step that times a group: its latency was took, and device
// by the device's own clock, 0 if it has none; all of the step, with what was
// prepared, spent. It returns the row of a group that has been run often enough.
func (s *Session) Took(took, device, spent time.Duration) (Row, bool) {
	step, ok := s.answer(spent)
	if !ok || step.Operators {
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
	s.current.reference.remember(row.Median)
	return row, true
}

// TookOperators answers a step with the time of each operator, in the
// engine if that is known apart from sending and waiting. It returns what the
// operators take when they have been run often enough.
func (s *Session) TookOperators(took []time.Duration, spent time.Duration) (Model, OperatorTimes, bool) {
	step, ok := s.answer(spent)
	if !ok || !step.Operators || len(took) != s.current.group.Spans[0].End {
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

// Failed answers a step that could not be run, because of the model at this
// position, or of -1 if that is not known. The measurement is tried once more.
// A model that fails then is not measured on this batch size and sequence
// length any more.
func (s *Session) Failed(model models.ServiceID, err error, spent time.Duration) {
	step, ok := s.answer(spent)
	if !ok {
		return
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
	given := skip{Group: step.Group, Err: err}
	for _, span := range step.Group.Spans {
		if span.Service == model || len(step.Group.Spans) == 1 {
			given.Model, given.Size, given.SeqLen = s.options.Subjects[span.Service].Model.Name, span.Size, span.SeqLen
			s.broken[inputOf(span)] = true
		}
	}
	s.skips = append(s.skips, given)
	s.skip()
}

// Cold is called when the worker of a model was started anew: its next runs are
// warm-ups.
func (s *Session) Cold(model models.ServiceID) {
	maps.DeleteFunc(s.warm, func(in input, _ bool) bool { return in.model == int(model) })
}

// answer takes back the step that was given out.
func (s *Session) answer(spent time.Duration) (Step, bool) {
	if !s.given {
		return Step{}, false
	}
	s.given = false
	s.clock.spent += max(spent, 0)
	s.clock.current += max(spent, 0)
	return s.step, true
}

// enough reports whether the current task has been run often enough.
func (s *Session) enough() bool {
	n := len(s.runs)
	return n >= s.options.MaxRepeats || n >= s.options.MinRepeats && relativeError(s.runs) <= s.options.Precision
}

// clock sums up what steps took: all, those of the task being measured, and by kind
// those of the tasks that are finished.
type clock struct {
	spent    time.Duration
	current  time.Duration
	byKind   [taskKinds]time.Duration
	finished [taskKinds]int
}

// mean returns what a task of this kind takes: until one was measured, as long as
// those of all kinds.
func (c *clock) mean(kind taskKind) time.Duration {
	sum, n := c.byKind[kind], c.finished[kind]
	if n == 0 {
		for k := range taskKinds {
			sum += c.byKind[k]
			n += c.finished[k]
		}
	}
	return sum / time.Duration(max(n, 1))
}

// left estimates the time of what is planned, and of the checks for drift that
// come with it.
func (s *Session) left() (left time.Duration) {
	planned := s.planned
	if every := s.options.ReferenceEvery; every > 0 {
		planned[taskReference] = (len(s.plan) + every - 1) / every * len(s.drift.groups)
	}
	for kind, n := range planned {
		left += time.Duration(n) * s.clock.mean(taskKind(kind))
	}
	return left
}

// Step is what a session wants to be run next. Its spans name subjects by
// position, as their Service, and batches that no other step has.
type Step struct {
	// Prepare holds the operators before those of Group, for the batches that
	// do not start in Group. If it has spans, it is run first, as a round that
	// is not timed.
	Prepare models.Group

	// Group is what is timed: as one round or, if Operators is set, each operator of
	// its only span, which is all of a model, as a round of its own.
	Group     models.Group
	Operators bool

	// Paused are the spans of Group whose batches are not at their end then.
	// They are to be released. After a failure, all batches of the step are.
	Paused []models.Span

	// Warmup is set if the time does not count: it is the first run of a model
	// on inputs of this size.
	Warmup bool

	// Reference is set if the group was measured before and is run again to
	// notice drift.
	Reference bool
}

// OperatorTimes holds what each operator of a model takes alone: medians in
// microseconds.
type OperatorTimes struct {
	Size    int       `json:"size"`
	SeqLen  int       `json:"seq_len"`
	Repeats int       `json:"repeats"`
	Micros  []float64 `json:"micros"`
}

// Progress describes how far a session has come.
type Progress struct {
	// Done of the Total measurements of the plan are finished, were stored before or,
	// as many as Skipped, are given up.
	Done    int
	Total   int
	Skipped int

	// Spent went into steps of this session. Left is estimated from the steps up to
	// now, and 0 before the first.
	Spent time.Duration
	Left  time.Duration

	Skips []skip
	Drift driftReport
}

// skip is a batch that could not be measured: in which group it failed, and why. Its
// model is "" if it is not known which of the group is at fault.
type skip struct {
	Model  string
	Size   int
	SeqLen int
	Group  models.Group
	Err    error
}

// driftReport holds how much slower or faster the device became during a session, as
// the reference groups that were run again have shown. Exceeded is set if the worst
// change is beyond the limit.
type driftReport struct {
	Checks   []driftCheck
	Worst    driftCheck
	Exceeded bool
}

// Add takes in what was found on another device.
func (d *driftReport) Add(o driftReport) {
	d.Checks = append(d.Checks, o.Checks...)
	if math.Abs(o.Worst.Percent) > math.Abs(d.Worst.Percent) {
		d.Worst = o.Worst
	}
	d.Exceeded = d.Exceeded || o.Exceeded
}

// driftCheck is one comparison with the first times of the reference groups, when
// After measurements were finished: the median change of the times over the groups,
// above 0 if they became slower, to a tenth.
type driftCheck struct {
	After   int
	Percent float64
}

// micros returns a time in microseconds, kept within what a row may hold.
func micros(t time.Duration) float64 {
	return min(max(float64(t)/float64(time.Microsecond), 1e-3), MaxMicros)
}

// newRow returns the row of a group from the microseconds of its runs.
func newRow(g models.Group, runs []float64) Row {
	return Row{Group: g, Repeats: len(runs), Median: stats.Median(runs), Mean: stats.Mean(runs), Std: stats.Deviation(runs)}
}

// relativeError estimates the standard error of the median of some runs,
// relative to it. It goes by the median distance from the median, so that one
// hiccup does not ask for more runs.
func relativeError(runs []float64) float64 {
	median := stats.Median(runs)
	distances := make([]float64, len(runs))
	for i, v := range runs {
		distances[i] = math.Abs(v - median)
	}
	const (
		sigma    = 1.4826 // of a normal distribution, in median distances
		ofMedian = 1.2533 // standard error of its median, in those of its mean
	)
	return ofMedian * sigma * stats.Median(distances) / math.Sqrt(float64(len(runs))) / median
}
