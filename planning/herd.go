package planning

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Herd is how serving groups are formed of equal devices (Shepherd, section 4, equation
// 2). A serving group is devices that have the same models loaded and share their queues.
// The burst tolerance of a model-stream is the devices of its group over those that it
// needs on average; the least of all is the objective.
//
// To the paper's limits (a) to (e) one is added, without which one group of all models
// would be best however overloaded: the average loads of a group fit its devices, or
// exceed them by as little as was found possible where all devices are too few. Of groups
// with the same objective, those are better whose busiest is less busy.
type Herd struct {
	GroupLimit int     // devices of a group at most (G); 0 for no limit
	Groups     int     // groups at most; 0 for no limit
	Affinity   float64 // of any two models of a group at most (K); 0 for no limit
}

// herd is the problem, whose loads are in devices.
type herd struct {
	*search
	services []Service
	streams  []stream // by falling load
	devices  int
	limit    int // devices of a group
	groups   int
	sets     int
	affinity float64 // of two models of a group at most, 0 for no limit
	memory   float64 // of a device
	load     float64 // of a device at most, 1 unless all are overloaded
}

// stream is a model-stream: all requests of one service, or an equal part of them where
// they need more than half of the largest group. Parts are in different groups.
type stream struct {
	service      int
	load, memory float64
	set          int // no group has streams of two sets
	parts        int // that the service has
}

// servingGroup is streams, with the devices that they need or have.
type servingGroup struct {
	members            []int
	peak, load, memory float64 // the largest load of a stream; sums
	size               int     // devices
}

// Plan forms groups.
func (h Herd) Plan(ctx context.Context, services []Service, devices []Device, how Search) (*Placement, error) {
	s, err := how.begin(ctx, services, devices)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if d.Memory != devices[0].Memory || d.Speed != devices[0].Speed {
			return nil, fmt.Errorf("%w: serving groups are formed of equal devices, and %s and %s differ; give no limits of groups", errNoPlan, devices[0].Name, d.Name)
		}
	}
	p, sum := h.problem(services, devices)
	p.search = s
	s.say("forming groups of %d model-streams", len(p.streams))
	best, ok := leastOverload(&p.load, sum, float64(min(p.devices, p.limit*p.groups)), func() ([]servingGroup, bool) { return p.find(0) })
	if !ok {
		return nil, fmt.Errorf("%w of at most %d groups was found in which the models of each fit the %.0f MiB of a device: give more memory, more groups or a larger affinity", errNoPlan, p.groups, p.memory)
	}
	bound := p.reachable(greatest(float64(p.limit)/p.streams[0].load, p.mayReach))
	best = climb(s, best, bound, tolerance, p.find)
	if s.solver != nil && tolerance(best) < bound*(1-epsilon) {
		best, bound = p.solve(best, bound)
	}
	plan := &Placement{Kind: "herd", Objective: tolerance(best), Bound: bound, Services: slices.Clone(services), Devices: slices.Clone(devices)}
	next := 0
	for at, g := range p.even(best) {
		for range g.size {
			d := &plan.Devices[next]
			next++
			d.Group, d.Load = at+1, g.load/float64(g.size)
			for _, i := range g.members {
				s := &plan.Services[p.streams[i].service]
				s.Devices = append(s.Devices, d.Name)
			}
		}
	}
	return s.finish(plan)
}

// problem aggregates services into model-streams, and returns the sum of the loads, too.
func (h Herd) problem(services []Service, devices []Device) (p *herd, sum float64) {
	n := len(devices)
	p = &herd{services: services, devices: n, limit: n, groups: n, affinity: h.Affinity, memory: devices[0].Memory, load: 1}
	if h.GroupLimit > 0 {
		p.limit = min(h.GroupLimit, n)
	}
	if h.Groups > 0 {
		p.groups = min(h.Groups, n)
	}
	for i, s := range services {
		load := s.Load / devices[0].Speed
		sum += load
		parts := min(max(whole(2*load/float64(p.limit)), 1), n/p.limit, p.groups)
		for range parts {
			p.streams = append(p.streams, stream{service: i, load: load / float64(parts), memory: s.needs(), parts: parts})
		}
	}
	slices.SortStableFunc(p.streams, func(a, b stream) int { return cmp.Compare(b.load, a.load) })
	p.separate()
	return p, sum
}

