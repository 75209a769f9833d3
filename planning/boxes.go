package planning

import (
	"cmp"
	"slices"
)

// A plan is searched in a box: of each class as many devices as are not given out before.
// Where the devices are few that is all of them, and the plan is the best there is. Of
// more, the relaxed solution gives most out, in whole devices.

// assignment is a course with the requests a second that it answers.
type assignment struct {
	service int
	leaf    int // the list of the full length whose pipeline it is
	course  *course
	rate    float64
	devices [maxPlaces]int // of each stage
}

// load is the part of their time for which the devices of a stage are busy.
func (a *assignment) load(d int) float64 { return a.rate / (float64(a.devices[d]) * a.course.rate[d]) }

// box is the search for what to do with the devices of a box.
type box struct {
	*pipes
	relaxed *relaxed
	given   []assignment
	size    []int // devices of each class
	stride  []int
	states  int     // so many ways there are to take devices: the next ones are state 0, none, to states - 1, all
	slack   float64 // by how much a plan may be below the bound to be found
}

// point is what a pipeline can do with devices of the box.
type point struct {
	devices []int
	state   int
	course  *course
	rate    float64
}

// maxStates is how many states a box has at most, and maxChoices those of all pipelines.
const (
	maxStates  = 40_000
	maxChoices = 16_000_000
)

func (b *box) shape() {
	b.stride, b.states = make([]int, len(b.size)), 1
	for k := len(b.size) - 1; k >= 0; k-- {
		b.stride[k] = b.states
		b.states *= b.size[k] + 1
	}
}

