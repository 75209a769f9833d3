package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// trouble is a time during which a device takes longer than it is known to.
type trouble struct {
	from, to time.Duration
	factor   float64
}

// troubled is a device with troubles, of which the worst counts while it lasts.
type troubled struct {
	*formula
	flat     bool // a batch takes as long as its size, with a tenth of a single query for each further one
	troubles []trouble
	now      func() time.Duration
}

func (d *troubled) Latency(g models.Group) time.Duration {
	if !d.flat {
		return d.formula.Latency(g)
	}
	var sum time.Duration
	for _, s := range g.Spans {
		sum += d.op[s.Service] * time.Duration(s.Len()) * time.Duration(9+s.Size) / 10
	}
	return sum
}

func (d *troubled) Sample(g models.Group, r *rand.Rand) time.Duration {
	left := float64(d.Latency(g)) * (1 + d.spread*min(max(r.NormFloat64(), -3), 3))
	at := d.now()
	for left >= 1 {
		factor, until := 1.0, time.Duration(never)
		for _, t := range d.troubles {
			if t.from <= at && at < t.to {
				factor, until = max(factor, t.factor), min(until, t.to)
			} else if t.from > at {
				until = min(until, t.from)
			}
		}
		took := time.Duration(min(left*factor, float64(until-at)))
		left -= float64(took) / factor
		at += took
	}
	return at - d.now()
}

// served counts the queries of a service that came from a time on, and those in time.
type served struct{ queries, inTime int }

// heal runs a scenario and counts what was served of each service from a time on. Before
// each step it calls between.
func heal(t *testing.T, sc Scenario, from time.Duration, between func(w *world)) []served {
	t.Helper()
	counts := make([]served, len(sc.Services))
	sc.Observer.Answer = func(a *Answer) {
		if c := &counts[a.Query.Service]; a.Query.At >= from {
			if c.queries++; a.InTime {
				c.inTime++
			}
		}
	}
	w := begun(t, sc)
	for i := range w.nodes {
		if d, ok := w.nodes[i].device.(*troubled); ok {
			d.now = func() time.Duration { return w.now }
		}
	}
	for w.left > 0 {
		if between != nil {
			between(w)
		}
		if err := w.step(); err != nil {
			t.Fatalf("at %v: %v", w.now, err)
		}
	}
	return counts
}

// every returns queries of a service at a rate, up to a time.
func every(service models.ServiceID, gap, until time.Duration, size int, timeout time.Duration) (list []Query) {
	for at := gap; at < until; at += gap {
		list = append(list, Query{At: at, Service: service, Size: size, Timeout: timeout})
	}
	return list
}

func byTime(lists ...[]Query) []Query {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b Query) int { return int(a.At - b.At) })
	return all
}

// healers are the policies of which none may be locked out by what was learned.
var healers = []string{"fcfs", "edf", "sjf", "clockwork", "abacus", "overlap"}

// TestSlowMomentLocksNobodyOut: the estimate that a slow moment leaves is below the target and
// above the timeout of the clients, so that by it nothing would ever run again.
func TestSlowMomentLocksNobodyOut(t *testing.T) {
	for _, policy := range healers {
		t.Run(policy, func(t *testing.T) {
			d := &troubled{formula: newFormula(1, 0.02, ms), troubles: []trouble{{time.Second, 1150 * ms, 2.2}}}
			counts := heal(t, Scenario{
				Policy: policy, Device: d, Services: []Service{{Name: "a", Target: 100 * ms}},
				Given: every(0, 25*ms, 60*time.Second, 1, 15*ms), Check: true,
			}, 10*time.Second, nil)
			if c := counts[0]; c.inTime < c.queries*99/100 {
				t.Errorf("%d of %d queries are in time, after 10 s without trouble", c.inTime, c.queries)
			}
		})
	}
}

// TestUnmeasuredSizeIsTried: what is known of size 1 says that size 32 takes 320 ms. It takes 41.
func TestUnmeasuredSizeIsTried(t *testing.T) {
	for _, policy := range healers {
		t.Run(policy, func(t *testing.T) {
			d := &troubled{formula: newFormula(1, 0.02, ms), flat: true}
			d.models[0].Sizes = nil
			counts := heal(t, Scenario{
				Policy: policy, Device: d, Services: []Service{{Name: "a", Target: 400 * ms}},
				Given: every(0, time.Second, 120*time.Second, 32, 200*ms), Check: true,
			}, 10*time.Second, nil)
			if c := counts[0]; c.inTime < c.queries*99/100 {
				t.Errorf("%d of %d queries are in time", c.inTime, c.queries)
			}
		})
	}
}

