package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// What is behind the doors, one by one, for tests outside this package that measure each part
// or decide without looking at what has ended.

func (s *Scheduler) Arrive(now time.Duration, q models.Query) error { return s.arrive(now, q) }

func (s *Scheduler) Cancel(now time.Duration, id models.QueryID) { s.cancel(now, id) }

func (s *Scheduler) Next(now time.Duration) (Round, bool) { return s.next(now) }

func (s *Scheduler) Finish(now time.Duration, o models.Outcome) error { return s.finish(now, o) }

func (s *Scheduler) Wake() (time.Duration, bool) { return s.backlog.wake() }

func (s *Scheduler) Answers() []Answer { return s.backlog.answers.take() }

func (s *Scheduler) Released() []Held { return s.backlog.released.take() }