// fit chooses the size of the box, and gives the devices that it has no room for to the
// courses of the relaxed solution, in the proportions that these have there.
func (b *box) fit() {
	leaves := 1
	for range b.stages {
		leaves *= len(b.classes)
	}
	most := min(maxStates, maxChoices/(leaves*len(b.services)))
	for _, c := range b.classes {
		b.size = append(b.size, len(c.devices))
	}
	all := b.size
	if b.shape(); b.states <= most {
		return
	}
	for side := 1; ; side++ { // until the next larger box is too large
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
	columns := b.apart()
	give := func(part float64) (left []int) {
		b.given, left = nil, slices.Clone(all)
		for _, c := range columns {
			c.rate *= part
			b.given = append(b.given, c)
			for d, k := range b.lists[c.course.list] {
				left[k] -= whole(c.rate / c.course.rate[d])
			}
		}
		return left
	}
	enough := func(part float64) bool { return slices.Min(give(part)) >= 0 }
	part := min(greatest(1, enough), greatest(1, func(part float64) bool {
		for k, n := range give(part) {
			if n > b.size[k] && b.relaxed.price[k] > 0 {
				return true // than the box has room for
			}
		}
		return false
	}))
	for !enough(part) { // by rounding
		part *= 1 - negligible
	}
	for k, n := range give(part) {
		b.size[k] = min(b.size[k], n)
	}
	b.shape()
}

// apart returns what the relaxed solution has of each course, for pipelines with lists of
// their own: as long as two courses need the same list, the smaller one is left out and the
// rest solved again.
func (b *box) apart() (columns []assignment) {
	type at struct{ service, list int }
	only := map[at]int{}
	for {
		r := b.relax(func(service, course int) bool {
			kept, one := only[at{service, b.courses[service][course].list}]
			return !one || kept == course
		})
		slices.SortFunc(r.columns, func(x, y column) int {
			return cmp.Or(cmp.Compare(b.courses[y.service][y.course].list, b.courses[x.service][x.course].list), cmp.Compare(y.rate, x.rate))
		})
		columns = nil
		taken, clash := map[at]int{}, false
		for _, c := range r.columns {
			course := &b.courses[c.service][c.course]
			leaf := b.free(course.list, func(leaf int) bool { _, is := taken[at{c.service, leaf}]; return !is })
			if leaf == 0 {
				leaf = course.list
				only[at{c.service, leaf}], clash = taken[at{c.service, leaf}], true
				continue
			}
			taken[at{c.service, leaf}] = c.course
			columns = append(columns, assignment{service: c.service, leaf: leaf, course: course, rate: c.rate})
		}
		if !clash || b.over() {
			return columns
		}
	}
}

// free returns a list of the full length that begins with a list and is free, 0 if none is.
func (b *box) free(list int, is func(leaf int) bool) int {
	for _, longer := range b.longer[list] {
		if leaf := b.free(longer, is); leaf > 0 {
			return leaf
		}
	}
	if len(b.longer[list]) == 0 && is(list) {
		return list
	}
	return 0
}

// waste is by how much less than they cost, in objective, devices bring a service.
func (b *box) waste(service int, devices []int, rate float64) float64 {
	sum := -b.relaxed.worth[service] * rate
	for k, n := range devices {
		sum += b.relaxed.price[k] * float64(n)
	}
	return sum
}

// points returns what the courses of a service can do that are allowed, one of them. A
// course that devices are given to can get more of them.
func (b *box) points(service int, courses []*course, given *assignment) (points []point) {
	before := make([]int, len(b.size))
	first, most := [maxPlaces]int{}, 0.0
	if given != nil {
		courses, first, most = []*course{given.course}, given.course.needs(b, given.rate), given.rate
		b.add(before, given.course, first)
	}
	total, more := make([]int, len(b.size)), make([]int, len(b.size))
	for _, c := range courses {
		regret := c.cost(b.pipes, b.relaxed.price) - b.relaxed.worth[service]
		for d := range b.lists[c.list] {
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

// add adds the devices of stages up by class.
func (b *box) add(to []int, c *course, stages [maxPlaces]int) {
	for d, k := range b.lists[c.list] {
		to[k] += stages[d]
	}
}

// efficient returns the points that no other one does as well as with fewer devices.
func (b *box) efficient(points []point) (best []point) {
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

// rise makes values by state those of the best that needs no more devices, and calls
// found for each state that has a better one than all with fewer.
func (b *box) rise(values []float64, found func(state int)) {
	devices := make([]int, len(b.size))
	for state := range values {
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
		for k := len(devices) - 1; k >= 0; k-- {
			if devices[k]++; devices[k] <= b.size[k] {
				break
			}
			devices[k] = 0
		}
	}
}

// tables are the most that a service gets of each state, and by which points.
type tables struct {
	most    []float64
	points  [][]point // by leaf
	choices [][]int32 // by leaf and state: the point that it has, from 1, 0 for none
	leaves  []int
}

// tabulate finds the best pipelines of a service for each state, at most one for each list.
func (b *box) tabulate(service int) *tables {
	t := &tables{most: make([]float64, b.states)}
	byList := make([][]point, len(b.lists))
	courses := make([][]*course, len(b.lists))
	for i := range b.courses[service] {
		c := &b.courses[service][i]
		courses[c.list] = append(courses[c.list], c)
	}
	for list := range b.lists {
		byList[list] = b.points(service, courses[list], nil)
	}
	var visit func(list int, points []point)
	visit = func(list int, points []point) {
		points = slices.Concat(points, byList[list])
		for _, longer := range b.longer[list] {
			visit(longer, points)
		}
		if len(b.longer[list]) > 0 {
			return
		}
		if at := slices.IndexFunc(b.given, func(a assignment) bool { return a.service == service && a.leaf == list }); at >= 0 {
			points = b.points(service, nil, &b.given[at])
		}
		if points = b.efficient(points); len(points) > 0 && !b.over() {
			t.leaves = append(t.leaves, list)
			t.points = append(t.points, points)
			t.choices = append(t.choices, make([]int32, b.states))
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

// take has each state take a point where that is better than what it has: the states of
// class k and the classes after it, of those that begin at a state.
func (b *box) take(after, before []float64, choices []int32, p *point, choice int32, k, state int) {
	if k < len(b.size)-1 {
		for n := p.devices[k]; n <= b.size[k]; n++ {
			b.take(after, before, choices, p, choice, k+1, state+n*b.stride[k])
		}
		return
	}
	to, from := after[state+p.devices[k]:state+b.size[k]+1], before[state+p.devices[k]-p.state:]
	choices = choices[state+p.devices[k] : state+b.size[k]+1]
	from = from[:len(to)]
	for i, v := range from {
		if v += p.rate; v > to[i] {
			to[i], choices[i] = v, choice
		}
	}
}

// solve returns the best plan that is found with the devices of the box, and its objective.
func (b *box) solve() (best []assignment, objective float64) {
	all := make([]*tables, len(b.services))
	var reached []float64 // by state: the objective of the services so far
	splits := make([][]int32, len(b.services))
	for s := range b.services {
		b.say("pipelines of %s: %d courses, %d states", b.services[s].Name, len(b.courses[s]), b.states)
		all[s] = b.tabulate(s)
		base := 0.0
		for _, a := range b.given {
			if a.service == s {
				base += a.rate
			}
		}
		values := make([]float64, b.states)
		for i, v := range all[s].most {
			values[i] = (v + base) / b.services[s].Rate
		}
		if reached == nil {
			reached = values
			continue
		}
		reached, splits[s] = b.share(s, reached, values)
	}
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

// share returns the largest least of two objectives for each state, and the part of it
// that the second, a service's, takes.
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
		if b.waste(service, devices, second[state]*b.services[service].Rate) > b.slack || second[state] < b.relaxed.bound-b.slack || b.over() {
			return
		}
		for k := range devices {
			devices[k] -= given[k]
		}
		b.least(reached, first, taken, p, 0, 0)
	})
	return reached, taken
}

// least is [box.take] for the least of both values instead of their sum.
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

// chosen returns the pipelines of a service that a state stands for.
func (b *box) chosen(service int, t *tables, state int) (chosen []assignment) {
	for _, a := range b.given {
		if a.service == service {
			chosen = append(chosen, a)
		}
	}
	for i := len(t.leaves) - 1; i >= 0; i-- {
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
		chosen = append(chosen, assignment{service: service, leaf: t.leaves[i], course: p.course, rate: p.rate})
	}
	return chosen
}

// needs returns the devices of each stage of a course for a rate of requests.
func (c *course) needs(b *box, rate float64) (stages [maxPlaces]int) {
	for d := range b.lists[c.list] {
		stages[d] = whole(rate / c.rate[d])
	}
	return stages
}

// search returns the best plan that is found. Points that waste much are left out at
// first, and then those that waste more than the plan found is below the bound, which are
// in no better one.
func (b *box) search() (best []assignment, objective float64) {
	const first, more = 0.002, 4
	bound := b.relaxed.bound
	for b.slack = first * bound; ; {
		found, reached := b.solve()
		if reached > objective {
			best, objective = found, reached
		}
		below := bound - objective
		if b.slack >= below || b.over() {
			if !b.over() && len(b.given) == 0 {
				b.by = exactSearch
			}
			return best, objective
		}
		if b.slack = below; objective == 0 {
			b.slack = min(below, more*b.slack)
		}
	}
}
