package advice

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

// Constants of planning pools.
const (
	// fullDevice is the load that a pool's devices may have. It is the target of the
	// autoscalers in deploy/kubernetes.
	fullDevice = 0.9

	// poolStarts is the number of additional random initial divisions. Targets and memory
	// create many local optima that no exchange of two services leaves.
	poolStarts = 32
)

// poolPlan says which services share a pool. A pool is a number of equal devices, each with all
// services of the pool and an equal part of their loads.
type poolPlan struct {
	Pools   []pool `json:"pools"`
	Devices int    `json:"devices"`
	// Exact means that no division into that many pools is better. Otherwise the search found
	// none.
	Exact bool `json:"exact"`
	// Others holds, for comparison, divisions that need no search.
	Others []pool `json:"others"`
}

// pool is one pool. Demanded is the number of devices that its loads keep busy. Devices is the
// number it needs so that none exceeds fullDevice, or 0 if the services do not fit on one
// device together.
type pool struct {
	Name     string   `json:"name"`
	Pools    int      `json:"pools,omitempty"`
	Services []string `json:"services,omitempty"`
	Demanded float64  `json:"devices_demanded"`
	Devices  int      `json:"devices"`
	Memory   float64  `json:"memory_mib,omitempty"`
	Basis    string   `json:"basis,omitempty"`
}

// pooler computes how many devices a pool of services demands.
type pooler struct {
	*panel
	// sizes holds the possible batches of each service.
	sizes [][]batchTimes
}

// rate returns the cost of a pool: first its number of devices, then its demand. The demand is
// the inverse of how many times its load one device sustains within the targets. Services that
// do not fit on a device together cost more the more there are, and an empty pool costs most.
func (p *pooler) rate(members []int) score {
	var all [][]batchTimes
	for _, m := range members {
		all = append(all, p.sizes[m])
	}
	if len(members) == 0 {
		return score{bad: len(p.sizes)}
	}
	bears := p.together(members, all, true)
	if bears == 0 || p.options.Memory > 0 && p.memory(members) > p.options.Memory {
		return score{bad: len(members)}
	}
	// Subtracting noGain keeps a rounding error from adding a device.
	return score{over: max(math.Ceil(1/bears/fullDevice-noGain), 1), cost: 1 / bears}
}

// memory returns the device memory of services together, in MiB.
func (p *panel) memory(members []int) (sum float64) {
	for _, m := range members {
		sum += p.services[m].Memory
	}
	return sum
}

// checkPools returns an error if too little is known about a service to plan pools.
func (p *panel) checkPools() error {
	if n := len(p.services); p.options.Pools > n {
		return fmt.Errorf("%w: %d pools of %d services, but each pool needs at least one; give at most %d pools", errAdvice, p.options.Pools, n, n)
	}
	for _, s := range p.services {
		switch {
		case s.QPS == 0 || s.Target <= 0:
			return fmt.Errorf("%w: service %s has no load or no target, which determine its number of devices; give both (--load %[2]s=QPS, --targets %[2]s=DURATION)", errAdvice, s.Name)
		case s.Memory > p.options.Memory && p.options.Memory > 0:
			return fmt.Errorf("%w: service %s needs %.0f MiB, but no device has more than %.0f; give larger devices (--memory)", errAdvice, s.Name, s.Memory, p.options.Memory)
		}
	}
	return nil
}

// pools divides the services into n pools.
func (p *panel) pools(n int) (*poolPlan, [][]int, error) {
	of := &pooler{panel: p}
	for i := range p.services {
		of.sizes = append(of.sizes, p.batches(p.times, i))
	}
	return of.divide(n)
}

