package device

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestBandOfGroup(t *testing.T) {
	var s Spread
	if s.Parts(1, 1) != nil || s.factor(1, 1, nil) != 1 {
		t.Error("without bands runs differ")
	}
	for i, b := range [][2]int{{2, 0}, {2, 1000}, {2, 5000}, {4, 2000}, {4, 3000}} {
		s.Bands = append(s.Bands, SpreadBand{Spans: b[0], Micros: float64(b[1]), Parts: []float64{float64(i), float64(i)}})
	}
	for _, c := range [][3]int{
		{1, 999, 0}, {1, 1000, 1}, {2, 4999, 1}, {2, 1e6, 2}, {3, 1, 0}, {3, 6000, 2},
		{4, 1, 3}, {4, 2999, 3}, {4, 3000, 4}, {6, 1e6, 4},
	} {
		if got := s.Parts(c[0], float64(c[1]))[0]; got != float64(c[2]) {
			t.Errorf("%d spans that take %d µs are in band %v, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestSpreadBetweenQuantiles(t *testing.T) {
	b := SpreadBand{Parts: []float64{0.1, 0.2, 0.6}}
	for part, want := range map[float64]float64{0: 0.1, 0.25: 0.15, 0.5: 0.2, 0.75: 0.4, 1: 0.6} {
		if got := b.at(part); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v of the groups spread at most %v, want %v", part, got, want)
		}
	}
}

func TestRunsAreBounded(t *testing.T) {
	s := Spread{Slow: 1.5, Fast: 0.5, Bands: []SpreadBand{{Spans: 1, Parts: []float64{0.1, 0.1}}}}
	r := rand.New(rand.NewPCG(1, 1))
	least, most := 1.0, 1.0
	for range 20_000 {
		f := s.factor(1, 1, r)
		least, most = min(least, f), max(most, f)
	}
	if math.Abs(math.Log(most)-0.45) > 1e-9 || math.Abs(math.Log(least)+0.15) > 1e-9 {
		t.Errorf("runs take %v to %v of the middle", least, most)
	}
}
