package planning

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// bestHerd returns the largest least burst tolerance of all ways to form groups: it shares
// no code with the search but the model-streams and the affinity of two services.
func bestHerd(h Herd, services []Service, p *herd) float64 {
	best := math.Inf(-1)
	used := func(of []int) int { return 1 + slices.Max(append(of[:len(of):len(of)], -1)) }
	everyWay(len(p.streams), func(before []int) int { return min(used(before)+1, p.groups) }, func(of []int) {
		best = max(best, valueOf(h, services, p, of, used(of)))
	})
	return best
}

// valueOf returns the least burst tolerance of groups with the best sizes, -Inf if they
// break a limit.
func valueOf(h Herd, services []Service, p *herd, of []int, used int) float64 {
	size, peak := make([]int, used), make([]float64, used)
	left := p.devices
	for j := range used {
		load, memory := 0.0, 0.0
		var members []int
		for i, st := range p.streams {
			if of[i] != j {
				continue
			}
			for _, m := range members {
				a, b := &services[m], &services[st.service]
				if m == st.service || h.Affinity > 0 && max(affinity(a, b), affinity(b, a)) > h.Affinity {
					return math.Inf(-1)
				}
			}
			members = append(members, st.service)
			load, memory = load+st.load, memory+st.memory
			peak[j] = max(peak[j], st.load)
		}
		if memory > p.memory+1e-9 {
			return math.Inf(-1)
		}
		size[j] = max(1, int(math.Ceil(load/p.load-1e-9)))
		left -= size[j]
		if size[j] > p.limit {
			return math.Inf(-1)
		}
	}
	if left < 0 {
		return math.Inf(-1)
	}
	for {
		poorest := -1
		for j := range size {
			if poorest < 0 || float64(size[j])/peak[j] < float64(size[poorest])/peak[poorest] {
				poorest = j
			}
		}
		value := float64(size[poorest]) / peak[poorest]
		if left == 0 || size[poorest] == p.limit {
			return value
		}
		size[poorest]++
		left--
	}
}

// overloaded returns the problem with the overload that the search finds.
func overloaded(h Herd, services []Service, devices []Device) *herd {
	p, sum := h.problem(services, devices)
	leastOverload(&p.load, sum, float64(min(p.devices, p.limit*p.groups)), func() ([]servingGroup, bool) { return p.find(0) })
	return p
}

// checkHerd is independent of the search: it looks at the plan alone.
func checkHerd(t *testing.T, h Herd, services []Service, devices []Device, plan *Placement) {
	t.Helper()
	group, size := map[string]int{}, map[int]int{}
	for _, d := range plan.Devices {
		group[d.Name] = d.Group
		if d.Group > 0 {
			size[d.Group]++
		}
	}
	if h.Groups > 0 && len(size) > h.Groups {
		t.Errorf("%d groups, want at most %d", len(size), h.Groups)
	}
	memory, load := map[int]float64{}, map[int]float64{}
	least := math.Inf(1)
	for i, s := range plan.Services {
		if s.Name != services[i].Name {
			t.Fatalf("service %d is %s", i, s.Name)
		}
		in := map[int]int{}
		for _, d := range s.Devices {
			in[group[d]]++
		}
		for g, n := range in {
			if g == 0 || n != size[g] {
				t.Errorf("%s runs on %d of the %d devices of group %d", s.Name, n, size[g], g)
			}
			memory[g] += s.Memory + s.Working
			load[g] += s.Load / float64(len(in))
			least = min(least, float64(size[g])/(s.Load/float64(len(in))))
			for _, other := range plan.Services[:i] {
				if h.Affinity > 0 && slices.Contains(other.Devices, s.Devices[0]) && max(affinity(&s, &other), affinity(&other, &s)) > h.Affinity {
					t.Errorf("%s and %s are in one group, with an affinity above %v", s.Name, other.Name, h.Affinity)
				}
			}
		}
	}
	most := overloaded(h, services, devices).load
	for g, n := range size {
		if h.GroupLimit > 0 && n > h.GroupLimit {
			t.Errorf("group %d has %d devices", g, n)
		}
		if load[g] > float64(n)*most*(1+1e-9) {
			t.Errorf("group %d has a load of %v for %d devices, which may have %v each", g, load[g], n, most)
		}
		if memory[g] > devices[0].Memory+1e-6 {
			t.Errorf("group %d needs %v MiB of %v", g, memory[g], devices[0].Memory)
		}
	}
	if !near(least, plan.Objective) {
		t.Errorf("the least burst tolerance is %v, the plan says %v", least, plan.Objective)
	}
	if plan.Objective > plan.Bound*(1+1e-9) {
		t.Errorf("objective %v is above the bound %v", plan.Objective, plan.Bound)
	}
}

