package timeline

import (
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap"
)

const (
	// historyStep is the time between two points of a history.
	historyStep = 5 * time.Second

	// historyPoints is how many points are remembered: twenty minutes.
	historyPoints = 240

	// recentPoints is how many points before the one that is not over yet count as
	// now where a rate is asked for.
	recentPoints = 2
)

// reasonLate is the name under which a history counts queries that finished after
// their deadline, and late its place beside the scheduler's own reasons.
const (
	reasonLate = "late"
	late       = overlap.ReasonCount
)

// steps holds the latest points of something: that of step n, counted since the daemon
// started, is in n % historyPoints, unless nothing happened in it.
type steps[P any] struct {
	points  [historyPoints]P
	numbers [historyPoints]int64
}

// at returns the point of a time, which is empty if it is the first to be seen of it.
func (s *steps[P]) at(t time.Duration) *P {
	number := int64(max(t, 0) / historyStep)
	i := number % historyPoints
	if s.numbers[i] != number {
		var empty P
		s.points[i], s.numbers[i] = empty, number
	}
	return &s.points[i]
}

// each yields the points from a step on at which something may have happened, with how
// many steps later they are.
func (s *steps[P]) each(first int64, n int, yield func(i int, p *P)) {
	for i := range n {
		if at := (first + int64(i)) % historyPoints; s.numbers[at] == first+int64(i) {
			yield(i, &s.points[at])
		}
	}
}

// point is what happened in one step of a history.
type point struct {
	gain   observe.Gain
	busy   time.Duration
	inTime uint64
	lost   [late + 1]uint64

	turnedAway [len(query.TurnedAwayFor)]uint64
}

// history is what a scheduler did. A round counts in the step in which it ended.
type history struct {
	steps[point]
	gain observe.Gain // since the start
}

// served is what became in one step of the queries of a service.
type served struct {
	inTime, lost uint64
	slowest      time.Duration // of those that finished
}

// answered counts a query that was not refused and whose client has not left.
func (s *served) answered(a *overlap.Answer, took time.Duration, inTime bool) {
	if inTime {
		s.inTime++
	} else {
		s.lost++
	}
	if a.Result == overlap.Finished {
		s.slowest = max(s.slowest, took)
	}
}

// ended counts a round.
func (h *history) ended(e *observe.Event) {
	p := h.at(e.At)
	p.busy += e.Outcome.Took
	p.gain.Add(e.Gain)
	h.gain.Add(e.Gain)
}

// answered counts a query that was not refused, unless its client has left.
func (h *history) answered(a *overlap.Answer, inTime bool) {
	switch p := h.at(a.At); {
	case a.Result == overlap.Cancelled:
	case inTime:
		p.inTime++
	case a.Result == overlap.Finished:
		p.lost[late]++
	default:
		p.lost[a.Reason]++
	}
}

// History is what a daemon has done in the last twenty minutes. All lists have a
// value for each step, the oldest first; the last step is not over yet.
type History struct {
	Epoch time.Time     `json:"epoch"` // when the daemon started
	Step  time.Duration `json:"step_ns"`
	First int64         `json:"first"`  // the number of the first step: it began First times Step after the epoch
	Now   time.Duration `json:"now_ns"` // since the epoch

	Overlap []time.Duration     `json:"overlap_ns"` // device time saved by overlapping, negative where it was lost
	Merge   []time.Duration     `json:"merge_ns"`   // by merging
	Busy    []time.Duration     `json:"busy_ns"`    // that the rounds took which ended in the step
	InTime  []uint64            `json:"in_time"`    // queries answered before their deadline
	Lost    map[string][]uint64 `json:"lost"`       // queries that were refused, dropped, failed or late, by reason; those reasons only that occur

	Services []serviceHistory `json:"services"`
}

// serviceHistory is what became of the queries of a service that is there.
type serviceHistory struct {
	Name    string          `json:"name"`
	Target  time.Duration   `json:"target_ns"` // now
	InTime  []uint64        `json:"in_time"`
	Lost    []uint64        `json:"lost"`
	Slowest []time.Duration `json:"slowest_ns"` // from arrival to answer, of the queries that finished; 0 if none did
}

// newHistory returns what has happened up to a time.
func newHistory(from *steps[point], now time.Duration) *History {
	last := int64(now / historyStep)
	h := &History{Step: historyStep, First: max(0, last-historyPoints+1), Now: now, Lost: map[string][]uint64{}, Services: []serviceHistory{}}
	n := int(last - h.First + 1)
	h.Overlap, h.Merge, h.Busy, h.InTime = make([]time.Duration, n), make([]time.Duration, n), make([]time.Duration, n), make([]uint64, n)
	from.each(h.First, n, func(i int, p *point) {
		h.Overlap[i], h.Merge[i], h.Busy[i], h.InTime[i] = p.gain.Overlap, p.gain.Merge, p.busy, p.inTime
		for reason, count := range p.lost {
			name := reasonLate
			if reason < int(late) {
				name = overlap.Reason(reason).String()
			}
			h.lose(name, i, count)
		}
		for reason, count := range p.turnedAway {
			h.lose(query.TurnedAwayFor[reason], i, count)
		}
	})
	return h
}

// add adds a service.
func (h *History) add(name string, target time.Duration, from *steps[served]) {
	n := len(h.InTime)
	s := serviceHistory{Name: name, Target: target, InTime: make([]uint64, n), Lost: make([]uint64, n), Slowest: make([]time.Duration, n)}
	from.each(h.First, n, func(i int, p *served) {
		s.InTime[i], s.Lost[i], s.Slowest[i] = p.inTime, p.lost, p.slowest
	})
	h.Services = append(h.Services, s)
}

// lose adds queries that were lost for a reason in a step.
func (h *History) lose(reason string, step int, count uint64) {
	if count == 0 {
		return
	}
	if h.Lost[reason] == nil {
		h.Lost[reason] = make([]uint64, len(h.InTime))
	}
	h.Lost[reason][step] += count
}

// lately returns the device time saved for each second of late: over the step that a
// time is in and the two before it.
func (h *history) lately(now time.Duration) (overlap, merge float64) {
	last := int64(now / historyStep)
	first := max(0, last-recentPoints)
	var sum observe.Gain
	h.each(first, int(last-first+1), func(_ int, p *point) { sum.Add(p.gain) })
	seconds := max(now-time.Duration(first)*historyStep, historyStep).Seconds() // a daemon that has just started has no rate yet
	return sum.Overlap.Seconds() / seconds, sum.Merge.Seconds() / seconds
}
