package planning

import "slices"

// class is devices on which everything takes equally long.
type class struct {
	name    string
	devices []int
	memory  float64 // of the one that has least
	perLink int     // that share a link at most
}

// pipes is the problem of which ways the batches of services take over devices (PPipe,
// appendix A.2). To the paper's limits one is added: the devices of a stage are whole, as
// the shares of a device are equal and its stage loads only what it runs. So a plan of ours
// is one of the paper's, and of its authors' program, where the devices at one place of all
// pipelines of a service are whole.
type pipes struct {
	*search
	services []Service
	classes  []class
	stages   int
	whole    bool       // no device is divided
	shared   bool       // devices have several stages
	lists    [][]int    // of classes, one for each stage of a pipeline, by rising length
	longer   [][]int    // by list and class: the list that has that class, too, if there is one
	fill     []float64  // microseconds for each query of a batch after the first, by service
	courses  [][]course // by service
}

// enlist makes the lists of classes, the first of them empty.
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

// maxPlaces is how many stages a planned pipeline has at most: the paper's have 3, and each
// more has all ways of the one before for each class, share and cut.
const maxPlaces = 4

// course is a way that a pipeline can take: all but how many devices its stages have.
type course struct {
	list  int
	batch int
	ends  [maxPlaces]int // blocks
	share [maxPlaces]int
	rate  [maxPlaces]float64 // requests a second of one device of the stage
	spent float64            // microseconds of a batch, with what it takes until it is full
}

// enumeration is the search for the courses of a service with one size of batch.
type enumeration struct {
	*pipes
	service *Service
	batch   int
	target  float64
	sums    [][][]float64 // by class, share and block: of the times of the blocks before it
	rest    []float64     // by block: the least time from there to the end
	now     course
	fronts  [][]course // by list: those that no other of the same batch or a smaller one dominates
}

func (p *pipes) enumerate(service int) []course {
	s := &p.services[service]
	e := &enumeration{pipes: p, service: s, fronts: make([][]course, len(p.lists))}
	for e.batch = 1; e.batch <= maxBatch && !p.over(); e.batch++ {
		e.target = s.allowed() - float64(e.batch-1)*p.fill[service]
		if !e.accumulate() {
			break
		}
		e.now.batch = e.batch
		e.extend(0, 0, 0)
	}
	return slices.Concat(e.fronts...)
}

// leastTime is what a block takes at least, in microseconds, so that no rate is infinite.
const leastTime = 1

// accumulate adds the times of blocks up, and reports whether there are any for the batch.
func (e *enumeration) accumulate() (any bool) {
	n := len(e.service.Blocks.Ends)
	e.sums, e.rest = make([][][]float64, len(e.classes)), make([]float64, n+1)
	least := make([]float64, n)
	for i := range least {
		least[i] = infinite
	}
	for k, c := range e.classes {
		for share, batches := range e.service.Blocks.Times[c.name] {
			e.sums[k] = append(e.sums[k], nil)
			if len(batches) < e.batch || e.whole && share > 0 || !atMost(e.service.needs(), c.memory) {
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

// extend has the course of a list go on at a place from a block on, in all ways.
func (e *enumeration) extend(list, place, from int) {
	n, before := len(e.service.Blocks.Ends), e.now.spent
	for k, class := range e.classes {
		if place == 1 && e.over() {
			return
		}
		longer := e.longer[list][k]
		for share, sums := range e.sums[k] {
			first := from + 1
			if place == e.stages-1 {
				first = n // the last stage takes all that is left
			}
			for end := first; sums != nil && end <= n; end++ {
				took := sums[end] - sums[from]
				e.now.spent = before + took
				if end < n {
					e.now.spent += e.service.Blocks.Moves[end-1] * float64(e.batch)
				}
				if e.now.spent+e.rest[end] > e.target {
					continue
				}
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

// keep adds the course to those of its list, unless one of them is as fast in each stage.
func (e *enumeration) keep(list, places int) {
	as := func(a, b *course) bool { // fast
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
			front[0], front[i] = front[i], front[0] // it dominates the next, too, most likely
			return
		}
	}
	e.now.list = list
	e.fronts[list] = append(slices.DeleteFunc(front, func(c course) bool { return as(&e.now, &c) }), e.now)
}
