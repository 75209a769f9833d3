package training

import "time"

// clock sums up what steps took, by kind of task.
type clock struct {
	spent    time.Duration
	current  time.Duration // of the task being measured
	byKind   [taskKinds]time.Duration
	finished [taskKinds]int
}

func (c *clock) add(spent time.Duration) {
	spent = max(spent, 0)
	c.spent += spent
	c.current += spent
}

func (c *clock) finish(kind taskKind) {
	c.byKind[kind] += c.current
	c.finished[kind]++
	c.current = 0
}

func (c *clock) drop() { c.current = 0 }

// mean returns what a task of this kind takes: until one was measured, as long
// as those of the other kinds.
func (c *clock) mean(kind taskKind) (time.Duration, bool) {
	if n := c.finished[kind]; n > 0 {
		return c.byKind[kind] / time.Duration(n), true
	}
	var sum time.Duration
	n := 0
	for k := range taskKinds {
		sum += c.byKind[k]
		n += c.finished[k]
	}
	if n == 0 {
		return 0, false
	}
	return sum / time.Duration(n), true
}

// left estimates the time of what is planned, and of the checks for drift that
// come with it.
func (s *Session) left() time.Duration {
	planned := s.planned
	if every := s.options.ReferenceEvery; every > 0 {
		planned[taskReference] = (len(s.plan) + every - 1) / every * len(s.drift.groups)
	}
	var left time.Duration
	for kind, n := range planned {
		each, ok := s.clock.mean(taskKind(kind))
		if n > 0 && !ok {
			return 0
		}
		left += time.Duration(n) * each
	}
	if s.options.Budget > 0 {
		left = min(left, max(s.options.Budget-s.clock.spent, 0))
	}
	return left
}
