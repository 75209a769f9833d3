package planning

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/overlapd/overlapd/internal/stats"
)

// batchFill is the time until a batch is full, relative to arrivals at an even rate. The value is
// that of the paper's authors.
const batchFill = 1.3

// Pipe plans pipelines for each service, of at most the given number of stages, over devices of
// several classes (PPipe, section 3). A batch of the planned size is in time on its pipeline by the
// times of Service.Blocks, with the margin to spare. A device has at most one stage of one
// pipeline. The objective is the lowest ratio of what a service answers to its rate. The bound is
// the objective of plans in which stages may have parts of devices.
func Pipe(ctx context.Context, services []Service, devices []Device, stages int, how Search) (*Placement, error) {
	p, err := newPipes(ctx, services, devices, stages, stages == 1, how)
	if err != nil {
		return nil, err
	}
	found, bound, err := p.plan()
	if err != nil {
		return nil, err
	}
	p.spread(found)
	return p.finishPipes(devices, found, bound)
}

// PipeShared is [Pipe] for devices that are not dedicated to one stage. All devices of a class run
// all stages of the class, whole, one batch after another. This requires a scheduler that reserves
// time on devices, and never takes more devices than dedicating them. So its plan is a bound of
// [Pipe] for undivided devices. Every device holds all services that run on its class.
func PipeShared(ctx context.Context, services []Service, devices []Device, stages int, how Search) (*Placement, error) {
	p, err := newPipes(ctx, services, devices, stages, true, how)
	if err != nil {
		return nil, err
	}
	p.shared = true
	if err := p.list(); err != nil {
		return nil, err
	}
	found, bound := p.inTurn()
	// Each device of a class holds all services that run on the class.
	need := make([]float64, len(p.classes))
	for k, c := range p.classes {
		for i, s := range p.services {
			if slices.ContainsFunc(found, func(a assignment) bool { return a.service == i && slices.Contains(p.lists[a.course.list], k) }) {
				need[k] += s.needs()
			}
		}
		if !atMost(need[k], c.memory) {
			return nil, fmt.Errorf("%w: the services that share the devices of class %q need %.0f MiB, but one of these devices has %.0f; give more memory, or dedicate devices to stages", errNoPlan, c.name, need[k], c.memory)
		}
	}
	p.by = exactSearch
	return p.finishPipes(devices, found, bound)
}

// inTurn returns the best pipelines if all stages on a class take turns on its devices, and their
// objective.
func (p *pipes) inTurn() (found []assignment, bound float64) {
	r := p.relax(func(_, _ int) bool { return true })
	for _, c := range r.columns {
		a := assignment{service: c.service, course: &p.courses[c.service][c.course], rate: c.rate}
		for d, k := range p.lists[a.course.list] {
			a.devices[d] = len(p.classes[k].devices)
		}
		found = append(found, a)
	}
	return found, r.bound
}

// newPipes checks the input of a plan of pipelines and prepares its search.
func newPipes(ctx context.Context, services []Service, devices []Device, stages int, whole bool, how Search) (*pipes, error) {
	if stages < 1 || stages > maxPlaces {
		return nil, fmt.Errorf("%w: pipelines of at most %d stages; give 1 to %d", errNoPlan, stages, maxPlaces)
	}
	p := &pipes{services: slices.Clone(services), stages: stages, whole: whole}
	for i := range p.services {
		// The actual loads depend on the pipelines. Here a load only marks a service with requests.
		p.services[i].Load = p.services[i].Rate
	}
	var err error
	if p.search, err = how.begin(ctx, p.services, devices); err != nil {
		return nil, err
	}
	// A class is as good as its device with the least memory and the busiest link.
	links := map[int]int{}
	for _, d := range devices {
		links[d.Link]++
	}
	for i, d := range devices {
		at := slices.IndexFunc(p.classes, func(c class) bool { return c.name == d.Class })
		if at < 0 {
			at = len(p.classes)
			p.classes = append(p.classes, class{name: d.Class, memory: d.Memory, perLink: 1})
		}
		c := &p.classes[at]
		c.devices = append(c.devices, i)
		if c.memory = min(c.memory, d.Memory); d.Link > 0 {
			c.perLink = max(c.perLink, links[d.Link])
		}
	}
	var faults []error
	for i := range p.services {
		faults = append(faults, p.services[i].blockFaults(p.classes)...)
	}
	if len(p.classes) > maxClasses {
		faults = append(faults, fmt.Errorf("%d classes of devices; give at most %d", len(p.classes), maxClasses))
	}
	if err := listFaults(errNoPlan, faults); err != nil {
		return nil, err
	}
	p.enlist()
	return p, p.filling(ctx, devices, how)
}

