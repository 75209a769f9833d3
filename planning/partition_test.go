package planning

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// imbalance returns the objective of a plan from its services alone, and what it costs
// against one in force; -1 if it breaks a limit.
func imbalance(h Partition, services []Service, of []int, clusters int, memory float64) float64 {
	rate, static, working := make([]float64, clusters), make([]float64, clusters), make([]float64, clusters)
	meanRate, meanMemory, change := 0.0, 0.0, 0.0
	for i, s := range services {
		j := of[i]
		rate[j], static[j], working[j] = rate[j]+s.Rate, static[j]+s.Memory, max(working[j], s.Working)
		meanRate, meanMemory = meanRate+s.Rate/float64(clusters), meanMemory+s.Memory/float64(clusters)
		if h.InForce != nil {
			at := slices.IndexFunc(h.InForce.Services, func(o Service) bool { return o.Name == s.Name })
			if at < 0 {
				change += s.Memory
			} else if h.InForce.Services[at].Devices[0] != clusterName(j) {
				change += 2 * s.Memory
			}
		}
	}
	if h.InForce != nil && change > h.MaxChange+1e-6 {
		return -1
	}
	mostRate, mostMemory := 0.0, 0.0
	for j := range clusters {
		if h.MaxRate > 0 && rate[j] > h.MaxRate*(1+1e-9) || static[j]+working[j] > memory*(1+1e-9) {
			return -1
		}
		mostRate, mostMemory = max(mostRate, math.Abs(rate[j]-meanRate)/meanRate), max(mostMemory, math.Abs(static[j]-meanMemory)/meanMemory)
	}
	return mostRate + mostMemory
}

func clusterName(j int) string { return fmt.Sprintf("sub-cluster-%d", j+1) }

func subClusters(n int, memory float64) (clusters []Device) {
	for j := range n {
		clusters = append(clusters, Device{Name: clusterName(j), Memory: memory, Speed: 1})
	}
	return clusters
}

// exactPartition tries all partitions.
func exactPartition(h Partition, services []Service, clusters int, memory float64) float64 {
	best := math.Inf(1)
	of := make([]int, len(services))
	var assign func(i int)
	assign = func(i int) {
		if i == len(services) {
			if v := imbalance(h, services, of, clusters, memory); v >= 0 {
				best = min(best, v)
			}
			return
		}
		for of[i] = range clusters {
			assign(i + 1)
		}
	}
	assign(0)
	return best
}

func checkPartition(t *testing.T, h Partition, services []Service, clusters []Device, plan *Placement) {
	t.Helper()
	of := make([]int, len(services))
	for i, s := range plan.Services {
		of[i] = slices.IndexFunc(clusters, func(c Device) bool { return c.Name == s.Devices[0] })
		if len(s.Devices) != 1 || s.Name != services[i].Name {
			t.Fatalf("service %d: %+v", i, s)
		}
	}
	if v := imbalance(h, services, of, len(clusters), clusters[0].Memory); !near(v, plan.Objective) || plan.Bound > v*(1+1e-6) {
		t.Errorf("the imbalance is %v, the plan says %v, bound %v", v, plan.Objective, plan.Bound)
	}
}

func partitionCase(t *testing.T, seed uint64) (Partition, []Service, []Device) {
	r := rand.New(rand.NewPCG(seed, 3))
	l := 2 + r.IntN(2)
	services := randomServices(r, l+r.IntN(8-l), 1, 10)
	memory, rate := 0.0, 0.0
	for _, s := range services {
		memory, rate = memory+s.Memory, rate+s.Rate
	}
	h := Partition{}
	if r.IntN(2) == 0 {
		h.MaxRate = rate / float64(l) * (1.1 + r.Float64())
	}
	clusters := subClusters(l, memory/float64(l)*1.2+6)
	if r.IntN(2) == 0 {
		before := slices.Clone(services[:len(services)-1])
		for i := range before {
			before[i].Rate = r.ExpFloat64()
		}
		plan, err := Partition{}.Plan(ctx(), before, clusters, alone())
		if err != nil {
			return h, services, clusters
		}
		h.InForce, h.MaxChange = plan, memory*r.Float64()
	}
	return h, services, clusters
}

func TestPartitionIsBetweenBoundAndExact(t *testing.T) {
	best, all, worst := 0, 0, 1.0
	for seed := range uint64(20) {
		h, services, clusters := partitionCase(t, seed)
		exact := exactPartition(h, services, len(clusters), clusters[0].Memory)
		plan, err := h.Plan(ctx(), services, clusters, alone())
		if errors.Is(err, errNoPlan) {
			if !math.IsInf(exact, 1) {
				t.Errorf("seed %d: %v, but there is one", seed, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkPartition(t, h, services, clusters, plan)
		if plan.Objective < exact*(1-1e-6) || plan.Bound > exact*(1+1e-6) {
			t.Errorf("seed %d: heuristic %v, exact %v, bound %v", seed, plan.Objective, exact, plan.Bound)
		}
		all++
		if near(plan.Objective, exact) {
			best++
		}
		worst = max(worst, plan.Objective/exact)
	}
	t.Logf("of %d cases the heuristic finds the best in %d, at most %.4f times it", all, best, worst)
	if best < all*8/10 {
		t.Error("that is too few")
	}
}

func TestPartitionWithSolverIsExact(t *testing.T) {
	how := installed(t)
	how.Limit = 4 * time.Second
	for seed := range uint64(20) {
		h, services, clusters := partitionCase(t, seed)
		plan, err := h.Plan(ctx(), services, clusters, how)
		if errors.Is(err, errNoPlan) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		checkPartition(t, h, services, clusters, plan)
		exact := exactPartition(h, services, len(clusters), clusters[0].Memory)
		if math.Abs(plan.Objective-exact) > 1e-5 || math.Abs(plan.Bound-exact) > 1e-5 {
			t.Errorf("seed %d: objective %v, bound %v, exact %v (%s)", seed, plan.Objective, plan.Bound, exact, plan.Note)
		}
	}
}