// TestSlowDeviceIsLearned: beyond overrun_factor every round of a slow device is an overrun.
func TestSlowDeviceIsLearned(t *testing.T) {
	for _, policy := range healers {
		t.Run(policy, func(t *testing.T) {
			const hour = time.Hour
			d := &troubled{formula: newFormula(1, 0.02, ms), troubles: []trouble{{time.Second, hour, 3}}}
			counts := heal(t, Scenario{
				Policy: policy, Device: d, Services: []Service{{Name: "a", Target: 100 * ms}},
				Given: every(0, 33*ms, 120*time.Second, 1, 0), Check: true,
			}, 10*time.Second, nil)
			if c := counts[0]; c.inTime < c.queries*95/100 {
				t.Errorf("%d of %d queries are in time on a device of which they use nine tenths", c.inTime, c.queries)
			}
		})
	}
}

// TestHopelessSizesHurtNobody: a client sends what can never be in time. That small queries
// of its service are says nothing of it.
func TestHopelessSizesHurtNobody(t *testing.T) {
	for _, policy := range healers {
		t.Run(policy, func(t *testing.T) {
			d := &troubled{formula: newFormula(1, 0.02, 500*time.Microsecond, ms)}
			sc := Scenario{
				Policy: policy, Device: d, Check: true,
				Services: []Service{{Name: "a", Target: 50 * ms, Sizes: []int{1, 32}}, {Name: "b", Target: 50 * ms}},
			}
			small, neighbour := every(0, 50*ms, 60*time.Second, 1, 0), every(1, 50*ms, 60*time.Second, 1, 0)
			large := every(0, 250*ms, 60*time.Second, 64, 0)
			sc.Given = byTime(small, large, neighbour)
			counts := heal(t, sc, 0, nil)
			if c := counts[1]; c.inTime < c.queries*95/100 {
				t.Errorf("%d of %d queries of the neighbour are in time", c.inTime, c.queries)
			}
			if c := counts[0]; c.inTime < len(small)*95/100 {
				t.Errorf("%d of %d small queries are in time", c.inTime, len(small))
			}
		})
	}
}

// TestTroubleHeals: after any troubles, once the device is well again, each service that a
// fresh daemon would serve is served within a minute. A failure prints the seed.
func TestTroubleHeals(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 12
	}
	if *oneSeed != 0 {
		healSeed(t, *oneSeed)
		return
	}
	for chunk := range uint64(seedChunks) {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			t.Parallel()
			for seed := chunk + 1; seed <= seeds; seed += seedChunks {
				healSeed(t, seed)
			}
		})
	}
}

const (
	troubleUntil = 10 * time.Second
	wellFrom     = troubleUntil + time.Minute
	wellUntil    = wellFrom + 30*time.Second
)

func healSeed(t *testing.T, seed uint64) {
	t.Helper()
	fresh := heal(t, healScenario(seed, false), wellFrom, nil)
	again := heal(t, healScenario(seed, true), wellFrom, disturbances(seed))
	for i := range fresh {
		if f, a := fresh[i], again[i]; a.inTime < f.inTime*8/10-2 { // who is locked out has none
			sc := healScenario(seed, true)
			t.Errorf("seed %d, %s: of %d queries of service %d of %d %d are in time, of a fresh one %d; again with: go test ./lab/sim -run TestTroubleHeals -seed %d",
				seed, sc.Policy, a.queries, i, len(fresh), a.inTime, f.inTime, seed)
		}
	}
}

