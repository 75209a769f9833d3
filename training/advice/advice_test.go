package advice

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/training"
)

var updateAdvice = flag.Bool("update-advice", false, "write the text of advice to testdata")

func TestAdviceText(t *testing.T) {
	w := newWorkshop(9, 5)
	w.exposed = func(a, b int) float64 { return map[bool]float64{true: 1.1, false: 0.15}[a+b == 7] }
	d := w.dataset(60, []int{0, 1}, []int{0, 2}, []int{1, 2}, []int{3, 4}, []int{0, 3})
	a, err := Advise(t.Context(), d, Options{
		Solo:     []training.SoloTime{{Model: "m00", Size: 1, Micros: 9000}},
		Services: []Service{{Name: "web", Model: "m00", QPS: 20}, {Name: "text", Model: "m01", QPS: 10}, {Name: "m02", Model: "m02", QPS: 0}, {Name: "m03", Model: "m03", QPS: 5}, {Name: "m04", Model: "m04", QPS: 5}, {Name: "new", Model: "m99", QPS: 0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := a.Document().WriteText(&got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "advice.txt")
	if *updateAdvice {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}

// mostFittedSets of twelve groups each are fitted at once, without a search for
// priors, which would take most of the time of a test.
const mostFittedSets = 5

// TestAdviceHolds checks what must hold of any advice.
func TestAdviceHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "models")
		size := rapid.IntRange(1, 5).Draw(t, "size")
		seed := rapid.Uint64().Draw(t, "seed")
		w := newSmallWorkshop(seed, n)
		w.exposed = func(a, b int) float64 { return float64((a*31+b*17)%14) / 10 }
		var sets [][]int
		for _, pair := range allPairs(n) {
			if len(sets) < mostFittedSets && w.IntN(3) == 0 {
				sets = append(sets, pair)
			}
		}
		a := advised(t, w.dataset(12, sets...), Options{Size: size})
		if err := checkAdvice(a, n, size); err != nil {
			t.Fatal(err)
		}
	})
}

func checkAdvice(a *Advice, n, size int) error {
	position := map[string]int{}
	for i, s := range a.Services {
		position[s] = i
	}
	bad, seen := 0, map[string]bool{}
	for _, d := range a.Division.Devices {
		if len(d.Services) > size {
			return fmt.Errorf("%v on one device", d.Services)
		}
		for i, s := range d.Services {
			if seen[s] {
				return fmt.Errorf("%s stands twice", s)
			}
			seen[s] = true
			for _, o := range d.Services[:i] {
				if a.Pairs[position[s]][position[o]].Bad {
					bad++
				}
			}
		}
	}
	most := n*(size-1)/2 + probesPerService*n
	switch {
	case len(seen) != n || len(a.Services) != n:
		return fmt.Errorf("%d of %d services have a device", len(seen), n)
	case len(a.Division.Bad) != bad:
		return fmt.Errorf("%d bad pairs share a device, %d are told", bad, len(a.Division.Bad))
	case len(a.Next) > most:
		return fmt.Errorf("%d pairs to be measured for %d services, at most %d", len(a.Next), n, most)
	case a.Cost.Division.Pairs > n*(size-1)/2:
		return fmt.Errorf("%d pairs share devices", a.Cost.Division.Pairs)
	case a.Cost.AllPairs.Pairs != n*(n-1)/2 || a.Cost.Next.Pairs != len(a.Next):
		return fmt.Errorf("costs of %+v", a.Cost)
	}
	for i, row := range a.Pairs {
		for j, g := range row {
			if i != j && (!(g.Gain > 0) || math.IsInf(g.Gain, 0) || g != a.Pairs[j][i]) {
				return fmt.Errorf("%d and %d gain %+v and %+v", i, j, g, a.Pairs[j][i])
			}
		}
	}
	return nil
}

// TestAdviceIsFollowed starts from nothing, measures what is advised until
// nothing is left, and looks what that took and what came of it.
func TestAdviceIsFollowed(t *testing.T) {
	for _, n := range []int{6, 8} {
		w := newSmallWorkshop(uint64(n), n)
		w.exposed = func(a, b int) float64 { // heavy models hinder each other
			return 0.1 + 0.3*float64(a%3)*float64(b%3)
		}
		d := w.dataset(0)
		measured := 0
		var a *Advice
		for rounds := 0; ; rounds++ {
			var err error
			if a, err = Advise(t.Context(), d, Options{}); err != nil {
				t.Fatal(err)
			}
			if len(a.Next) == 0 {
				break
			}
			if rounds > 20 {
				t.Fatalf("%d services: still %d pairs to be measured", n, len(a.Next))
			}
			for _, next := range a.Next {
				measured++
				d.Rows = append(d.Rows, w.dataset(fewestGroups, []int{d.Model(next.Models[0]), d.Model(next.Models[1])}).Rows...)
			}
		}
		full := advised(t, w.dataset(fewestGroups, allPairs(n)...), Options{})
		mean := 1.0
		for _, s := range full.Sets {
			mean *= math.Pow(s.Gain, 1/float64(len(full.Sets)))
		}
		got, best := quality(full, a), quality(full, full)
		t.Logf("%d services: %d of %d pairs measured, gain %.3f of %.3f, any two gain %.3f", n, measured, n*(n-1)/2, got, best, mean)
		if measured > 4*n {
			t.Errorf("%d services: %d pairs measured", n, measured)
		}
		if got < 0.92*best || got < mean {
			t.Errorf("%d services: the division gains %.3f, the best gains %.3f", n, got, best)
		}
	}
}

// quality returns the mean gain of pairs that share a device by one advice, as
// another knows them.
func quality(knows, divides *Advice) float64 {
	position := map[string]int{}
	for i, s := range knows.Services {
		position[s] = i
	}
	sum, n := 0.0, 0.0
	for _, d := range divides.Division.Devices {
		if len(d.Services) == 2 {
			sum += math.Log(knows.Pairs[position[d.Services[0]]][position[d.Services[1]]].Gain)
		}
		n++
	}
	return math.Exp(sum / n)
}

func TestUnavoidable(t *testing.T) {
	w := newWorkshop(10, 3)
	w.exposed = func(a, b int) float64 { return 1.3 }
	d := w.dataset(50, allPairs(3)...)
	a := advised(t, d, Options{Size: 2})
	if len(a.Division.Bad) != 1 || a.Division.Enough != 3 {
		t.Errorf("bad pairs %v, enough are %d devices", a.Division.Bad, a.Division.Enough)
	}
	a = advised(t, d, Options{Size: 2, Devices: 3})
	if len(a.Division.Bad) != 0 || len(a.Division.Devices) != 3 {
		t.Errorf("with three devices: %+v", a.Division)
	}
}

// TestTwoServicesOfOneModel can be advised on, but not measured.
func TestTwoServicesOfOneModel(t *testing.T) {
	w := newWorkshop(11, 2)
	a := advised(t, w.dataset(50, []int{0, 1}), Options{Size: 3, Services: []Service{{Name: "a", Model: "m00", QPS: 1}, {Name: "b", Model: "m00", QPS: 1}, {Name: "c", Model: "m01", QPS: 1}}})
	if a.Pairs[0][1].Measured || !a.Pairs[0][2].Measured || len(a.Next) != 0 || a.Division.Devices[0].Basis != basisEstimated {
		t.Errorf("%+v, next %v, %+v", a.Pairs, a.Next, a.Division)
	}
	if busy := a.Division.Devices[0].Busy; !(busy > 0 && busy < 1) {
		t.Errorf("busy %v", busy)
	}
}

func TestNoAdvice(t *testing.T) {
	d := newWorkshop(12, 3).dataset(1, []int{0, 1})
	many := make([]Service, maxServices+1)
	for _, o := range []Options{
		{Size: -1},
		{Size: maxShare + 1},
		{Size: 2, Devices: 1},
		{Devices: -1},
		{Services: []Service{{Name: "a", Model: "m00", QPS: 0}, {Name: "a", Model: "m01", QPS: 0}}},
		{Services: []Service{{Name: "a", Model: "", QPS: 0}}},
		{Services: []Service{{Name: "a", Model: "m00", QPS: math.NaN()}}},
		{Services: []Service{{Name: "a", Model: "m00", QPS: -1}}},
		{Services: many},
	} {
		if _, err := Advise(t.Context(), d, o); !errors.Is(err, errAdvice) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Advise(t.Context(), &training.Dataset{}, Options{}); !errors.Is(err, errAdvice) {
		t.Errorf("no services: %v", err)
	}
	d.Rows[0].Median = math.NaN()
	if _, err := Advise(t.Context(), d, Options{}); !errors.Is(err, training.ErrFormat) {
		t.Errorf("a median of NaN: %v", err)
	}
}

// advised is advice that is given.
func advised(t rapid.TB, d *training.Dataset, o Options) *Advice {
	t.Helper()
	a, err := Advise(context.Background(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