// herdCase returns a small problem.
func herdCase(seed uint64) (Herd, []Service, []Device) {
	r := rand.New(rand.NewPCG(seed, 1))
	n := 2 + r.IntN(10)
	services := randomServices(r, 2+r.IntN(7), float64(n)*(0.2+0.6*r.Float64()), 10)
	h := Herd{}
	if r.IntN(2) == 0 {
		h.GroupLimit = 2 + r.IntN(n)
	}
	if r.IntN(3) == 0 {
		h.Groups = 1 + r.IntN(4)
	}
	if r.IntN(3) == 0 {
		h.Affinity = 2 + 30*r.Float64()
	}
	return h, services, equalDevices(n, 12+30*r.Float64())
}

func herdTrial(t *testing.T, seed uint64) trial {
	h, services, devices := herdCase(seed)
	return trial{
		find:  func(how Search) (*Placement, error) { return h.Plan(ctx(), services, devices, how) },
		check: func(plan *Placement) { checkHerd(t, h, services, devices, plan) },
		exact: func() float64 { return bestHerd(h, services, overloaded(h, services, devices)) },
	}
}

// TestHerdWithAffinity compares plans with a limit of affinity with the best of all ways to
// form groups: whichever models are in one group, each two of them need only have a small
// affinity. No device is overloaded where none need be.
func TestHerdWithAffinity(t *testing.T) {
	const instances, streams, least = 200, 9, 0.97
	checked, sum, worst := 0, 0.0, 1.0
	for seed := uint64(0); checked < instances; seed++ {
		if seed == 10*instances {
			t.Fatalf("only %d instances need overload no device", checked)
		}
		h, services, devices := herdCase(seed)
		r := rand.New(rand.NewPCG(seed, 3))
		h.Affinity = 2 + 30*r.Float64()
		for i := range services {
			services[i].Load *= 1 + r.Float64() // so that few devices are left
		}
		p, _ := h.problem(services, devices)
		if len(p.streams) > streams {
			continue // too many to try all ways
		}
		best := bestHerd(h, services, p)
		if best <= 0 {
			continue // every grouping overloads a device, or there is none
		}
		checked++
		plan, err := h.Plan(ctx(), services, devices, alone())
		if err != nil {
			t.Errorf("seed %d: %v, but there is one", seed, err)
			worst = 0
			continue
		}
		checkHerd(t, h, services, devices, plan)
		ratio := plan.Objective / best
		if ratio < least || plan.Bound < best*(1-1e-6) {
			t.Errorf("seed %d: objective %v, bound %v, the best is %v", seed, plan.Objective, plan.Bound, best)
		}
		if busiest := slices.MaxFunc(plan.Devices, func(a, b Device) int { return cmp.Compare(a.Load, b.Load) }); busiest.Load > 1+1e-6 {
			t.Errorf("seed %d: a device has %.3f times its load, and no device need have more than it bears", seed, busiest.Load)
		}
		sum, worst = sum+ratio, min(worst, ratio)
	}
	t.Logf("%d instances: objective over the best %.4f in the mean, %.4f at worst", checked, sum/float64(checked), worst)
}

func ExampleHerd() {
	services := []Service{
		{Name: "large", Load: 2, Memory: 6000, Alpha: 1, Beta: 8}, {Name: "small", Load: 0.5, Memory: 4000, Alpha: 1, Beta: 9},
		{Name: "slow", Load: 0.25, Memory: 9000, Alpha: 2, Beta: 70},
	}
	plan, err := Herd{GroupLimit: 4, Affinity: 40}.Plan(ctx(), services, equalDevices(6, 16000), alone())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range plan.Services {
		fmt.Println(s.Name, len(s.Devices))
	}
	fmt.Printf("%.3g of at most %.3g\n", plan.Objective, plan.Bound)
	// Output:
	// large 4
	// small 4
	// slow 2
	// 2 of at most 2
}
