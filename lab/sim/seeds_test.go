package sim

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "run only this seed of TestSeeds and TestPoolSeeds")
	poolSeeds = flag.Uint64("pools", 300, "seeds of TestPoolSeeds")

	pipelineSeeds = flag.Uint64("pipelines", 1000, "seeds of TestPipelineSeeds")
)

const (
	manySeeds  = 1000
	seedChunks = 8 // that run at the same time
)

// TestSeeds runs scenarios that are made up from seeds: services, loads,
// policies, noise, workers that die and clients that leave. The schedulers are
// held to their invariants after every event, and the run to what must be true
// of every schedule. One that fails is run again with
//
//	go test ./lab/sim -run TestSeeds -seed N
func TestSeeds(t *testing.T) {
	trySeeds(t, manySeeds, func(uint64, *Scenario) {})
}

// TestPoolSeeds does so with one scheduler for two to five devices.
func TestPoolSeeds(t *testing.T) {
	trySeeds(t, *poolSeeds, func(seed uint64, sc *Scenario) {
		sc.Dispatch, sc.Devices = Pool, 2+int(seed%4)
		for i := range sc.Services {
			if on := rand.New(rand.NewPCG(seed, uint64(i))).Perm(sc.Devices); seed%3 == 0 {
				sc.Services[i].On = on[:1+int(seed)%sc.Devices]
			}
		}
	})
}

// TestPipelineSeeds does so with services whose batches go from device to device, which are
// of two kinds, over links that some share.
func TestPipelineSeeds(t *testing.T) {
	trySeeds(t, *pipelineSeeds, func(seed uint64, sc *Scenario) {
		r := rand.New(rand.NewPCG(seed, 54321))
		sc.Dispatch, sc.Devices, sc.Policy = Pool, 2+r.IntN(5), []string{"edf", "overlap", "reactive"}[r.IntN(3)]
		slow := *sc.Device.(*formula)
		slow.op = slices.Clone(slow.op)
		for i := range slow.op {
			slow.op[i] = slow.op[i] * time.Duration(1+r.IntN(3))
		}
		for range sc.Devices {
			sc.Kinds = append(sc.Kinds, []Device{sc.Device, &slow}[r.IntN(2)])
			sc.Links = append(sc.Links, r.IntN(sc.Devices))
		}
		if r.IntN(3) == 0 {
			sc.Links = nil
		}
		for i := range sc.Services {
			if s := &sc.Services[i]; !s.BestEffort && r.IntN(4) > 0 {
				for range 1 + r.IntN(3) {
					s.Pipelines = append(s.Pipelines, anyPipeline(r, sc, i))
				}
			}
		}
	})
}

// anyPipeline makes one up.
func anyPipeline(r *rand.Rand, sc *Scenario, service int) (p models.Pipeline) {
	operators := sc.Device.Models()[service].Operators
	p.Batch = 1 << r.IntN(4)
	for end := 0; end < operators; {
		end = min(end+1+r.IntN(operators), operators)
		devices := r.Perm(sc.Devices)[:1+r.IntN(sc.Devices)]
		p.Stages = append(p.Stages, models.Stage{End: end, Devices: devices, Move: time.Duration(r.IntN(2000)) * time.Microsecond})
	}
	p.Stages[len(p.Stages)-1].Move = 0
	return p
}

// trySeeds runs the scenarios of so many seeds, with a change.
func trySeeds(t *testing.T, seeds uint64, change func(seed uint64, sc *Scenario)) {
	if *oneSeed != 0 {
		if err := trySeed(t, *oneSeed, change); err != nil {
			t.Fatalf("seed %d: %v", *oneSeed, err)
		}
		return
	}
	if testing.Short() {
		seeds /= 10
	}
	name := t.Name()
	for chunk := range uint64(seedChunks) {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			t.Parallel()
			for seed := chunk + 1; seed <= seeds; seed += seedChunks {
				if err := trySeed(t, seed, change); err != nil {
					t.Errorf("seed %d: %v; again with: go test ./lab/sim -run %s -seed %d", seed, err, name, seed)
				}
			}
		})
	}
}

// trySeed runs the scenario of a seed, some of them twice.
func trySeed(t testing.TB, seed uint64, change func(seed uint64, sc *Scenario)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	sc := anyScenario(t, seed)
	change(seed, &sc)
	w := newWitness(&sc)
	sc.Observer = observer{Round: w.round, Answer: w.answer, Move: w.moved, late: w.late, worker: w.worker}
	r, err := Run(sc)
	if err = errors.Join(err, w.fault); err != nil {
		return err
	}
	if err := w.agree(r); err != nil || seed%8 != 0 {
		return err
	}
	sc.Observer = observer{}
	again, err := Run(sc)
	if err == nil && text(t, r) != text(t, again) {
		err = fmt.Errorf("the same scenario gives another result:\n%s\n%s", text(t, r), text(t, again))
	}
	return err
}

