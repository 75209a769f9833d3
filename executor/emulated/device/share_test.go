package device

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// In a share an operator takes as long as on the whole device or as its work does there,
// whichever is longer.
func TestInShare(t *testing.T) {
	p := random(1)
	cell := &p.Network.Models[2].Costs[0] // one operator
	cell.Micros[0], cell.Work[0] = 100, 40
	whole := newModel(t, p)
	group := models.Group{Spans: []models.Span{{Service: 2, End: 1, Size: 2}}}
	took := func(percent int) time.Duration {
		m, err := whole.InShare(percent)
		if err != nil {
			t.Fatal(err)
		}
		return m.Latency(group)
	}
	for percent, longer := range map[int]time.Duration{100: 0, 60: 0, 40: 0, 20: 100 * time.Microsecond, 10: 300 * time.Microsecond} {
		if got, want := took(percent), whole.Latency(group)+longer; got < want-1 || got > want+1 {
			t.Errorf("in %d %% it takes %v, want %v", percent, got, want)
		}
	}
	cell.Work[0] = 500 // it hinders others, of whom there are none
	whole = newModel(t, p)
	if got, want := took(50), whole.Latency(group)+100*time.Microsecond; got < want-1 || got > want+1 {
		t.Errorf("in a half it takes %v, want %v", got, want)
	}
}

// A share keeps the promises of a device, never is faster than a larger one, and runs spans
// one after another.
func TestSharesPromise(t *testing.T) {
	whole := newModel(t, random(2))
	half, err := whole.InShare(50)
	if err != nil {
		t.Fatal(err)
	}
	keepsPromises(t, half, 2, 300)
	r := rand.New(rand.NewPCG(2, 2))
	slower := 0
	for range 200 {
		g := drawGroup(whole, r)
		var sum time.Duration
		for i := range g.Spans {
			alone := models.Group{Spans: g.Spans[i : i+1]}
			sum += half.Latency(alone)
			if half.Latency(alone) < whole.Latency(alone) {
				t.Errorf("%v takes %v in a half, %v on the whole", alone, half.Latency(alone), whole.Latency(alone))
			}
			if half.Latency(alone) > whole.Latency(alone) {
				slower++
			}
		}
		if half.Latency(g) != sum {
			t.Errorf("%v takes %v in a half, its spans %v", g, half.Latency(g), sum)
		}
	}
	if slower == 0 {
		t.Error("nothing is slower in a half")
	}
}

func TestInShareOfLinear(t *testing.T) {
	m := linearDevice(t, linearRows, "A")
	quarter, err := m.InShare(25)
	if err != nil {
		t.Fatal(err)
	}
	g := models.Group{Spans: []models.Span{{End: m.Models()[0].Operators, Size: 100}}}
	if got, want := quarter.Latency(g), 4*m.Latency(g); got < want-time.Microsecond || got > want+time.Microsecond {
		t.Errorf("a quarter takes %v, want %v", got, want)
	}
	for _, percent := range []int{-1, 0, 101} {
		if _, err := m.InShare(percent); err == nil {
			t.Errorf("there is a share of %d %%", percent)
		}
	}
}

// On units of a divided device a span takes as long as in a share of the same size, a group has the
// whole device, and operators take together what their span does.
func TestUnits(t *testing.T) {
	p := random(3)
	whole := newModel(t, p)
	half, err := whole.InShare(50)
	if err != nil {
		t.Fatal(err)
	}
	divided := *p
	divided.Units = 4
	m := newModel(t, &divided)
	if whole.Units() != 1 || m.Units() != 4 {
		t.Errorf("%d and %d units", whole.Units(), m.Units())
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		g := drawGroup(m, r)
		if got, want := m.Latency(g), whole.Latency(g); got != want {
			t.Errorf("%v takes %v, on a whole device %v", g, got, want)
		}
		alone := models.Group{Spans: g.Spans[:1]}
		want := half.Latency(alone)
		alone.Spans[0].Share = 2
		if got := m.Latency(alone); got != want {
			t.Errorf("%v takes %v, in a half %v", alone, got, want)
		}
	}
	span := models.Span{End: whole.Models()[0].Operators, Size: 4, Share: 1}
	sum := time.Duration(0)
	for _, n := range m.OperatorTimes(span) {
		sum += time.Duration(n)
	}
	if took := m.Latency(models.Group{Spans: []models.Span{span}}); sum < took-time.Microsecond || sum > took+time.Microsecond || took <= half.Latency(models.Group{Spans: []models.Span{span}}) {
		t.Errorf("on one unit its operators take %v, it takes %v", sum, took)
	}
	for _, units := range []int{-1, maxUnits + 1} {
		if divided.Units = units; divided.Validate() == nil {
			t.Errorf("a device of %d units", units)
		}
	}
}
