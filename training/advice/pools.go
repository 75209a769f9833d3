package advice

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/report"
	"github.com/overlapd/overlapd/stats"
)

const (
	// fullDevice is how much of its devices a pool may be asked for: what the autoscalers
	// of deploy/kubernetes hold it to.
	fullDevice = 0.9

	// poolStarts is from how many random orders of dealing pools are searched for, too:
	// targets and memory leave many divisions from which no exchange of two services leads on.
	poolStarts = 32
)

// poolPlan is which services go together into which pool. A pool is any number of equal
// devices, each with all services of the pool and an equal part of their loads.
type poolPlan struct {
	Pools   []pool `json:"pools"`
	Devices int    `json:"devices"`
	Exact   bool   `json:"exact"`  // no division into so many pools is better; else none was found
	Others  []pool `json:"others"` // ways to divide services without any search, all pools together
}

// pool is the services of a pool. Demanded is how many devices their loads keep busy,
// Devices how many they take, so that none is full: 0 if they do not fit one together.
type pool struct {
	Name     string   `json:"name"`
	Pools    int      `json:"pools,omitempty"`
	Services []string `json:"services,omitempty"`
	Demanded float64  `json:"devices_demanded"`
	Devices  int      `json:"devices"`
	Memory   float64  `json:"memory_mib,omitempty"`
	Basis    string   `json:"basis,omitempty"`
}

// pooler says how many devices services demand that are in one pool.
type pooler struct {
	*panel
	sizes [][]batchTimes // batches of each service
}

// rate says what a pool costs: its devices, and if two divisions take the same, what is
// demanded of them, which is the inverse of how many times the loads one device bears within
// the targets. Services that do not fit a device together cost the more the more they are,
// and an empty pool more than any.
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
	return score{over: max(math.Ceil(1/bears/fullDevice-noGain), 1), cost: 1 / bears}
}

func (p *panel) memory(members []int) (sum float64) {
	for _, m := range members {
		sum += p.services[m].Memory
	}
	return sum
}

// checkPools refuses pools for which too little is known of the services.
func (p *panel) checkPools() error {
	if n := len(p.services); p.options.Pools > n {
		return fmt.Errorf("%w: %d pools of %d services, and each pool has one at least; take %d pools or fewer", errAdvice, p.options.Pools, n, n)
	}
	for _, s := range p.services {
		switch {
		case s.QPS == 0 || s.Target <= 0:
			return fmt.Errorf("%w: how many devices service %s takes follows from its load and its target, and one is unknown; give both (--load %[2]s=QPS, --targets %[2]s=DURATION)", errAdvice, s.Name)
		case s.Memory > p.options.Memory && p.options.Memory > 0:
			return fmt.Errorf("%w: service %s needs %.0f MiB, and no device has more than %.0f; take larger devices (--memory)", errAdvice, s.Name, s.Memory, p.options.Memory)
		}
	}
	return nil
}

// pools divides the services into so many pools.
func (p *panel) pools(n int) (*poolPlan, [][]int, error) {
	of := &pooler{panel: p}
	for i := range p.services {
		of.sizes = append(of.sizes, p.batches(p.times, i))
	}
	return of.divide(n)
}

// divide finds the pools that take the fewest devices. Up to exactServices no division is
// better; beyond, services are moved and exchanged while that helps.
func (p *pooler) divide(n int) (*poolPlan, [][]int, error) {
	var all []int
	var single [][]int
	var alone []float64
	for i, s := range p.services {
		if len(p.sizes[i]) == 0 {
			return nil, nil, fmt.Errorf("%w: nothing was measured of model %s, so that nobody knows what service %s takes; measure it, or name a model that was (--services %[3]s=MODEL)", errAdvice, s.Model, s.Name)
		}
		cost := p.rate([]int{i})
		if cost.bad > 0 {
			return nil, nil, fmt.Errorf("%w: service %s takes %s ms alone, and a query that has just missed a batch waits for two, which no device answers within %v; give it a larger target",
				errAdvice, s.Name, stats.Digits(3, p.sizes[i][0].micros/1000), s.Target)
		}
		all, single, alone = append(all, i), append(single, []int{i}), append(alone, cost.cost)
	}
	balanced := balance(alone, n)
	v := p.divider(n, balanced)
	devices, exact := v.divide()
	plan := &poolPlan{Exact: exact, Devices: int(v.total(devices).over)}
	if v.total(devices).bad > 0 {
		return nil, nil, fmt.Errorf("%w: no division into %s was found whose services fit a device together, by their targets and memory; take more pools", errAdvice, report.Count(n, "pool"))
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

// divider returns what divides the services into so many pools, from a division among others.
func (p *pooler) divider(n int, division [][]int) *divider {
	all := len(p.services)
	v := &divider{size: all, devices: n, pairs: p.Pairs, busy: make([]float64, all), rate: p.rate, filled: true}
	v.starts = append(v.starts, slices.Clone(division))
	order := rand.New(rand.NewPCG(1, 2)) // always the same
	for range poolStarts {
		v.starts = append(v.starts, v.deal(order.Perm(all)))
	}
	return v
}

// balance puts services into so many pools whose loads are about equal, the largest first.
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

// show adds the pools and the other ways to a document.
func (v *poolPlan) show(d *report.Document) {
	how := "the best there is"
	if !v.Exact {
		how = "found by moving and exchanging services while that helped"
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
			t.Rowf("%s, which do not fit\t%d\t-\t-", o.Name, o.Pools)
			continue
		}
		t.Rowf("%s\t%d\t%d\t%.2f", o.Name, o.Pools, o.Devices, o.Demanded)
	}
	d.Table(t)
	d.Text("Devices are demanded by queries that come evenly; a pool takes so many that none is busy for more than %.0f %% of its time.", 100*fullDevice)
}
