package reproduce

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/planning"
)

// halved is a cluster of two good GPUs and six that take six times as long for the last
// half of a model and twice as long for the first: too slow for the target alone.
func halved() (*hybrid, planning.Service) {
	h := &hybrid{"small", []string{"good", "poor"}, []int{2, 6}, []int{1, 1}, 10}
	s := planning.Service{Name: "m", Rate: 1, Target: 25, Blocks: planning.Blocks{Ends: []int{1, 2, 3, 4}, Moves: []float64{300, 300, 300}, Margin: mainMargin, Times: map[string][][][]float64{}}}
	for class, slow := range map[string][]float64{"good": {1, 1, 1, 1}, "poor": {2, 2, 6, 6}} {
		var batches [][]float64
		for batch := 1; batch <= 4; batch++ {
			var row []float64
			for _, f := range slow {
				row = append(row, 1000*f*(0.4+0.6*float64(batch)))
			}
			batches = append(batches, row)
		}
		s.Blocks.Times[class] = [][][]float64{batches}
	}
	return h, s
}

// TestPipelinesBearMore: pools of both classes bear more than chains, and these more than
// whole models on the good GPUs, whose load factor is half of PPipe's at most.
func TestPipelinesBearMore(t *testing.T) {
	h, s := halved()
	o := Options{Seed: 1, Seeds: 1, Queries: 6000}
	var found []float64
	rate := 0.0
	for _, c := range systems {
		made, err := c.make(t.Context(), h, []planning.Service{s})
		if err != nil {
			t.Fatal(err)
		}
		if rate == 0 {
			rate = planned(&made[0])
		}
		l := lay(h, c.policy, made[0])
		run, err := l.search(t.Context(), &o, rate, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, run.factor)
		low, want := run.use[1], c.name != unparted.name
		if low > 1 || run.use[0] > 1 || (low > 0.05) != want {
			t.Errorf("%s uses %v of the classes", c.name, run.use)
		}
	}
	if !(found[0] >= 0.85 && found[0] > found[1] && found[1] > found[2] && found[2] > 0) {
		t.Errorf("load factors %v of PPipe, DART-r and NP", found)
	}
}

// TestFoldedTrace: a trace at another rate has that rate in every part that is as long, and
// is as uneven within.
func TestFoldedTrace(t *testing.T) {
	var trace []float64
	for i := range 1000 {
		trace = append(trace, float64(i/10)) // ten at a time, every second
	}
	var got []float64
	folded(trace, 200, 30, func(at float64) { got = append(got, at) })
	if n := float64(len(got)); math.Abs(n-6000) > 60 || !slices.IsSorted(got) || got[len(got)-1] >= 30 {
		t.Errorf("%v queries until %v", n, got[len(got)-1])
	}
}

// TestArrivalsKeepTheirShares and their order.
func TestArrivalsKeepTheirShares(t *testing.T) {
	o := Options{Queries: 30_000}
	list := o.arrivals([]float64{100, 300}, nil, 1)
	n := stats.Mean(func() (of []float64) {
		for _, q := range list {
			of = append(of, float64(q.Service))
		}
		return of
	}())
	if !slices.IsSortedFunc(list, func(a, b sim.Query) int { return int(a.At - b.At) }) || math.Abs(n-0.75) > 0.01 || math.Abs(float64(len(list))-12000) > 500 {
		t.Errorf("%d queries, %.3f of them for the second service", len(list), n)
	}
}

// roomy is a fixed device that was measured with larger batches.
type roomy struct{ fixed }

func (r roomy) Models() []device.ModelInfo {
	list := r.fixed.Models()
	for i := range list {
		list[i].Sizes = []int{1, sharedBatch}
	}
	return list
}

// TestSharedPipelines: the stages have 3 and 4 parts of the operators, as near as can be. A
// whole device does a query in 16 ms, or two at a time of two services, so both instances
// together do no more than 125 a second.
func TestSharedPipelines(t *testing.T) {
	on := roomy{fixed{[]string{"a", "b"}}}
	for _, way := range sharing {
		sc := shared(on, on.names, way)
		sc.Queries, sc.Seed = 500, 1
		s := &sc.Services[0]
		if piped := len(s.Pipelines) > 0; piped == way.alone || piped && s.Pipelines[0].Stages[0].End != 2 || s.Target != 280*time.Millisecond {
			t.Errorf("%+v", s)
		}
		found, err := highestShared(t.Context(), sc)
		if most := 125.0; err != nil || found < most/8 || found > most {
			t.Errorf("%s: %v a second, %v", way.name, found, err)
		}
	}
}
