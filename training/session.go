package training

import (
	"maps"
	"math"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
)

// Session plans the measurement of operator groups. It is a pure state machine. The caller runs
// the step that Next returns, and reports its outcome with exactly one of Took, TookOperators,
// Failed or Again. A Session is not safe for concurrent use.
//
// Each model first runs alone with all its batch sizes and sequence lengths. Sampled groups follow,
// beginning with the reference groups. Stored measurements are not repeated.
type Session struct {
	options sessionOptions

	// plan holds the tasks that have not begun, and planned their number by kind.
	plan    []task
	planned [taskKinds]int
	total   int
	done    int
	skipped int

	// current is the task being measured while active is set. step is the current step while given
	// is set, which means that it has no outcome yet.
	current task
	active  bool
	step    Step
	given   bool
	batch   models.BatchID

	// The runs of the current task in microseconds: runs by the host's clock, device by the
	// device's own clock if it has one, and operators by run and operator.
	runs      []float64
	device    []float64
	operators [][]float64
	attempts  int

	// warm holds the inputs that have run since their worker started. broken holds those that
	// have failed too often.
	warm   map[input]bool
	broken map[input]bool
	skips  []skip

	clock clock
	drift drift
}

// NewSession returns a new session. It does not repeat stored rows and operator times of the same
// device, and ignores stored rows of other models. Equal options give equal plans, so that an
// interrupted session can be resumed.
func NewSession(o sessionOptions, stored *Dataset, operators map[string][]OperatorTimes) *Session {
	s := &Session{options: o, warm: map[input]bool{}, broken: map[input]bool{}, drift: drift{limit: o.DriftLimit}}
	s.makePlan(newSampler(o.sampling), indexRows(o.Subjects, stored), operators)
	return s
}

// Models returns the models to which spans and rows refer by index.
func (s *Session) Models() []Model {
	list := make([]Model, len(s.options.Subjects))
	for i, subject := range s.options.Subjects {
		list[i] = subject.Model
	}
	return list
}

// Next returns the step to run, or false at the end of the session. It returns the same step
// until its outcome is reported.
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

// nextStep returns a warm-up for a cold input of the current task, or else the measurement.
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

// newStep returns a step for a group. It assigns new batches to the spans, and adds the
// operators that must run before them.
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

// maxAttempts is the number of attempts at a measurement before it is abandoned.
const maxAttempts = 2

// Took reports the time of a group: took is its latency, device its time by the device's own
// clock or 0, and spent the time of the whole step including its preparation. It returns the
// row of the group once it was run often enough.
func (s *Session) Took(took, device, spent time.Duration) (Row, bool) {
	// An outcome of the wrong kind is dropped, and Next returns the step again.
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
	// A row has a device time only if every run had one.
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

// TookOperators reports the time of each operator, if possible in the engine and without
// communication. It returns the operator times of the model once they were run often enough.
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

// Again reports that a step was disturbed and must be repeated.
func (s *Session) Again(spent time.Duration) { s.answer(spent) }

// Failed reports that a step could not be run because of the given model, or -1 if the model is
// unknown. The measurement is tried once more. If that fails too, the model is no longer
// measured with this batch size and sequence length.
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
		// A failure may have restarted the worker, so earlier runs are not comparable.
		s.runs, s.device, s.operators = s.runs[:0], s.device[:0], s.operators[:0]
		return
	}
	s.giveUp(step, model, err)
}

// giveUp abandons the current task, and all others with the input that failed.
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

// Cold reports that the worker of a model has restarted, so that its inputs must be warmed up
// again.
func (s *Session) Cold(model models.ServiceID) {
	maps.DeleteFunc(s.warm, func(in input, _ bool) bool { return in.model == int(model) })
}

// answer ends the current step and returns it. It returns false if there is none.
func (s *Session) answer(spent time.Duration) (Step, bool) {
	if !s.given {
		return Step{}, false
	}
	s.given = false
	s.clock.spent += max(spent, 0)
	s.clock.current += max(spent, 0)
	return s.step, true
}

// enough reports whether the current task was run often enough.
func (s *Session) enough() bool {
	n := len(s.runs)
	return n >= s.options.MaxRepeats || n >= s.options.MinRepeats && relativeError(s.runs) <= s.options.Precision
}

