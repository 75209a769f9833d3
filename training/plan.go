package training

import (
	"fmt"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// taskKind is what a task measures. Tasks of one kind take about as long.
type taskKind int

const (
	taskWhole     taskKind = iota // a model alone, from its first operator to its last
	taskOperators                 // every operator of a model alone
	taskGroup                     // a sampled group
	taskReference                 // a group that was measured before
	taskKinds
)

// task is one measurement: its group is run several times.
type task struct {
	kind      taskKind
	group     models.Group
	reference int // position among the reference groups, -1 if it is none
}

func (t task) stepKind() StepKind {
	if t.kind == taskOperators {
		return StepOperators
	}
	return StepGroup
}

// makePlan lists everything that is to be measured and is not stored.
func (s *Session) makePlan(sampler *Sampler, stored storedRows, operators map[string][]OperatorTimes) {
	for i := range s.options.Subjects {
		subject := &s.options.Subjects[i]
		for _, in := range subject.inputs(i) {
			g := models.Group{Spans: []models.Span{subject.whole(in)}}
			s.add(task{kind: taskWhole, group: g, reference: -1}, stored)
			if s.options.Operators {
				s.addOperators(task{kind: taskOperators, group: g, reference: -1}, operators[subject.Model.Name])
			}
		}
	}
	sampled := make([]task, s.options.Groups)
	for i := range sampled {
		sampled[i] = task{kind: taskGroup, group: sampler.Next(), reference: -1}
	}
	s.chooseReferences(sampled)
	for _, wanted := range []bool{true, false} { // reference groups first
		for _, t := range sampled {
			if (t.reference >= 0) == wanted {
				s.add(t, stored)
			}
		}
	}
	s.drift.due = s.done + s.options.ReferenceEvery
	if s.drift.known() && len(s.plan) > 0 {
		s.drift.due = 0 // the device may have changed since they were stored
	}
}

// add puts a task into the plan unless its row is stored.
func (s *Session) add(t task, stored storedRows) {
	s.total++
	if median, ok := stored.take(t.group); ok {
		s.done++
		s.drift.remember(t.reference, median)
		return
	}
	s.put(t)
}

func (s *Session) addOperators(t task, stored []OperatorTimes) {
	s.total++
	span := t.group.Spans[0]
	for _, o := range stored {
		if o.Size == span.Size && o.SeqLen == span.SeqLen && len(o.Micros) == span.End {
			s.done++
			return
		}
	}
	s.put(t)
}

func (s *Session) put(t task) {
	s.plan = append(s.plan, t)
	s.planned[t.kind]++
}

// chooseReferences marks the first groups of different sets of models, those
// of several spans if there are any.
func (s *Session) chooseReferences(sampled []task) {
	seen := map[string]bool{}
	for _, least := range []int{2, 1} {
		for i := range sampled {
			t := &sampled[i]
			if len(s.drift.groups) == s.options.References {
				return
			}
			var set strings.Builder
			for _, span := range t.group.Spans {
				fmt.Fprintf(&set, "%d|", span.Service)
			}
			if len(t.group.Spans) < least || seen[set.String()] || t.reference >= 0 {
				continue
			}
			seen[set.String()] = true
			t.reference = s.drift.add(t.group)
		}
	}
}

// nextTask makes the next task the current one, and returns false if there is
// none or no time for it.
func (s *Session) nextTask() bool {
	if s.options.Budget > 0 && s.clock.spent >= s.options.Budget {
		return false
	}
	for {
		t, ok := s.pop()
		if !ok {
			return false
		}
		s.current, s.active, s.attempts = t, true, 0
		s.runs, s.device, s.operators = s.runs[:0], s.device[:0], s.operators[:0]
		if !s.isBroken(t.group) {
			return true
		}
		s.skip()
	}
}

// pop takes the next task out of the plan, or a reference group if it is time
// for one. The last check is made when the plan is empty.
func (s *Session) pop() (task, bool) {
	if t, ok := s.drift.next(); ok {
		return t, true
	}
	if s.drift.begin(s.done, len(s.plan) == 0, s.options.ReferenceEvery) {
		return s.drift.next()
	}
	if len(s.plan) == 0 {
		return task{}, false
	}
	t := s.plan[0]
	s.plan = s.plan[1:]
	s.planned[t.kind]--
	return t, true
}

func (s *Session) isBroken(g models.Group) bool {
	for _, span := range g.Spans {
		if s.broken[inputOf(span)] {
			return true
		}
	}
	return false
}

// finish ends the current task.
func (s *Session) finish() {
	s.active = false
	s.clock.finish(s.current.kind)
	if s.current.kind != taskReference {
		s.done++
	}
}

// skip gives the current task up.
func (s *Session) skip() {
	s.active = false
	s.clock.drop()
	if s.current.kind == taskReference {
		s.drift.forget(s.current.reference)
		return
	}
	s.done++
	s.skipped++
}
