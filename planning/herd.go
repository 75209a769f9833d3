package planning

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Herd forms serving groups of equal devices (Shepherd, section 4, equation 2). A serving group is
// a set of devices with the same models loaded and shared queues. The burst tolerance of a
// model-stream is the number of devices of its group over the number that it needs on average. The
// objective is the lowest burst tolerance of all.
//
// One limit is added to the paper's limits (a) to (e), because without it a single group of all
// models would be best however overloaded it is. The average loads of a group fit its devices, or
// exceed them by the least overload found if all devices together are too few. Among plans with the
// same objective, the one whose busiest group is least busy wins.
type Herd struct {
	// GroupLimit is the largest number of devices of a group (G in the paper), 0 for no limit.
	GroupLimit int

	// Groups is the largest number of groups, 0 for no limit.
	Groups int

	// Affinity is the largest affinity of any two models of a group (K in the paper), 0 for no
	// limit.
	Affinity float64
}

// herd is the problem. Loads are in devices.
type herd struct {
	*search
	services []Service

	// streams is ordered by falling load.
	streams []stream
	devices int

	// limit is the most devices of a group, groups the most groups, and sets the number of sets of
	// streams (see separate).
	limit  int
	groups int
	sets   int

	// affinity is the most that two models of a group may have, 0 for no limit.
	affinity float64

	// memory is that of one device.
	memory float64

	// load is the most that a device may be busy: 1 unless all are overloaded.
	load float64
}

// stream is a model-stream: all requests of one service, or an equal part of them if the service
// needs more than half of the largest group. The parts of a service are in different groups.
type stream struct {
	service      int
	load, memory float64

	// set is the number of the stream's set. No group has streams of two sets.
	set int

	// parts is the number of streams of the service.
	parts int
}

// servingGroup is a group of streams with its devices.
type servingGroup struct {
	members []int

	// peak is the largest load of a stream. load and memory are sums over the streams.
	peak, load, memory float64

	// size is the number of devices.
	size int
}

// Plan forms the groups. All devices must be equal.
func (h Herd) Plan(ctx context.Context, services []Service, devices []Device, how Search) (*Placement, error) {
	s, err := how.begin(ctx, services, devices)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if d.Memory != devices[0].Memory || d.Speed != devices[0].Speed {
			return nil, fmt.Errorf("%w: serving groups need equal devices, but %s and %s differ; plan without limits of groups", errNoPlan, devices[0].Name, d.Name)
		}
	}
	p, sum := h.problem(services, devices)
	p.search = s
	s.say("forming groups of %d model-streams", len(p.streams))
	// A tolerance of 0 asks only for groups that fit memory and load. The search for a higher one
	// starts from these.
	best, ok := leastOverload(&p.load, sum, float64(min(p.devices, p.limit*p.groups)), func() ([]servingGroup, bool) { return p.find(0) })
	if !ok {
		return nil, fmt.Errorf("%w of at most %d groups was found whose models fit the %.0f MiB of a device; give more memory, more groups or a larger affinity", errNoPlan, p.groups, p.memory)
	}
	bound := p.reachable(greatest(float64(p.limit)/p.streams[0].load, p.mayReach))
	best = climb(s, best, bound, tolerance, p.find)
	if s.solver != nil && tolerance(best) < bound*(1-epsilon) {
		best, bound = p.solve(best, bound)
	}
	// The groups of the plan take devices in the order given.
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

// problem aggregates services into model-streams. It also returns the sum of the loads.
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
		// A part needs at most half of a group of the largest size, if there are enough devices and
		// groups for so many.
		parts := min(max(whole(2*load/float64(p.limit)), 1), n/p.limit, p.groups)
		for range parts {
			p.streams = append(p.streams, stream{service: i, load: load / float64(parts), memory: s.needs(), parts: parts})
		}
	}
	slices.SortStableFunc(p.streams, func(a, b stream) int { return cmp.Compare(b.load, a.load) })
	p.separate()
	return p, sum
}

