package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/segments/wire"
)

// pricedBench is a model of so many operators on which each border costs some
// part of the whole, by batch.
type pricedBench struct {
	operators int
	border    map[int]float64
	room      int // segments that fit alongside the whole, 0 for any number
	fails     error
	left      int // measurements that there is time for
	opened    []int
	cut       int
}

func (b *pricedBench) Open(target int) (int, error) {
	if b.room > 0 && target > b.room {
		return 0, fmt.Errorf("%w: %d", wire.ErrDeviceFull, target)
	}
	b.cut = min(target, b.operators)
	b.opened = append(b.opened, target)
	return b.cut, nil
}

func (b *pricedBench) Time(batch int, more func(int) bool) (whole, cut time.Duration, err error) {
	n := 0
	for more(n) {
		n++
	}
	if n < chooseLeast || n > chooseRounds {
		return 0, 0, fmt.Errorf("%d rounds", n)
	}
	b.left--
	whole = time.Duration(batch) * time.Millisecond
	return whole, whole + time.Duration(float64(whole)*b.border[batch]*float64(b.cut-1)), b.fails
}

func (b *pricedBench) Over() bool { return b.left <= 0 }

func (b *pricedBench) choose(finest int) (*wire.CutChoice, error) {
	made := &wire.CutChoice{Finest: finest, MaxBatch: 8, Limit: costLimit}
	return made, Choose(made, b, func(int, int) {})
}

