package planning

import (
	"cmp"
	"slices"
)

// The search for a plan is limited to a box: a number of devices of each class that are not
// assigned in advance. If there are few devices, the box has all of them, and the plan found is the
// best. If there are more, the relaxed solution assigns most of them in advance, in whole devices.

// assignment is a course, the rate that it sustains in requests a second, and its devices.
type assignment struct {
	service int

	// leaf is the list of full length to which the pipeline belongs.
	leaf   int
	course *course
	rate   float64

	// devices is the number of devices of each stage.
	devices [maxPlaces]int
}

// load returns the fraction of their time for which the devices of a stage are busy.
func (a *assignment) load(d int) float64 { return a.rate / (float64(a.devices[d]) * a.course.rate[d]) }

// box is a search for the best use of the devices of a box.
type box struct {
	pipes   *pipes
	relaxed *relaxed

	// given are the assignments made in advance.
	given []assignment

	// size is the number of devices of each class.
	size   []int
	stride []int

	// states is the number of ways to take devices from the box. State 0 takes none and state
	// states - 1 takes all. One device more of class k adds stride[k].
	states int

	// slack is the amount below the bound at which a plan still counts, in objective.
	slack float64
}

// point is a number of devices, as counts by class and as a state, and the rate that a course
// sustains with them.
type point struct {
	devices []int
	state   int
	course  *course
	rate    float64
}

// maxStates limits the states of a box, and maxChoices those of all pipelines together.
const (
	maxStates  = 40_000
	maxChoices = 16_000_000
)

// shape computes stride and states from size.
func (b *box) shape() {
	b.stride, b.states = make([]int, len(b.size)), 1
	for k := len(b.size) - 1; k >= 0; k-- {
		b.stride[k] = b.states
		b.states *= b.size[k] + 1
	}
}

// fit chooses the size of the box. It assigns the devices that exceed the box to the courses of the
// relaxed solution, in the proportions of that solution.
func (b *box) fit() {
	// The memory and the time of the search grow with the states, once for each list of full length
	// and service.
	leaves := 1
	for range b.pipes.stages {
		leaves *= len(b.pipes.classes)
	}
	most := min(maxStates, maxChoices/(leaves*len(b.pipes.services)))
	for _, c := range b.pipes.classes {
		b.size = append(b.size, len(c.devices))
	}
	all := b.size
	if b.shape(); b.states <= most {
		return
	}
	// Grow the box until the next larger one exceeds the limit.
	for side := 1; ; side++ {
		before := b.size
		b.size = nil
		for _, n := range all {
			b.size = append(b.size, min(n, side))
		}
		if b.shape(); b.states > most && side > 1 {
			b.size = before
			break
		}
	}
	// Assign in advance as large a part of the relaxed solution as possible: no more than there are
	// devices, and no more than leaves the box its size in a class that has a price.
	columns := b.apart()
	give := func(part float64) (left []int) {
		b.given, left = nil, slices.Clone(all)
		for _, c := range columns {
			c.rate *= part
			b.given = append(b.given, c)
			for d, k := range b.pipes.lists[c.course.list] {
				left[k] -= whole(c.rate / c.course.rate[d])
			}
		}
		return left
	}
	enough := func(part float64) bool { return slices.Min(give(part)) >= 0 }
	part := min(greatest(1, enough), greatest(1, func(part float64) bool {
		for k, n := range give(part) {
			if n > b.size[k] && b.relaxed.price[k] > 0 {
				// The box has no room for the remaining devices of a class that matters.
				return true
			}
		}
		return false
	}))
	// Rounding may leave one device too many.
	for !enough(part) {
		part *= 1 - negligible
	}
	for k, n := range give(part) {
		b.size[k] = min(b.size[k], n)
	}
	b.shape()
}