// separate divides the streams into sets such that no group can have streams of two of them. The
// bound counts the groups and devices of each set separately.
func (p *herd) separate() {
	rest := make([]*stream, len(p.streams))
	for i := range rest {
		rest[i] = &p.streams[i]
	}
	for p.sets = 0; len(rest) > 0; p.sets++ {
		// A set is a connected component of the streams, where an edge joins two that may be in one
		// group.
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

// apart reports whether two streams must be in different groups. The paper instead divides models
// into affinity sets in advance, to make its program smaller (section 4, constraint e). That
// excludes groups that respect the limit, and may overload devices needlessly.
func (p *herd) apart(a, b *stream) bool {
	if a.service == b.service || !atMost(a.memory+b.memory, p.memory) {
		return true
	}
	i, j := &p.services[a.service], &p.services[b.service]
	return p.affinity > 0 && max(affinity(i, j), affinity(j, i)) > p.affinity
}

// affinity returns A(i, j) (Shepherd, section 5.2). It is close to 1 for models with similar
// latencies of batches.
func affinity(i, j *Service) float64 {
	a := (i.Alpha + i.Beta) / j.Alpha
	if d := j.Alpha + j.Beta - i.Beta; d > 0 {
		a = min(a, max(i.Alpha/d, i.Alpha/j.Alpha))
	}
	return a
}

// need returns the number of devices that a group needs for a burst tolerance.
func (p *herd) need(peak, load, tolerance float64) int {
	return max(whole(peak*tolerance), whole(load/p.load), 1)
}

// takes reports whether a stream may join a group, regardless of the group's devices.
func (p *herd) takes(g *servingGroup, st *stream) bool {
	return atMost(g.memory+st.memory, p.memory) && (p.affinity == 0 && st.parts == 1 ||
		!slices.ContainsFunc(g.members, func(i int) bool { return p.apart(&p.streams[i], st) }))
}

// take adds stream i to the group.
func (g *servingGroup) take(i int, st *stream) {
	g.members = append(g.members, i)
	g.peak = max(g.peak, st.load)
	g.load, g.memory = g.load+st.load, g.memory+st.memory
}

// tolerance returns the lowest burst tolerance in a group, that of its largest stream.
func (g *servingGroup) tolerance() float64 { return float64(g.size) / max(g.peak, 1e-300) }

// tolerance returns the lowest burst tolerance of all groups.
func tolerance(groups []servingGroup) float64 {
	least := infinite
	for i := range groups {
		least = min(least, groups[i].tolerance())
	}
	return least
}

// find looks for groups with a burst tolerance. It packs the streams in the order of falling load,
// then of falling memory. If that is not enough, it moves and swaps streams at random as long as
// this does not increase the number of devices needed.
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

// pack forms groups one stream at a time, in the order of falling keys. A stream joins the first of
// the groups that then need the fewest additional devices.
func (p *herd) pack(aim float64, key func(*stream) float64) (groups []servingGroup) {
	for _, i := range falling(len(p.streams), func(i int) float64 { return key(&p.streams[i]) }) {
		st := &p.streams[i]
		// A new group is an option only while there are fewer than allowed.
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

// cost returns the number of devices that a group needs for a burst tolerance. A group that exceeds
// the limit of a group costs as many more as there are devices.
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

// lacking returns the number of devices that the groups need beyond those that exist. Each group
// too many counts as all devices.
func (p *herd) lacking(groups []servingGroup, aim float64) int {
	// Up to the allowed number of groups the two terms with p.groups cancel out.
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

// Limits of the random exchanges for one burst tolerance: for each pair of streams, in total, and
// in streams that they examine.
const (
	exchangesPerPair = 200
	exchanges        = 100_000
	exchangesLookAt  = 1_000_000
)

// exchange moves and swaps streams at random until no devices are lacking. It reports whether that
// succeeded.
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
		// One member moves from a to b. In half of the cases one of b, if it has any, moves back.
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
		// Exchanges that cost nothing are kept as well, to leave local optima.
		if *a, *b = *c, *d; more < 0 && p.lacking(groups, aim) <= 0 {
			return true
		}
	}
	return false
}

// regroup returns a copy of a group without some members and with others, or nil if they do not
// fit.
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

// spread adds the remaining devices to the groups with the lowest burst tolerance.
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

// left returns the number of devices in no group.
func (p *herd) left(groups []servingGroup) int {
	left := p.devices
	for i := range groups {
		left -= groups[i].size
	}
	return left
}

// even moves streams from the busiest group to less busy ones, and to new groups of the remaining
// devices, as long as no burst tolerance falls below the lowest.
func (p *herd) even(groups []servingGroup) []servingGroup {
	keep := tolerance(groups) * (1 - epsilon)
	for left := p.left(groups); left > 0 && len(groups) < p.groups; left = p.left(groups) {
		groups = append(groups, servingGroup{size: min(left, p.limit)})
	}
	// done marks groups from which no stream can move.
	done := make([]bool, len(groups))
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
		// Find the move after which the busier of the two groups is least busy.
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
		// Both groups keep their devices.
		moves := g.members[at]
		groups[to].take(moves, &p.streams[moves])
		groups[from] = *p.regroup(&g, []int{moves}, nil)
		groups[from].size = g.size
	}
	return slices.DeleteFunc(groups, func(g servingGroup) bool { return len(g.members) == 0 })
}

// reachable returns the largest burst tolerance up to most that a whole number of devices can give
// a stream.
func (p *herd) reachable(most float64) (best float64) {
	for _, st := range p.streams {
		if st.load > 0 {
			best = max(best, min(float64(p.limit), math.Floor(most*st.load*(1+epsilon)))/st.load)
		}
	}
	return best
}

// mayReach reports whether groups with a burst tolerance may exist. The largest streams of a set
// need a certain number of groups for their memory, their loads, or because some must be apart. So
// that many groups have a stream with at least the smallest of those loads, and the devices that it
// needs.
func (p *herd) mayReach(aim float64) bool {
	type prefix struct {
		memory, load float64

		// apart holds streams that must all be in different groups.
		apart           []*stream
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

// maxProgram is the most variables of a program that is passed to a solver. Writing and reading a
// larger one takes the whole time limit.
const maxProgram = 5_000

// solve bisects between the burst tolerance of the best groups and the bound, with a program for
// each step. It returns the better groups and the lower bound.
func (p *herd) solve(best []servingGroup, bound float64) ([]servingGroup, float64) {
	// A program needs no more groups than there are streams.
	columns := min(p.groups, len(p.streams))
	if len(p.streams)*columns > maxProgram {
		p.note = fmt.Sprintf("%s did not run: its program would have %d variables", p.solver.name, len(p.streams)*columns)
		return best, bound
	}
	steps := p.steps(tolerance(best), bound)
	for len(steps) > 0 {
		// Only these burst tolerances are possible, so the bisection is over a finite list and ends
		// with a proof.
		at := (len(steps) - 1) / 2
		m, inGroup := p.program(steps[at], columns)
		found := p.ask(m, nil)
		switch {
		case found == nil:
			return best, bound
		// No plan has this burst tolerance, so the bound is the one before.
		case found.infeasible:
			p.by, steps = p.solver.name, steps[:at]
			if bound = tolerance(best); at > 0 {
				bound = steps[at-1]
			}
			continue
		}
		better := p.decode(found.x, inGroup, columns)
		if better == nil || tolerance(better) <= tolerance(best) {
			p.note = p.solver.name + " returned groups that exceed limits by more than rounding"
			return best, bound
		}
		p.by, best = p.solver.name, better
		steps = p.steps(tolerance(best), bound)
	}
	return best, bound
}

// steps returns the burst tolerances between low and high that a group can have, without low.
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

// program returns a program whose solutions are groups with a burst tolerance: the ILP of Shepherd
// (equation 2), which is linear because the tolerance is given. Groups are ordered by their first
// streams, so that each grouping is one solution. The variables of stream i, one for each group
// that it may join, begin at inGroup[i].
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
		// before sums the earlier streams in the previous group.
		var before []term
		for i := j; i < len(p.streams); i++ {
			st, x := p.streams[i], inGroup[i]+j
			load, memory = append(load, term{x, st.load}), append(memory, term{x, part(st.memory, p.memory)})
			// A group is large enough for each of its streams to have the burst tolerance.
			m.require(0, infinite, term{size + j, 1}, term{x, -float64(p.need(st.load, 0, aim))})
			if j > 0 {
				// Stream i may be first in group j only if an earlier stream is in the group
				// before.
				before = append(before, term{inGroup[i-1] + j - 1, 1})
				m.require(0, infinite, append(slices.Clone(before), term{x, -1})...)
			}
		}
		// Average loads fit the devices of the group, and memory fits one device.
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
		// Each stream is in exactly one group.
		var once []term
		for j := range min(i+1, columns) {
			once = append(once, term{inGroup[i] + j, 1})
		}
		m.require(1, 1, once...)
	}
	return m, inGroup
}

// cliques returns lists of streams that must all be in different groups, so that at most one of
// each list is in a group. Every two streams that must be apart share a list.
func (p *herd) cliques() (cliques [][]int) {
	// covered marks the pairs that share a list.
	covered := make([][]bool, len(p.streams))
	for i := range covered {
		covered[i] = make([]bool, len(p.streams))
	}
	for i := range p.streams {
		for k := range i {
			if covered[k][i] || !p.apart(&p.streams[k], &p.streams[i]) {
				continue
			}
			// Extend the pair by every stream that must be apart from all members.
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

// decode returns the groups of a solution, with all devices distributed, or nil if they exceed a
// limit within the solver's tolerance.
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