// Limits of the input of a plan of pipelines.
const (
	maxClasses = 4
	maxBlocks  = 20
)

// blockFaults returns the faults in the blocks of a service.
func (s *Service) blockFaults(classes []class) (faults []error) {
	// Every fault names its service.
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("service %.40q: %w", s.Name, fmt.Errorf(format, args...)))
	}
	b, before := s.Blocks, 0
	if s.Rate == 0 {
		fault("its rate is 0, but a plan of pipelines gives each service devices; give it a rate above 0 or remove it")
	}
	if wrong(s.Target) || wrong(b.Fill) || !(b.Margin >= 0 && b.Margin < 1) {
		fault("target of %v ms, margin of %v and %v requests a second to fill batches; give numbers from 0, the margin below 1", s.Target, b.Margin, b.Fill)
	}
	if len(b.Ends) == 0 || len(b.Ends) > maxBlocks || len(b.Moves) < len(b.Ends)-1 {
		fault("%d blocks and %d times for moving their intermediates; give 1 to %d blocks, and a time for each but the last", len(b.Ends), len(b.Moves), maxBlocks)
		return faults
	}
	for i, end := range b.Ends {
		if end <= before {
			fault("block %d ends before operator %d, and the block before it ends before %d; order blocks by rising ends", i+1, end, before)
		}
		if before = end; i < len(b.Ends)-1 && wrong(b.Moves[i]) {
			fault("moving the intermediates behind block %d takes %v us; give a number from 0, or a link with a bandwidth above 0", i+1, b.Moves[i])
		}
	}
	for _, c := range classes {
		shares := b.Times[c.name]
		if len(shares) == 0 || len(shares) > maxShare {
			fault("times for %d shares of the devices of class %q; measure the service there, or remove these devices", len(shares), c.name)
		}
		for share, batches := range shares {
			if len(batches) > maxBatch {
				fault("times for batches up to %d on class %q; give batches of at most %d", len(batches), c.name, maxBatch)
			}
			for batch, times := range batches {
				if len(times) != len(b.Ends) || slices.ContainsFunc(times, wrong) {
					fault("a batch of %d on 1/%d of class %q needs a time from 0 for each of %d blocks, but has %v", batch+1, share+1, c.name, len(b.Ends), times)
				}
			}
		}
	}
	return faults
}

// allowed returns the longest time in microseconds that a batch may take in a plan.
func (s *Service) allowed() float64 {
	if s.Target == 0 {
		return infinite
	}
	return 1000 * s.Target * (1 - s.Blocks.Margin)
}

// filling sets the time that batches take to fill: at the given rate, or else at the rate that a
// plan without pipelines sustains.
func (p *pipes) filling(ctx context.Context, devices []Device, how Search) error {
	p.fill = make([]float64, len(p.services))
	rates := make([]float64, len(p.services))
	for i, s := range p.services {
		rates[i] = s.Blocks.Fill
	}
	if slices.Contains(rates, 0) {
		alone := slices.Clone(p.services)
		for i := range alone {
			// At this rate batches fill in no time, and the recursion ends.
			alone[i].Blocks.Fill = maxNumber
		}
		whole, err := newPipes(ctx, alone, devices, 1, true, how)
		if err != nil {
			return err
		}
		found, _, err := whole.plan()
		// There are more services than devices.
		if err != nil && whole.list() == nil {
			found, _ = whole.inTurn()
		} // If a service is too slow on a single device, nothing is known and batches do not wait.
		for i := range rates {
			for _, a := range found {
				if a.service == i && p.services[i].Blocks.Fill == 0 {
					rates[i] += a.rate
				}
			}
		}
	}
	for i, rate := range rates {
		if rate > 0 {
			p.fill[i] = batchFill * 1e6 / rate
		}
	}
	return nil
}

// list computes the courses of all services.
func (p *pipes) list() error {
	p.courses = make([][]course, len(p.services))
	for i := range p.services {
		p.say("pipelines of %s over %d classes of devices", p.services[i].Name, len(p.classes))
		if p.courses[i] = p.enumerate(i); len(p.courses[i]) == 0 {
			return p.late(i)
		}
	}
	return nil
}

