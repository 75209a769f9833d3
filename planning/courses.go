package planning

import "slices"

// class is a set of devices on which all latencies are equal.
type class struct {
	name    string
	devices []int

	// memory is that of the device with the least memory.
	memory float64

	// perLink is the largest number of the devices that share a link.
	perLink int
}

// pipes is the problem of planning pipelines (PPipe, appendix A.2). It adds one limit to the
// paper's: each stage has whole devices, since the shares of a device are equal and each part loads
// only its own stage. So our plans satisfy the paper's limits. They also satisfy those of its
// authors' program, where the devices at one place of all pipelines of a service are whole.
type pipes struct {
	*search
	services []Service
	classes  []class

	// stages is the most stages of a pipeline.
	stages int

	// whole forbids dividing a device.
	whole bool

	// shared lets a device run several stages.
	shared bool

	// lists are the lists of classes, one class for each stage of a pipeline, the shortest first.
	lists [][]int

	// longer holds, by list and class, the list that is longer by that class, if there is one.
	longer [][]int

	// fill is the time in microseconds that each query of a batch after the first adds until the
	// batch is full, by service.
	fill []float64

	// courses holds the courses of each service.
	courses [][]course
}

// enlist builds the lists of classes. The first of them is empty.
func (p *pipes) enlist() {
	p.lists = [][]int{{}}
	for i := 0; i < len(p.lists); i++ {
		list := p.lists[i]
		p.longer = append(p.longer, nil)
		if len(list) == p.stages {
			continue
		}
		for k := range p.classes {
			p.longer[i] = append(p.longer[i], len(p.lists))
			p.lists = append(p.lists, append(slices.Clone(list), k))
		}
	}
}

// maxPlaces is the largest number of stages of a planned pipeline. The paper's pipelines have at
// most 3. Each stage more multiplies the courses by the classes, shares and cuts.
const maxPlaces = 4

// course is the division of a model into stages, without the number of devices of each stage.
type course struct {
	// list is the index of its list of classes.
	list  int
	batch int

	// ends holds the block that each stage ends before, and share the number of parts of its
	// devices.
	ends  [maxPlaces]int
	share [maxPlaces]int

	// rate is the rate in requests a second that one device of a stage sustains.
	rate [maxPlaces]float64

	// spent is the time in microseconds of a batch, in stages and on links.
	spent float64
}

// enumeration is the search for the courses of a service, one size of batch at a time.
type enumeration struct {
	pipes   *pipes
	service *Service
	batch   int
	target  float64

	// sums holds the prefix sums of the times of blocks, by class, share and block.
	sums [][][]float64

	// rest holds, for each block, the least time from its start to the end.
	rest []float64
	now  course

	// fronts holds, by list, the courses that no other course of the same or a smaller batch
	// dominates.
	fronts [][]course
}

// enumerate returns the courses of a service that meet its target.
func (p *pipes) enumerate(service int) []course {
	s := &p.services[service]
	e := &enumeration{pipes: p, service: s, fronts: make([][]course, len(p.lists))}
	for e.batch = 1; e.batch <= maxBatch && !p.over(); e.batch++ {
		// The first query of a batch waits until the batch is full.
		e.target = s.allowed() - float64(e.batch-1)*p.fill[service]
		if !e.accumulate() {
			break
		}
		e.now.batch = e.batch
		e.extend(0, 0, 0)
	}
	// Lists compete for different devices, so that no course dominates one of another list.
	return slices.Concat(e.fronts...)
}

// leastTime is the least time of a block in microseconds, so that no rate is infinite.
const leastTime = 1

// accumulate computes the sums of times, and reports whether there are any for the batch.
func (e *enumeration) accumulate() (any bool) {
	n := len(e.service.Blocks.Ends)
	e.sums, e.rest = make([][][]float64, len(e.pipes.classes)), make([]float64, n+1)
	least := make([]float64, n)
	for i := range least {
		least[i] = infinite
	}
	for k, c := range e.pipes.classes {
		for share, batches := range e.service.Blocks.Times[c.name] {
			e.sums[k] = append(e.sums[k], nil)
			// Skip shares that were not measured, are not allowed, or do not hold the service.
			if len(batches) < e.batch || e.pipes.whole && share > 0 || !atMost(e.service.needs(), c.memory) {
				continue
			}
			sums := make([]float64, n+1)
			for i, v := range batches[e.batch-1] {
				v = max(v, leastTime)
				sums[i+1] = sums[i] + v
				least[i] = min(least[i], v)
			}
			e.sums[k][share], any = sums, true
		}
	}
	for i := n - 1; i >= 0; i-- {
		e.rest[i] = e.rest[i+1] + least[i]
	}
	return any
}

// extend continues a course of a list at a place, from a block on, in all possible ways.
func (e *enumeration) extend(list, place, from int) {
	n, before := len(e.service.Blocks.Ends), e.now.spent
	for k, class := range e.pipes.classes {
		if place == 1 && e.pipes.over() {
			return
		}
		longer := e.pipes.longer[list][k]
		for share, sums := range e.sums[k] {
			first := from + 1
			if place == e.pipes.stages-1 {
				// The last stage takes all remaining blocks.
				first = n
			}
			for end := first; sums != nil && end <= n; end++ {
				took := sums[end] - sums[from]
				// The time so far includes moving the intermediates to the next stage. Even on the
				// fastest devices the remaining blocks must then be in time.
				e.now.spent = before + took
				if end < n {
					e.now.spent += e.service.Blocks.Moves[end-1] * float64(e.batch)
				}
				if e.now.spent+e.rest[end] > e.target {
					continue
				}
				// A stage is as fast as its slowest part: all shares of its device, the link in and
				// the link out, which other devices may share.
				rate := float64(share+1) * 1e6 * float64(e.batch) / took
				for _, cut := range []int{from, end} {
					if cut > 0 && cut < n {
						rate = min(rate, 1e6/(max(e.service.Blocks.Moves[cut-1], leastTime)*float64(class.perLink)))
					}
				}
				e.now.ends[place], e.now.share[place], e.now.rate[place] = end, share+1, rate
				if end < n {
					e.extend(longer, place+1, end)
				} else {
					e.keep(longer, place+1)
				}
			}
		}
	}
	e.now.spent = before
}

// keep adds the course to its list's front, unless one of the front is as fast in each stage.
func (e *enumeration) keep(list, places int) {
	// as reports whether a is at least as fast as b in each stage.
	as := func(a, b *course) bool {
		for d := range places {
			if a.rate[d] < b.rate[d] {
				return false
			}
		}
		return true
	}
	front := e.fronts[list]
	for i := range front {
		if as(&front[i], &e.now) {
			// It probably dominates the next course too.
			front[0], front[i] = front[i], front[0]
			return
		}
	}
	e.now.list = list
	e.fronts[list] = append(slices.DeleteFunc(front, func(c course) bool { return as(&e.now, &c) }), e.now)
}
