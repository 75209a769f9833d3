package advice

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func randomDivider(r *rand.Rand, n, size, devices int) *divider {
	v := &divider{size: size, devices: devices, busy: make([]float64, n), set: func([]int) (float64, bool) { return 0, false }}
	for range n {
		v.pairs = append(v.pairs, make([]pairGain, n))
	}
	loaded := r.IntN(2) == 0
	for i := range n {
		if loaded {
			v.busy[i] = 0.1 + 0.5*r.Float64()
		}
		for j := range i {
			y := r.Float64() - 0.2
			g := pairGain{log: y, Bad: y <= 0}
			v.pairs[i][j], v.pairs[j][i] = g, g
		}
	}
	return v
}

// brute tries all divisions.
func (v *divider) brute(service int, devices [][]int, best *score, found *bool) {
	if service == len(v.pairs) {
		if s := v.total(devices); !*found || s.less(*best) {
			*best, *found = s, true
		}
		return
	}
	for d, members := range devices {
		if len(members) == v.size {
			continue
		}
		devices[d] = append(slices.Clone(members), service)
		v.brute(service+1, devices, best, found)
		devices[d] = members
		if len(members) == 0 {
			return // all further devices are empty too
		}
	}
}

func drawDivider(t *rapid.T, most int) *divider {
	n := rapid.IntRange(1, most).Draw(t, "services")
	size := rapid.IntRange(1, 4).Draw(t, "size")
	devices := (n+size-1)/size + rapid.IntRange(0, 2).Draw(t, "more")
	seed := rapid.Uint64().Draw(t, "seed")
	return randomDivider(rand.New(rand.NewPCG(seed, 2)), n, size, devices)
}

func (v *divider) checkDivision(devices [][]int) error {
	var all []int
	for _, members := range devices {
		if len(members) == 0 || len(members) > v.size {
			return fmt.Errorf("a device with %d services of 1 to %d", len(members), v.size)
		}
		all = append(all, members...)
	}
	slices.Sort(all)
	for i := range v.pairs {
		if i >= len(all) || all[i] != i || len(all) != len(v.pairs) {
			return fmt.Errorf("the devices hold %v of %d services", all, len(v.pairs))
		}
	}
	if len(devices) > v.devices {
		return fmt.Errorf("%d devices of %d", len(devices), v.devices)
	}
	return nil
}

func TestDivisionIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawDivider(t, 7)
		devices, exact := v.divide()
		if err := v.checkDivision(devices); err != nil {
			t.Fatal(err)
		}
		var best score
		found := false
		v.brute(0, make([][]int, v.devices), &best, &found)
		if got := v.total(devices); !exact || !found || best.less(got) || got.less(best) {
			t.Fatalf("%v costs %+v, the best is %+v", devices, got, best)
		}
	})
}

// TestSearchIsNearBest holds the search for many services against the best
// division of few.
func TestSearchIsNearBest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	const tries = 200
	worse, off := 0, 0.0
	for range tries {
		v := randomDivider(r, 8+r.IntN(4), 2+r.IntN(3), 6)
		v.prepare()
		best := v.total(v.enumerate())
		devices := v.search()
		devices = slices.DeleteFunc(devices, func(m []int) bool { return len(m) == 0 })
		if err := v.checkDivision(devices); err != nil {
			t.Fatal(err)
		}
		got := v.total(devices)
		if got.less(best) {
			t.Fatalf("search found %+v, enumeration %+v", got, best)
		}
		if got.bad > best.bad || got.over > best.over+noGain {
			worse++
		} else if got.over <= best.over+noGain {
			off += (got.cost - best.cost) / math.Abs(best.cost)
		}
	}
	if worse > tries/20 || off/tries > 0.05 {
		t.Errorf("%d of %d searches end with a pair or a load that is avoidable; the others cost %.1f %% more", worse, tries, 100*off/tries)
	}
}

func TestDivisionOfMany(t *testing.T) {
	v := randomDivider(rand.New(rand.NewPCG(2, 3)), 100, 4, 25)
	devices, exact := v.divide()
	if err := v.checkDivision(devices); err != nil || exact {
		t.Fatal(err, exact)
	}
	if bad := v.total(devices).bad; bad != 0 {
		t.Errorf("%d bad pairs share devices", bad)
	}
	again, _ := v.divide()
	if fmt.Sprint(devices) != fmt.Sprint(again) {
		t.Error("the same services were divided in two ways")
	}
	mean := 0.0
	for i := range v.pairs {
		for j := range i {
			mean += v.pairs[i][j].log / float64(100*99/2)
		}
	}
	for _, members := range devices {
		if y := v.compatibility(members); y < mean {
			t.Errorf("%v have a compatibility of %.2f, any four have %.2f", members, y, mean)
		}
	}
}

func TestMeasuredSetIsTaken(t *testing.T) {
	v := randomDivider(rand.New(rand.NewPCG(3, 3)), 6, 3, 2)
	v.busy = make([]float64, 6)
	for i := range v.pairs {
		for j := range v.pairs {
			v.pairs[i][j].Bad = false
		}
	}
	v.set = func(members []int) (float64, bool) { return 5, fmt.Sprint(members) == "[1 3 5]" }
	devices, _ := v.divide()
	if fmt.Sprint(devices) != "[[0 2 4] [1 3 5]]" {
		t.Errorf("divided into %v", devices)
	}
	if got := v.gain([]int{1, 3, 5}); !near(got, math.Pow(3, 5), 1e-9) {
		t.Errorf("gain %v", got)
	}
}
