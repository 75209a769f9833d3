package training

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// LeastRows is how many measured groups it takes to fit a predictor and to test it.
const LeastRows = 80

// taskKind is what a task measures. Tasks of one kind take about as long.
type taskKind int

const (
	taskWhole     taskKind = iota // a model alone, from its first operator to its last
	taskOperators                 // every operator of a model alone
	taskGroup                     // a sampled group
	taskReference                 // a group that was measured before
	taskKinds
)

// task is one measurement: its group is run several times. reference is nil if it is
// no reference group.
type task struct {
	kind      taskKind
	group     models.Group
	reference *reference
}

// makePlan lists everything that is to be measured and is not stored.
func (s *Session) makePlan(sampler *sampler, stored map[string][]float64, operators map[string][]OperatorTimes) {
	for i := range s.options.Subjects {
		subject := &s.options.Subjects[i]
		for _, in := range subject.inputs(i) {
			g := models.Group{Spans: []models.Span{subject.whole(in)}}
			s.add(task{kind: taskWhole, group: g}, stored)
			known := slices.ContainsFunc(operators[subject.Model.Name], func(o OperatorTimes) bool {
				return o.Size == in.size && o.SeqLen == in.seqLen && len(o.Micros) == subject.Model.Operators
			})
			s.put(task{kind: taskOperators, group: g}, known)
		}
	}
	sampled := make([]task, s.options.Groups)
	for i := range sampled {
		sampled[i] = task{kind: taskGroup, group: sampler.Next()}
	}
	s.chooseReferences(sampled)
	for _, first := range []bool{true, false} { // reference groups first
		for _, t := range sampled {
			if (t.reference != nil) == first {
				s.add(t, stored)
			}
		}
	}
	s.drift.due = s.done + s.options.ReferenceEvery
	if s.drift.known() && len(s.plan) > 0 {
		s.drift.due = 0 // the device may have changed since they were stored
	}
}

// add puts a task into the plan unless its row is stored, which it takes.
func (s *Session) add(t task, stored map[string][]float64) {
	key := groupKey(t.group)
	medians := stored[key]
	s.put(t, len(medians) > 0)
	if len(medians) > 0 {
		stored[key] = medians[1:]
		t.reference.remember(medians[0])
	}
}

// put puts a task into the plan unless what it yields is known.
func (s *Session) put(t task, known bool) {
	s.total++
	if known {
		s.done++
		return
	}
	s.plan = append(s.plan, t)
	s.planned[t.kind]++
}

// chooseReferences marks the first groups of different sets of models, those
// of several spans if there are any.
func (s *Session) chooseReferences(sampled []task) {
	seen := map[[MaxSpans]models.ServiceID]bool{}
	for _, least := range []int{2, 1} {
		for i := range sampled {
			t := &sampled[i]
			if len(s.drift.groups) == s.options.References {
				return
			}
			var set [MaxSpans]models.ServiceID
			for k, span := range t.group.Spans {
				set[k] = span.Service + 1
			}
			if len(t.group.Spans) < least || seen[set] || t.reference != nil {
				continue
			}
			seen[set] = true
			t.reference = &reference{group: t.group}
			s.drift.groups = append(s.drift.groups, t.reference)
		}
	}
}

// nextTask makes the next task the current one, and returns false if there is none.
func (s *Session) nextTask() bool {
	for {
		t, ok := s.pop()
		if !ok {
			return false
		}
		s.current, s.active, s.attempts = t, true, 0
		s.runs, s.device, s.operators = s.runs[:0], s.device[:0], s.operators[:0]
		if !slices.ContainsFunc(t.group.Spans, func(span models.Span) bool { return s.broken[inputOf(span)] }) {
			return true
		}
		s.skip()
	}
}

