package residency

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/overlap/residency"
)

// Result is what became of the queries of a scenario under a policy.
type Result struct {
	Policy     string  `json:"policy"`
	Load       float64 `json:"load"`
	Short      float64 `json:"short"`
	Queries    float64 `json:"queries"`
	Violations float64 `json:"violations"` // fraction of the queries
	Rejected   float64 `json:"rejected"`   // fraction of the queries, contained in Violations
	Cold       float64 `json:"cold"`       // fraction of the queries, that waited for a load
	Loads      float64 `json:"loads_per_second"`
	Evictions  float64 `json:"evictions_per_second"`
	Loading    float64 `json:"loading"` // fraction of the time in which a model loads
}

// Run simulates a scenario under the policy of this name.
func Run(sc Scenario, name string) (Result, error) {
	return simulate(sc, name, func(time.Duration, int, bool) {})
}

// simulate is Run, and reports each model that is loaded or evicted.
func simulate(sc Scenario, name string, changed func(at time.Duration, id int, loaded bool)) (Result, error) {
	w, err := newWorld(sc)
	if err != nil {
		return Result{}, err
	}
	p, err := newPolicy(name, w)
	if err != nil {
		return Result{}, err
	}
	r := &run{
		world: w, policy: p, changed: changed, noise: rand.New(rand.NewPCG(sc.Seed, randomLoads)), free: never, loaded: never,
		waiting: make([][]query, len(w.models)), open: make([]int, len(w.models)),
	}
	// As in the daemon, a policy knows of a model what is predicted, and nothing of its popularity.
	for i, m := range w.models {
		p.Put(0, i, residency.Model{Target: m.target - m.exec, Bytes: m.bytes, Load: m.load})
		if p.State(i) == residency.InMemory {
			changed(0, i, true)
		}
	}
	r.all()
	result := r.sum
	result.Policy, result.Load, result.Short = name, sc.Load, sc.Short
	for _, f := range []*float64{&result.Violations, &result.Rejected, &result.Cold} {
		*f /= max(result.Queries, 1)
	}
	for _, f := range []*float64{&result.Loads, &result.Evictions, &result.Loading} {
		*f /= sc.Duration.Seconds()
	}
	return result, nil
}

const never = time.Duration(math.MaxInt64)

// run is a simulation in progress.
type run struct {
	world   *world
	policy  policy
	changed func(at time.Duration, id int, loaded bool) // is called for each model that comes or goes

	noise *rand.Rand // of load times
	sum   Result     // counts of queries that arrive, and of steps that begin, after the warm-up

	queue   byDeadline // of the device
	running query
	free    time.Duration // when the device becomes free, or never if it is

	loading int
	loaded  time.Duration // when the model is loaded, or never if none is loading
	waiting [][]query     // for their model
	open    []int         // unanswered queries of each model
}

// all runs until the measurement ends.
func (r *run) all() {
	end := r.world.WarmUp + r.world.Duration
	for q := r.world.next(); ; {
		now := min(q.arrival, r.free, r.loaded)
		switch {
		case now >= end: // queries that are not answered yet do not count as violations
			return
		case now == r.free:
			r.free = never
			r.answered(now, r.running.model)
			r.dispatch(now)
		case now == r.loaded:
			r.loaded = never
			r.ready(now, r.loading)
		default:
			r.arrive(q)
			q = r.world.next()
		}
		r.act(now)
	}
}

// measured adds n to a count if a time is after the warm-up.
func (r *run) measured(count *float64, at time.Duration, n float64) {
	if at >= r.world.WarmUp {
		*count += n
	}
}

// arrive gives a query to the device, or asks the policy what becomes of it.
func (r *run) arrive(q query) {
	now := q.arrival
	r.measured(&r.sum.Queries, now, 1)
	if r.policy.State(q.model) == residency.InMemory {
		r.open[q.model]++
		r.policy.Seen(now, q.model, 1, true)
		heap.Push(&r.queue, q)
		r.dispatch(now)
		return
	}
	// Only what is left after the execution can be spent on waiting.
	if a := r.policy.Ask(now, q.model, q.deadline-now-r.world.models[q.model].exec); !a.Wait {
		r.measured(&r.sum.Rejected, now, 1)
		r.measured(&r.sum.Violations, now, 1)
		return
	}
	r.open[q.model]++
	r.measured(&r.sum.Cold, now, 1)
	r.waiting[q.model] = append(r.waiting[q.model], q)
}

// ready takes in that a model is loaded.
func (r *run) ready(now time.Duration, id int) {
	r.policy.Loaded(now, id, r.world.models[id].bytes)
	r.changed(now, id, true)
	for _, q := range r.waiting[id] {
		heap.Push(&r.queue, q)
	}
	r.waiting[id] = r.waiting[id][:0]
	r.dispatch(now)
	r.policy.Seen(now, id, 0, r.open[id] > 0)
}

// dispatch starts the most urgent query, if the device is free, and drops those that would be late.
func (r *run) dispatch(now time.Duration) {
	for r.free == never && len(r.queue) > 0 {
		q := heap.Pop(&r.queue).(query)
		if exec := r.world.models[q.model].exec; now+exec <= q.deadline {
			r.running, r.free = q, now+exec
			return
		}
		r.measured(&r.sum.Violations, q.arrival, 1)
		r.answered(now, q.model)
	}
}

// answered takes in the answer of a query. A model without any may be evicted.
func (r *run) answered(now time.Duration, id int) {
	if r.open[id]--; r.open[id] == 0 {
		r.policy.Seen(now, id, 0, false)
	}
}

// act carries out what the policy wants done. The memory of an evicted model is free at once.
func (r *run) act(now time.Duration) {
	for {
		step, ok := r.policy.Next(now)
		if !ok {
			return
		}
		if !step.Load {
			r.policy.Gone(now, step.Model)
			r.changed(now, step.Model, false)
			r.measured(&r.sum.Evictions, now, 1)
			continue
		}
		// Predictions err, so that a promise may be broken.
		factor := max(0.5, 1+loadNoise*r.noise.NormFloat64())
		takes := time.Duration(float64(r.world.models[step.Model].load) * factor)
		r.loading, r.loaded = step.Model, now+takes
		r.measured(&r.sum.Loads, now, 1)
		r.measured(&r.sum.Loading, now, takes.Seconds())
	}
}

// byDeadline is a heap of queries.
type byDeadline []query

func (h byDeadline) Len() int           { return len(h) }
func (h byDeadline) Less(i, j int) bool { return h[i].deadline < h[j].deadline }
func (h byDeadline) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byDeadline) Push(q any)        { *h = append(*h, q.(query)) }
func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	q := (*h)[last]
	*h = (*h)[:last]
	return q
}
