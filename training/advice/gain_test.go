package advice

import (
	"strings"
	"testing"
)

func TestGains(t *testing.T) {
	w := newWorkshop(5, 4)
	w.exposed = func(a, b int) float64 { return []float64{0, 0.1, 0, 1, 0, 1.4}[a+b] }
	sets := [][]int{{0, 1}, {0, 3}, {2, 3}} // 1: pays, 3: sequential, 5: slower
	d := w.dataset(80, sets...)
	d.Rows = append(d.Rows, w.dataset(fewestGroups-1, []int{1, 2}).Rows...)
	d.Rows = append(d.Rows, w.dataset(25, []int{0}, []int{1}, []int{2}, []int{3}).Rows...) // without, work and time alone are one
	c, err := newSoloTimes(t.Context(), d, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"m00 + m01": verdictPays, "m00 + m03": verdictSequential, "m02 + m03": verdictSlower, "m01 + m02": verdictUnknown,
	}
	reasons := map[string]string{
		verdictPays: "pays", verdictSequential: "as long as back to back", verdictSlower: "longer than back to back",
		verdictUnknown: "only 9 groups",
	}
	gains := c.gains(d)
	if len(gains) != len(want) {
		t.Fatalf("%d sets, want %d", len(gains), len(want))
	}
	for i, g := range gains {
		if g.Verdict != want[g.name()] {
			t.Errorf("%s: %s (gain %.3f, noise %.3f), want %s", g.name(), g.Verdict, g.Gain, g.Noise, want[g.name()])
		}
		if !strings.Contains(g.Reason(), reasons[g.Verdict]) {
			t.Errorf("%s: reason %q, want %q in it", g.name(), g.Reason(), reasons[g.Verdict])
		}
		if g.Bad() != (g.Verdict == verdictSequential || g.Verdict == verdictSlower) {
			t.Errorf("%s is bad: %t", g.name(), g.Bad())
		}
		if g.P10 > g.Median || g.Median > g.P90 || g.Pays < 0 || g.Pays > 1+1e-9 {
			t.Errorf("%s: quantiles %v %v %v, share %v", g.name(), g.P10, g.Median, g.P90, g.Pays)
		}
		if i > 0 && g.Gain > gains[i-1].Gain {
			t.Errorf("%s stands behind %s", g.name(), gains[i-1].name())
		}
	}
}

// TestGainIsTrue compares gains with those made of the true isolated latencies.
func TestGainIsTrue(t *testing.T) {
	w := newWorkshop(6, 5)
	w.exposed = func(a, b int) float64 { return float64(a*b%5) / 5 }
	d := w.dataset(70, allPairs(5)...)
	c, err := newSoloTimes(t.Context(), d, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range c.gains(d) {
		solo, took := 0.0, 0.0
		for _, r := range d.Rows {
			if spans := r.Group.Spans; int(spans[0].Service) == g.members[0] && int(spans[1].Service) == g.members[1] {
				took += r.Median
				solo += w.solo(spans[0]) + w.solo(spans[1])
			}
		}
		if want := solo / took; !near(g.Gain, want, 0.04) {
			t.Errorf("%s: gain %.3f, want %.3f", g.name(), g.Gain, want)
		}
	}
}

// TestCompatibility estimates a pair that was kept aside.
func TestCompatibility(t *testing.T) {
	w := newWorkshop(7, 5)
	w.exposed = func(a, b int) float64 { return 0.1 * float64(a+b) }
	pairs := allPairs(5)
	kept := pairs[4] // 1 and 3
	d := w.dataset(40, append(append([][]int{}, pairs[:4]...), pairs[5:]...)...)
	a := advised(t, d, Options{})
	full := advised(t, w.dataset(40, pairs...), Options{})
	got, want := a.Pairs[kept[0]][kept[1]], full.Pairs[kept[0]][kept[1]]
	if got.Measured || !want.Measured {
		t.Fatalf("measured: %t and %t", got.Measured, want.Measured)
	}
	if !near(got.Gain, want.Gain, 0.06) {
		t.Errorf("estimated %.3f, measured %.3f", got.Gain, want.Gain)
	}
}

// TestLargerSetsTellPairs estimates pairs when only triplets were measured.
func TestLargerSetsTellPairs(t *testing.T) {
	w := newWorkshop(8, 4)
	w.exposed = func(a, b int) float64 { return map[bool]float64{true: 0.9, false: 0.1}[b == 3] }
	a := advised(t, w.dataset(80, []int{0, 1, 2}, []int{0, 1, 3}, []int{0, 2, 3}, []int{1, 2, 3}), Options{})
	for b := range 3 {
		for c := range b {
			if a.Pairs[b][c].Gain <= a.Pairs[b][3].Gain {
				t.Errorf("m%02d gains %.2f with m%02d and %.2f with m03, which hides little", b, a.Pairs[b][c].Gain, c, a.Pairs[b][3].Gain)
			}
		}
	}
}
