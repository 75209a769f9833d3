package planning

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Partition divides services among sub-clusters (Symphony, section 4.4 and appendix A.1). Each
// service runs in one of them, on all of its devices, and a device runs one batch at a time. The
// objective is the largest difference between a sub-cluster's rate and the average, plus the same
// of its static memory, each as a fraction of the average. These are equations 3, 6 and 7 with the
// weight w for which both count equally.
type Partition struct {
	// MaxRate is the largest rate of a sub-cluster in requests a second, 0 for no limit.
	MaxRate float64

	// InForce is the plan to change, or nil. MaxChange is the most memory in MiB that may be
	// unloaded and loaded for the change (C_max in the paper, where c is the static memory of a
	// model). A service that moves counts twice, and one that the plan in force lacks counts once.
	InForce   *Placement
	MaxChange float64
}

// partition is the problem, and a state of the search. Rates and memory are fractions of the
// averages over sub-clusters.
type partition struct {
	items    []item
	clusters []cluster

	// at is the sub-cluster of each item.
	at []int

	// roomRate and roomShare are the limits of a sub-cluster less the averages.
	roomRate, roomShare float64

	// change is the memory in MiB to unload and load, and budget its limit.
	change, budget float64
}

// item is a service. rate, share and working are its rate, static memory and working memory, as
// fractions of the averages of a sub-cluster. memory is its static memory in MiB. home is its
// sub-cluster in the plan in force, or -1.
type item struct {
	rate, share, working, memory float64
	home                         int
}

// cluster is a sub-cluster: its rate and memory less the averages, the amount by which it exceeds
// its limits, and its items.
type cluster struct {
	rate, share, excess float64
	members             []int
}

// Plan divides services among sub-clusters. The memory of a sub-cluster is that of each of its
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
	// The solver, if it runs, gets half of the time.
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
		return nil, fmt.Errorf("%w was found within the limits of rate, memory and changes; give more memory, a higher rate, more sub-clusters or more changes", errNoPlan)
	}
	plan := &Placement{Kind: kindPartition, Objective: p.objective(), Bound: min(bound, p.objective()), Services: slices.Clone(services), Devices: slices.Clone(clusters)}
	for i, at := range p.at {
		plan.Services[i].Devices = []string{clusters[at].Name}
		plan.Devices[at].Load += services[i].Load / clusters[at].Speed
	}
	return s.finish(plan)
}

