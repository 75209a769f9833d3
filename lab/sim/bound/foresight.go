package bound

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
)

// Limits of [Foresee].
const (
	// MaxForeseen limits the queries, because a set of queries is a word of 64 bits.
	MaxForeseen = 64

	// maxTogether limits the services.
	maxTogether = 4

	// maxWidth is how many states of one time slot are continued, the most promising first.
	// The number of slots is the time of the last deadline over the latency of the shortest
	// batch, so maxWidth limits the states in all.
	maxWidth = 256

	// maxCompared is the number of earlier states, the most recent ones, with which a state
	// is compared.
	maxCompared = 4096
)

// foresight describes the best schedule of whole models that knows all queries in advance.
// It answers InTime queries in time, and no other schedule of this kind answers more than
// AtMost. If the two are equal, the search was exact.
//
// Such a schedule is a sequence of rounds on one device. A round is a group of batches of
// different services, none of them cut. It takes the median latency of the group, and all
// of its batches end with it. A batch consists of queries of one service and one sequence
// length that have arrived, and it is at most as large as the service's MaxBatch. A query
// that would be late is not run.
//
// It therefore shows what knowledge of the future is worth to a scheduler that does
// not cut models. A scheduler that cuts models may do slightly better, but none does better
// than [Of].
type foresight struct {
	InTime int `json:"in_time"`
	AtMost int `json:"at_most"`

	// States is the number of states from which the search continued.
	States int `json:"states"`

	last *state
}

// Foresee finds the best schedule of whole models for up to MaxForeseen queries of up to
// four services on one device. Its error wraps [ErrTooMany] if the scenario exceeds that.
//
// Foresee is a branch and bound search over the ends of rounds, in the order of time. It
// assumes that a round with fewer queries does not take longer. It therefore considers only
// schedules with these properties: a round starts when the previous one ends or when one of
// its queries arrives; the device does not wait as long as another batch could run in the
// meantime; and queries of one shape run in the order of arrival, except for those that
// would be late.
func Foresee(sc sim.Scenario) (*foresight, error) {
	queries, err := sc.Submissions()
	switch {
	case err != nil:
		return nil, err
	case len(queries) > MaxForeseen || len(sc.Services) > maxTogether || sc.Devices > 1:
		return nil, fmt.Errorf("%w: %d queries of %d services on %d devices, and foresight handles at most %d of %d services on one device; give fewer",
			ErrTooMany, len(queries), len(sc.Services), max(sc.Devices, 1), MaxForeseen, maxTogether)
	}
	return newSearch(&sc, queries).widen(maxWidth), nil
}

// state is the result of a schedule at the end of a round, at the time at. left are the
// queries that have not run and could still be in time. done is how many queries have been
// in time, and most how many can be in the end. The last round began at start, with the
// queries members, after the state from.
type state struct {
	at, start     time.Duration
	left, members uint64
	done, most    int
	from          *state
}

// search finds the best schedule. A set of queries is a word in which the bit at a query's
// position is set.
type search struct {
	*costs
	queries []sim.Query

	// jobs holds a job for each query. Its work is the query's share of the best batch.
	jobs []job

	// alone holds the isolated latency of each query.
	alone []time.Duration

	// merges holds for each query those that can be in one batch with it. alike holds those
	// among them that have the same size.
	merges []uint64
	alike  []uint64

	// mine holds the queries of each service.
	mine []uint64

	took map[[maxTogether]models.Span]time.Duration

	// slot is the length of a time slot. No round is shorter.
	slot time.Duration

	slots [][]*state
	seen  []*state

	// cutOff is the largest most of a state that was not continued.
	cutOff int

	found foresight

	// These fields describe the round that choose, fill and round put together.
	now     *state
	start   time.Duration
	waiting uint64
	group   []models.Span
}

// newSearch prepares a search.
func newSearch(sc *sim.Scenario, queries []sim.Query) *search {
	f := &search{
		costs: newCosts(sc), queries: queries, slot: math.MaxInt64, mine: make([]uint64, len(sc.Services)),
		took: map[[maxTogether]models.Span]time.Duration{},
	}
	for i := range queries {
		q := &queries[i]
		share, _ := f.of(q)
		f.jobs = append(f.jobs, job{q.At, q.At + sc.Services[q.Service].Target, share.Seconds()})
		f.alone = append(f.alone, f.takes(f.whole(q.Service, q.Size, q.SeqLen)))
		f.slot = min(f.slot, f.alone[i])
		f.mine[q.Service] |= 1 << i
		f.merges, f.alike = append(f.merges, 0), append(f.alike, 0)
		for j := range queries {
			if o := &queries[j]; o.Service == q.Service && o.SeqLen == q.SeqLen {
				f.merges[i] |= 1 << j
				if o.Size == q.Size {
					f.alike[i] |= 1 << j
				}
			}
		}
	}
	return f
}

// widen runs the search with growing widths, until no state was omitted or the width is the
// maximum.
func (f *search) widen(width int) *foresight {
	for w := min(16, width); ; w = min(8*w, width) {
		f.run(w)
		f.found.AtMost = max(f.cutOff, f.found.InTime)
		if f.found.InTime == f.found.AtMost || w == width {
			return &f.found
		}
	}
}