// separate divides the streams into sets: no group can have streams of two of them. The bound
// counts the groups and devices of each set.
func (p *herd) separate() {
	rest := make([]*stream, len(p.streams))
	for i := range rest {
		rest[i] = &p.streams[i]
	}
	for p.sets = 0; len(rest) > 0; p.sets++ {
		set := []*stream{rest[0]}
		rest = rest[1:]
		for at := 0; at < len(set); at++ {
			set[at].set = p.sets
			rest = slices.DeleteFunc(rest, func(st *stream) bool {
				joins := !p.apart(set[at], st)
				if joins {
					set = append(set, st)
				}
				return joins
			})
		}
	}
}

// apart reports whether two streams may not be in one group. The paper divides models into
// affinity sets beforehand, to make its program smaller (section 4, constraint e). That rules
// out groups that keep the limit, so that devices are overloaded needlessly.
func (p *herd) apart(a, b *stream) bool {
	if a.service == b.service || !atMost(a.memory+b.memory, p.memory) {
		return true
	}
	i, j := &p.services[a.service], &p.services[b.service]
	return p.affinity > 0 && max(affinity(i, j), affinity(j, i)) > p.affinity
}

// affinity returns A(i, j) of Shepherd, section 5.2: close to 1 where the times of
// batches are alike.
func affinity(i, j *Service) float64 {
	a := (i.Alpha + i.Beta) / j.Alpha
	if d := j.Alpha + j.Beta - i.Beta; d > 0 {
		a = min(a, max(i.Alpha/d, i.Alpha/j.Alpha))
	}
	return a
}

// need returns the devices that a group needs for a burst tolerance.
func (p *herd) need(peak, load, tolerance float64) int {
	return max(whole(peak*tolerance), whole(load/p.load), 1)
}

// takes reports whether a stream may be in a group, but for devices.
func (p *herd) takes(g *servingGroup, st *stream) bool {
	return atMost(g.memory+st.memory, p.memory) && (p.affinity == 0 && st.parts == 1 ||
		!slices.ContainsFunc(g.members, func(i int) bool { return p.apart(&p.streams[i], st) }))
}

func (g *servingGroup) take(i int, st *stream) {
	g.members = append(g.members, i)
	g.peak = max(g.peak, st.load)
	g.load, g.memory = g.load+st.load, g.memory+st.memory
}

func (g *servingGroup) tolerance() float64 { return float64(g.size) / max(g.peak, 1e-300) }

// tolerance returns the least burst tolerance.
func tolerance(groups []servingGroup) float64 {
	least := infinite
	for i := range groups {
		least = min(least, groups[i].tolerance())
	}
	return least
}

// find looks for groups of a burst tolerance: it packs streams by falling load, or by
// falling memory, and then moves and swaps streams at random as long as the groups need
// no more devices then.
func (p *herd) find(aim float64) ([]servingGroup, bool) {
	for _, key := range []func(st *stream) float64{func(st *stream) float64 { return st.load }, func(st *stream) float64 { return st.memory }} {
		groups := p.pack(aim, key)
		if p.lacking(groups, aim) <= 0 || p.exchange(groups, aim) {
			groups = slices.DeleteFunc(groups, func(g servingGroup) bool { return len(g.members) == 0 })
			for j := range groups {
				groups[j].size = p.need(groups[j].peak, groups[j].load, aim)
			}
			return p.spread(groups), true
		}
	}
	return nil, false
}

// pack forms groups stream by stream, by a falling key, each in the first of the groups
// that then need the fewest devices more for a burst tolerance.
func (p *herd) pack(aim float64, key func(*stream) float64) (groups []servingGroup) {
	for _, i := range falling(len(p.streams), func(i int) float64 { return key(&p.streams[i]) }) {
		st := &p.streams[i]
		best, least := len(groups), p.cost(st.load, st.load, aim)
		if len(groups) >= p.groups {
			least = math.MaxInt
		}
		for j := range groups {
			g := &groups[j]
			more := p.cost(max(g.peak, st.load), g.load+st.load, aim) - p.cost(g.peak, g.load, aim)
			if (more < least || more == least && best == len(groups)) && p.takes(g, st) {
				best, least = j, more
			}
		}
		if best == len(groups) {
			groups = append(groups, servingGroup{})
		}
		groups[best].take(i, st)
	}
	return groups
}