// anyScenario makes a scenario up.
func anyScenario(t testing.TB, seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 12345))
	chance := func(of int) bool { return r.IntN(of) == 0 }
	pick := func(list ...int) int { return list[r.IntN(len(list))] }
	n := pick(1, 2, 2, 3, 4)
	var op []time.Duration
	for range n {
		op = append(op, time.Duration(20+r.IntN(400))*time.Microsecond)
	}
	f := newFormula(0.1+0.7*r.Float64(), []float64{0, 0.02, 0.05, 0.2}[r.IntN(4)], op...)
	for i := range f.models {
		f.models[i].Operators = 1 + r.IntN(12)
	}
	policies := wholePolicies()
	sc := Scenario{
		Seed: seed, Queries: 100 + r.IntN(300), Device: f, Check: true, Scheduler: Others.New,
		Policy: policies[r.IntN(len(policies))], Ways: pick(0, 0, 1, 2, 16), Plan: chance(2), MaxRetries: pick(0, 1, 3),
		Knows: [...]string{KnowsOrder, KnowsNothing, 11: KnowsAll}[r.IntN(12)], Devices: pick(1, 1, 1, 2, 3), Dispatch: dispatches[r.IntN(len(dispatches))],
		DecisionTime: time.Duration(pick(0, 0, 100)) * time.Microsecond, RoundTime: time.Duration(pick(0, 0, 50)) * time.Microsecond,
	}
	if chance(2) {
		sc.Policy = "overlap"
	}
	if !chance(4) {
		sc.Predictor = formulaPredictor(t, f, seed)
	}
	work := 0.0 // seconds, of a query
	for i := range n {
		s := Service{
			Name: f.models[i].Name, MaxBatch: pick(0, 1, 8, 32), QueueLimit: pick(0, 0, 3), BestEffort: chance(6),
			Priority: pick(0, 0, 0, 1, 2), Sizes: [][]int{nil, {1}, {1, 4}, {4, 8, 16, 32}}[r.IntN(4)], Share: float64(pick(1, 1, 5)),
		}
		largest := max(most(s.Sizes, 1), 1)
		solo := f.Latency(models.Group{Spans: []models.Span{{Service: models.ServiceID(i), End: f.models[i].Operators, Size: largest}}})
		s.Target = time.Duration((0.5 + 6*r.Float64()) * float64(solo))
		work += solo.Seconds() / float64(n)
		sc.Services = append(sc.Services, s)
	}
	sc.Arrivals = anyArrivals(r, float64(sc.Devices)*(0.3+2.5*r.Float64())/work)
	if chance(2) {
		sc.Faults = faults{Every: time.Duration((5 + 100*r.Float64()) * work * 1e9), Restart: time.Duration(10 * r.Float64() * work * 1e9)}
	}
	if chance(3) {
		sc.Faults.Failing = 0.1
	}
	if chance(2) {
		sc.Clients = clients{Leaving: 0.5 * r.Float64(), Timeout: time.Duration(pick(0, 1, 5) * int(sc.Services[0].Target))}
	}
	return sc
}

func anyArrivals(r *rand.Rand, qps float64) Arrivals {
	a := Arrivals{Process: []string{Constant, Poisson, Gamma, MMPP, Times}[r.IntN(5)], QPS: qps, Shape: 0.3}
	a.States = []State{{0.2 * qps, 20 / qps}, {3 * qps, 20 / qps}}
	for i := range 60 { // ten at a time
		a.Times = append(a.Times, time.Duration(float64(i/10)*1e10/qps))
	}
	return a
}

// witness sees what happens and holds it to what must be true of every
// schedule.
type witness struct {
	sc      *Scenario
	fault   error
	ended   map[int]time.Duration // of each device the last round
	next    map[[2]uint64]int     // of each batch of a device the operator to run next
	members map[[2]uint64][]models.QueryID
	whole   map[models.QueryID]bool // its batch has run to its end
	seen    map[int]bool
	died    map[[2]int]time.Duration // of each device and service, when its worker was last lost
	carried map[[2]int]time.Duration // of each side of a link, until when it has carried a batch
	good    int
}

func newWitness(sc *Scenario) *witness {
	return &witness{
		sc: sc, ended: map[int]time.Duration{}, next: map[[2]uint64]int{}, members: map[[2]uint64][]models.QueryID{},
		whole: map[models.QueryID]bool{}, seen: map[int]bool{}, died: map[[2]int]time.Duration{}, carried: map[[2]int]time.Duration{},
	}
}