func TestCuts(t *testing.T) {
	for finest, want := range map[int][]int{1: nil, 2: {2}, 24: {24, 16, 10, 6, 4, 2}, wire.FinestChoice: {64, 42, 28, 18, 12, 8, 5, 3, 2}} {
		if got := cuts(finest); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", finest, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	price := func(one, eight float64) map[int]float64 { return map[int]float64{1: one, 8: eight} }
	for name, tt := range map[string]struct {
		bench  pricedBench
		finest int
		target int
		opened []int
		reason string
	}{
		"cheap":                       {pricedBench{operators: 60, border: price(0.001, 0), left: 99}, 24, 24, []int{24}, "at most 5 %: 2.3 %"},
		"too dear at batch 1":         {pricedBench{operators: 60, border: price(0.004, 0), left: 99}, 24, 10, []int{24, 16, 10}, "3.6 %"},
		"too dear at the largest":     {pricedBench{operators: 60, border: price(0, 0.004), left: 99}, 24, 10, []int{24, 16, 10}, "3.6 %"},
		"some are not even tried":     {pricedBench{operators: 60, border: price(0.02, 0), left: 99}, 24, 2, []int{24, 6, 4, 2}, "2.0 %"},
		"none":                        {pricedBench{operators: 60, border: price(0.06, 0), left: 99}, 24, 1, []int{24, 2}, "no cut stays within 5 %: 2 segments cost 6.0 %"},
		"few operators":               {pricedBench{operators: 5, border: price(0.02, 0), left: 99}, 24, 2, []int{24, 4, 2}, "2.0 %"},
		"few operators, and cheap":    {pricedBench{operators: 5, border: price(0.01, 0), left: 99}, 24, 24, []int{24}, "4.0 %"},
		"no time":                     {pricedBench{operators: 60}, 24, 24, nil, "no cut could be measured in the time allowed"},
		"no time, and a limit":        {pricedBench{operators: 60}, 8, 8, nil, "no cut could be measured in the time allowed"},
		"no time after the first":     {pricedBench{operators: 60, border: price(0.01, 0), left: 2}, 24, 6, []int{24}, "not measured for lack of time: 24 segments cost 23.0 %, so these should stay within "},
		"no time within the first":    {pricedBench{operators: 60, border: price(0.01, 0), left: 1}, 24, 24, []int{24}, "no cut could be measured in the time allowed"},
		"no time and dear":            {pricedBench{operators: 60, border: price(0.06, 0), left: 2}, 24, 1, []int{24}, "for lack of time: 24 segments cost 138.0 %"},
		"not worth trying":            {pricedBench{operators: 60, border: price(0.2, 0), left: 2}, 24, 1, []int{24}, "no cut stays within 5 %: 24 segments cost 460.0 %"},
		"room for some":               {pricedBench{operators: 60, border: price(0.001, 0), room: 12, left: 99}, 24, 10, []int{10}, "0.9 %"},
		"the whole is as fast or not": {pricedBench{operators: 60, border: price(-0.001, -0.001), left: 99}, 24, 24, []int{24}, "0.0 %"},
	} {
		c, err := tt.bench.choose(tt.finest)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.Target != tt.target || !slices.Equal(tt.bench.opened, tt.opened) || !strings.Contains(c.Reason, tt.reason) {
			t.Errorf("%s: %d, tried %v, %q; want %d, %v, %q", name, c.Target, tt.bench.opened, c.Reason, tt.target, tt.opened, tt.reason)
		}
		if c.Measured() != (len(c.Costs) > 0) {
			t.Errorf("%s: measured %t with %d costs", name, c.Measured(), len(c.Costs))
		}
	}
	full := pricedBench{operators: 60, room: 1, left: 99}
	if _, err := full.choose(24); !errors.Is(err, wire.ErrDeviceFull) {
		t.Errorf("room for none: %v", err)
	}
	broken := pricedBench{operators: 60, left: 99, fails: wire.ErrInput}
	if c, err := broken.choose(24); !errors.Is(err, wire.ErrInput) || c.Measured() {
		t.Error("what cannot run was measured")
	}
}

// Whatever cuts cost, what was measured and taken stays within the limit, no
// finer one that was measured does, and each costs about what was promised.
func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := pricedBench{
			operators: rapid.IntRange(1, 100).Draw(t, "operators"),
			border:    map[int]float64{1: rapid.Float64Range(0, 0.1).Draw(t, "one"), 8: rapid.Float64Range(0, 0.1).Draw(t, "eight")},
			left:      rapid.IntRange(0, 12).Draw(t, "left"),
			room:      rapid.IntRange(2, 100).Draw(t, "room"),
		}
		c, err := b.choose(rapid.IntRange(2, wire.FinestChoice).Draw(t, "finest"))
		if err != nil {
			t.Fatal(err)
		}
		dearest := max(b.border[1], b.border[8]) * float64(min(c.Target, b.operators)-1)
		if c.Target < 1 || c.Target > c.Finest || c.Reason == "" {
			t.Fatalf("%+v", c)
		}
		if c.Measured() && dearest > c.Limit+1e-6 {
			t.Fatalf("%d segments cost %v: %s", c.Target, dearest, c.Reason)
		}
		for i := range c.Costs {
			if c.Costs[i].Segments > min(c.Target, b.operators) && (&choice{made: c}).worst(c.Costs[i].Segments) <= c.Limit {
				t.Fatalf("%+v is finer than %d and within the limit", c.Costs[i], c.Target)
			}
		}
	})
}

func TestChoiceHolds(t *testing.T) {
	made := wire.CutChoice{Hash: "h", ORTVersion: "1", MaxBatch: 8, Finest: 24, SeqLen: 64, Target: 6, Costs: []wire.CutCost{{}}}
	asked := wire.CutChoice{ORTVersion: "1", MaxBatch: 8, Finest: 24, SeqLen: 64}
	for name, change := range map[string]func(c *wire.CutChoice){
		"same":        func(*wire.CutChoice) {},
		"unmeasured":  func(c *wire.CutChoice) { c.Costs = nil },
		"no target":   func(c *wire.CutChoice) { c.Target = 0 },
		"ORT":         func(c *wire.CutChoice) { c.ORTVersion = "2" },
		"batch":       func(c *wire.CutChoice) { c.MaxBatch = 4 },
		"finest":      func(c *wire.CutChoice) { c.Finest = 64 },
		"sequence":    func(c *wire.CutChoice) { c.SeqLen = 16 },
		"other model": func(c *wire.CutChoice) { c.Hash = "g" }, // loading tells
	} {
		c := made
		if change(&c); Holds(&c, &asked) != (name == "same" || name == "other model") {
			t.Errorf("%s: %t", name, Holds(&c, &asked))
		}
	}
	if Holds(nil, &asked) {
		t.Error("nothing holds")
	}
}