// clock adds up the time of steps: of all steps, of the current task, and of finished tasks by
// kind.
type clock struct {
	spent    time.Duration
	current  time.Duration
	byKind   [taskKinds]time.Duration
	finished [taskKinds]int
}

// mean returns the mean time of a task of a kind. Before one has finished, it is the mean over
// all kinds.
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

// left estimates the remaining time of the planned tasks and the drift checks between them.
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

// Step is the next run that a session needs. Its spans refer to subjects by index, as their
// Service, and have batches that no other step uses.
type Step struct {
	// Prepare holds the operators before those of Group, for the batches that do not start in
	// Group. If it has spans, it must run first, as a round that is not timed.
	Prepare models.Group

	// Group is what is timed, as one round. If Operators is set, Group has one span, a whole model,
	// and each of its operators is timed as a round of its own.
	Group     models.Group
	Operators bool

	// Paused holds the spans of Group whose batches do not complete in it. These batches must be
	// released afterwards. After a failure, all batches of the step must be released.
	Paused []models.Span

	// Warmup is set if the time does not count, because it is the first run of a model with this
	// input.
	Warmup bool

	// Reference is set if the group was measured before and is repeated to detect drift.
	Reference bool
}

// OperatorTimes holds the isolated latency of each operator of a model, as medians in microseconds.
type OperatorTimes struct {
	Size    int       `json:"size"`
	SeqLen  int       `json:"seq_len"`
	Repeats int       `json:"repeats"`
	Micros  []float64 `json:"micros"`
}

// Progress describes how far a session has come.
type Progress struct {
	// Done counts the measurements of the plan that are finished or were stored before, and those
	// that were abandoned, which are Skipped.
	Done    int
	Total   int
	Skipped int

	// Spent is the time of the steps of this session. Left is estimated from them, and 0 before the
	// first.
	Spent time.Duration
	Left  time.Duration

	Skips []skip
	Drift driftReport
}

// skip describes a batch that could not be measured, the group in which it failed, and the
// error. Model is "" if it is not known which model of the group failed.
type skip struct {
	Model  string
	Size   int
	SeqLen int
	Group  models.Group
	Err    error
}

// driftReport describes how the speed of the device changed during a session, according to the
// reference groups. Exceeded is set if the worst change is beyond the limit.
type driftReport struct {
	Checks   []driftCheck
	Worst    driftCheck
	Exceeded bool
}

// Add merges the report of another device.
func (d *driftReport) Add(o driftReport) {
	d.Checks = append(d.Checks, o.Checks...)
	if math.Abs(o.Worst.Percent) > math.Abs(d.Worst.Percent) {
		d.Worst = o.Worst
	}
	d.Exceeded = d.Exceeded || o.Exceeded
}

// driftCheck is one comparison with the baselines of the reference groups, made after After
// measurements. Percent is the median change over the groups, rounded to a tenth; it is
// positive if they became slower.
type driftCheck struct {
	After   int
	Percent float64
}

// micros converts a time to microseconds, within the limits of a row.
func micros(t time.Duration) float64 {
	return min(max(float64(t)/float64(time.Microsecond), 1e-3), MaxMicros)
}

// newRow returns the row of a group from its runs in microseconds.
func newRow(g models.Group, runs []float64) Row {
	return Row{Group: g, Repeats: len(runs), Median: stats.Median(runs), Mean: stats.Mean(runs), Std: stats.Deviation(runs)}
}

// relativeError estimates the standard error of the median of some runs, relative to the
// median. It uses the median absolute deviation, so that one disturbed run does not cause more
// repeats.
func relativeError(runs []float64) float64 {
	median := stats.Median(runs)
	distances := make([]float64, len(runs))
	for i, v := range runs {
		distances[i] = math.Abs(v - median)
	}
	const (
		// sigma converts a median absolute deviation to a standard deviation, for a normal
		// distribution.
		sigma = 1.4826
		// ofMedian is the ratio of the standard error of the median to that of the mean.
		ofMedian = 1.2533
	)
	return ofMedian * sigma * stats.Median(distances) / math.Sqrt(float64(len(runs))) / median
}