// cost is the devices that a group needs for a burst tolerance, and as many as there are
// besides if these are more than a group may have.
func (p *herd) cost(peak, load, aim float64) int {
	if load == 0 && peak == 0 {
		return 0
	}
	size := p.need(peak, load, aim)
	if size > p.limit {
		size += p.devices
	}
	return size
}

// lacking returns how many devices groups need that are not there, and as many as there
// are besides for each group too many.
func (p *herd) lacking(groups []servingGroup, aim float64) int {
	sum := -p.devices * (1 + p.groups)
	used := 0
	for _, g := range groups {
		if len(g.members) > 0 {
			used++
		}
		sum += p.cost(g.peak, g.load, aim)
	}
	return sum + p.devices*max(used, p.groups)
}

// How many moves and swaps are tried for a burst tolerance: so many for each pair of
// streams, and no more than so many, or than look at so many streams.
const (
	exchangesPerPair = 200
	exchanges        = 100_000
	exchangesLookAt  = 1_000_000
)

// exchange moves and swaps streams until no devices are lacking.
func (p *herd) exchange(groups []servingGroup, aim float64) bool {
	random := rand.New(rand.NewPCG(1, 1))
	for try := range min(exchanges, exchangesPerPair*len(p.streams)*len(p.streams), exchangesLookAt*len(groups)/len(p.streams)) {
		a, b := &groups[random.IntN(len(groups))], &groups[random.IntN(len(groups))]
		if try%1024 == 1023 && p.over() {
			return false
		}
		if a == b || len(a.members) == 0 {
			continue
		}
		out, in := random.IntN(len(a.members)), random.IntN(2*len(b.members)+1)
		with := []int{a.members[out]}
		var back []int
		if in < len(b.members) {
			back = []int{b.members[in]}
		}
		c, d := p.regroup(a, with, back), p.regroup(b, back, with)
		if c == nil || d == nil {
			continue
		}
		more := p.cost(c.peak, c.load, aim) + p.cost(d.peak, d.load, aim) - p.cost(a.peak, a.load, aim) - p.cost(b.peak, b.load, aim)
		if more > 0 {
			continue
		}
		if *a, *b = *c, *d; more < 0 && p.lacking(groups, aim) <= 0 {
			return true
		}
	}
	return false
}

// regroup returns a group without some members and with others, nil if they do not fit.
func (p *herd) regroup(g *servingGroup, without, with []int) *servingGroup {
	other := &servingGroup{members: make([]int, 0, len(g.members)+1)}
	for _, i := range g.members {
		if !slices.Contains(without, i) {
			other.take(i, &p.streams[i])
		}
	}
	for _, i := range with {
		if !p.takes(other, &p.streams[i]) {
			return nil
		}
		other.take(i, &p.streams[i])
	}
	return other
}

// spread gives devices that are left to the groups that tolerate least.
func (p *herd) spread(groups []servingGroup) []servingGroup {
	for left := p.left(groups); left > 0; left-- {
		poorest := -1
		for i := range groups {
			if groups[i].size < p.limit && (poorest < 0 || groups[i].tolerance() < groups[poorest].tolerance()) {
				poorest = i
			}
		}
		if poorest < 0 {
			break
		}
		groups[poorest].size++
	}
	return groups
}

func (p *herd) left(groups []servingGroup) int {
	left := p.devices
	for i := range groups {
		left -= groups[i].size
	}
	return left
}