// plan returns the best pipelines found, and a bound of the objective.
func (p *pipes) plan() (found []assignment, bound float64, err error) {
	if err := p.list(); err != nil {
		return nil, 0, err
	}
	r := p.relax(func(_, _ int) bool { return true })
	b := &box{pipes: p, relaxed: r}
	b.fit()
	found, objective := b.search()
	if err := p.ctx.Err(); err != nil {
		return nil, 0, err
	}
	if objective <= 0 {
		return nil, 0, fmt.Errorf("%w was found that gives each of %d services devices of its own out of %d; give more devices or fewer services", errNoPlan, len(p.services), p.count())
	}
	return found, max(r.bound, objective), nil
}

// spread assigns each stage its devices, and the remaining devices to the busiest stages.
func (p *pipes) spread(found []assignment) {
	for k, c := range p.classes {
		left := len(c.devices)
		type place struct {
			of *assignment
			d  int
		}
		var places []place
		for i := range found {
			a := &found[i]
			for d, of := range p.lists[a.course.list] {
				if of == k {
					places = append(places, place{a, d})
					a.devices[d] = whole(a.rate / a.course.rate[d])
					left -= a.devices[d]
				}
			}
		}
		for ; left > 0 && len(places) > 0; left-- {
			// A further device lowers the load of the busiest stage most.
			busiest := slices.MaxFunc(places, func(a, b place) int { return cmp.Compare(a.of.load(a.d), b.of.load(b.d)) })
			busiest.of.devices[busiest.d]++
		}
	}
	for i := range found {
		a := &found[i]
		// The rate of a pipeline is that of its slowest stage, now with all its devices.
		a.rate = infinite
		for d := range p.lists[a.course.list] {
			a.rate = min(a.rate, float64(a.devices[d])*a.course.rate[d])
		}
	}
}

// count returns the number of devices of all classes.
func (p *pipes) count() (devices int) {
	for _, c := range p.classes {
		devices += len(c.devices)
	}
	return devices
}

// late returns an error with the reason why a service has no course.
func (p *pipes) late(service int) error {
	s := &p.services[service]
	if s.Target == 0 || p.over() {
		return fmt.Errorf("%w was found for service %s: no device that can hold it has been measured, or the time limit was too short; measure it or allow more time", errNoPlan, s.Name)
	}
	// Without a target there is a pipeline, and the fastest determines what the error reports.
	q := *p
	q.services = []Service{*s}
	q.services[0].Target = 0
	least := infinite
	for _, c := range q.enumerate(0) {
		least = min(least, c.spent)
	}
	return fmt.Errorf("%w: service %s takes at least %s ms for one request, but its target of %s ms with a margin of %.3g %% leaves %s; give it a larger target or a smaller margin, or add faster devices",
		errNoPlan, s.Name, stats.Digits(3, least/1000), stats.Digits(3, s.Target), 100*s.Blocks.Margin, stats.Digits(3, s.allowed()/1000))
}

// finishPipes assigns named devices to the stages and returns the plan.
func (p *pipes) finishPipes(devices []Device, found []assignment, bound float64) (*Placement, error) {
	plan := &Placement{Kind: kindPipeline, Objective: infinite, Bound: bound, Services: p.services, Devices: slices.Clone(devices)}
	free := make([][]int, len(p.classes))
	for k, c := range p.classes {
		free[k] = c.devices
	}
	for i := range plan.Services {
		s := &plan.Services[i]
		answered := 0.0
		for _, a := range found {
			if a.service == i {
				answered += a.rate
				s.Pipelines = append(s.Pipelines, p.pipeline(plan, a, free))
			}
		}
		for _, way := range s.Pipelines {
			for _, stage := range way.Stages {
				s.Devices = append(s.Devices, stage.Devices...)
			}
		}
		slices.Sort(s.Devices)
		s.Devices = slices.Compact(s.Devices)
		// The load is the part of its devices that the service needs for its rate.
		s.Load = float64(len(s.Devices)) * s.Rate / answered
		s.Operators = s.Blocks.Ends[len(s.Blocks.Ends)-1]
		plan.Objective = min(plan.Objective, answered/s.Rate)
	}
	plan.Bound = max(plan.Bound, plan.Objective)
	return p.finish(plan)
}