// healScenario makes up a light load, with some timeouts and some sizes that were never
// measured, on a device, a pool, with variants or pipelines, and with troubles or without.
func healScenario(seed uint64, withTroubles bool) Scenario {
	r := rand.New(rand.NewPCG(seed, 777))
	var op []time.Duration
	n := 1 + r.IntN(3)
	for range n {
		op = append(op, time.Duration(1+r.IntN(4))*ms)
	}
	d := &troubled{formula: newFormula(0.3+0.7*r.Float64(), 0.03, op...), flat: r.IntN(2) == 0}
	for i := range d.models {
		d.models[i].Sizes = nil
	}
	sc := Scenario{Policy: []string{"overlap", "overlap", "abacus", "edf"}[r.IntN(4)], Device: d, Seed: seed, Check: seed%4 == 0, Plan: true, MaxRetries: 1}
	kind := r.IntN(4)
	for i := range n {
		alone := 10 * op[i]
		s := Service{Name: d.models[i].Name, MaxBatch: 1 << r.IntN(3), Target: time.Duration((3 + 5*r.Float64()) * float64(alone))}
		timeout := time.Duration(0)
		if r.IntN(2) == 0 {
			timeout = time.Duration((1.3 + r.Float64()) * float64(alone))
		}
		gap := time.Duration(float64(alone) * float64(n) * (4 + 4*r.Float64()))
		size := 1
		if d.flat && r.IntN(3) == 0 {
			size, timeout = 8, timeout*2 // takes 1.7 times as long as one, and is known to take eight times
		}
		list := every(models.ServiceID(i), gap, wellUntil, size, timeout)
		for k := range list {
			list[k].At += time.Duration(r.Int64N(int64(gap)))
		}
		sc.Given = byTime(sc.Given, list)
		sc.Services = append(sc.Services, s)
	}
	slower := *d
	switch kind {
	case 1: // a pool with a slow device
		f := *d.formula
		slower.formula, f.op = &f, slices.Clone(d.op)
		for i := range f.op {
			f.op[i] *= 2
		}
		sc.Kinds, sc.Devices, sc.Dispatch = []Device{d, &slower}, 2, Pool
	case 2: // a variant of the first service that takes twice as long
		d.models = append(d.models, d.models[0])
		d.models[n].Name, d.op = "slow", append(slices.Clone(d.op), 2*d.op[0])
		sc.Services[0].Of = "a"
		sc.Services = append(sc.Services, Service{Name: "slow", Of: "a", Accuracy: 1, MaxBatch: sc.Services[0].MaxBatch, Target: sc.Services[0].Target})
		sc.Selector = accurate{}
	case 3:
		sc.Devices, sc.Dispatch = 2, Pool
		half := d.models[0].Operators / 2
		sc.Services[0].Pipelines = []models.Pipeline{{Batch: 1, Stages: []models.Stage{{End: half, Devices: []int{0}, Move: ms}, {End: 2 * half, Devices: []int{1}}}}}
	}
	if withTroubles {
		for range 1 + r.IntN(4) {
			from := time.Duration(r.Int64N(int64(troubleUntil)))
			long := time.Duration(r.Int64N(int64(4 * time.Second)))
			trouble := trouble{from, min(from+long, troubleUntil), 1.2 + 20*r.Float64()*r.Float64()}
			d.troubles, slower.troubles = append(d.troubles, trouble), append(slower.troubles, trouble)
		}
	}
	return sc
}

// accurate selects the variant that takes longer.
type accurate struct{}

func (accurate) Select(string, int, time.Duration) string { return "slow" }

// disturbances loses workers, changes services, and loads models again while the device is
// slow, so that their first measurements are wrong.
func disturbances(seed uint64) func(w *world) {
	r := rand.New(rand.NewPCG(seed, 778))
	next := time.Duration(r.Int64N(int64(2 * time.Second)))
	type down struct {
		node    *node
		service models.ServiceID
		until   time.Duration
	}
	var lost []down
	return func(w *world) {
		for len(lost) > 0 && lost[0].until <= w.now {
			if err := lost[0].node.back(lost[0].service); err != nil {
				panic(err)
			}
			lost = lost[1:]
		}
		if w.now < next || w.now > troubleUntil {
			return
		}
		next = w.now + time.Duration(r.Int64N(int64(2*time.Second)))
		n, service := w.nodes[r.IntN(len(w.nodes))], models.ServiceID(r.IntN(len(w.services)))
		switch m := w.services[service]; r.IntN(3) {
		case 0:
			if len(lost) == 0 && !n.down[service] {
				if err := n.die(service); err != nil {
					panic(err)
				}
				lost = append(lost, down{n, service, w.now + time.Duration(r.Int64N(int64(time.Second)))})
			}
		case 1:
			_ = n.control.step(overlap.Event{Kind: overlap.Change, Definition: m})
			n.control.touched()
		case 2:
			s := w.nodes[r.IntN(len(w.nodes))]
			whole := models.Span{Service: service, End: m.Operators, Size: 1}
			g := models.Group{Spans: []models.Span{whole}}
			took := s.device.Sample(g, rand.New(rand.NewPCG(seed, uint64(w.now))))
			if err := s.predictor.Reset(service, m.Operators); err != nil {
				panic(err)
			}
			for range 3 {
				if err := s.predictor.Observe(w.now, g, took); err != nil {
					panic(err)
				}
			}
		}
	}
}
