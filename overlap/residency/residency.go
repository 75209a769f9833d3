// Package residency decides which models are in memory where there are more than fit: which one is
// loaded when a query has come for it, and which ones give their memory for it. Like package overlap
// it is a state machine without clock, goroutine and I/O: [Set] is told what happens and says what to
// do. A [Model] is loaded and evicted as
//
//	on disk ──► waiting ──► loading ──► in memory ──► leaving ──► on disk
//	               └───────────┴── failed, or nobody wants it any more ──► on disk
//
// # What a model is worth
//
// A model that was evicted is loaded again at its next query. How many queries are late because of
// that depends on whether loading takes longer than the target:
//
//   - If it does not, the query waits and is in time. Such a model is worth little: it can go first.
//   - If it does, that query is refused, and so are those that come while the model is loaded.
//
// So the worth of a model is the queries a second that would be lost without it, and what is evicted
// are the models that are worth least for the memory that they take. How long ago a model was asked
// for, by which most caches go, says nothing of either.
//
// A model is loaded if what it is worth, together with the query that waits for it, is more than what
// those are worth that have to go. Two models cannot push each other out for ever: who has been loaded
// stays for [stay] times as long as that took.
//
// # Nobody is locked out
//
// A model that is worth too little is refused, but not for good: one such model after another gets
// its turn, in the order in which they were refused first.
package residency

import (
	"math"
	"slices"
	"time"
)

const (
	// stay is how long a model stays in memory, as a multiple of the time it took to load. So loading
	// takes at most one part in ten of the time of a place in memory, however many models there are.
	stay = 10

	// margin is by how much a load may take longer than predicted. A query waits if it is in time
	// even then.
	margin = 1.3

	// risk is the part of a query that is lost when a model is loaded again whose queries can wait for
	// it. It makes a model that is asked for often worth more than one that is not.
	risk = 0.1

	// fade is the time in which what was counted of the queries of a model fades to 1/e: long enough
	// to know a rate of a few queries a minute, short beside the hours in which loads change.
	fade = 10 * time.Minute

	// forget is after how long without a query a refused model loses its turn.
	forget = time.Minute
)

// Model is what is known of a model and promised for it.
type Model struct {
	Target time.Duration // of its queries
	Bytes  int64         // of memory while it is loaded
	Load   time.Duration // that loading takes
	Keep   bool          // it is never evicted
}

// State is where a model is.
type State uint8

// The states of a model.
const (
	OnDisk   State = iota
	Waiting        // for memory, or for other models to be loaded before it
	Loading        // a worker loads it
	InMemory       // its queries are served
	Leaving        // its memory is being freed
)

// Step is what a [Set] wants done: to load a model, or to evict it.
type Step struct {
	Model int
	Load  bool
}

// Answer is what becomes of a query for a model that is not in memory. A query that waits is in time
// if the model is loaded as predicted. After is when it will be; or, if it does not wait, when another
// try may find it there.
type Answer struct {
	Wait  bool
	After time.Duration
}

// Set is the models that share some memory. It is not for concurrent use.
type Set struct {
	limit, used int64 // bytes; used is of what is in memory, loading, waiting or leaving
	loads       int   // how many models may load at once
	models      map[int]*entry
	queue       []*entry // those that wait to be loaded, in order
	refused     []*entry // those that were refused, in the order of the first time
	trial       *entry   // the last one that was loaded though it is not worth it
	evicted     []*entry // that leave, and of which nobody was told yet
	candidates  []*entry // memory of choose
}

type entry struct {
	id int
	Model
	state  State
	taken  int64 // bytes of the limit
	asked  rate
	open   bool          // it has queries that are not answered
	since  time.Duration // of the state
	after  time.Duration // the time from which it may be evicted, or, on disk, loaded again
	failed int           // loads in a row
	last   time.Duration // a query was refused
}

// New returns an empty set of models for so many bytes, of which so many are loaded at once.
func New(bytes int64, loads int) *Set {
	return &Set{limit: bytes, loads: max(loads, 1), models: map[int]*entry{}}
}

// Put adds a model, which is on disk, or changes what is known of one.
func (s *Set) Put(id int, m Model) {
	if e := s.models[id]; e != nil {
		e.Model = m
		return
	}
	s.models[id] = &entry{id: id, Model: m}
}

// Delete forgets a model, which must not be loading or in memory.
func (s *Set) Delete(id int) {
	e := s.models[id]
	if e == nil {
		return
	}
	s.release(e)
	s.unqueue(e)
	delete(s.models, id)
}

// State returns where a model is.
func (s *Set) State(id int) State { return s.models[id].state }

// Used returns the bytes that are taken, and how many there are.
func (s *Set) Used() (used, limit int64) { return s.used, s.limit }

// Seen takes in that so many queries of a model have come since it was last told, and whether any of
// them is not answered yet. A model with such queries is not evicted.
func (s *Set) Seen(now time.Duration, id int, queries int, open bool) {
	e := s.models[id]
	e.asked.add(now, float64(queries))
	e.open = open
}