// run continues from up to width states of each slot. It keeps the best schedule of earlier
// runs, and omits states that cannot improve on it.
func (f *search) run(width int) {
	end, left := time.Duration(0), uint64(0)
	for i := range f.jobs {
		if q := &f.queries[i]; q.Leaves == 0 || q.Leaves >= f.jobs[i].to {
			end, left = max(end, f.jobs[i].to), left|1<<i
		}
	}
	f.cutOff, f.seen, f.slots = 0, nil, make([][]*state, end/f.slot+1)
	f.put(state{left: left})
	for n := range f.slots {
		list := slices.DeleteFunc(f.slots[n], func(s *state) bool { return s.most <= f.found.InTime })
		slices.SortFunc(list, func(a, b *state) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.done, a.done)) })
		list = slices.DeleteFunc(list, f.hopeless)
		if len(list) > width {
			slices.SortStableFunc(list, func(a, b *state) int { return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(b.done, a.done)) })
			f.cutOff, list = max(f.cutOff, list[width].most), list[:width]
		}
		f.found.States += len(list)
		for _, s := range list {
			f.expand(s)
		}
		f.slots[n] = nil
	}
}

// put adds a state to its slot, unless it cannot improve on the best schedule.
func (f *search) put(s state) {
	for left := s.left; left != 0; left &= left - 1 {
		if i := bits.TrailingZeros64(left); max(s.at, f.queries[i].At)+f.alone[i] > f.jobs[i].to {
			s.left &^= 1 << i
		}
	}
	if f.found.last == nil || s.done > f.found.InTime {
		f.found.InTime, f.found.last = s.done, &s
	}
	if s.most = s.done + bits.OnesCount64(s.left); s.most > f.found.InTime {
		f.slots[s.at/f.slot] = append(f.slots[s.at/f.slot], &s)
	}
}

// hopeless reports whether a state need not be continued, because it cannot end with more
// queries in time than the best schedule or than another state. Otherwise hopeless
// remembers the state.
func (f *search) hopeless(s *state) bool {
	// Whatever follows s, o can be followed by the same rounds without the queries that it
	// no longer has, and it has already answered at least as many more in time.
	better := func(o *state) bool { return o.at <= s.at && o.done-s.done >= bits.OnesCount64(s.left&^o.left) }
	if slices.ContainsFunc(f.seen[max(0, len(f.seen)-maxCompared):], better) {
		return true
	}
	// The number is limited by what is possible if each service has the device to itself.
	s.most = s.done
	for _, mine := range f.mine {
		var jobs []job
		for left := s.left & mine; left != 0; left &= left - 1 {
			j := f.jobs[bits.TrailingZeros64(left)]
			j.from = max(j.from, s.at)
			jobs = append(jobs, j)
		}
		s.most += relaxed(jobs)
	}
	if s.most <= f.found.InTime {
		return true
	}
	f.seen = append(f.seen, s)
	return false
}

// expand puts the successors of a state. Their rounds start at the time of the state or
// when a query arrives, but only as long as no query that has arrived could have run in the
// meantime.
func (f *search) expand(s *state) {
	const never = time.Duration(math.MaxInt64)
	f.now = s
	for start, until := s.at, never; start < until; start = f.start {
		next := never
		f.waiting = 0
		for left := s.left; left != 0; left &= left - 1 {
			i := bits.TrailingZeros64(left)
			at := f.queries[i].At
			if at > start {
				next = at
				break
			}
			f.waiting |= 1 << i
			until = min(until, max(s.at, at)+f.alone[i])
		}
		f.start = start
		f.choose(0, 0)
		f.start = next
	}
}

// choose tries all batches of the services from service on, in a round with members of the
// others.
func (f *search) choose(service int, members uint64) {
	if service == len(f.mine) {
		if members != 0 {
			f.round(members)
		}
		return
	}
	f.fill(service, f.waiting&f.mine[service], members, models.Span{})
}

// fill tries to add the queries in from to a batch. It adds queries of one size
// consecutively: once one of them is a member and the next is skipped, it skips the rest.
func (f *search) fill(service int, from, members uint64, batch models.Span) {
	if from == 0 {
		if batch.Size > 0 {
			f.group = append(f.group, batch)
			defer func() { f.group = f.group[:len(f.group)-1] }()
		}
		f.choose(service+1, members)
		return
	}
	i := bits.TrailingZeros64(from)
	q := &f.queries[i]
	without := uint64(1) << i
	if members&f.alike[i] != 0 {
		without = f.alike[i]
	}
	f.fill(service, from&^without, members, batch)
	if batch.Size == 0 || batch.Size+q.Size <= f.sc.Services[service].MaxBatch {
		f.fill(service, from&f.merges[i]&^(1<<i), members|1<<i, f.whole(q.Service, batch.Size+q.Size, q.SeqLen))
	}
}

// round puts the state after the round, unless a member would be late, a member could be
// replaced by an earlier query of the same size, or the round has waited without a reason.
func (f *search) round(members uint64) {
	end := f.start + f.takes(f.group...)
	came := f.start == f.now.at
	for waiting := f.waiting; waiting != 0; waiting &= waiting - 1 {
		i := bits.TrailingZeros64(waiting)
		switch late := end > f.jobs[i].to; {
		case members>>i&1 == 1:
			if late {
				return
			}
			came = came || f.queries[i].At == f.start
		case !late && members&f.alike[i]>>i != 0:
			return
		}
	}
	if came {
		f.put(state{
			at: end, start: f.start, left: f.now.left &^ members, members: members,
			done: f.now.done + bits.OnesCount64(members), from: f.now,
		})
	}
}

// takes returns the latency of a group, which it caches.
func (f *search) takes(group ...models.Span) time.Duration {
	var key [maxTogether]models.Span
	copy(key[:], group)
	took, ok := f.took[key]
	if !ok {
		took = f.latency(group...)
		f.took[key] = took
	}
	return took
}
