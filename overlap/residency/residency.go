// Package residency decides which models are in memory where more are served than fit: which one is
// loaded when a query arrives for it, and which ones are evicted for it. Like package overlap it is a
// state machine without clock, goroutine or I/O: [Set] receives what happened and returns what to do.
// The states of a [Model] are
//
//	on disk ──► waiting ──► loading ──► in memory ──► leaving ──► on disk
//	               └───────────┴── load failed, or no room ──► on disk
//
// # What a model is worth
//
// The worth of a model is the number of queries per second that would violate their target without it.
// If a load takes longer than the target allows, each query of an absent model is lost. Otherwise the
// query waits for the load, and is lost only if other loads keep it from being in time. How often that
// happens is measured. If there is no room, the models of least worth for their bytes go. How long ago a
// model was used, by which most caches choose, does not matter.
//
// A model is loaded in one of three cases:
//
//   - A query can wait for it, and that saves more queries than are lost while its victims are absent.
//   - It is worth more than the memory that it needs. Memory has a price, free memory as well: the
//     worth of a byte that would have to be freed.
//   - It is its turn (below).
//
// # Hysteresis
//
// Two models do not evict each other forever. A model that was loaded for its worth gives way only to a
// query that can wait, until [stay] times its load time has passed.
//
// # Nobody is locked out
//
// Rates and load times are learned, and may be wrong. So rejected models take turns, in the order of
// their first rejection, at the latest when one turn of each of the others is over. Turns follow each
// other so slowly that they take at most one part in [share] of the loading time and of the memory. The
// time to a model's turn is also what its clients get as Retry-After.
package residency

import (
	"math"
	"slices"
	"time"
)

