package selection

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestPolicyIsThatOfPlainValueIteration compares with value iteration on dense matrices that
// are the paper's sums: at the policy's mean accuracy nothing more is to be had, and in each
// state nothing is better than what it chooses.
func TestPolicyIsThatOfPlainValueIteration(t *testing.T) {
	workers := smallWorkers()
	for _, load := range []float64{60, 150} {
		for way := 1; way < 4; way++ { // how queries are left behind is TestTransitionsAreTrue's business
			w := small(3, load, 1, 7)
			w.Variable, w.Drop = way&1 > 0, way&2 > 0
			workers = append(workers, w)
		}
	}
	for _, w := range workers {
		t.Run(w.String(), func(t *testing.T) {
			s := newSolver(newChain(&w))
			if err := s.solve(t.Context()); err != nil {
				t.Fatal(err)
			}
			rows := make([]map[int][]float64, len(s.value))
			for state := range rows {
				rows[state] = map[int][]float64{}
				n, level := s.chain.split(state)
				for r, run := range s.chain.runs {
					if run.variant != Dropped && (run.batch == n || run.batch < n && w.Variable) && s.chain.inTime(r, level) {
						rows[state][r] = rowOf(s.chain, state, r)
					}
				}
				late := s.chain.byBatch[n][0]
				if w.Drop {
					late = s.chain.dropped
				}
				if len(rows[state]) == 0 || w.Variable {
					rows[state][late] = rowOf(s.chain, state, late)
				}
			}
			worth := func(state, r int, value []float64) float64 {
				_, level := s.chain.split(state)
				sum := s.reward(r, level)
				for to, p := range rows[state][r] {
					sum += p * value[to]
				}
				return sum
			}
			value, next := make([]float64, len(rows)), make([]float64, len(rows))
			var gain float64
			for sweep := 0; ; sweep++ {
				low, high := math.Inf(1), math.Inf(-1)
				for state := range rows {
					next[state] = math.Inf(-1)
					for r := range rows[state] {
						next[state] = max(next[state], worth(state, r, value))
					}
					low, high = min(low, next[state]-value[state]), max(high, next[state]-value[state])
				}
				for state, v := range next {
					value[state] = v - next[0]
				}
				if gain = (low + high) / 2; high-low < 1e-8 {
					break
				}
				if sweep == maxSweeps {
					t.Fatal("plain value iteration does not end")
				}
			}
			if math.Abs(gain) > 1e-6 {
				t.Errorf("beyond an accuracy of %v for each query, %v for each batch is to be had", s.goal, gain)
			}
			for state := range rows {
				best := math.Inf(-1)
				for r := range rows[state] {
					best = max(best, worth(state, r, value))
				}
				if got := worth(state, s.choice[state], value); got < best-1e-6 {
					t.Errorf("state %d: run %d is worth %v, the best is worth %v", state, s.choice[state], got, best)
				}
			}
		})
	}
}

// rowOf is what an action leads to: by the paper's sums if it leaves nothing behind.
func rowOf(c *chain, state, r int) []float64 {
	if n, _ := c.split(state); c.runs[r].batch < n || c.runs[r].variant == Dropped {
		return fastRow(c, state, r)
	}
	return plainRow(c, state, r)
}

// played is what a worker did.
type played struct{ queries, late, accuracy float64 }

// play has a worker serve by a policy for so many milliseconds.
func play(w *Worker, p *Policy, seed uint64, span float64) (sum played) {
	random := rand.New(rand.NewPCG(seed, 5))
	arrival := func() (gap float64) {
		for range w.Workers {
			gap += random.ExpFloat64()
		}
		return gap * 1000 / w.Rate
	}
	next, now := arrival(), 0.0
	var queue []float64
	for now < span {
		for ; next <= now || len(queue) == 0; next += arrival() {
			if queue = append(queue, next); len(queue) == 1 {
				now = max(now, next)
			}
		}
		queue = queue[:min(len(queue), w.Queue)]
		i, b := p.Choose(len(queue), queue[0]+w.Target-now)
		if i == Dropped {
			sum.queries, sum.late, queue = sum.queries+float64(b), sum.late+float64(b), queue[b:]
			continue
		}
		v := p.Variants[i]
		now += v.Latency[b-1]
		for _, came := range queue[:b] {
			if sum.queries++; now > came+w.Target+1e-9 {
				sum.late++
			} else {
				sum.accuracy += v.Accuracy
			}
		}
		queue = queue[b:]
	}
	return sum
}

// TestExpectationHolds is section 5.1: accuracy, where that of a late query is 0, is at least
// and violations are at most what is expected, within the error of the mean.
func TestExpectationHolds(t *testing.T) {
	const seeds, span = 60, 20_000
	for i, load := range []float64{20, 60, 120, 20, 120, 120, 200} {
		w := small(3, load, 1, 50)
		w.Variable, w.Drop = i == 3 || i == 4, i >= 5
		p, err := w.Solve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var accuracy, late, squareA, squareL float64
		for seed := range uint64(seeds) {
			s := play(&w, p, seed, span)
			a, l := s.accuracy/s.queries, s.late/s.queries
			accuracy, late, squareA, squareL = accuracy+a/seeds, late+l/seeds, squareA+a*a/seeds, squareL+l*l/seeds
		}
		errorA, errorL := math.Sqrt((squareA-accuracy*accuracy)/seeds), math.Sqrt((squareL-late*late)/seeds)
		expected := p.Accuracy * (1 - p.Violations)
		t.Logf("load %v: accuracy %.3f ± %.3f, expected %.3f; late %.5f ± %.5f, expected %.5f", load, accuracy, errorA, expected, late, errorL, p.Violations)
		if accuracy < expected-4*errorA || late > p.Violations+4*errorL {
			t.Errorf("load %v: worse than expected", load)
		}
		if accuracy > expected+1.5 || late < p.Violations-0.05 {
			t.Errorf("load %v: the expectation is far from what happens", load)
		}
	}
}