// even moves streams from the busiest group to less busy ones, and to new groups of
// devices that are left, as long as no burst tolerance falls below the least.
func (p *herd) even(groups []servingGroup) []servingGroup {
	keep := tolerance(groups) * (1 - epsilon)
	for left := p.left(groups); left > 0 && len(groups) < p.groups; left = p.left(groups) {
		groups = append(groups, servingGroup{size: min(left, p.limit)})
	}
	done := make([]bool, len(groups)) // nothing of it can move
	for range len(p.streams) + len(groups) {
		from := -1
		for i := range groups {
			if !done[i] && (from < 0 || groups[i].load*float64(groups[from].size) > groups[from].load*float64(groups[i].size)) {
				from = i
			}
		}
		if from < 0 {
			break
		}
		g := groups[from]
		least, at, to := g.load/float64(g.size)*(1-epsilon), -1, -1
		for n, i := range g.members {
			st := &p.streams[i]
			for j := range groups {
				other := &groups[j]
				after := max((other.load+st.load)/float64(other.size), (g.load-st.load)/float64(g.size))
				if after < least && float64(other.size) >= keep*st.load && p.takes(other, st) {
					least, at, to = after, n, j
				}
			}
		}
		if at < 0 {
			done[from] = true
			continue
		}
		moves := g.members[at]
		groups[to].take(moves, &p.streams[moves])
		groups[from] = *p.regroup(&g, []int{moves}, nil)
		groups[from].size = g.size
	}
	return slices.DeleteFunc(groups, func(g servingGroup) bool { return len(g.members) == 0 })
}

// reachable returns the largest burst tolerance up to one that a whole number of
// devices can give a stream.
func (p *herd) reachable(most float64) (best float64) {
	for _, st := range p.streams {
		if st.load > 0 {
			best = max(best, min(float64(p.limit), math.Floor(most*st.load*(1+epsilon)))/st.load)
		}
	}
	return best
}

// mayReach reports whether there may be groups of a burst tolerance. The streams of a set
// with the largest loads need a number of groups, for their memory, for their loads, or
// because some of them are apart from each other. So as many groups have a stream of the
// least of those loads, or of a larger one.
func (p *herd) mayReach(aim float64) bool {
	type prefix struct {
		memory, load    float64
		apart           []*stream // from each other
		groups, devices int
	}
	sets := make([]prefix, p.sets)
	for i := range p.streams {
		st := &p.streams[i]
		s := &sets[st.set]
		s.memory, s.load = s.memory+st.memory, s.load+st.load
		if !slices.ContainsFunc(s.apart, func(other *stream) bool { return !p.apart(st, other) }) {
			s.apart = append(s.apart, st)
		}
		groups := max(whole(part(s.memory, p.memory)), whole(s.load/(p.load*float64(p.limit))), len(s.apart))
		for ; s.groups < groups; s.groups++ {
			s.devices += p.need(st.load, 0, aim)
		}
	}
	groups, devices := 0, 0
	for _, s := range sets {
		groups += s.groups
		devices += max(s.devices, whole(s.load/p.load))
	}
	return groups <= p.groups && devices <= p.devices
}

// maxProgram is how many variables a program may have to be given to a solver: writing
// and reading a larger one takes the time that there is.
const maxProgram = 5_000

// solve bisects on the burst tolerance between the best groups and the bound, with a
// program for each step.
func (p *herd) solve(best []servingGroup, bound float64) ([]servingGroup, float64) {
	columns := min(p.groups, len(p.streams))
	if len(p.streams)*columns > maxProgram {
		p.note = fmt.Sprintf("%s was not asked: its program would have %d variables", p.solver.name, len(p.streams)*columns)
		return best, bound
	}
	steps := p.steps(tolerance(best), bound)
	for len(steps) > 0 {
		at := (len(steps) - 1) / 2
		m, inGroup := p.program(steps[at], columns)
		found := p.ask(m, nil)
		switch {
		case found == nil:
			return best, bound
		case found.infeasible:
			p.by, steps = p.solver.name, steps[:at]
			if bound = tolerance(best); at > 0 {
				bound = steps[at-1]
			}
			continue
		}
		better := p.decode(found.x, inGroup, columns)
		if better == nil || tolerance(better) <= tolerance(best) {
			p.note = p.solver.name + " takes for rounding what exceeds limits"
			return best, bound
		}
		p.by, best = p.solver.name, better
		steps = p.steps(tolerance(best), bound)
	}
	return best, bound
}