// divide finds the pools that need the fewest devices. It is exact up to exactServices
// services. Beyond that it improves initial divisions by moving and exchanging services.
func (p *pooler) divide(n int) (*poolPlan, [][]int, error) {
	var all []int
	var single [][]int
	var alone []float64
	for i, s := range p.services {
		if len(p.sizes[i]) == 0 {
			return nil, nil, fmt.Errorf("%w: model %s was not measured, so the latency of service %s is unknown; measure it, or name a measured model (--services %[3]s=MODEL)", errAdvice, s.Model, s.Name)
		}
		cost := p.rate([]int{i})
		if cost.bad > 0 {
			return nil, nil, fmt.Errorf("%w: service %s takes %s ms alone, and a query that just missed a batch waits for two batches, which exceeds its target of %v; give it a larger target",
				errAdvice, s.Name, stats.Digits(3, p.sizes[i][0].micros/1000), s.Target)
		}
		all, single, alone = append(all, i), append(single, []int{i}), append(alone, cost.cost)
	}
	// The balanced division is both an initial division and one of the divisions to compare with.
	balanced := balance(alone, n)
	v := p.divider(n, balanced)
	devices, exact := v.divide()
	plan := &poolPlan{Exact: exact, Devices: int(v.total(devices).over)}
	if v.total(devices).bad > 0 {
		return nil, nil, fmt.Errorf("%w: no division into %s was found in which the services of each pool fit a device by their targets and memory; give more pools", errAdvice, report.Count(n, "pool"))
	}
	for i, members := range devices {
		cost := p.rate(members)
		to := pool{Name: fmt.Sprintf("pool-%d", i+1), Demanded: cost.cost, Devices: int(cost.over), Memory: p.memory(members), Basis: p.basis(members)}
		for _, m := range members {
			to.Services = append(to.Services, p.services[m].Name)
		}
		plan.Pools = append(plan.Pools, to)
	}
	for i, pools := range [][][]int{balanced, {all}, single} {
		to := pool{Name: []string{"equal loads", "all services in one pool", "a pool for each service"}[i], Pools: len(pools)}
		if total := v.total(pools); total.bad == 0 {
			to.Devices, to.Demanded = int(total.over), total.cost
		}
		plan.Others = append(plan.Others, to)
	}
	return plan, devices, nil
}

// divider returns a divider into n pools, with division as one of its initial divisions.
func (p *pooler) divider(n int, division [][]int) *divider {
	all := len(p.services)
	v := &divider{size: all, devices: n, pairs: p.Pairs, busy: make([]float64, all), rate: p.rate, filled: true}
	v.starts = append(v.starts, slices.Clone(division))
	// The seed is fixed, so that the advice is reproducible.
	order := rand.New(rand.NewPCG(1, 2))
	for range poolStarts {
		v.starts = append(v.starts, v.deal(order.Perm(all)))
	}
	return v
}

// balance divides services into n pools of about equal load. It assigns the largest loads
// first, each to the least loaded pool.
func balance(loads []float64, n int) [][]int {
	order := make([]int, len(loads))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loads[b], loads[a]) })
	pools, sums := make([][]int, n), make([]float64, n)
	for _, service := range order {
		to := slices.Index(sums, slices.Min(sums))
		pools[to] = append(pools[to], service)
		sums[to] += loads[service]
	}
	return pools
}

// show adds the pools, and the divisions for comparison, to a document.
func (v *poolPlan) show(d *report.Document) {
	how := "optimal"
	if !v.Exact {
		how = "found by moving and exchanging services"
	}
	d.Heading("%s, which take %s: %s", report.Count(len(v.Pools), "pool"), report.Count(v.Devices, "device"), how)
	t := report.NewTable("POOL", "DEVICES", "DEMANDED", "MIB", "MEASURED TOGETHER", "SERVICES")
	these := pool{Name: "these pools", Pools: len(v.Pools), Devices: v.Devices}
	for _, s := range v.Pools {
		together := map[string]string{basisMeasured: "yes", basisPairs: "in pairs", basisEstimated: "in part"}[s.Basis]
		t.Rowf("%s\t%d\t%.2f\t%.0f\t%s\t%s", s.Name, s.Devices, s.Demanded, s.Memory, together, strings.Join(s.Services, ", "))
		these.Demanded += s.Demanded
	}
	d.Table(t)
	t = report.NewTable("WAY", "POOLS", "DEVICES", "DEMANDED")
	for _, o := range append([]pool{these}, v.Others...) {
		if o.Devices == 0 {
			t.Rowf("%s (services do not fit)\t%d\t-\t-", o.Name, o.Pools)
			continue
		}
		t.Rowf("%s\t%d\t%d\t%.2f", o.Name, o.Pools, o.Devices, o.Demanded)
	}
	d.Table(t)
	d.Text("The demand assumes evenly spaced queries. A pool gets enough devices that none is busy for more than %.0f %% of its time.", 100*fullDevice)
}