// Ask takes in a query for a model that is not in memory, which can wait so long for it.
func (s *Set) Ask(now time.Duration, id int, slack time.Duration) Answer {
	e := s.models[id]
	e.asked.add(now, 1)
	if e.state == InMemory {
		return Answer{Wait: true}
	}
	switch {
	case e.state == OnDisk && e.after > now: // it could not be loaded
		return Answer{After: e.after - now}
	case e.state == Leaving, e.state == OnDisk && !s.want(now, e, slack):
		return Answer{After: s.refuse(now, e)}
	}
	after := s.until(now, e)
	return Answer{Wait: within(after, slack), After: after}
}

// Load wants a model in memory whatever it is worth. It reports whether there will be room for it.
func (s *Set) Load(now time.Duration, id int) bool {
	e := s.models[id]
	if e.state != OnDisk {
		return e.state != Leaving
	}
	victims, _, ok := s.choose(now, e.Bytes)
	if ok {
		s.enqueue(now, e, victims)
	}
	return ok
}

// Evict wants a model out of memory whatever it is worth.
func (s *Set) Evict(now time.Duration, id int) {
	switch e := s.models[id]; e.state {
	case Waiting:
		s.unqueue(e)
		s.release(e)
		e.to(OnDisk, now)
	case InMemory:
		s.evict(now, e)
	}
}

// Next returns something that is to be done now, or false.
func (s *Set) Next(now time.Duration) (Step, bool) {
	if len(s.evicted) > 0 {
		e := s.evicted[0]
		s.evicted = s.evicted[1:]
		return Step{Model: e.id}, true
	}
	if len(s.queue) == 0 || s.count(Loading) >= s.loads {
		return Step{}, false
	}
	e := s.queue[0]
	if s.used > s.limit && s.count(Leaving) > 0 {
		return Step{}, false // what leaves still has its memory
	}
	s.queue = s.queue[1:]
	e.to(Loading, now)
	return Step{Model: e.id, Load: true}, true
}

// Loaded takes in that a model is in memory, or still is, and takes so many bytes. What is worth least
// goes if that is more than there is.
func (s *Set) Loaded(now time.Duration, id int, bytes int64) {
	e := s.models[id]
	if e.state == Loading {
		e.Load = max(now-e.since, 1)
	}
	if e.state != InMemory {
		e.to(InMemory, now)
		e.failed, e.after = 0, now+stay*e.Load
	}
	e.Bytes = bytes
	s.take(e, bytes)
	if victims, _, ok := s.choose(now, 0); ok {
		for _, v := range victims {
			s.evict(now, v)
		}
	}
}

// retry is how long a model that could not be loaded is left alone: it doubles with each failure.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Failed takes in that a model could not be loaded, or was lost.
func (s *Set) Failed(now time.Duration, id int) {
	e := s.models[id]
	s.unqueue(e)
	s.release(e)
	e.to(OnDisk, now)
	e.after = now + min(firstRetry<<min(e.failed, 16), lastRetry)
	e.failed++
}

// Gone takes in that the memory of a model that left is free.
func (s *Set) Gone(now time.Duration, id int) {
	e := s.models[id]
	s.release(e)
	e.to(OnDisk, now)
}

func (e *entry) to(state State, now time.Duration) { e.state, e.since, e.after = state, now, 0 }

// within reports whether a query that can wait so long is in time after a predicted time.
func within(after, slack time.Duration) bool {
	return float64(after)*margin <= float64(slack)
}

// worth returns how many queries a second would be lost without a model: at the rate at which it would
// be loaded again, those that then cannot wait for it.
func (e *entry) worth(now time.Duration) float64 {
	rate, load := e.asked.at(now), e.Load.Seconds()
	lost := risk
	if !within(e.Load, e.Target) {
		lost = 1 + rate*max(0, load-e.Target.Seconds())
	}
	return rate * lost / (1 + rate*load)
}

// want has a model loaded if that gains more than it costs, or if it is its turn. It reports whether
// the model will be.
func (s *Set) want(now time.Duration, e *entry, slack time.Duration) bool {
	victims, cost, ok := s.choose(now, e.Bytes)
	if !ok {
		return false
	}
	gain, least := 0.0, (stay * e.Load).Seconds()
	if within(s.ahead(now)+e.Load, slack) {
		gain = 1
	}
	if len(victims) > 0 && gain+e.worth(now)*least <= cost*least {
		if s.trialEnds(now) > 0 || s.turn(now) != e {
			return false
		}
		s.trial = e
	}
	s.enqueue(now, e, victims)
	return true
}

func (s *Set) enqueue(now time.Duration, e *entry, victims []*entry) {
	for _, v := range victims {
		s.evict(now, v)
	}
	s.refused = slices.DeleteFunc(s.refused, func(r *entry) bool { return r == e })
	s.take(e, e.Bytes)
	e.to(Waiting, now)
	s.queue = append(s.queue, e)
}

