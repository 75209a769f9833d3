package selection

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// small returns a worker whose chain is small enough to compute by hand.
func small(workers int, load, cv float64, levels int) Worker {
	return Worker{
		Variants: []Variant{
			{Name: "fast", Accuracy: 60, Latency: []float64{11, 17, 24, 33}},
			{Name: "mean", Accuracy: 75, Latency: []float64{23.5, 41, 70, 130}},
			{Name: "slow", Accuracy: 80, Latency: []float64{61, 99}},
		},
		Target: 100, Workers: workers, Rate: load, CV: cv, Queue: 4, Levels: levels,
	}
}

func smallWorkers() (workers []Worker) {
	for _, k := range []int{1, 3} {
		for _, load := range []float64{10, 100} {
			workers = append(workers, small(k, load*float64(k), 1, 0), small(k, load*float64(k), 2, 7))
		}
	}
	return workers
}

func (w Worker) String() string {
	return fmt.Sprintf("K=%d,load=%v,cv=%v,levels=%d,variable=%v,drop=%v", w.Workers, w.Rate, w.CV, w.Levels, w.Variable, w.Drop)
}

// plainCount is PF(k, T) by its recurrence.
func plainCount(w *Worker, k int, t float64) float64 {
	mean, d := w.Rate/1000*max(t, 0), w.CV*w.CV
	if mean == 0 {
		return map[bool]float64{true: 1}[k == 0]
	}
	p := math.Exp(-mean)
	if d > 1 {
		p = math.Pow(1/d, mean/(d-1))
	}
	for i := range k {
		if d > 1 {
			p *= (float64(i) + mean/(d-1)) / float64(i+1) * (1 - 1/d)
		} else {
			p *= mean / float64(i+1)
		}
	}
	return p
}

// plainRow is what an action leads to as section 4.4 has it: the sum over the arrivals in the
// intervals A to D.
func plainRow(c *chain, state, r int) []float64 {
	row := make([]float64, len(c.phases))
	n, j := c.split(state)
	l, k := c.runs[r].latency, c.Workers
	var norm float64
	for kA := (n - 1) * k; kA < n*k; kA++ {
		norm += plainCount(c.Worker, kA, c.Target-c.slack[j])
	}
	left := 1.0
	for kA := (n - 1) * k; kA < n*k; kA++ {
		weight := plainCount(c.Worker, kA, c.Target-c.slack[j]) / norm
		if norm == 0 { // no time has passed
			weight = map[bool]float64{true: 1}[kA == (n-1)*k]
		}
		for b := range k - kA%k { // none at all
			q := weight * plainCount(c.Worker, b, l)
			row[c.fresh()] += q
			left -= q
		}
		for jj := range len(c.slack) - 1 {
			tB := max(0, l+c.slack[jj]-c.Target)
			if jj == 0 {
				tB = 0 // a slack below 0 has the lowest level
			}
			tC := max(0, l+c.slack[jj+1]-c.Target-tB)
			tD := l - tB - tC
			for more := 1; more <= c.Queue; more++ {
				sum := 0.0
				for kB := range k - kA%k {
					for kC := k - kA%k - kB; kC <= (more+1)*k-kA%k-kB-1; kC++ {
						for kD := max(0, more*k-kA%k-kB-kC); kD <= (more+1)*k-kA%k-kB-1-kC; kD++ {
							sum += plainCount(c.Worker, kB, tB) * plainCount(c.Worker, kC, tC) * plainCount(c.Worker, kD, tD)
						}
					}
				}
				row[c.state(more, jj)] += weight * sum
				left -= weight * sum
			}
		}
	}
	row[c.state(c.Queue, 0)] += left
	return row
}

func fastRow(c *chain, state, r int) []float64 {
	row := make([]float64, len(c.phases))
	if n, _ := c.split(state); c.runs[r].batch < n {
		c.carried(state, r, nil, row, 1)
		return row
	}
	for i := range c.ahead {
		clear(c.ahead[i])
	}
	push([]float64{1}, c.phases[state], c.ahead[r])
	c.spread(row)
	return row
}