// apart returns the relaxed solution with at most one course for each list of full length of a
// service. While two courses need the same list, it drops the one with the lower rate and solves
// the relaxation again.
func (b *box) apart() (columns []assignment) {
	type at struct{ service, list int }
	// only holds the course that keeps a contested list, for each service and list.
	only := map[at]int{}
	for {
		r := b.pipes.relax(func(service, course int) bool {
			kept, one := only[at{service, b.pipes.courses[service][course].list}]
			return !one || kept == course
		})
		// Longer lists choose first, as they have fewer lists of full length to choose from.
		slices.SortFunc(r.columns, func(x, y column) int {
			return cmp.Or(cmp.Compare(b.pipes.courses[y.service][y.course].list, b.pipes.courses[x.service][x.course].list), cmp.Compare(y.rate, x.rate))
		})
		columns = nil
		taken, clash := map[at]int{}, false
		for _, c := range r.columns {
			course := &b.pipes.courses[c.service][c.course]
			leaf := b.free(course.list, func(leaf int) bool { _, is := taken[at{c.service, leaf}]; return !is })
			if leaf == 0 {
				leaf = course.list
				only[at{c.service, leaf}], clash = taken[at{c.service, leaf}], true
				continue
			}
			taken[at{c.service, leaf}] = c.course
			columns = append(columns, assignment{service: c.service, leaf: leaf, course: course, rate: c.rate})
		}
		if !clash || b.pipes.over() {
			return columns
		}
	}
}

// free returns a list of full length that begins with a list and that is reports as free, or 0.
func (b *box) free(list int, is func(leaf int) bool) int {
	for _, longer := range b.pipes.longer[list] {
		if leaf := b.free(longer, is); leaf > 0 {
			return leaf
		}
	}
	if len(b.pipes.longer[list]) == 0 && is(list) {
		return list
	}
	return 0
}

// waste returns the cost of devices for a service less the worth of the rate, in objective.
func (b *box) waste(service int, devices []int, rate float64) float64 {
	sum := -b.relaxed.worth[service] * rate
	for k, n := range devices {
		sum += b.relaxed.price[k] * float64(n)
	}
	return sum
}

// points returns the points of the courses of a service that waste at most the slack. If given is not
// nil, it returns those that add devices to that assignment.
func (b *box) points(service int, courses []*course, given *assignment) (points []point) {
	before := make([]int, len(b.size))
	first, most := [maxPlaces]int{}, 0.0
	if given != nil {
		courses, first, most = []*course{given.course}, given.course.needs(b, given.rate), given.rate
		b.add(before, given.course, first)
	}
	total, more := make([]int, len(b.size)), make([]int, len(b.size))
	for _, c := range courses {
		// regret is the waste of a request a second even if all devices are fully used.
		regret := c.cost(b.pipes, b.relaxed.price) - b.relaxed.worth[service]
		for d := range b.pipes.lists[c.list] {
			// Only rates at which some stage uses its devices fully are worth considering. Here
			// that is stage d, with n devices.
			for n := first[d] + 1; ; n++ {
				rate := float64(n) * c.rate[d]
				if rate <= most {
					continue
				}
				clear(total)
				b.add(total, c, c.needs(b, rate))
				fits := rate*regret <= b.slack
				for k := range total {
					more[k] = total[k] - before[k]
					fits = fits && more[k] <= b.size[k]
				}
				if !fits {
					break
				}
				if b.waste(service, total, rate) <= b.slack {
					p := point{course: c, rate: rate - most, devices: slices.Clone(more)}
					for k, n := range more {
						p.state += n * b.stride[k]
					}
					points = append(points, p)
				}
			}
		}
	}
	return points
}

// add adds the devices of a course's stages to counts by class.
func (b *box) add(to []int, c *course, stages [maxPlaces]int) {
	for d, k := range b.pipes.lists[c.list] {
		to[k] += stages[d]
	}
}

// efficient returns the points that no other point matches with fewer devices.
func (b *box) efficient(points []point) (best []point) {
	// Of the points with the same devices only the fastest counts.
	at, most := make([]int32, b.states), make([]float64, b.states)
	for i := range points {
		if p := &points[i]; p.rate > most[p.state] {
			most[p.state], at[p.state] = p.rate, int32(i+1)
		}
	}
	b.rise(most, func(state int) {
		if at[state] > 0 {
			best = append(best, points[at[state]-1])
		}
	})
	return best
}

