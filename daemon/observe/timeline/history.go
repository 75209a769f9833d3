package timeline

import (
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap"
)

const (
	// historyStep is the interval between two points of the history.
	historyStep = 5 * time.Second

	// historyPoints is the number of points that are kept: twenty minutes.
	historyPoints = 240

	// recentPoints is how many completed points before the current one count as "now" in a
	// rate.
	recentPoints = 2
)

// reasonLate is the reason under which the history counts queries that missed their
// deadline but finished. late is its index, after the scheduler's own reasons.
const (
	reasonLate = "late"
	late       = overlap.ReasonCount
)

// steps holds the latest points of a series. Step n since the start is at n %
// historyPoints. numbers says which step an entry belongs to, so that steps without events
// need not be cleared.
type steps[P any] struct {
	points  [historyPoints]P
	numbers [historyPoints]int64
}

// at returns the point of a time, cleared if it is the first access in its step.
func (s *steps[P]) at(t time.Duration) *P {
	number := int64(max(t, 0) / historyStep)
	i := number % historyPoints
	if s.numbers[i] != number {
		var empty P
		s.points[i], s.numbers[i] = empty, number
	}
	return &s.points[i]
}

// each yields the points of n steps from first on in which something happened, with their
// offset from first.
func (s *steps[P]) each(first int64, n int, yield func(i int, p *P)) {
	for i := range n {
		if at := (first + int64(i)) % historyPoints; s.numbers[at] == first+int64(i) {
			yield(i, &s.points[at])
		}
	}
}

// point is what happened in one step.
type point struct {
	gain   observe.Gain
	busy   time.Duration
	inTime uint64
	lost   [late + 1]uint64

	turnedAway [len(query.TurnedAwayFor)]uint64
}

// history is the history of a scheduler. A round counts in the step in which it ended.
type history struct {
	steps[point]

	// gain is the sum since the start.
	gain observe.Gain
}

// served is the outcome of a service's queries in one step. slowest is the highest latency
// of the finished ones.
type served struct {
	inTime, lost uint64
	slowest      time.Duration
}

// answered counts a query that was accepted and whose client has not disconnected.
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

// answered counts an accepted query, unless its client has disconnected.
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

// History is what a daemon did in the last twenty minutes. All lists have one value for
// each step, oldest first; the last step is not complete.
type History struct {
	// Epoch is when the daemon started.
	Epoch time.Time     `json:"epoch"`
	Step  time.Duration `json:"step_ns"`

	// First is the number of the first step, which began First times Step after Epoch. Now
	// is the time since Epoch.
	First int64         `json:"first"`
	Now   time.Duration `json:"now_ns"`

	// Overlap and Merge are the device time saved by overlapping and by dynamic batching;
	// negative values are losses.
	Overlap []time.Duration `json:"overlap_ns"`
	Merge   []time.Duration `json:"merge_ns"`

	// Busy is the time of the rounds that ended in the step.
	Busy []time.Duration `json:"busy_ns"`

	// InTime counts queries that met their deadline. Lost counts those that were rejected,
	// dropped, failed or late, by reason; reasons that did not occur are absent.
	InTime []uint64            `json:"in_time"`
	Lost   map[string][]uint64 `json:"lost"`

	Services []serviceHistory `json:"services"`
}

// serviceHistory is the history of one current service. Target is the current target.
type serviceHistory struct {
	Name   string        `json:"name"`
	Target time.Duration `json:"target_ns"`
	InTime []uint64      `json:"in_time"`
	Lost   []uint64      `json:"lost"`

	// Slowest is the highest latency of the finished queries, 0 if there were none.
	Slowest []time.Duration `json:"slowest_ns"`
}

// newHistory converts points to a History that ends now.
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

// lose adds queries that were lost in a step.
func (h *History) lose(reason string, step int, count uint64) {
	if count == 0 {
		return
	}
	if h.Lost[reason] == nil {
		h.Lost[reason] = make([]uint64, len(h.InTime))
	}
	h.Lost[reason][step] += count
}

// recentRate returns the device time saved per second, over the current step and the two before
// it.
func (h *history) recentRate(now time.Duration) (overlap, merge float64) {
	last := int64(now / historyStep)
	first := max(0, last-recentPoints)
	var sum observe.Gain
	h.each(first, int(last-first+1), func(_ int, p *point) { sum.Add(p.gain) })
	// A daemon that has just started has no rate yet, so the divisor is at least one step.
	seconds := max(now-time.Duration(first)*historyStep, historyStep).Seconds()
	return sum.Overlap.Seconds() / seconds, sum.Merge.Seconds() / seconds
}