func (w *witness) fail(format string, args ...any) {
	if w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

func (w *witness) round(r *Round) {
	if r.Chosen < w.ended[r.Device] || r.Start < r.Chosen || r.End < r.Chosen || len(r.Spans) == 0 {
		w.fail("round %d of device %d is chosen at %v and runs from %v to %v, the last ended at %v", r.Number, r.Device, r.Chosen, r.Start, r.End, w.ended[r.Device])
	}
	w.ended[r.Device] = r.End
	services := map[models.ServiceID]bool{}
	for i, s := range r.Spans {
		batch := [2]uint64{uint64(r.Device), uint64(s.Batch)}
		ops := w.sc.Device.Models()[s.Service].Operators
		if services[s.Service] || s.Start != w.next[batch] || s.End <= s.Start || s.End > ops {
			w.fail("round %d runs %+v, its batch is at operator %d of %d", r.Number, s, w.next[batch], ops)
		}
		services[s.Service] = true
		if s.Start > 0 && fmt.Sprint(w.members[batch]) != fmt.Sprint(r.Queries[i]) {
			w.fail("batch %d had queries %v and has %v", s.Batch, w.members[batch], r.Queries[i])
		}
		w.members[batch] = append([]models.QueryID(nil), r.Queries[i]...)
		o := r.Outcome.Spans[i]
		died, dead := w.died[[2]int{r.Device, int(s.Service)}]
		if dead && died >= r.Chosen && died < r.End && o.Status == models.SpanDone {
			w.fail("round %d from %v to %v runs service %d to its end, whose worker was lost at %v", r.Number, r.Chosen, r.End, s.Service, died)
		}
		w.reached(r.Device, &o)
	}
}

// late receives a span that its round did not wait for.
func (w *witness) late(device int, o *models.SpanOutcome) { w.reached(device, o) }

// reached records where a batch is after one of its spans.
func (w *witness) reached(device int, o *models.SpanOutcome) {
	batch, ops := [2]uint64{uint64(device), uint64(o.Span.Batch)}, w.sc.Device.Models()[o.Span.Service].Operators
	w.next[batch] = o.Reached
	if o.Status == models.SpanLost || o.Status == models.SpanFailed {
		w.next[batch] = ops // it does not run again
	} else if o.Reached == ops {
		for _, id := range w.members[batch] {
			w.whole[id] = true
		}
	}
}

// moved takes a batch to another device. What was lost runs again, or never.
func (w *witness) moved(m *Moved) {
	from, to := [2]uint64{uint64(m.Device), uint64(m.Batch)}, [2]uint64{uint64(m.To), uint64(m.Batch)}
	if m.Operator != w.next[from] || m.Start < m.Asked || m.End < m.Start {
		w.fail("batch %d moves at operator %d and is at %d: %+v", m.Batch, m.Operator, w.next[from], m)
	}
	if m.Status == models.SpanDone {
		w.next[to], w.members[to] = w.next[from], w.members[from]
	}
	w.next[from] = -1
	if w.sc.Links == nil || m.Start == m.End {
		return
	}
	for side, link := range [2]int{w.sc.Links[m.Device], w.sc.Links[m.To]} {
		if before := w.carried[[2]int{side, link}]; m.Start < before {
			w.fail("batch %d moves from %v on, and link %d carries another until %v", m.Batch, m.Start, link, before)
		}
		w.carried[[2]int{side, link}] = m.End
	}
}

func (w *witness) worker(device int, service models.ServiceID, at time.Duration, ready bool) {
	if !ready {
		w.died[[2]int{device, int(service)}] = at
	}
}

func (w *witness) answer(a *Answer) {
	id := models.QueryID(a.Number + 1)
	switch {
	case w.seen[a.Number]:
		w.fail("query %d is answered twice", id)
	case a.Ended.At < a.Query.At:
		w.fail("query %d of %v is answered at %v", id, a.Query.At, a.Ended.At)
	case (a.Ended.Result == overlap.Finished) && !w.whole[id]:
		w.fail("query %d is finished, its batch has not run to its end", id)
	case a.Ended.Result == overlap.Finished && a.Query.Leaves > 0 && a.Ended.At > a.Query.Leaves:
		w.fail("query %d is finished at %v for a client that left at %v", id, a.Ended.At, a.Query.Leaves)
	case a.Ended.Result == overlap.Cancelled && (a.Query.Leaves == 0 || a.Ended.At < a.Query.Leaves):
		w.fail("query %d is cancelled at %v, its client leaves at %v", id, a.Ended.At, a.Query.Leaves)
	case a.Ended.Result == overlap.Failed && w.sc.Faults == faults{}:
		w.fail("query %d failed, and nothing can fail", id)
	}
	w.seen[a.Number] = true
	if a.InTime {
		w.good++
	}
}

// agree compares what was seen with what is counted.
func (w *witness) agree(r *Result) error {
	switch {
	case len(w.seen) != r.Queries || r.Answered+r.Dropped+r.Failed+r.Cancelled != r.Queries:
		return fmt.Errorf("%d of %d queries are answered: %s", len(w.seen), r.Queries, "exactly one answer each")
	case r.Answered-r.Late != w.good:
		return fmt.Errorf("%d answers in time, %d of them late, %d were seen in time", r.Answered, r.Late, w.good)
	case !within(r.Violations, 0, 1) || !within(r.Busy, 0, 1+1e-9) || r.GoodputQPS > r.ThroughputQPS:
		return fmt.Errorf("violations %v, busy %v, goodput %v of %v", r.Violations, r.Busy, r.GoodputQPS, r.ThroughputQPS)
	}
	return nil
}