// pipeline returns the pipeline of an assignment, with the next free devices. Shared devices stay
// free.
func (p *pipes) pipeline(plan *Placement, a assignment, free [][]int) Pipeline {
	// The times of the plan are in milliseconds, and those of blocks in microseconds.
	s, c := &p.services[a.service], a.course
	way := Pipeline{Batch: c.batch, Rate: a.rate, Latency: (c.spent + float64(c.batch-1)*p.fill[a.service]) / 1000}
	from := 0
	for d, k := range p.lists[c.list] {
		stage := Stage{Class: p.classes[k].name, Share: c.share[d]}
		if from > 0 {
			stage.Start = s.Blocks.Ends[from-1]
		}
		for _, v := range s.Blocks.Times[stage.Class][c.share[d]-1][c.batch-1][from:c.ends[d]] {
			stage.Time += max(v, leastTime) / 1000
		}
		if from = c.ends[d]; from < len(s.Blocks.Ends) {
			stage.Move = s.Blocks.Moves[from-1]
		}
		stage.End = s.Blocks.Ends[from-1]
		n := a.devices[d]
		for _, at := range free[k][:n] {
			device := &plan.Devices[at]
			device.Load += a.load(d)
			for range stage.Share {
				stage.Devices = append(stage.Devices, device.Name)
			}
		}
		if !p.shared {
			free[k] = free[k][n:]
		}
		way.Stages = append(way.Stages, stage)
	}
	return way
}

// Chains plans the pipelines of DART-r, the baseline of PPipe (section 7.1). Each service gets the
// devices that a plan without pipelines gives it, and an equal number of the remaining ones. As
// many devices as possible form chains, each of one device of either class. Each other device runs
// the whole model. All chains of a service are alike, and no device is divided.
func Chains(ctx context.Context, services []Service, devices []Device, stages int, how Search) (*Placement, error) {
	p, err := newPipes(ctx, services, devices, stages, true, how)
	if err != nil {
		return nil, err
	}
	if len(p.classes) != 2 {
		return nil, fmt.Errorf("%w: chains need devices of two classes, but there are %d; give two", errNoPlan, len(p.classes))
	}
	alone, err := newPipes(ctx, services, devices, 1, true, how)
	if err != nil {
		return nil, err
	}
	// Both plans assume the same time for filling batches.
	copy(alone.fill, p.fill)
	apart, _, err := alone.plan()
	if err != nil {
		return nil, err
	}
	counts := make([][2]int, len(services))
	left := [2]int{len(p.classes[0].devices), len(p.classes[1].devices)}
	for _, a := range apart {
		k := alone.lists[a.course.list][0]
		n := whole(a.rate / a.course.rate[0])
		counts[a.service][k] += n
		left[k] -= n
	}
	var found []assignment
	for i := range counts {
		for k := range left {
			counts[i][k] += left[k] / len(services)
		}
		// Chains of one device of each class come first, then single devices.
		pairs := min(counts[i][0], counts[i][1])
		for _, n := range [][3]int{{1, 1, pairs}, {1, 0, counts[i][0] - pairs}, {0, 1, counts[i][1] - pairs}} {
			if n[2] > 0 {
				found = append(found, p.copies(i, n[0], n[1], n[2])...)
			}
		}
	}
	return p.finishPipes(devices, found, maxNumber)
}

// copies returns the best pipelines of a service over numbers of devices of the first and of the
// second class, multiplied by copies.
func (p *pipes) copies(service, first, second, copies int) []assignment {
	q := *p
	q.services, q.fill = p.services[service:service+1], p.fill[service:service+1]
	q.classes = slices.Clone(p.classes)
	q.classes[0].devices, q.classes[1].devices = q.classes[0].devices[:first], q.classes[1].devices[:second]
	// Without pipelines the devices stay idle.
	found, _, _ := q.plan()
	for i := range found {
		a := &found[i]
		a.service, a.rate = service, a.rate*float64(copies)
		for d := range q.lists[a.course.list] {
			a.devices[d] = copies
		}
	}
	return found
}

// Group divides operators into at most the given number of blocks of about equal time, and returns
// the end of each. A block ends after the operator at which the time up to it is nearest to its
// part of the total (PPipe, section 5.2).
func Group(micros []float64, blocks int) (ends []int) {
	whole, sum, end := 0.0, 0.0, 0
	for _, v := range micros {
		whole += v
	}
	for i := 1; i < blocks && end < len(micros); i++ {
		aim, before := whole*float64(i)/float64(blocks), end
		// A block has at least one operator.
		for end < len(micros) && (end == before || math.Abs(sum+micros[end]-aim) <= math.Abs(sum-aim)) {
			sum += micros[end]
			end++
		}
		ends = append(ends, end)
	}
	if end < len(micros) {
		ends = append(ends, len(micros))
	}
	return ends
}
