package reproduce

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
)

// TestCircumstances: what is allowed to violate is so of all queries or of each service;
// arrivals vary as much as they are to; targets follow the largest query of each service.
func TestCircumstances(t *testing.T) {
	of := []*sim.Result{new(sim.Result), new(sim.Result)}
	for i, r := range of {
		r.Violations = float64(i+1) / 100
		r.Services = slices.Grow(r.Services, 2)[:2] // its type is not exported
		r.Services[1].Violations = float64(i+1) / 10
	}
	for each, want := range map[bool]float64{false: 0.03, true: 0.3} {
		if got := (&circumstances{each: each}).bad(of); math.Abs(got-want) > 1e-9 {
			t.Errorf("of each service %v: %v violate, want %v", each, got, want)
		}
	}
	if a := (&circumstances{variation: 2}).arriving(7); a.Process != sim.Gamma || a.QPS != 7 || a.Shape != 0.25 {
		t.Errorf("arrivals with a coefficient of variation of 2: %+v", a)
	}
	if a := (&circumstances{}).arriving(7); a.Process != sim.Poisson {
		t.Errorf("arrivals without one: %+v", a)
	}
	p, err := device.Linear("gpu", "resnet50,1,2\nresnet101,2,10\n")
	if err != nil {
		t.Fatal(err)
	}
	d, err := device.NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	tr := trial{stock: &stock{}, deploy: &deployment{models: []string{"resnet50", "resnet101"}, target: time.Second, sizes: [][]int{{1, 4}, {8}}, seqLens: []int{8}},
		circumstances: circumstances{targets: 2, devices: 3}}
	sc := tr.scenario(d)
	if a, b := sc.Services[0].Target, sc.Services[1].Target; a != 12*time.Millisecond || b != 52*time.Millisecond || sc.Devices != 3 || sc.Dispatch != sim.Pool {
		t.Errorf("targets %v and %v on %d devices by %s", a, b, sc.Devices, sc.Dispatch)
	}
}

// On a device that gains nothing from running batches together overlap bears about what edf
// does, and no more is gained over the better of two than over either.
func TestGainFigure(t *testing.T) {
	s := stockOf([]string{"resnet50", "resnet101"})
	var err error
	if s.profile, err = device.Linear("gpu", "resnet50,0.1,1\nresnet101,0.2,1\n"); err != nil {
		t.Fatal(err)
	}
	o := fewOptions()
	o.Seeds, o.Queries = 2*highestSeeds, 100
	r := runOf(o, s)
	r.data.quad = nil
	draw := planGain(r)
	if err := r.plan.run(t.Context(), newLane, newTally(nil, 1)); err != nil {
		t.Fatal(err)
	}
	list := draw()
	f := figureNamed(t, list, "gain")
	over := func(other string) *row {
		r := f.find("21 pairs, "+servingClock, 0, "over "+other)
		if r == nil || r.Least == nil || *r.Least > *r.Ours || *r.Ours < 0.7 {
			t.Fatalf("over %s: %+v", other, r)
		}
		return r
	}
	if best := over(bestOther); *best.Most > *over("edf").Most+1e-6 || *best.Most > *over("static").Most+1e-6 {
		t.Errorf("over the better of two it is %v", *best.Most)
	}
	for _, other := range []string{"edf-shedding", "abacus", "overlap-whole"} {
		over(other)
	}
	if *over(bestWithout).Most > *over(bestOther).Most+1e-6 {
		t.Error("more is gained over the best of three than of two of them")
	}
	if note := figureNamed(t, list, "gain in short").Notes[0]; !strings.Contains(note, " times") {
		t.Error(note)
	}
	if by := figureNamed(t, list, "gain by pair, "+servingClock); by.find("Res50+Res101", 0, "over static") == nil {
		t.Errorf("%+v", by.Rows)
	}
}

// Of the pairs with bert and of those without the mean is that of their gains, search by search.
func TestGainOfSome(t *testing.T) {
	a := &asked{
		question: &question{others: []string{"edf"}},
		deploys:  []deployment{{models: []string{"resnet50", "bert"}}, {models: []string{"vgg16", "vgg19"}}, {models: []string{"vgg16", "resnet50"}}},
		found:    map[string][][]float64{"edf": {{10, 10}, {10, 10}, {10, 10}}, "overlap": {{20, 40}, {10, 20}, {40, 20}}},
	}
	for _, c := range []struct {
		takes             func(*deployment) bool
		ours, least, most float64
	}{
		{withBert, 3, 2, 4},
		{func(d *deployment) bool { return !withBert(d) }, 2, 2, 2},
	} {
		if r := a.rows("x", c.takes)[0]; math.Abs(*r.Ours-c.ours) > 1e-6 || math.Abs(*r.Least-c.least) > 1e-6 || math.Abs(*r.Most-c.most) > 1e-6 {
			t.Errorf("%v, %v to %v, want %+v", *r.Ours, *r.Least, *r.Most, c)
		}
	}
}
