package training

import (
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/stats"
)

// What a step times: Step.Kind.
const (
	// StepGroup times one round.
	StepGroup = iota

	// StepOperators times every operator of one batch, in rounds of one
	// operator each.
	StepOperators
)

// Step is what a session wants to be run next. Its spans name subjects by
// position, as their Service, and batches that no other step has.
type Step struct {
	Kind int

	// Prepare holds the operators before those of Group, for the batches that
	// do not start in Group. If it has spans, it is run first, as a round that
	// is not timed.
	Prepare models.Group

	// Group is what is timed: as one round if the step is a StepGroup. A
	// StepOperators has one span here, of the whole model; operator i is the
	// round of [i, i+1).
	Group models.Group

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

// OperatorTimes is what the operators of a model take alone.
type OperatorTimes struct {
	Size    int       `json:"size"`
	SeqLen  int       `json:"seq_len"`
	Repeats int       `json:"repeats"`
	Micros  []float64 `json:"micros"` // by operator, medians
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

// driftCheck is one comparison with the first times of the reference groups, when
// After measurements were finished: the median change of the times over the groups,
// above 0 if they became slower.
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