// problem assigns services to their sub-clusters in the plan in force. The others, the largest
// first, go where the most room is.
func (h Partition) problem(services []Service, clusters []Device) (*partition, error) {
	p := &partition{at: slices.Repeat([]int{-1}, len(services)), roomRate: infinite, budget: infinite}
	// All values are divided by the averages of a sub-cluster, so that rates and memory have the
	// same scale.
	rate, memory, name := 0.0, 0.0, map[string]int{}
	for _, s := range services {
		rate += s.Rate / float64(len(clusters))
		memory += s.Memory / float64(len(clusters))
	}
	for j, c := range clusters {
		if c.Memory != clusters[0].Memory {
			return nil, fmt.Errorf("%w: sub-clusters need devices of the same memory, but those of %s and %s differ; give all the same", errNoPlan, c.Name, clusters[0].Name)
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
				return nil, fmt.Errorf("%w: the plan in force has service %s on %s, which is not a sub-cluster; give as many sub-clusters as it was made for", errOther, s.Name, s.Devices[0])
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
	// The services that the plan in force lacks must be loaded in any case.
	if !atMost(p.change, p.budget) {
		return nil, fmt.Errorf("%w: loading the services that the plan in force lacks takes %.0f MiB of changes; allow at least that", errNoPlan, p.change)
	}
	for _, i := range falling(len(p.items), func(i int) float64 { return p.items[i].rate + p.items[i].share }) {
		if p.at[i] < 0 {
			p.put(i, falling(len(p.clusters), func(j int) float64 { return -p.clusters[j].rate - p.clusters[j].share })[0])
		}
	}
	return p, nil
}

// put moves item i to a sub-cluster, from none if it has none yet.
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

// sum adds an item to the sums of a sub-cluster if sign is 1, or subtracts it if sign is -1.
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

// cost returns the MiB to unload and load if item i is in a sub-cluster.
func (p *partition) cost(i, at int) float64 {
	if it := &p.items[i]; it.home >= 0 && it.home != at {
		return 2 * it.memory
	}
	return 0
}

// objective returns the largest differences of rate and of memory, summed.
func (p *partition) objective() float64 {
	rate, share := 0.0, 0.0
	for _, c := range p.clusters {
		rate, share = max(rate, math.Abs(c.rate)), max(share, math.Abs(c.share))
	}
	return rate + share
}

// excess returns the amount by which the sub-clusters exceed their limits.
func (p *partition) excess() (sum float64) {
	for _, c := range p.clusters {
		sum += c.excess
	}
	return sum
}

// bound returns a lower bound of the objective. A service that exceeds the average by itself makes
// a difference in any partition.
func (p *partition) bound() float64 {
	rate, share := 0.0, 0.0
	for _, it := range p.items {
		rate, share = max(rate, it.rate-1), max(share, it.share-1)
	}
	return rate + share
}

// Limits of the search.
const (
	// fruitless is the number of exchanges without gain, for each pair of services, before a shake.
	fruitless = 50

	// shakes is the number of shakes without gain that end the search.
	shakes = 100

	// shaken is the number of services that a shake moves to random sub-clusters.
	shaken = 4

	// clockInterval is the number of exchanges between two checks of the time limit.
	clockInterval = 4096

	// penalty is the weight of an excess relative to squared differences.
	penalty = 1e3

	// leastGain is the least decrease of squared differences that is not a rounding error.
	leastGain = 1e-12
)

// search improves the partition until its objective is at most enough. It exchanges services at
// random if that decreases the squared differences from the averages.
func (p *partition) search(ctx context.Context, enough float64, deadline time.Time) {
	best, least := slices.Clone(p.at), infinite
	random := rand.New(rand.NewPCG(1, 1))
	for shake := 0; shake < shakes && least > enough && len(p.clusters) > 1; shake++ {
		for try, since := 1, 0; since < fruitless*len(p.items)*len(p.items); try++ {
			if since++; p.exchange(random) {
				since = 0
			}
			// The objective only changes with an exchange.
			if v := p.objective() + penalty*p.excess(); (since == 0 || try == 1) && v < least*(1-epsilon) {
				least, shake = v, 0
				copy(best, p.at)
			}
			if least <= enough || try%clockInterval == 0 && (ctx.Err() != nil || time.Now().After(deadline)) {
				shake = shakes
				break
			}
		}
		// A shake leaves a local optimum, within the limit of changes.
		for range shaken {
			i, to := random.IntN(len(p.items)), random.IntN(len(p.clusters))
			if atMost(p.change-p.cost(i, p.at[i])+p.cost(i, to), p.budget) {
				p.put(i, to)
			}
		}
	}
	// Restore the best state.
	for i, at := range best {
		p.put(i, at)
	}
}

// exchange tries to exchange one or two services of a sub-cluster for up to two of another. Half of
// the times the first is the sub-cluster that differs most from the averages. It reports whether it
// made an exchange.
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
	// The first out of these move from a to b, and the others from b to a.
	var moved [4]int
	out := p.pick(random, a, moved[:1+random.IntN(2)])
	both := out + p.pick(random, b, moved[out:out+random.IntN(3)])
	// These are what b gains and a loses by the exchange.
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
	// Without the excess, which depends on working memory, the gain is cheap to compute and an
	// upper bound. Only a promising exchange is carried out and checked exactly.
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

// pick sets into to members of a sub-cluster chosen at random, without duplicates, and returns
// their number.
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

// squares returns the squared differences of a sub-cluster after adding a rate and a share.
func (c *cluster) squares(rate, share float64) float64 {
	return (c.rate+rate)*(c.rate+rate) + (c.share+share)*(c.share+share)
}

// maxPartition is the most variables of a program that is passed to a solver. On larger ones
// neither CBC nor HiGHS improved on the heuristic, which then gets the whole time.
const maxPartition = 1000

// solve lets a solver improve the partition, and returns the better bound.
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
	// Keep the solver's partition only if it is better.
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

// program returns Symphony's program, and the current partition as its solution, or nil if the
// partition exceeds a limit. The variable of item i in sub-cluster j has the index i·l + j.
func (p *partition) program() (m *program, start []float64) {
	m = &program{}
	l := len(p.clusters)
	m.add(binary, len(p.items)*l)
	// This variable is ΔR, and the one after it ΔS.
	rate := m.add(variable{high: infinite, cost: 1}, 2)
	working := m.add(variable{high: infinite}, l)
	start = make([]float64, len(m.variables))
	var change []term
	for j, c := range p.clusters {
		var rates, shares []term
		// Either mean is 1, or 0 if all items are 0.
		meanRate, meanShare := 0.0, 0.0
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
		// Equations 4 and 5 limit rate and memory.
		m.require(-infinite, p.roomRate+meanRate, rates...)
		m.require(-infinite, p.roomShare+meanShare, append(slices.Clone(shares), term{working + j, 1})...)
		// Equations 6 and 7 bound the differences from the means.
		for d, sums := range [][]term{rates, shares} {
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
		// Equation 8: each service is in one sub-cluster.
		m.require(1, 1, once...)
	}
	if !math.IsInf(p.budget, 1) {
		spent := 0.0
		for i, at := range p.at {
			spent += p.cost(i, at)
		}
		// Equation 10 limits the changes.
		m.require(-infinite, p.budget-p.change+spent, change...)
	}
	if m.check(start) != nil {
		start = nil
	}
	return m, start
}