// pop takes the next task out of the plan, or a reference group if it is time
// for one. The last check is made when the plan is empty.
func (s *Session) pop() (task, bool) {
	if t, ok := s.drift.next(s.done, len(s.plan) == 0, s.options.ReferenceEvery); ok || len(s.plan) == 0 {
		return t, ok
	}
	t := s.plan[0]
	s.plan = s.plan[1:]
	s.planned[t.kind]--
	return t, true
}

// finish ends the current task.
func (s *Session) finish() {
	s.active = false
	s.clock.byKind[s.current.kind] += s.clock.current
	s.clock.finished[s.current.kind]++
	s.clock.current = 0
	if s.current.kind != taskReference {
		s.done++
	}
}

// skip gives the current task up.
func (s *Session) skip() {
	s.active = false
	s.clock.current = 0
	if s.current.kind == taskReference {
		s.drift.forget(s.current.reference)
		return
	}
	s.done++
	s.skipped++
}

// sessionOptions describe what a session measures, and how precisely.
type sessionOptions struct {
	sampling

	// Groups is how many are sampled.
	Groups int

	// A group is run MinRepeats to MaxRepeats times that count: until the standard
	// error of the median, relative to it, is Precision.
	MinRepeats int
	MaxRepeats int
	Precision  float64

	// References are how many groups are run again after every ReferenceEvery
	// measurements, to notice a drift of more than DriftLimit percent.
	References     int
	ReferenceEvery int
	DriftLimit     float64
}

// DefaultSessionOptions returns what suits a device that nothing else uses. Models
// are to be added.
func DefaultSessionOptions(groups int) sessionOptions {
	return sessionOptions{
		sampling:       sampling{Spans: 4, SoloShare: defaultSoloShare, Seed: 1},
		Groups:         groups,
		MinRepeats:     3,
		MaxRepeats:     10,
		Precision:      0.03,
		References:     3,
		ReferenceEvery: 50,
		DriftLimit:     10,
	}
}

// Add has a session measure a model with batches of these sizes and, unless it has
// none, sequence lengths. Models are added in the order of their names.
func (o *sessionOptions) Add(m Model, sizes, seqLens []int) {
	o.Subjects = append(o.Subjects, subject{m, sizes, seqLens})
}

// subject is a model that is to be measured, with the batch sizes and sequence lengths
// to measure.
type subject struct {
	Model   Model
	Sizes   []int
	SeqLens []int
}

// input is what a model is run on: it decides about memory and kernels.
type input struct {
	model, size, seqLen int
}

func inputOf(s models.Span) input { return input{int(s.Service), s.Size, s.SeqLen} }

// inputs returns everything that the subject at this position is run on.
func (s *subject) inputs(position int) []input {
	var all []input
	for _, size := range s.Sizes {
		for _, seqLen := range s.seqLens() {
			all = append(all, input{position, size, seqLen})
		}
	}
	return all
}

func (s *subject) seqLens() []int {
	if len(s.SeqLens) == 0 {
		return []int{0}
	}
	return s.SeqLens
}

// whole returns the span of all operators.
func (s *subject) whole(in input) models.Span {
	return models.Span{Service: models.ServiceID(in.model), End: s.Model.Operators, Size: in.size, SeqLen: in.seqLen}
}

// indexRows returns the medians of each group, by groupKey, whose models are all among
// the subjects.
func indexRows(subjects []subject, d *Dataset) map[string][]float64 {
	stored := map[string][]float64{}
	if d == nil {
		return stored
	}
	position := map[Model]models.ServiceID{}
	for i, s := range subjects {
		position[s.Model] = models.ServiceID(i)
	}
rows:
	for _, row := range d.Rows {
		spans := slices.Clone(row.Group.Spans)
		for i := range spans {
			p, ok := position[d.Models[spans[i].Service]]
			if !ok {
				continue rows
			}
			spans[i].Service = p
		}
		key := groupKey(models.Group{Spans: spans})
		stored[key] = append(stored[key], row.Median)
	}
	return stored
}

// groupKey names a group, which has no batches.
func groupKey(g models.Group) string { return fmt.Sprint(g.Spans) }
