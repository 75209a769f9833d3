package bound

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
)

// Limits of [Foresee].
const (
	// MaxForeseen limits its queries, a set of which is the bits of a word.
	MaxForeseen = 64

	// maxTogether limits its services.
	maxTogether = 4

	// maxWidth is how many states of one slot of time are gone on from, the most
	// promising first. There are as many slots as the shortest batch fits into the
	// time up to the last deadline, which limits them all.
	maxWidth = 256

	// maxCompared is with how many others, the latest, a state is compared.
	maxCompared = 4096
)

// Foresight is the best schedule of whole models, one that knows all queries
// beforehand: it answers InTime of them in time, and no other of its kind more than
// AtMost. Where the two are equal the search was exact.
//
// Such a schedule is a sequence of rounds of one device. A round is a group of
// batches of different services, none of them cut. It lasts as the device says in the
// middle of its runs, and all that is in it ends with it. A batch is of queries of one
// service and sequence length that have arrived, of no more than the service's
// MaxBatch. A query that would be late is not run.
//
// So this is what knowing the future is worth to a scheduler that cuts no models, and
// one that does may still do better, if by little; no scheduler does better than [Of]
// says.
type Foresight struct {
	InTime int `json:"in_time"`
	AtMost int `json:"at_most"`
	States int `json:"states"` // that were gone on from

	last *state
}

// Foresee looks for the best schedule of whole models for up to MaxForeseen queries, of
// up to four services on one device. Its error wraps [ErrTooMany] if there are more.
//
// It is a branch and bound over the ends of rounds, in the order of time. It takes it
// that a round takes no longer with less in it. So one starts when that before has
// ended or a query of it arrives, the device does not wait where one could run
// meanwhile, and queries of one shape are taken in the order of arrival, but for
// those that would be late.
func Foresee(sc sim.Scenario) (*Foresight, error) {
	queries, err := sc.Submissions()
	switch {
	case err != nil:
		return nil, err
	case len(queries) > MaxForeseen || len(sc.Services) > maxTogether || sc.Devices > 1:
		return nil, fmt.Errorf("%w: %d of %d services on %d devices can not be foreseen, but %d of %d on one; give fewer",
			ErrTooMany, len(queries), len(sc.Services), max(sc.Devices, 1), MaxForeseen, maxTogether)
	}
	return newSearch(&sc, queries).widen(maxWidth), nil
}

// state is what a schedule has come to at the end of a round. What is left has not run
// and could still be in time, done have been, and most may be in the end. The round
// began at start with members, after the state from.
type state struct {
	at, start     time.Duration
	left, members uint64
	done, most    int
	from          *state
}

// search goes from state to state. Sets of queries are the bits of their positions.
type search struct {
	*costs
	queries []sim.Query
	jobs    []job           // by query: its work is its share of the best batch
	alone   []time.Duration // by query
	merges  []uint64        // by query: those that it could be in one batch with
	alike   []uint64        // by query: those of the same size among them
	mine    []uint64        // by service: its queries
	took    map[[maxTogether]models.Span]time.Duration

	slot   time.Duration // no round is shorter
	slots  [][]*state
	seen   []*state
	cutOff int // the most of a state that was not gone on from
	found  Foresight

	// The round that is put together.
	now     *state
	start   time.Duration
	waiting uint64
	group   []models.Span
}

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

// widen goes on from more and more states, until nothing is left out or there are as
// many of a slot as may be.
func (f *search) widen(width int) *Foresight {
	for w := min(16, width); ; w = min(8*w, width) {
		f.run(w)
		f.found.AtMost = max(f.cutOff, f.found.InTime)
		if f.found.InTime == f.found.AtMost || w == width {
			return &f.found
		}
	}
}

// run goes on from so many states of each slot. What a run before has found remains, and
// nobody is gone on from who cannot have more.
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

// put keeps a state for its slot.
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

// hopeless reports whether nothing is to be gained by going on from a state: it cannot
// have more in the end than was found, or than another one has. Otherwise the state is
// remembered.
func (f *search) hopeless(s *state) bool {
	// Whatever follows, the other does the same without the queries that it has not
	// left, and has been in time with as many more.
	better := func(o *state) bool { return o.at <= s.at && o.done-s.done >= bits.OnesCount64(s.left&^o.left) }
	if slices.ContainsFunc(f.seen[max(0, len(f.seen)-maxCompared):], better) {
		return true
	}
	// There is no more than if each service had the device to itself.
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

// expand puts the states that may follow one. A round starts at its time or when a query
// arrives, but not once a query that has arrived could have run meanwhile.
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

// choose tries all batches of the services from one on, beside members of the others.
func (f *search) choose(service int, members uint64) {
	if service == len(f.mine) {
		if members != 0 {
			f.round(members)
		}
		return
	}
	f.fill(service, f.waiting&f.mine[service], members, models.Span{})
}

// fill tries to add queries to a batch. Those of one size are added in a row.
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

// round runs the group, unless a member would be late, or could give its place to a
// query of the same size that came before it, or the round has waited for none.
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

// takes returns how long a group takes, and remembers it.
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