// rise raises the value of each state to that of the best state that takes no more devices of any
// class. It calls found for each state that is better than all those with fewer devices.
func (b *box) rise(values []float64, found func(state int)) {
	devices := make([]int, len(b.size))
	for state := range values {
		// The states with one device less of one class come earlier and already have the best value
		// of all smaller states.
		before := 0.0
		for k, n := range devices {
			if n > 0 {
				before = max(before, values[state-b.stride[k]])
			}
		}
		if values[state] > before*(1+epsilon) {
			found(state)
		} else {
			values[state] = before
		}
		// Count up devices to match the next state.
		for k := len(devices) - 1; k >= 0; k-- {
			if devices[k]++; devices[k] <= b.size[k] {
				break
			}
			devices[k] = 0
		}
	}
}

// tables hold, for one service, the highest rate with the devices of each state, and how to reach
// it.
type tables struct {
	most []float64

	// points holds the points of each leaf.
	points [][]point

	// choices holds, by leaf and state, the index of the chosen point plus 1, or 0 for none.
	choices [][]int32
	leaves  []int
}

// tabulate computes the best pipelines of a service for each state, with at most one for each list
// of full length.
func (b *box) tabulate(service int) *tables {
	t := &tables{most: make([]float64, b.states)}
	byList := make([][]point, len(b.pipes.lists))
	courses := make([][]*course, len(b.pipes.lists))
	for i := range b.pipes.courses[service] {
		c := &b.pipes.courses[service][i]
		courses[c.list] = append(courses[c.list], c)
	}
	// A pipeline that ends early leaves the later places of its list unused. So a list of full
	// length can have the points of any list that it begins with.
	for list := range b.pipes.lists {
		byList[list] = b.points(service, courses[list], nil)
	}
	var visit func(list int, points []point)
	visit = func(list int, points []point) {
		points = slices.Concat(points, byList[list])
		for _, longer := range b.pipes.longer[list] {
			visit(longer, points)
		}
		if len(b.pipes.longer[list]) > 0 {
			return
		}
		// A list that has devices in advance keeps their course.
		if at := slices.IndexFunc(b.given, func(a assignment) bool { return a.service == service && a.leaf == list }); at >= 0 {
			points = b.points(service, nil, &b.given[at])
		}
		if points = b.efficient(points); len(points) > 0 && !b.pipes.over() {
			t.leaves = append(t.leaves, list)
			t.points = append(t.points, points)
			t.choices = append(t.choices, make([]int32, b.states))
			// Each leaf adds at most one point to what the leaves before it reached.
			after := slices.Clone(t.most)
			for i := range points {
				b.take(after, t.most, t.choices[len(t.choices)-1], &points[i], int32(i+1), 0, 0)
			}
			t.most = after
		}
	}
	visit(0, nil)
	return t
}

// take updates the states that begin at state and take devices of class k and the classes after it.
// A state chooses the point p if that improves its rate.
func (b *box) take(after, before []float64, choices []int32, p *point, choice int32, k, state int) {
	if k < len(b.size)-1 {
		for n := p.devices[k]; n <= b.size[k]; n++ {
			b.take(after, before, choices, p, choice, k+1, state+n*b.stride[k])
		}
		return
	}
	// The last class is a plain loop over adjacent states, because this is where the search spends
	// its time.
	to, from := after[state+p.devices[k]:state+b.size[k]+1], before[state+p.devices[k]-p.state:]
	choices = choices[state+p.devices[k] : state+b.size[k]+1]
	from = from[:len(to)]
	for i, v := range from {
		if v += p.rate; v > to[i] {
			to[i], choices[i] = v, choice
		}
	}
}

// solve returns the best plan found with the devices of the box, and its objective.
func (b *box) solve() (best []assignment, objective float64) {
	all := make([]*tables, len(b.pipes.services))
	// reached is the objective of the services handled so far, by state.
	var reached []float64
	splits := make([][]int32, len(b.pipes.services))
	for s := range b.pipes.services {
		b.pipes.say("pipelines of %s: %d courses, %d states", b.pipes.services[s].Name, len(b.pipes.courses[s]), b.states)
		all[s] = b.tabulate(s)
		// base is the rate that the service has in advance, in every state.
		base := 0.0
		for _, a := range b.given {
			if a.service == s {
				base += a.rate
			}
		}
		values := make([]float64, b.states)
		for i, v := range all[s].most {
			values[i] = (v + base) / b.pipes.services[s].Rate
		}
		if reached == nil {
			reached = values
			continue
		}
		reached, splits[s] = b.share(s, reached, values)
	}
	// Walk back from the state with all devices, and split it between the services.
	state := b.states - 1
	objective = reached[state]
	for s := len(all) - 1; s >= 0; s-- {
		own := state
		if s > 0 {
			own = int(splits[s][state])
			state -= own
		}
		best = append(best, b.chosen(s, all[s], own)...)
	}
	return best, objective
}