const (
	// stay is how long a loaded model is protected, as a multiple of its load time. Loads of a place in
	// memory for worth alone take at most one part in eleven of the time.
	stay = 10

	// margin is by how much a load may exceed its prediction. A query waits only if it is in time even
	// then.
	margin = 1.3

	// share is the part of the loading time and of the memory that turns may take: one in so many.
	share = 100

	// firstRetry is how long a model is left alone after its load failed. It doubles with each failure,
	// up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Model is what is known of a model and promised for it.
type Model struct {
	// Target is how long a query can wait for a load: its latency target less its isolated latency.
	Target time.Duration

	Bytes int64         // of memory while it is loaded
	Load  time.Duration // predicted time to load it
	Keep  bool          // never evict it
}

// State is where a model is.
type State uint8

// The states of a model.
const (
	OnDisk   State = iota
	Waiting        // for memory, or for other models to be loaded first
	Loading        // a worker loads it
	InMemory       // its queries are served
	Leaving        // its memory is being freed
)

func (s State) String() string {
	return [...]string{"on disk", "waiting", "loading", "in memory", "leaving"}[s]
}

// Step is what a [Set] wants done: to load a model, or to evict it.
type Step struct {
	Model int
	Load  bool
}

// Answer is what becomes of a query for a model that is not in memory. A query that waits is in time
// if the model is loaded as predicted. After is the predicted time until the model is loaded. For a
// query that does not wait it is when to try again, or 0 if the model is larger than the memory. If no
// memory becomes free, a model that queries wait for may be on disk again without a load. Queries that
// wait while it leaves ask again when it is gone.
type Answer struct {
	Wait  bool
	After time.Duration
}

// Set is the models that share a memory. It is not for concurrent use. Calls with an unknown model have
// no effect.
type Set struct {
	limit    int64 // bytes
	used     int64 // by models that are in memory, loading, leaving, or next to load
	leaving  int64 // the part of used that is being freed
	promised int64 // bytes of the queue that used does not count yet
	places   int   // how many models there may be in memory
	loads    int   // how many may load at the same time

	models   map[int]*entry
	resident []*entry // in memory
	loading  []*entry
	queue    []*entry // to be loaded, in order
	evicted  []*entry // to be returned by Next
	refused  []*entry // in the order of the first rejection

	trial *entry        // the last model that had its turn
	turn  time.Duration // the earliest time of the next turn

	clock
	absent, missed float64    // queries that could wait for their model to load, and those of them that were lost
	candidates     candidates // scratch memory of gather
}

// entry is a model in a set.
type entry struct {
	Model
	id       int
	state    State
	since    time.Duration // of the state
	taken    int64         // its part of used
	rate     rate          // of its queries
	open     bool          // it has unanswered queries
	urgent   bool          // it is being loaded for a query that waits
	refused  bool          // it is in the list of that name
	fresh    time.Duration // until then it is protected
	retry    time.Duration // until then it is not loaded
	failures int           // consecutive failed loads
	blocked  time.Duration // since then it is first in the queue without room, if it is not 0
}

// New returns an empty set of models for a memory of so many bytes, in which there may be up to places
// models, 0 for any number. Up to loads of them load at the same time.
func New(bytes int64, places, loads int) *Set {
	if places == 0 {
		places = math.MaxInt32
	}
	return &Set{limit: bytes, places: places, loads: max(loads, 1), models: map[int]*entry{}}
}

// Put adds a model, which is on disk, or changes what is known of one. Of a model that is being loaded,
// other bytes count at once.
func (s *Set) Put(now time.Duration, id int, m Model) {
	m.Bytes, m.Load = max(m.Bytes, 1), max(m.Load, 1)
	e := s.models[id]
	if e == nil {
		s.advance(now)
		e = &entry{id: id, rate: rate{begun: s.unit()}}
		s.models[id] = e
	}
	switch {
	case e.state == Waiting && e.taken == 0:
		s.promised += m.Bytes - e.Bytes
	case e.state == Loading:
		s.take(e, m.Bytes)
	}
	e.Model = m
}

// Delete forgets a model, whatever its state. Its memory counts as free.
func (s *Set) Delete(id int) {
	if e := s.models[id]; e != nil {
		s.to(0, e, OnDisk)
		s.unrefuse(e)
		delete(s.models, id)
	}
}

// advance sets the time of what is counted.
func (s *Set) advance(now time.Duration) {
	if s.clock.advance(now) {
		for _, e := range s.models {
			e.rate.multiply(s.factor)
		}
		s.absent *= s.factor
		s.missed *= s.factor
		s.restart()
	}
}

// State returns where a model is.
func (s *Set) State(id int) State {
	if e := s.models[id]; e != nil {
		return e.state
	}
	return OnDisk
}

// Taken returns how many bytes are taken for a model.
func (s *Set) Taken(id int) int64 {
	if e := s.models[id]; e != nil {
		return e.taken
	}
	return 0
}

// Bytes returns how many bytes a model takes when it is loaded, as far as that is known.
func (s *Set) Bytes(id int) int64 {
	if e := s.models[id]; e != nil {
		return e.Bytes
	}
	return 0
}

// Used returns how many bytes are taken, and how many there are.
func (s *Set) Used() (used, limit int64) { return s.used, s.limit }

// Seen records queries that arrived for a model in memory, and whether the model has any unanswered
// ones. A model with unanswered queries is not evicted.
func (s *Set) Seen(now time.Duration, id, queries int, open bool) {
	if e := s.models[id]; e != nil {
		s.advance(now)
		e.rate.count += float64(queries) * s.unit()
		e.open = open && e.state != OnDisk
	}
}

// Ask records a query for a model that is not in memory, and decides whether it waits, which it
// can for the time slack.
func (s *Set) Ask(now time.Duration, id int, slack time.Duration) Answer {
	e := s.models[id]
	if e == nil {
		return Answer{}
	}
	s.advance(now)
	if e.state == Leaving {
		after := s.until(now, e)
		return Answer{Wait: within(after, slack), After: after}
	}
	a := s.ask(now, e, slack)
	e.open = e.open || a.Wait
	// The query itself is counted last: a rate that is looked at only when a query has just come would
	// always be too high.
	e.rate.count += s.unit()
	if e.state != InMemory && within(e.Load, slack) && e.retry <= now && a.After > 0 {
		s.absent += s.unit()
		if !a.Wait {
			s.missed += s.unit()
		}
	}
	return a
}

func (s *Set) ask(now time.Duration, e *entry, slack time.Duration) Answer {
	after := s.until(now, e)
	inTime := within(after, slack)
	switch e.state {
	case InMemory:
		return Answer{Wait: true}
	case Waiting, Loading:
		return Answer{Wait: inTime, After: after}
	}
	switch {
	case e.Bytes > s.limit:
		return Answer{}
	case e.retry > now:
		return Answer{After: max(after, e.retry-now)}
	case !s.want(now, e, inTime):
		return Answer{After: s.refuse(now, e)}
	}
	s.enqueue(now, e, inTime)
	return Answer{Wait: inTime, After: after}
}

// Load loads a model whatever its worth. It reports whether the model is in memory or will be.
func (s *Set) Load(now time.Duration, id int) bool {
	e := s.models[id]
	if e == nil {
		return false
	}
	s.advance(now)
	if e.state == OnDisk {
		if _, _, ok := s.choose(now, e.Bytes, true); ok {
			s.enqueue(now, e, true)
		}
	}
	return e.state == Waiting || e.state == Loading || e.state == InMemory
}

// Evict evicts a model whatever its worth. It does not interrupt a load.
func (s *Set) Evict(now time.Duration, id int) {
	e := s.models[id]
	switch {
	case e == nil:
	case e.state == Waiting:
		s.to(now, e, OnDisk)
	case e.state == InMemory:
		s.evict(now, e)
	}
}

// Next returns the next thing to do, or false. It is to be called until it returns false after any
// other method, and the steps are to be carried out in order: a load needs the memory of earlier
// evictions, so it is returned only after [Set.Gone].
func (s *Set) Next(now time.Duration) (Step, bool) {
	s.advance(now)
	if s.used-s.leaving > s.limit {
		s.free(now, 0, true) // a model has grown
	}
	if len(s.queue) > 0 && s.queue[0].taken == 0 {
		// Its room is made while the model before it loads, so that the loads follow each other.
		switch e := s.queue[0]; {
		case s.free(now, e.Bytes, e.urgent):
			s.promised -= e.Bytes
			s.take(e, e.Bytes)
		case e.blocked == 0:
			e.blocked = max(now, 1)
		case now-e.blocked > stay*e.Load:
			s.to(now, e, OnDisk) // others wait behind it, and its queries are late by now
		}
	}
	if len(s.evicted) > 0 {
		e := s.evicted[0]
		s.evicted = slices.Delete(s.evicted, 0, 1)
		return Step{Model: e.id}, true
	}
	if len(s.queue) == 0 || s.queue[0].taken == 0 || len(s.loading) >= s.loads || s.used > s.limit {
		return Step{}, false
	}
	e := s.queue[0]
	s.to(now, e, Loading)
	return Step{Model: e.id, Load: true}, true
}

// Loaded records that a model is in memory, still or from the start, and how many bytes it takes. If
// that is more than predicted, others are evicted.
func (s *Set) Loaded(now time.Duration, id int, bytes int64) {
	e := s.models[id]
	if e == nil || e.state == Waiting || e.state == Leaving {
		return
	}
	if e.state == OnDisk { // it was loaded before this set was asked
		s.to(now, e, InMemory)
	}
	if e.state == Loading {
		e.Load = max((e.Load+now-e.since)/2, 1)
		e.failures = 0
		s.to(now, e, InMemory)
		e.fresh = now + stay*e.Load
		if e == s.trial {
			e.fresh = now + s.hold(e)
		}
	}
	e.Bytes = max(bytes, 1)
	s.take(e, e.Bytes)
}

// Failed records that a model could not be loaded, or that its worker was lost.
func (s *Set) Failed(now time.Duration, id int) {
	if e := s.models[id]; e != nil {
		s.to(now, e, OnDisk)
		e.retry = now + min(firstRetry<<min(e.failures, 16), lastRetry)
		e.failures++
	}
}

// Gone records that the memory of an evicted model is free.
func (s *Set) Gone(now time.Duration, id int) {
	if e := s.models[id]; e != nil && e.state == Leaving {
		s.to(now, e, OnDisk)
	}
}

// to moves a model from its state to another one, and out of and into the lists of both.
func (s *Set) to(now time.Duration, e *entry, state State) {
	switch e.state {
	case Waiting:
		s.queue = without(s.queue, e)
		if e.taken == 0 {
			s.promised -= e.Bytes
		}
	case Loading:
		s.loading = without(s.loading, e)
	case InMemory:
		s.resident = without(s.resident, e)
	case Leaving:
		s.evicted = without(s.evicted, e)
		s.leaving -= e.taken
	}
	switch e.state, e.since = state, now; state {
	case OnDisk:
		s.take(e, 0)
		e.open = false
		if s.trial == e {
			s.trial = nil
		}
	case Waiting:
		s.queue = append(s.queue, e)
		s.promised += e.Bytes
	case Loading:
		s.loading = append(s.loading, e)
	case InMemory:
		s.resident = append(s.resident, e)
	case Leaving:
		s.evicted = append(s.evicted, e)
		s.leaving += e.taken
	}
}

// without removes e from list in place.
func without(list []*entry, e *entry) []*entry {
	if i := slices.Index(list, e); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func (s *Set) enqueue(now time.Duration, e *entry, urgent bool) {
	s.unrefuse(e)
	s.to(now, e, Waiting)
	e.urgent, e.blocked = urgent, 0
}

func (s *Set) evict(now time.Duration, e *entry) { s.to(now, e, Leaving) }

func (s *Set) take(e *entry, bytes int64) {
	s.used += bytes - e.taken
	e.taken = bytes
}

// until returns how long it takes until a model is in memory, if it is next to be enqueued or is
// waiting already.
func (s *Set) until(now time.Duration, e *entry) time.Duration {
	ahead := time.Duration(0)
	for _, other := range s.loading {
		left := max(0, other.Load-(now-other.since))
		if other == e {
			return left
		}
		ahead += left
	}
	for _, other := range s.queue {
		if other == e {
			break
		}
		ahead += other.Load
	}
	return ahead/time.Duration(s.loads) + e.Load
}

// within reports whether a query with so much slack can wait for something that is predicted to take
// so long.
func within(after, slack time.Duration) bool {
	return float64(after)*margin <= float64(slack)
}

// lost returns the fraction of queries that are lost because their model is absent, although its load
// takes less than their slack.
//
// With probability p such a query is lost itself. If it is not, its load may keep another query from
// being in time, which is as likely, and counts as well.
func (s *Set) lost() float64 {
	if s.absent == 0 {
		return 0
	}
	p := s.missed / s.absent
	return 1 - (1-p)*(1-p)
}

// worth returns how many queries per second would be lost without a model, where lost is the fraction of
// those that could wait for it. A new model is not judged by less time than it would stay.
func (s *Set) worth(e *entry, lost float64) float64 {
	perSecond := e.rate.perSecond(&s.clock, stay*e.Load.Seconds())
	if within(e.Load, e.Target) {
		return perSecond * lost
	}
	return perSecond
}

// want reports whether loading a model saves more queries than it costs.
func (s *Set) want(now time.Duration, e *entry, inTime bool) bool {
	cost, evicts, ok := s.choose(now, e.Bytes, inTime)
	if !ok {
		return false
	}
	if !evicts {
		return inTime || len(s.queue) == 0
	}
	worth := s.worth(e, s.lost())
	if inTime {
		// The victims are absent while e loads, and while they load again.
		return 1 > (cost-worth)*2*e.Load.Seconds()
	}
	return worth > cost
}

// choose returns what it costs per second to make room for so many bytes, in addition to the room for
// those that wait to be loaded, and whether others must be evicted. It reports false if that is not
// possible. An urgent load may evict models that are protected from others.
//
// The cost is the worth of the victims. But it is at least what the last victim is worth for each byte,
// for all bytes: if some of them were free, they would save the next load an eviction.
func (s *Set) choose(now time.Duration, bytes int64, urgent bool) (cost float64, evicts, ok bool) {
	need := s.used - s.leaving + s.promised + bytes - s.limit
	places := s.crowded(len(s.queue) + 1)
	if need <= 0 && places <= 0 {
		return 0, false, true
	}
	s.gather(now, urgent)
	for len(s.candidates) > 0 {
		v := s.candidates.pop()
		if need <= bytes { // others are for those that wait
			cost += v.worth
		}
		places--
		if need -= v.bytes; need <= 0 && places <= 0 {
			return max(cost, v.density*float64(bytes)), true, true
		}
	}
	return 0, true, false
}

// free evicts models of least worth for their bytes until so many bytes are free, apart from those that
// are being freed. It reports false, and evicts nothing, if that is not possible. If models have grown
// beyond the memory (bytes is 0), it evicts what it can.
func (s *Set) free(now time.Duration, bytes int64, urgent bool) bool {
	need, places := s.used-s.leaving+bytes-s.limit, 0
	if bytes > 0 {
		places = s.crowded(1)
	}
	if need <= 0 && places <= 0 {
		return true
	}
	fits := func(room int64) bool { return room >= need && len(s.candidates) >= places }
	if !fits(s.gather(now, urgent)) && (urgent || !fits(s.gather(now, true))) && bytes > 0 { // what is promised is kept
		return false
	}
	for (need > 0 || places > 0) && len(s.candidates) > 0 {
		v := s.candidates.pop()
		need, places = need-v.bytes, places-1
		s.evict(now, s.models[v.id])
	}
	return need <= 0
}

// crowded returns how many models in memory have to go so that so many others have places.
func (s *Set) crowded(others int) int {
	return len(s.resident) + len(s.loading) + others - s.places
}

// gather makes a heap of the models that may be evicted, and returns how many bytes they take.
func (s *Set) gather(now time.Duration, urgent bool) (bytes int64) {
	lost := s.lost()
	s.candidates = s.candidates[:0]
	for _, e := range s.resident {
		if e.Keep || e.open || e.fresh > now && (!urgent || e == s.trial) {
			continue
		}
		worth := s.worth(e, lost)
		s.candidates = append(s.candidates, candidate{e.id, e.taken, worth, worth / float64(e.taken)})
		bytes += e.taken
	}
	s.candidates.order()
	return bytes
}

// refuse puts a model into the list of the refused, and gives the first of them its turn if it is time.
// It returns how long it takes until the model itself has had its turn.
func (s *Set) refuse(now time.Duration, e *entry) time.Duration {
	if !e.refused {
		e.refused = true
		s.refused = append(s.refused, e)
	}
	if first := s.refused[0]; s.turn <= now {
		if first.retry <= now && first.Bytes <= s.limit-s.kept() {
			s.trial, s.turn = first, now+s.period(first)
			s.enqueue(now, first, true)
			if first == e {
				return s.until(now, e)
			}
		} else { // others need not wait for it
			s.refused = append(slices.Delete(s.refused, 0, 1), first)
		}
	}
	wait := max(0, s.turn-now) + e.Load
	for _, before := range s.refused {
		if before == e {
			break
		}
		wait += s.period(before)
	}
	return wait
}

// kept returns the bytes of models that are never evicted.
func (s *Set) kept() (bytes int64) {
	for _, e := range s.resident {
		if e.Keep {
			bytes += e.taken
		}
	}
	return bytes
}

func (s *Set) unrefuse(e *entry) {
	if e.refused {
		e.refused = false
		s.refused = without(s.refused, e)
	}
}

// period returns how long it takes from the turn of a model to the next turn: share times its load
// time, or longer if it takes more than one part in stay of the memory.
func (s *Set) period(e *entry) time.Duration {
	return time.Duration(share * float64(e.Load) / float64(s.loads) * max(1, stay*s.part(e)))
}

// hold returns how long a model is protected that was loaded because it was its turn: as long as
// one part in share of the memory permits, at least as long as others, at most until the next turn.
func (s *Set) hold(e *entry) time.Duration {
	return min(s.period(e), max(stay*e.Load, time.Duration(float64(s.period(e))/share/s.part(e))))
}

// part returns the fraction of the memory that a model takes.
func (s *Set) part(e *entry) float64 { return float64(e.Bytes) / float64(s.limit) }
