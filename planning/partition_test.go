package planning

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
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
	everyWay(len(services), func([]int) int { return clusters }, func(of []int) {
		if v := imbalance(h, services, of, clusters, memory); v >= 0 {
			best = min(best, v)
		}
	})
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

func partitionTrial(t *testing.T, seed uint64) trial {
	h, services, clusters := partitionCase(t, seed)
	return trial{
		find:  func(how Search) (*Placement, error) { return h.Plan(ctx(), services, clusters, how) },
		check: func(plan *Placement) { checkPartition(t, h, services, clusters, plan) },
		exact: func() float64 { return exactPartition(h, services, len(clusters), clusters[0].Memory) },
		least: true,
	}
}
