package training

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// LeastRows is the number of measured groups needed to fit a predictor and to test it.
const LeastRows = 80

// taskKind is the kind of measurement. Tasks of one kind take about equally long.
type taskKind int

const (
	// taskWhole runs a model alone, from its first operator to its last.
	taskWhole taskKind = iota
	// taskOperators runs every operator of a model alone.
	taskOperators
	// taskGroup runs a sampled group.
	taskGroup
	// taskReference repeats a group to detect drift.
	taskReference
	taskKinds
)

// task is one measurement, a group that is run several times. reference is nil unless the group
// is a reference for drift.
type task struct {
	kind      taskKind
	group     models.Group
	reference *reference
}

// makePlan plans all measurements of the session that are not stored yet.
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
	// Reference groups come first, so that drift can be checked early.
	for _, first := range []bool{true, false} {
		for _, t := range sampled {
			if (t.reference != nil) == first {
				s.add(t, stored)
			}
		}
	}
	s.drift.due = s.done + s.options.ReferenceEvery
	if s.drift.known() && len(s.plan) > 0 {
		// The device may have changed since the references were stored, so check now.
		s.drift.due = 0
	}
}

// add plans a task unless a stored row can serve as its result. A row serves only one task.
func (s *Session) add(t task, stored map[string][]float64) {
	key := groupKey(t.group)
	medians := stored[key]
	s.put(t, len(medians) > 0)
	if len(medians) > 0 {
		stored[key] = medians[1:]
		t.reference.remember(medians[0])
	}
}

// put adds a task to the plan unless its result is known.
func (s *Session) put(t task, known bool) {
	s.total++
	if known {
		s.done++
		return
	}
	s.plan = append(s.plan, t)
	s.planned[t.kind]++
}

// chooseReferences selects the first groups with different sets of models as references. It prefers
// groups of several spans.
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
			// The second pass, with least 1, only fills up what the first has left.
			if len(t.group.Spans) < least || seen[set] || t.reference != nil {
				continue
			}
			seen[set] = true
			t.reference = &reference{group: t.group}
			s.drift.groups = append(s.drift.groups, t.reference)
		}
	}
}

// nextTask starts the next task, and returns false if there is none. It skips tasks with an
// input that has failed before.
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

// pop removes the next task from the plan, or returns a reference group if a check is due. The
// last check comes when the plan is empty.
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

// skip abandons the current task.
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

// sessionOptions say what a session measures, and how precisely.
type sessionOptions struct {
	sampling

	// Groups is the number of sampled groups.
	Groups int

	// A task is repeated until the standard error of its median, relative to the median, is at
	// most Precision. It takes at least MinRepeats and at most MaxRepeats runs.
	MinRepeats int
	MaxRepeats int
	Precision  float64

	// References is the number of reference groups. They are repeated after every ReferenceEvery
	// measurements to detect a drift of more than DriftLimit percent.
	References     int
	ReferenceEvery int
	DriftLimit     float64
}

// DefaultSessionOptions returns options for a device that nothing else uses. Models must be
// added with Add.
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

// Add makes a session measure a model with these batch sizes and sequence lengths. seqLens is
// empty for a model without any. Models must be added in the order of their names.
func (o *sessionOptions) Add(m Model, sizes, seqLens []int) {
	o.Subjects = append(o.Subjects, subject{m, sizes, seqLens})
}

// subject is a model to be measured, with its batch sizes and sequence lengths.
type subject struct {
	Model   Model
	Sizes   []int
	SeqLens []int
}

// input is a shape of a model's input. Memory and kernels depend on it, so each must be warmed up.
type input struct {
	model, size, seqLen int
}

func inputOf(s models.Span) input { return input{int(s.Service), s.Size, s.SeqLen} }

// inputs returns all inputs of the subject at a position.
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

// indexRows returns the stored medians by groupKey, for groups whose models are all subjects.
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

// groupKey identifies a group by its spans, which have no batch IDs here.
func groupKey(g models.Group) string { return fmt.Sprint(g.Spans) }
