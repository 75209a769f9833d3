package residency

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/overlap/residency"
)

// policy decides what is in memory. The daemon's is a [residency.Set].
type policy interface {
	Put(now time.Duration, id int, m residency.Model)
	State(id int) residency.State
	Seen(now time.Duration, id, queries int, open bool)
	Ask(now time.Duration, id int, slack time.Duration) residency.Answer
	Next(now time.Duration) (residency.Step, bool)
	Loaded(now time.Duration, id int, bytes int64)
	Gone(now time.Duration, id int)
}

// Daemon is the name of the policy of the daemon.
const Daemon = "overlapd"

// rules are the caches to compare with. In each, the model of least value goes first.
var rules = []struct {
	name string
	rule
}{
	{"lru", rule{value: lastUse}},
	{"lfu", rule{value: frequency}},
	{"gdsf", rule{value: func(e *entry) float64 { return e.priority }}},
	{"lfu-admission", rule{value: frequency, admission: true}},
	{"modelmesh", rule{value: lastUse, churn: churnAge}},
}

// fixed is the name of the policy that keeps the models with the most queries per byte, from the
// beginning. It knows the popularity of the whole day.
const fixed = "fixed"

// Policies returns the names of the policies, the daemon's first.
func Policies() []string {
	names := []string{Daemon}
	for _, r := range rules {
		names = append(names, r.name)
	}
	return append(names, fixed)
}

// newPolicy returns the policy of this name, before any model is known to it.
func newPolicy(name string, w *world) (policy, error) {
	switch name {
	case Daemon:
		return residency.New(w.Memory, 0, 1), nil
	case fixed:
		return newFixed(w), nil
	}
	for _, r := range rules {
		if r.name == name {
			return &cache{rule: r.rule, limit: w.Memory}, nil
		}
	}
	return nil, fmt.Errorf("unknown policy %q: give some of %s", name, strings.Join(Policies(), ", "))
}

const (
	// margin is by how much a load may exceed its prediction, as in the daemon.
	margin = 1.3

	// halfLife is how fast counts of queries fade.
	halfLife = 10 * time.Minute

	// hopelessOnce is how many loads for which queries wait there are at least to one for which none does,
	// unless nothing else is to be loaded.
	hopelessOnce = 10

	// churnAge is for how long the least recently used model must not have been used before ModelMesh
	// replaces models: ten times a third of the time within which a load must end, which is 90 s by
	// default (minChurnAgeMs in ModelMesh.java of kserve/modelmesh, commit ea13cdc574f9).
	churnAge = 5 * time.Minute
)

// rule is what distinguishes caches.
type rule struct {
	value     func(*entry) float64
	churn     time.Duration // nothing goes while the least valuable model was used within that time
	admission bool          // a model is loaded only for a query that waits, or for more queries than its victims have
}

// cache loads a model at each miss. It is as good as its rule permits:
//
//   - Queries wait as in the daemon.
//   - Victims are chosen when a load begins, so that no memory is idle.
//   - Loads for which no query waits are limited, because they keep others from being in time.
type cache struct {
	rule
	limit, used int64
	models      []*entry
	resident    []*entry
	queue       []*entry
	leaving     []*entry
	loading     *entry
	victims     []*entry // scratch memory of choose

	inflation       float64 // of gdsf: the priority of the last victim
	hopeless, since int     // loads in the queue for which no query waits, and others since the last of them
}

// entry is a model in a cache.
type entry struct {
	residency.Model
	id       int
	state    residency.State
	open     bool
	hopeless bool
	used     time.Duration // last
	begun    time.Duration // when its load began
	count    float64       // of queries, faded until used
	priority float64       // of gdsf
}

// lastUse orders models as LRU does.
func lastUse(e *entry) float64 { return float64(e.used) }

// frequency is the logarithm of the rate of queries for each byte, but for a term that is the same for
// all models.
func frequency(e *entry) float64 {
	return math.Log2(e.count/float64(e.Bytes)) + e.used.Seconds()/halfLife.Seconds()
}

// Put adds a model, in the order of their IDs.
func (c *cache) Put(_ time.Duration, id int, m residency.Model) {
	c.models = append(c.models, &entry{id: id, Model: m})
}

func (c *cache) State(id int) residency.State { return c.models[id].state }

// Seen counts queries of a model in memory.
func (c *cache) Seen(now time.Duration, id, queries int, open bool) {
	e := c.models[id]
	e.open = open
	if queries > 0 {
		c.hit(now, e)
	}
}

// hit counts a query. The priority of gdsf is what a byte of the model saves in loading time, and rises
// with what was evicted, so that models age which are not used.
func (c *cache) hit(now time.Duration, e *entry) {
	e.count = e.faded(now) + 1
	e.used = now
	e.priority = c.inflation + e.count*e.Load.Seconds()/float64(e.Bytes)
}

// faded returns the count of a model's queries now.
func (e *entry) faded(now time.Duration) float64 {
	return e.count * math.Exp2(-(now-e.used).Seconds()/halfLife.Seconds())
}

