package planning

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Partition is how services are divided among sub-clusters (Symphony, section 4.4 and
// appendix A.1). Each runs in one of them, on all of its devices, which run one batch at
// a time. The objective is the largest difference of a sub-cluster's rate from the average
// plus that of its static memory, both as parts of the average: equations 3, 6 and 7 with
// the weight w by which both count the same.
type Partition struct {
	MaxRate float64 // requests a second of a sub-cluster at most; 0 for no limit

	// InForce is the plan that is to be changed, or nil, MaxChange how many MiB may be
	// unloaded and loaded for that (C_max; c is the static memory of a model): twice the
	// memory of a service that moves, and once that of one that the plan in force has not.
	InForce   *Placement
	MaxChange float64
}

// partition is the problem, and a state of the search.
type partition struct {
	items               []item
	clusters            []cluster
	at                  []int   // the sub-cluster of each item
	roomRate, roomShare float64 // that a sub-cluster has above the averages, as parts of them
	change, budget      float64 // MiB that are unloaded and loaded, and that may be
}

// item is a service: its parts of the average rate and memory of a sub-cluster, its
// working memory as a part of the latter, its MiB, and its sub-cluster in the plan in
// force, -1 without.
type item struct {
	rate, share, working, memory float64
	home                         int
}

// cluster is by how much a sub-cluster is above the averages, and above its limits, as
// parts of the averages.
type cluster struct {
	rate, share, excess float64
	members             []int
}

// Plan divides services among sub-clusters, whose memory is that of each of their
// devices.
func (h Partition) Plan(ctx context.Context, services []Service, clusters []Device, how Search) (*Placement, error) {
	s, err := how.begin(ctx, services, clusters)
	if err != nil {
		return nil, err
	}
	p, err := h.problem(services, clusters)
	if err != nil {
		return nil, err
	}
	bound, limit := p.bound(), s.deadline
	ask := s.solver != nil && len(p.items)*len(p.clusters) <= maxPartition
	if ask {
		limit = s.began.Add(s.Limit / 2)
	}
	s.say("exchanging services between %d sub-clusters", len(clusters))
	p.search(ctx, bound+negligible, limit)
	if ask && p.objective() > bound+negligible {
		bound = p.solve(s, bound)
	}
	if p.excess() > 0 && ctx.Err() == nil {
		return nil, fmt.Errorf("%w was found within the limits of rate, memory and changes: give more memory, a larger rate, more sub-clusters or more changes", errNoPlan)
	}
	plan := &Placement{Kind: kindPartition, Objective: p.objective(), Bound: min(bound, p.objective()), Services: slices.Clone(services), Devices: slices.Clone(clusters)}
	for i, at := range p.at {
		plan.Services[i].Devices = []string{clusters[at].Name}
		plan.Devices[at].Load += services[i].Load / clusters[at].Speed
	}
	return s.finish(plan)
}

// problem puts services where the plan in force has them, and others, the largest first,
// where there is most room.
func (h Partition) problem(services []Service, clusters []Device) (*partition, error) {
	p := &partition{at: slices.Repeat([]int{-1}, len(services)), roomRate: infinite, budget: infinite}
	rate, memory, name := 0.0, 0.0, map[string]int{}
	for _, s := range services {
		rate += s.Rate / float64(len(clusters))
		memory += s.Memory / float64(len(clusters))
	}
	for j, c := range clusters {
		if c.Memory != clusters[0].Memory {
			return nil, fmt.Errorf("%w: the devices of all sub-clusters must have the same memory, and those of %s have other than those of %s", errNoPlan, c.Name, clusters[0].Name)
		}
		name[c.Name] = j
		p.clusters = append(p.clusters, cluster{rate: -part(rate, rate), share: -part(memory, memory)})
	}
	if h.MaxRate > 0 {
		p.roomRate = part(h.MaxRate-rate, rate)
	}
	p.roomShare = part(clusters[0].Memory-memory, memory)
	home := map[string]int{}
	if h.InForce != nil {
		p.budget = h.MaxChange
		for _, s := range h.InForce.Services {
			at, known := name[s.Devices[0]]
			if !known || h.InForce.Kind != kindPartition {
				return nil, fmt.Errorf("%w: the plan in force has service %s on %s, which is none of the sub-clusters; give as many as it was made for", errOther, s.Name, s.Devices[0])
			}
			home[s.Name] = at
		}
	}
	for i, s := range services {
		at, known := home[s.Name]
		p.items = append(p.items, item{part(s.Rate, rate), part(s.Memory, memory), part(s.Working, memory), s.Memory, at})
		if known {
			p.put(i, at)
			continue
		}
		if p.items[i].home = -1; h.InForce != nil {
			p.change += s.Memory
		}
	}
	if !atMost(p.change, p.budget) {
		return nil, fmt.Errorf("%w: to load what the plan in force does not have takes %.0f MiB of changes; allow as many", errNoPlan, p.change)
	}
	for _, i := range falling(len(p.items), func(i int) float64 { return p.items[i].rate + p.items[i].share }) {
		if p.at[i] < 0 {
			p.put(i, falling(len(p.clusters), func(j int) float64 { return -p.clusters[j].rate - p.clusters[j].share })[0])
		}
	}
	return p, nil
}

// put moves a service.
func (p *partition) put(i, to int) {
	if from := p.at[i]; from >= 0 {
		c := &p.clusters[from]
		c.members = slices.DeleteFunc(c.members, func(k int) bool { return k == i })
		p.change -= p.cost(i, from)
		p.sum(c, i, -1)
	}
	c := &p.clusters[to]
	c.members = append(c.members, i)
	p.at[i] = to
	p.change += p.cost(i, to)
	p.sum(c, i, 1)
}

// sum adds a service to what a sub-cluster's members have together, or takes it away.
func (p *partition) sum(c *cluster, i int, sign float64) {
	c.rate += sign * p.items[i].rate
	c.share += sign * p.items[i].share
	working := 0.0
	for _, i := range c.members {
		working = max(working, p.items[i].working)
	}
	c.excess = 0
	if !atMost(c.rate, p.roomRate) {
		c.excess += c.rate - p.roomRate
	}
	if !atMost(c.share+working, p.roomShare) {
		c.excess += c.share + working - p.roomShare
	}
}

// cost returns the MiB to unload and load where a service is in a sub-cluster.
func (p *partition) cost(i, at int) float64 {
	if it := &p.items[i]; it.home >= 0 && it.home != at {
		return 2 * it.memory
	}
	return 0
}

func (p *partition) objective() float64 {
	rate, share := 0.0, 0.0
	for _, c := range p.clusters {
		rate, share = max(rate, math.Abs(c.rate)), max(share, math.Abs(c.share))
	}
	return rate + share
}

// excess returns by how much limits are exceeded.
func (p *partition) excess() (sum float64) {
	for _, c := range p.clusters {
		sum += c.excess
	}
	return sum
}

// bound returns what no partition is below: the largest services make a difference.
func (p *partition) bound() float64 {
	rate, share := 0.0, 0.0
	for _, it := range p.items {
		rate, share = max(rate, it.rate-1), max(share, it.share-1)
	}
	return rate + share
}

// Limits of the search.
const (
	fruitless     = 50    // exchanges without gain for each pair of services, after which the state is shaken
	shakes        = 100   // without gain, after which the search is over
	shaken        = 4     // services that a shake puts anywhere
	clockInterval = 4096  // exchanges between looks at the clock
	penalty       = 1e3   // of an excess, beside squared differences
	leastGain     = 1e-12 // of squared differences, above what rounding makes of none
)

// search improves the partition until its objective is at most enough: it exchanges
// services at random as long as that lessens the squared differences from the averages.
func (p *partition) search(ctx context.Context, enough float64, deadline time.Time) {
	best, least := slices.Clone(p.at), infinite
	random := rand.New(rand.NewPCG(1, 1))
	for shake := 0; shake < shakes && least > enough && len(p.clusters) > 1; shake++ {
		for try, since := 1, 0; since < fruitless*len(p.items)*len(p.items); try++ {
			if since++; p.exchange(random) {
				since = 0
			}
			if v := p.objective() + penalty*p.excess(); (since == 0 || try == 1) && v < least*(1-epsilon) {
				least, shake = v, 0
				copy(best, p.at)
			}
			if least <= enough || try%clockInterval == 0 && (ctx.Err() != nil || time.Now().After(deadline)) {
				shake = shakes
				break
			}
		}
		for range shaken {
			i, to := random.IntN(len(p.items)), random.IntN(len(p.clusters))
			if atMost(p.change-p.cost(i, p.at[i])+p.cost(i, to), p.budget) {
				p.put(i, to)
			}
		}
	}
	for i, at := range best {
		p.put(i, at)
	}
}

// exchange tries to exchange one or two services of a sub-cluster for up to two of
// another one, half the time of the one that is farthest from the averages.
func (p *partition) exchange(random *rand.Rand) bool {
	a, b := random.IntN(len(p.clusters)), random.IntN(len(p.clusters))
	if random.IntN(2) == 0 {
		for j := range p.clusters {
			if p.clusters[j].squares(0, 0) > p.clusters[a].squares(0, 0) {
				a = j
			}
		}
	}
	if a == b {
		return false
	}
	var moved [4]int // of which the first so many go from a to b, and others from b to a
	out := p.pick(random, a, moved[:1+random.IntN(2)])
	both := out + p.pick(random, b, moved[out:out+random.IntN(3)])
	rate, share, change := 0.0, 0.0, 0.0
	for n, i := range moved[:both] {
		sign, to := 1.0, b
		if n >= out {
			sign, to = -1, a
		}
		rate, share = rate+sign*p.items[i].rate, share+sign*p.items[i].share
		change += p.cost(i, to) - p.cost(i, p.at[i])
	}
	from, to := &p.clusters[a], &p.clusters[b]
	gain := from.squares(0, 0) + to.squares(0, 0) - from.squares(-rate, -share) - to.squares(rate, share) + penalty*(from.excess+to.excess)
	if gain <= leastGain || !atMost(p.change+change, p.budget) {
		return false
	}
	swap := func() {
		for _, i := range moved[:both] {
			p.put(i, a+b-p.at[i])
		}
	}
	if swap(); gain-penalty*(from.excess+to.excess) <= leastGain {
		swap()
		return false
	}
	return true
}

// pick picks different members of a sub-cluster, and returns how many.
func (p *partition) pick(random *rand.Rand, of int, into []int) int {
	members := p.clusters[of].members
	if len(members) == 0 {
		return 0
	}
	for n := range into {
		into[n] = members[random.IntN(len(members))]
	}
	if len(into) == 2 && into[0] == into[1] {
		return 1
	}
	return len(into)
}

// squares returns the squared differences of a sub-cluster that gets more.
func (c *cluster) squares(rate, share float64) float64 {
	return (c.rate+rate)*(c.rate+rate) + (c.share+share)*(c.share+share)
}

// maxPartition is how many variables a solver is asked about. Beyond them neither CBC nor
// HiGHS was seen to improve on the heuristic, whose time it is then.
const maxPartition = 1000

// solve has a solver improve the partition, and returns the bound.
func (p *partition) solve(s *search, bound float64) float64 {
	m, start := p.program()
	found := s.ask(m, start)
	if found == nil || found.infeasible {
		return bound
	}
	before, value := slices.Clone(p.at), p.objective()+penalty*p.excess()
	for i := range p.items {
		p.put(i, slices.IndexFunc(found.x[i*len(p.clusters):], func(x float64) bool { return x > 0.5 }))
	}
	if p.objective()+penalty*p.excess() < value-negligible {
		s.by = s.solver.name
	} else {
		for i, at := range before {
			p.put(i, at)
		}
	}
	if bound = max(bound, found.bound); p.objective() <= bound+negligible {
		s.by = s.solver.name
	}
	return bound
}

// program returns Symphony's program, and the partition as its solution, nil if it is
// none. The variable of item i in sub-cluster j is the one at i·l + j.
func (p *partition) program() (m *program, start []float64) {
	m = &program{}
	l := len(p.clusters)
	m.add(binary, len(p.items)*l)
	rate := m.add(variable{high: infinite, cost: 1}, 2) // ΔR, and ΔS after it
	working := m.add(variable{high: infinite}, l)
	start = make([]float64, len(m.variables))
	var change []term
	for j, c := range p.clusters {
		var rates, shares []term
		meanRate, meanShare := 0.0, 0.0 // 1, or 0 of nothing
		for i, it := range p.items {
			x := i*l + j
			rates, shares = append(rates, term{x, it.rate}), append(shares, term{x, it.share})
			meanRate, meanShare = meanRate+it.rate/float64(l), meanShare+it.share/float64(l)
			m.require(0, infinite, term{working + j, 1}, term{x, -it.working})
			change = append(change, term{x, p.cost(i, j)})
			if p.at[i] == j {
				start[x], start[working+j] = 1, max(start[working+j], it.working)
			}
		}
		start[rate], start[rate+1] = max(start[rate], math.Abs(c.rate)), max(start[rate+1], math.Abs(c.share))
		m.require(-infinite, p.roomRate+meanRate, rates...)                                                // equation 4
		m.require(-infinite, p.roomShare+meanShare, append(slices.Clone(shares), term{working + j, 1})...) // 5
		for d, sums := range [][]term{rates, shares} {                                                     // 6 and 7
			mean := []float64{meanRate, meanShare}[d]
			m.require(-infinite, mean, append(slices.Clone(sums), term{rate + d, -1})...)
			m.require(mean, infinite, append(sums, term{rate + d, 1})...)
		}
	}
	for i := range p.items {
		var once []term
		for j := range l {
			once = append(once, term{i*l + j, 1})
		}
		m.require(1, 1, once...) // 8
	}
	if !math.IsInf(p.budget, 1) {
		spent := 0.0
		for i, at := range p.at {
			spent += p.cost(i, at)
		}
		m.require(-infinite, p.budget-p.change+spent, change...) // 10
	}
	if m.check(start) != nil {
		start = nil
	}
	return m, start
}