// share divides devices between the services handled so far, whose objective is first, and one more
// service, whose objective is second. It returns the largest possible minimum of the two for each
// state, and the part of the state that the additional service takes.
func (b *box) share(service int, first, second []float64) (reached []float64, taken []int32) {
	reached, taken = make([]float64, b.states), make([]int32, b.states)
	given := make([]int, len(b.size))
	for _, a := range b.given {
		if a.service == service {
			b.add(given, a.course, a.course.needs(b, a.rate))
		}
	}
	b.rise(slices.Clone(second), func(state int) {
		devices, left := make([]int, len(b.size)), state
		for k := range devices {
			devices[k] = left / b.stride[k]
			left %= b.stride[k]
		}
		p := &point{devices: devices, state: state, rate: second[state]}
		for k := range devices {
			devices[k] += given[k]
		}
		// Skip a state that wastes too much, or in which the service alone is too far below the
		// bound.
		if b.waste(service, devices, second[state]*b.pipes.services[service].Rate) > b.slack || second[state] < b.relaxed.bound-b.slack || b.pipes.over() {
			return
		}
		for k := range devices {
			devices[k] -= given[k]
		}
		b.least(reached, first, taken, p, 0, 0)
	})
	return reached, taken
}

// least is [box.take] for the minimum of two values instead of their sum.
func (b *box) least(after, before []float64, taken []int32, p *point, k, state int) {
	if k < len(b.size)-1 {
		for n := p.devices[k]; n <= b.size[k]; n++ {
			b.least(after, before, taken, p, k+1, state+n*b.stride[k])
		}
		return
	}
	for at := state + p.devices[k]; at <= state+b.size[k]; at++ {
		if v := min(before[at-p.state], p.rate); v > after[at] {
			after[at], taken[at] = v, int32(p.state)
		}
	}
}

// chosen returns the pipelines of a service that tabulate chose for a state.
func (b *box) chosen(service int, t *tables, state int) (chosen []assignment) {
	for _, a := range b.given {
		if a.service == service {
			chosen = append(chosen, a)
		}
	}
	for i := len(t.leaves) - 1; i >= 0; i-- {
		// The leaves were added in order, so the last one's choice determines the state of those
		// before.
		choice := t.choices[i][state]
		if choice == 0 {
			continue
		}
		p := &t.points[i][choice-1]
		state -= p.state
		if at := slices.IndexFunc(chosen, func(a assignment) bool { return a.leaf == t.leaves[i] }); at >= 0 {
			chosen[at].rate += p.rate
			continue
		}
		// A leaf without devices in advance starts a pipeline of its own.
		chosen = append(chosen, assignment{service: service, leaf: t.leaves[i], course: p.course, rate: p.rate})
	}
	return chosen
}

// needs returns the number of devices that each stage of a course needs for a rate.
func (c *course) needs(b *box, rate float64) (stages [maxPlaces]int) {
	for d := range b.pipes.lists[c.list] {
		stages[d] = whole(rate / c.rate[d])
	}
	return stages
}

// search returns the best plan found, and its objective. It first ignores points with much waste.
// Then it allows as much waste as the plan found is below the bound: points with more waste cannot
// be part of a better plan.
func (b *box) search() (best []assignment, objective float64) {
	const first, more = 0.002, 4
	bound := b.relaxed.bound
	for b.slack = first * bound; ; {
		found, reached := b.solve()
		if reached > objective {
			best, objective = found, reached
		}
		// A plan that is better than the best wastes less than the best is below the bound.
		below := bound - objective
		if b.slack >= below || b.pipes.over() {
			if !b.pipes.over() && len(b.given) == 0 {
				b.pipes.by = exactSearch
			}
			return best, objective
		}
		if b.slack = below; objective == 0 {
			b.slack = min(below, more*b.slack)
		}
	}
}