// steps returns the burst tolerances above low, up to high, that a group can have.
func (p *herd) steps(low, high float64) (steps []float64) {
	for _, st := range p.streams {
		for size := math.Floor(low * st.load); st.load > 0 && size <= high*st.load*(1+epsilon); size++ {
			if t := size / st.load; t > low*(1+epsilon) {
				steps = append(steps, t)
			}
		}
	}
	slices.Sort(steps)
	return slices.Compact(steps)
}

// program returns a program whose solutions are groups of a burst tolerance: the ILP of
// Shepherd (equation 2), linear because the tolerance is given. Equal groups are ordered
// by their first streams, so that each grouping is one solution. The variables of a
// stream, one for each group it may be in, begin at inGroup.
func (p *herd) program(aim float64, columns int) (m *program, inGroup []int) {
	m = &program{}
	for i := range p.streams {
		inGroup = append(inGroup, m.add(binary, min(i+1, columns)))
	}
	size := m.add(variable{high: float64(p.limit), integer: true}, columns)
	cliques := p.cliques()
	var all []term
	for j := range columns {
		all = append(all, term{size + j, 1})
		load, memory := []term{{size + j, -p.load}}, []term{}
		var before []term // of streams before i in the group before
		for i := j; i < len(p.streams); i++ {
			st, x := p.streams[i], inGroup[i]+j
			load, memory = append(load, term{x, st.load}), append(memory, term{x, part(st.memory, p.memory)})
			m.require(0, infinite, term{size + j, 1}, term{x, -float64(p.need(st.load, 0, aim))})
			if j > 0 {
				before = append(before, term{inGroup[i-1] + j - 1, 1})
				m.require(0, infinite, append(slices.Clone(before), term{x, -1})...)
			}
		}
		m.require(-infinite, 0, load...)
		m.require(-infinite, 1, memory...)
		for _, clique := range cliques {
			var one []term
			for _, i := range clique {
				if i >= j {
					one = append(one, term{inGroup[i] + j, 1})
				}
			}
			if len(one) > 1 {
				m.require(-infinite, 1, one...)
			}
		}
	}
	m.require(-infinite, float64(p.devices), all...)
	for i := range p.streams {
		var once []term
		for j := range min(i+1, columns) {
			once = append(once, term{inGroup[i] + j, 1})
		}
		m.require(1, 1, once...)
	}
	return m, inGroup
}

// cliques returns lists of streams that are all apart from each other, so that at most one
// of a list is in a group. Every two streams that are apart share a list.
func (p *herd) cliques() (cliques [][]int) {
	covered := make([][]bool, len(p.streams)) // pairs that share a list
	for i := range covered {
		covered[i] = make([]bool, len(p.streams))
	}
	for i := range p.streams {
		for k := range i {
			if covered[k][i] || !p.apart(&p.streams[k], &p.streams[i]) {
				continue
			}
			clique := []int{k, i}
			for l := range p.streams {
				if !slices.Contains(clique, l) && !slices.ContainsFunc(clique, func(c int) bool { return !p.apart(&p.streams[c], &p.streams[l]) }) {
					clique = append(clique, l)
				}
			}
			for _, a := range clique {
				for _, b := range clique {
					covered[a][b] = true
				}
			}
			cliques = append(cliques, clique)
		}
	}
	return cliques
}

// decode returns the groups of a solution with as many devices as they can have, nil if
// they break a limit by what a solver takes for rounding.
func (p *herd) decode(x []float64, inGroup []int, columns int) []servingGroup {
	var groups []servingGroup
	for j := range columns {
		var members []int
		for i := j; i < len(p.streams); i++ {
			if x[inGroup[i]+j] > 0.5 {
				members = append(members, i)
			}
		}
		g := p.regroup(&servingGroup{}, nil, members)
		if g == nil {
			return nil
		}
		if g.size = p.need(0, g.load, 0); g.size > p.limit {
			return nil
		}
		if len(members) > 0 {
			groups = append(groups, *g)
		}
	}
	if p.left(groups) < 0 {
		return nil
	}
	return p.spread(groups)
}