// choose returns the models that are worth least for their memory and have to go so that so many bytes
// more fit, and what they are worth together. It reports false if they do not fit.
func (s *Set) choose(now time.Duration, bytes int64) (victims []*entry, worth float64, ok bool) {
	need := s.used + bytes - s.limit
	for _, other := range s.models {
		if other.state == Leaving {
			need -= other.taken
		}
	}
	if need <= 0 {
		return nil, 0, true
	}
	s.candidates = s.candidates[:0]
	for _, other := range s.models {
		if other.state == InMemory && !other.Keep && !other.open && other.after <= now {
			s.candidates = append(s.candidates, other)
		}
	}
	slices.SortFunc(s.candidates, func(a, b *entry) int {
		x, y := a.worth(now)/float64(max(a.taken, 1)), b.worth(now)/float64(max(b.taken, 1))
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return a.id - b.id
	})
	for i, v := range s.candidates {
		worth += v.worth(now)
		if need -= v.taken; need <= 0 {
			return s.candidates[:i+1], worth, true
		}
	}
	return nil, 0, false
}

// refuse remembers that a model was refused, and returns after how long another try may find it loaded.
func (s *Set) refuse(now time.Duration, e *entry) time.Duration {
	if e.last = now; !slices.Contains(s.refused, e) {
		s.refused = append(s.refused, e)
	}
	wait := e.Load + s.trialEnds(now)
	for _, before := range s.refused {
		if before == e {
			break
		}
		wait += (stay + 1) * before.Load
	}
	return wait
}

// trialEnds returns how long it takes until another model may have its turn.
func (s *Set) trialEnds(now time.Duration) time.Duration {
	switch {
	case s.trial == nil || s.trial.state == OnDisk:
		return 0
	case s.trial.state == InMemory:
		return max(0, s.trial.after-now)
	}
	return stay * s.trial.Load
}

// turn returns the model that was refused first, of those that are still asked for.
func (s *Set) turn(now time.Duration) *entry {
	for len(s.refused) > 0 && now-s.refused[0].last > forget {
		s.refused = s.refused[1:]
	}
	if len(s.refused) == 0 {
		return nil
	}
	return s.refused[0]
}

// ahead returns how long it takes until what loads and waits is loaded.
func (s *Set) ahead(now time.Duration) (sum time.Duration) {
	for _, e := range s.models {
		if e.state == Loading {
			sum += max(0, e.Load-(now-e.since))
		}
	}
	for _, e := range s.queue {
		sum += e.Load
	}
	return sum / time.Duration(s.loads)
}

// until returns how long it takes until a model that waits or loads is in memory.
func (s *Set) until(now time.Duration, e *entry) (sum time.Duration) {
	if e.state == Loading {
		return max(0, e.Load-(now-e.since))
	}
	for _, other := range s.models {
		if other.state == Loading {
			sum += max(0, other.Load-(now-other.since))
		}
	}
	for _, other := range s.queue {
		if other == e {
			break
		}
		sum += other.Load
	}
	return sum/time.Duration(s.loads) + e.Load
}

func (s *Set) evict(now time.Duration, e *entry) {
	e.to(Leaving, now)
	s.evicted = append(s.evicted, e)
}

func (s *Set) take(e *entry, bytes int64) {
	s.used += bytes - e.taken
	e.taken = bytes
}

func (s *Set) release(e *entry) {
	s.take(e, 0)
	if s.trial == e {
		s.trial = nil
	}
}

func (s *Set) unqueue(e *entry) {
	is := func(other *entry) bool { return other == e }
	s.queue, s.refused, s.evicted = slices.DeleteFunc(s.queue, is), slices.DeleteFunc(s.refused, is), slices.DeleteFunc(s.evicted, is)
}

func (s *Set) count(state State) (n int) {
	for _, e := range s.models {
		if e.state == state {
			n++
		}
	}
	return n
}

// rate is how often something happens of late: what happened longer ago counts less.
type rate struct {
	count float64 // of what happened, faded
	seen  float64 // seconds in which it was counted, faded
	last  time.Duration
}

// add counts that something has happened so often since the last time.
func (r *rate) add(now time.Duration, n float64) {
	r.count, r.seen, r.last = r.count*r.left(now)+n, r.spent(now), now
}

func (r *rate) left(now time.Duration) float64 {
	return math.Exp(-(now - r.last).Seconds() / fade.Seconds())
}

// spent returns the seconds in which something was counted.
func (r *rate) spent(now time.Duration) float64 {
	left := r.left(now)
	return r.seen*left + fade.Seconds()*(1-left)
}

// at returns how often it happens a second. Of what was hardly seen yet it is little.
func (r *rate) at(now time.Duration) float64 {
	return r.count * r.left(now) / max(r.spent(now), 1)
}