func TestTransitionsAreThePapers(t *testing.T) {
	for _, w := range smallWorkers() {
		t.Run(w.String(), func(t *testing.T) {
			c := newChain(&w)
			random := rand.New(rand.NewPCG(1, 2))
			value := make([]float64, len(c.phases))
			for i := range value {
				value[i] = random.NormFloat64()
			}
			c.expect(value)
			expected := make([]float64, len(c.runs))
			for state := range c.phases {
				n, _ := c.split(state)
				for i, r := range c.byBatch[n] {
					expected[i] = floats.Dot(c.phases[state], c.ahead[r])
				}
				for i, r := range c.byBatch[n] {
					want, got := plainRow(c, state, r), fastRow(c, state, r)
					sum, mean := 0.0, 0.0
					for s := range want {
						if math.Abs(want[s]-got[s]) > 1e-10 {
							a, j := c.split(s)
							t.Fatalf("state %d, run %d: to %d queries of level %d with %v, want %v", state, r, a, j, got[s], want[s])
						}
						sum += got[s]
						mean += want[s] * value[s]
					}
					if math.Abs(sum-1) > 1e-10 || math.Abs(mean-expected[i]) > 1e-9 {
						t.Fatalf("state %d, run %d: sum %v, expected value %v, want 1 and %v", state, r, sum, expected[i], mean)
					}
				}
				c.expect(value)
			}
		})
	}
}

// TestTransitionsAreTrue plays actions many times, also those that leave queries behind.
func TestTransitionsAreTrue(t *testing.T) {
	const plays = 20_000
	random := rand.New(rand.NewPCG(6, 7))
	type action struct{ n, level, batch, run int }
	whole := []action{{1, 7, 1, 1}, {1, 5, 1, 2}, {2, 3, 2, 0}, {3, 4, 3, 1}, {4, 0, 4, 0}}
	part := []action{{2, 5, 1, 0}, {2, 2, 1, 1}, {3, 3, 1, 2}, {4, 3, 3, 0}, {4, 0, 2, 0}, {4, 1, 0, 0}, {3, 4, 0, 0}}
	for _, run := range []struct {
		workers int
		load    float64
		actions []action
	}{{3, 100, whole}, {1, 35, part}, {3, 105, part}} {
		w := small(run.workers, run.load, 1, 7)
		w.Variable, w.Drop = true, true
		c := newChain(&w)
		for _, at := range run.actions {
			state, run, taken := c.state(at.n, at.level), c.dropped, max(at.batch, 1)
			if at.batch > 0 {
				run = c.byBatch[at.batch][min(at.run, len(c.byBatch[at.batch])-1)]
			}
			l, waited := c.runs[run].latency, w.Target-c.slack[at.level]
			counts := make([]float64, len(c.phases))
			for played := 0; played < plays; {
				came, phase := []float64{0}, 0
				until := func(now, end float64) float64 {
					for ; now < end; now += random.ExpFloat64() * 1000 / w.Rate {
						if phase++; phase == w.Workers {
							came, phase = append(came, now), 0
						}
					}
					return now
				}
				now := until(random.ExpFloat64()*1000/w.Rate, waited)
				if len(came) != at.n {
					continue
				}
				played++
				until(now, waited+l)
				to := c.fresh()
				if len(came) > taken {
					to = c.state(len(came)-taken, levelOf(c.slack, w.Target-(waited+l-came[taken])))
				}
				counts[to]++
			}
			for s, p := range fastRow(c, state, run) {
				if sigma := math.Sqrt(p*(1-p)*plays) + 1; math.Abs(counts[s]-p*plays) > 5*sigma {
					t.Errorf("%d workers, state %d, run %d: %v times to state %d, want %.1f ± %.1f", w.Workers, state, run, counts[s], s, p*plays, sigma)
				}
			}
		}
	}
}