// TestNothingPads has a batch of one that takes longer than one of two. Nobody pads, so a
// query that is alone is late, and the policy says so.
func TestNothingPads(t *testing.T) {
	w := Worker{Variants: []Variant{{Name: "v", Accuracy: 80, Latency: []float64{10, 5}}}, Target: 8, Workers: 1, Rate: 20, CV: 1, Queue: 2, Levels: 50}
	p, err := w.Solve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := play(&w, p, 1, 1e6)
	if got := sum.late / sum.queries; got < 0.9 || p.Violations < got-0.01 {
		t.Errorf("%.3f are late, and %.3f were to be expected", got, p.Violations)
	}
	if got := p.Variants[0].Latency[0]; got != 10 {
		t.Errorf("one query takes %v ms instead of 10", got)
	}
	if set, err := w.SolveSet(t.Context(), 1, 20, nil); err == nil {
		t.Errorf("policies for up to %v queries a second, of which none is in time", set.Rate)
	}
}

func TestChooseNeverFails(t *testing.T) {
	w := small(3, 60, 1, 50)
	p, err := w.Solve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, slack := range []float64{math.NaN(), math.Inf(-1), -5, 0, 3} {
		for _, n := range []int{-1, 0, 1, 4, 1000} {
			if v, _ := p.Choose(n, slack); v != 0 {
				t.Errorf("%d queries with a slack of %v: variant %d, want the fastest", n, slack, v)
			}
		}
	}
	if v, _ := p.Choose(1, math.Inf(1)); v != 2 {
		t.Errorf("a query with all of its time: variant %d, want the most accurate", v)
	}
	if n := testing.AllocsPerRun(100, func() { p.Choose(3, 40) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSolveRefuses(t *testing.T) {
	for want, spoil := range map[string]func(*Worker){
		"0 variants":               func(w *Worker) { w.Variants = nil },
		"accuracy of NaN":          func(w *Worker) { w.Variants[1].Accuracy = math.NaN() },
		"accuracy of 0":            func(w *Worker) { w.Variants[1].Accuracy = 0 },
		"has no latency":           func(w *Worker) { w.Variants[0].Latency = nil },
		"takes -1 ms":              func(w *Worker) { w.Variants[0].Latency[2] = -1 },
		"target of NaN":            func(w *Worker) { w.Target = math.NaN() },
		"queries a second":         func(w *Worker) { w.Rate = 1e12 },
		"coefficient of variation": func(w *Worker) { w.CV = 0.5 },
		"0 workers":                func(w *Worker) { w.Workers = 0 },
		"queue of 1000":            func(w *Worker) { w.Queue = 1000 },
		"a batch of 5":             func(w *Worker) { w.Queue = 5 },
		"-1 levels":                func(w *Worker) { w.Levels = -1 },
	} {
		w := small(3, 60, 1, 50)
		spoil(&w)
		if _, err := w.Solve(t.Context()); !errors.Is(err, errWorker) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestVariableIsNeverWorse holds that variable batches, which may be maximal, answer as well,
// also where there is more to do than the worker can.
func TestVariableIsNeverWorse(t *testing.T) {
	for _, load := range []float64{60, 120} {
		var reached [2]float64
		for i := range reached {
			w := small(4, 4*load, 1, 12)
			w.Variants = []Variant{{Name: "only", Accuracy: 60, Latency: []float64{11, 21, 30, 40, 51, 61, 72, 82}}}
			w.Target, w.Queue, w.Variable = 60, 8, i == 1
			p, err := w.Solve(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			reached[i] = p.Accuracy * (1 - p.Violations)
		}
		if reached[1] < reached[0]-1e-3 {
			t.Errorf("load %v: accuracy %v with variable batches and %v with maximal ones", load, reached[1], reached[0])
		}
	}
}

// TestSolveWhereStatesAreRarelyLeft has so many workers that arrivals at one are almost even,
// and a goal at which two ways to go on are about equally good, so that value iteration would
// take hundreds of thousands of sweeps.
func TestSolveWhereStatesAreRarelyLeft(t *testing.T) {
	w := Worker{Target: 250, Workers: 160, Rate: 6320, CV: 1, Queue: 8, Levels: 10}
	a, b := Variant{Name: "a", Accuracy: 73}, Variant{Name: "b", Accuracy: 78}
	for i := range w.Queue {
		a.Latency = append(a.Latency, 31.5+17*float64(i))
		b.Latency = append(b.Latency, 54+26*float64(i))
	}
	w.Variants = []Variant{a, b}
	sweeps := &counted{Context: t.Context()}
	p, err := w.Solve(sweeps)
	if err != nil {
		t.Fatal(err)
	}
	if sweeps.n > 1000 || math.Abs(p.Accuracy-73.702855) > 1e-6 {
		t.Errorf("%d sweeps to an accuracy of %.6f, want 73.702855", sweeps.n, p.Accuracy)
	}
}

// counted counts how often it is asked whether it is over: once a sweep.
type counted struct {
	context.Context
	n int
}

func (c *counted) Err() error {
	c.n++
	return c.Context.Err()
}