// Ask lets a query wait if that is in time, and loads its model if the rule does.
func (c *cache) Ask(now time.Duration, id int, slack time.Duration) residency.Answer {
	e := c.models[id]
	c.hit(now, e)
	after := c.until(now, e)
	inTime := float64(after)*margin <= float64(slack)
	if e.state == residency.OnDisk && c.admit(now, e, inTime) {
		e.state = residency.Waiting
		c.queue = append(c.queue, e)
		c.since++
		if e.hopeless = !inTime; e.hopeless {
			c.hopeless++
			c.since = 0
		}
	}
	e.open = e.open || inTime && e.state != residency.OnDisk
	return residency.Answer{Wait: inTime && e.state != residency.OnDisk, After: after}
}

// until returns how long it takes until a model is loaded.
func (c *cache) until(now time.Duration, e *entry) (after time.Duration) {
	if c.loading != nil {
		if after = max(0, c.loading.Load-(now-c.loading.begun)); c.loading == e {
			return after
		}
	}
	for _, other := range c.queue {
		if other == e {
			break
		}
		after += other.Load
	}
	return after + e.Load
}

// admit reports whether the rule loads a model.
func (c *cache) admit(now time.Duration, e *entry, inTime bool) bool {
	// Without this limit, LRU has up to twice the violations: loads that come too late for their own query
	// delay those that would not.
	if !inTime && len(c.queue) > 0 && (c.hopeless > 0 || c.since < hopelessOnce) {
		return false
	}
	victims, ok := c.choose(e.Bytes)
	if !ok || len(victims) > 0 && now-victims[0].used < c.churn {
		return false
	}
	// A query in time is worth an eviction in any case. Else the model must be worth more than its victims.
	if !c.admission || inTime || len(victims) == 0 {
		return true
	}
	sum := 0.0
	for _, v := range victims {
		sum += v.faded(now)
	}
	return e.count > sum
}

// choose returns what must go so that so many bytes fit.
func (c *cache) choose(bytes int64) ([]*entry, bool) {
	c.victims = c.victims[:0]
	for need := c.used + bytes - c.limit; need > 0; {
		var least *entry
		value := 0.0
		for _, e := range c.resident {
			if e.open || slices.Contains(c.victims, e) {
				continue
			}
			if v := c.value(e); least == nil || v < value {
				least, value = e, v
			}
		}
		if least == nil {
			return nil, false
		}
		c.victims = append(c.victims, least)
		need -= least.Bytes
	}
	return c.victims, true
}

// Next evicts what a load needs, and then begins it.
func (c *cache) Next(now time.Duration) (residency.Step, bool) {
	if len(c.leaving) > 0 {
		e := c.leaving[0]
		c.leaving = c.leaving[1:]
		return residency.Step{Model: e.id}, true
	}
	if c.loading != nil || len(c.queue) == 0 {
		return residency.Step{}, false
	}
	// The victims are chosen now, not when the load was queued: until now they could serve.
	e := c.queue[0]
	victims, ok := c.choose(e.Bytes)
	switch {
	case !ok:
		return residency.Step{}, false
	case len(victims) > 0:
		for _, v := range victims {
			v.state = residency.Leaving
			c.inflation = max(c.inflation, v.priority)
		}
		c.leaving = slices.Clone(victims)
		return c.Next(now)
	}
	c.queue = c.queue[1:]
	if e.hopeless {
		c.hopeless--
	}
	c.used += e.Bytes
	c.loading, e.state, e.begun = e, residency.Loading, now
	return residency.Step{Model: e.id, Load: true}, true
}

// Loaded makes a model a candidate for eviction.
func (c *cache) Loaded(_ time.Duration, id int, _ int64) {
	e := c.models[id]
	c.loading, e.state = nil, residency.InMemory
	c.resident = append(c.resident, e)
}

// Gone frees the memory of an evicted model.
func (c *cache) Gone(_ time.Duration, id int) {
	e := c.models[id]
	e.state = residency.OnDisk
	c.used -= e.Bytes
	i := slices.Index(c.resident, e)
	c.resident = slices.Delete(c.resident, i, i+1)
}

// fixedSet is a set of models that are always in memory.
type fixedSet []residency.State

// newFixed fills the memory with the models of most queries for their bytes, skipping those that do not
// fit any more.
func newFixed(w *world) fixedSet {
	order := make([]int, len(w.models))
	for i := range order {
		order[i] = i
	}
	perByte := func(i int) float64 { return w.models[i].weight / float64(w.models[i].bytes) }
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(perByte(j), perByte(i)) })
	f, left := make(fixedSet, len(order)), w.Memory
	for _, i := range order {
		if m := w.models[i]; m.bytes <= left {
			left -= m.bytes
			f[i] = residency.InMemory
		}
	}
	return f
}

func (f fixedSet) State(id int) residency.State { return f[id] }

func (fixedSet) Put(time.Duration, int, residency.Model) {}
func (fixedSet) Seen(time.Duration, int, int, bool)      {}
func (fixedSet) Loaded(time.Duration, int, int64)        {}
func (fixedSet) Gone(time.Duration, int)                 {}

func (fixedSet) Ask(time.Duration, int, time.Duration) (a residency.Answer) { return a }
func (fixedSet) Next(time.Duration) (s residency.Step, ok bool)             { return s, false }
