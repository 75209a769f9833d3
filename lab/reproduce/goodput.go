package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/baselines"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
)

// How goodput is found. It is the highest rate at which at most goodputBad of the queries of each
// service miss their target, so that the 99th percentile of each service is within its target
// (Symphony, section 2.1). A bisection of goodputSteps steps searches between 0 and the rate of the
// devices with batches as large as targets allow. All rates have the same queries, closer together
// or farther apart. A run lasts at least goodputTargets times the longest target.
const (
	goodputBad     = 0.01
	goodputSteps   = 9
	goodputTargets = 20
)

// The defaults of a run: its least number of queries, and the number of runs, each with arrivals of
// its own.
const (
	LinearQueries = 20_000
	LinearSeeds   = 5
)

// queueRoom is the longest queue of a service, long enough that no query is rejected for it.
const queueRoom = 1 << 16

// gpu is a linear device. Each run makes a model of its own from the profile. The model here is for
// planning.
type gpu struct {
	profile *device.Profile
	model   *device.Model
}

// newGPU returns the device of a profile, unless reading the profile failed.
func newGPU(p *device.Profile, err error) (gpu, error) {
	if err != nil {
		return gpu{}, err
	}
	m, err := device.NewModel(p)
	return gpu{p, m}, err
}

// workload describes the load and the devices of a run.
type workload struct {
	gpu

	// services are the services of the run. Share is a service's fraction of the queries.
	services []sim.Service

	// devices is the number of equal devices that all services share.
	devices int

	// shape is that of the gamma distribution of each service's inter-arrival times, 1 for a
	// Poisson process.
	shape float64

	// queries is the least number of queries of a run, and seed determines their arrivals.
	queries int
	seed    uint64

	// part is the length of the parts of a run that are also examined separately, 0 for none.
	part time.Duration
}

// contender is a policy over several devices.
type contender struct {
	// name is the name in figures, policy the name in package overlap, and dispatch the way to
	// distribute queries over devices.
	name, policy, dispatch string

	// summary describes the contender in the result.
	summary string

	// alone makes each query a batch of its own.
	alone bool
}

// contenders are the policies compared in the figures, ours last.
var contenders = []contender{
	{"deferred", "deferred", sim.Pool, "Symphony", false},
	{"clockwork", "clockwork", sim.Pool, "earliest deadline first over all devices, with batches as large as are in time; Clockwork's own batches are smaller", false},
	{"clockwork-unmerged", "clockwork", sim.Pool, "the same without batching, which is what the paper measured of Clockwork", true},
	{"nexus", "nexus", sim.Split, "squishy bin packing with the run's own rates; each device runs the batch that must start first, instead of taking turns, with early drop", false},
	{"shepherd", "flex", sim.Pool, "largest batch first; it preempts a batch of a third of its size", false},
	{"no-preemption", "largest", sim.Pool, "Shepherd without preemption", false},
	{"eager", "eager", sim.Pool, "the batch that must start first, as soon as a device is free", false},
	{"flex-resume", "flex-resume", sim.Pool, "shepherd, with preempted batches resumed where they stopped", false},
	{"overlap", "overlap", sim.Pool, "ours, on devices that gain nothing from overlapping", false},
}

// contenderNames returns the names of all contenders.
func contenderNames() (names []string) {
	for _, c := range contenders {
		names = append(names, c.name)
	}
	return names
}

// contenderNamed returns the contender with a name, which must exist.
func contenderNamed(name string) contender {
	return contenders[slices.IndexFunc(contenders, func(c contender) bool { return c.name == name })]
}

// service returns a service for a model with a target. Its largest batch is the largest that can be
// in time at all.
func (g gpu) service(model string, target time.Duration) sim.Service {
	most := 1
	for most < device.LinearMaxSize && solo(g.model, model, most+1, 0) <= target {
		most++
	}
	return sim.Service{Name: model, Model: model, Target: target, MaxBatch: most, QueueLimit: queueRoom, Share: 1}
}

// zoo returns services with their targets for all models that a rule accepts.
func (g gpu) zoo(takes func(alpha, beta float64) bool) (list []sim.Service) {
	for _, info := range g.model.Models() {
		// Two batches determine alpha and beta.
		one, two := solo(g.model, info.Name, 1, 0), solo(g.model, info.Name, 2, 0)
		if takes(float64(two-one), float64(2*one-two)) {
			list = append(list, g.service(info.Name, time.Duration(g.profile.Targets[info.Name]*float64(time.Millisecond))))
		}
	}
	return list
}

// copies returns n services that differ only in their names and shares. The shares follow Zipf's
// law with the given exponent, 0 for equal ones.
func copies(s sim.Service, n int, zipf float64) (list []sim.Service) {
	for i := range n {
		s.Name, s.Share = fmt.Sprintf("%s %d", s.Model, i+1), math.Pow(float64(i+1), -zipf)
		list = append(list, s)
	}
	return list
}

// longest returns the longest target.
func (w *workload) longest() (target time.Duration) {
	for i := range w.services {
		target = max(target, w.services[i].Target)
	}
	return target
}

// ceiling returns the rate of the devices with the largest batches that are in time.
func (w *workload) ceiling() float64 {
	seconds, shares := 0.0, 0.0
	for i := range w.services {
		s := &w.services[i]
		seconds += s.Share * solo(w.model, s.Model, s.MaxBatch, 0).Seconds() / float64(s.MaxBatch)
		shares += s.Share
	}
	return float64(w.devices) * shares / seconds
}

// arrivals returns queries at one per second in total. Each service has random numbers of its own.
func (w *workload) arrivals(queries int) (list []sim.Query) {
	shares := 0.0
	for i := range w.services {
		shares += w.services[i].Share
	}
	for i := range w.services {
		r := rand.New(rand.NewPCG(w.seed, uint64(i)))
		// mean is the mean inter-arrival time of the service's queries, in seconds.
		mean, at := shares/w.services[i].Share, 0.0
		for {
			if at += stats.Gamma(w.shape, r) / w.shape * mean; at >= float64(queries) {
				break
			}
			list = append(list, sim.Query{At: time.Duration(at * float64(time.Second)), Service: models.ServiceID(i), Size: 1})
		}
	}
	slices.SortFunc(list, func(a, b sim.Query) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Service, b.Service))
	})
	return list
}

// rateRun is a run at one rate, or the result of a search over such runs.
type rateRun struct {
	*sim.Result

	// found is the rate of the run, or the result of a search.
	found float64

	// good is the rate of queries in time, without those of the first and of the last target.
	good float64

	// batch is the median batch size.
	batch int

	// parts are of length workload.part each.
	parts []part
}

// part holds the events of a part of a run: the number of queries that arrived, the number of these
// that were in time, and how long the devices were busy.
type part struct {
	// came counts the queries that arrived, and good those of them that were in time.
	came, good int

	// busy is the sum over all devices.
	busy time.Duration
}

// partOf returns a part of a run. It is empty if the run ended before.
func (r *rateRun) partOf(number int) part {
	if number >= len(r.parts) {
		return part{}
	}
	return r.parts[number]
}

// serve runs queries, given at one per second, at another rate.
func (w *workload) serve(c contender, once []sim.Query, rate float64) (run rateRun, err error) {
	sc := sim.Scenario{Services: w.services, Given: make([]sim.Query, len(once)), Seed: w.seed, Policy: c.policy, Scheduler: baselines.New, Device: w.model, Devices: w.devices, Dispatch: c.dispatch}
	if c.alone {
		sc.Services = slices.Clone(w.services)
		for i := range sc.Services {
			sc.Services[i].MaxBatch = 1
		}
	}
	for i, q := range once {
		q.At = time.Duration(float64(q.At) / rate)
		sc.Given[i] = q
	}
	last := sc.Given[len(once)-1].At
	// Before from the queues are still filling, and after until they are draining.
	from, until := w.longest(), last-w.longest()
	// A run of less than two targets counts as a whole.
	if until <= from {
		from, until = 0, max(last, 1)
	}
	if w.part > 0 {
		run.parts = make([]part, 1+last/w.part)
	}
	sc.Observer.Answer = func(a *sim.Answer) {
		if a.InTime && a.Query.At >= from && a.Query.At < until {
			run.good += 1 / (until - from).Seconds()
		}
		if w.part == 0 {
			return
		}
		p := &run.parts[a.Query.At/w.part]
		p.came++
		if a.InTime {
			p.good++
		}
	}
	var sizes []int64
	sc.Observer.Round = func(r *sim.Round) {
		sizes = append(sizes, int64(r.Spans[0].Size))
		for i := range run.parts {
			// Each part counts the portion of the round within it.
			begin := time.Duration(i) * w.part
			run.parts[i].busy += max(min(r.Start+r.Took, begin+w.part)-max(r.Start, begin), 0)
		}
	}
	run.Result, err = sim.Run(sc)
	slices.Sort(sizes)
	run.found, run.batch = rate, int(stats.Quantile(sizes, 0.5))
	return run, err
}

// keeps reports whether each service keeps its target.
func (m *rateRun) keeps() bool {
	for i := range m.Services {
		if m.Services[i].Violations > goodputBad {
			return false
		}
	}
	return true
}

// goodput returns the run at the highest rate that the search finds, with the rate 0 if there is
// none.
func (w *workload) goodput(ctx context.Context, c contender) (at rateRun, err error) {
	low, high := 0.0, w.ceiling()
	// A run is long enough for several times the longest target at the ceiling.
	once := w.arrivals(min(max(w.queries, int(goodputTargets*w.longest().Seconds()*high)), maxQueries))
	for range goodputSteps {
		mid := (low + high) / 2
		run, err := w.serve(c, once, mid)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return at, err
		}
		if run.keeps() {
			low, at = mid, run
		} else {
			high = mid
		}
	}
	return at, nil
}

// linearPaper is a paper whose devices are linear.
type linearPaper struct {
	// title is the name of the paper, and file its table of profiles below the folder with data.
	title, file string

	// gpus are the devices to read from the file.
	gpus []string

	// own has the rows of the device gpuOwn, which the file lacks.
	own string

	// figures are those that Options.Figures may name.
	figures []shown
}

// run reproduces the figures of a paper and writes them.
func (p *linearPaper) run(ctx context.Context, o Options) (*Result, error) {
	if _, err := o.check(p.figures); err != nil {
		return nil, err
	}
	path := filepath.Join(o.Data, p.file)
	load, err := readDay(o.Data)
	if err != nil {
		return nil, err
	}
	sum, err := hashOf(path, append([]string{path}, load.paths...)...)
	if err != nil {
		return nil, err
	}
	// Profiles are read from the paper's table. Rows that only the text has are in own.
	gpus := map[string]gpu{}
	for _, name := range p.gpus {
		if gpus[name], err = newGPU(device.ReadLinear(path, name)); err != nil {
			return nil, err
		}
	}
	if p.own != "" {
		if gpus[gpuOwn], err = newGPU(device.Linear(gpuOwn, p.own)); err != nil {
			return nil, err
		}
	}
	r := o.result("Emulated: no GPU was used. A batch of b queries takes alpha b + beta, as in the paper's tables, in virtual time, and nothing else takes time; the scheduler is that of the daemon.",
		sum, "linear devices of "+p.file)
	r.title = p.title + ", reproduced"
	r.about = "Our numbers appear next to those of the paper's text and tables. Its baselines ran on real networks and in other programs. Ours do better, because they batch, drop queries that cannot be in time, know the exact latencies of batches, and have no network."
	for _, c := range contenders {
		r.Policies = append(r.Policies, policy{c.name, c.summary})
	}
	return (&reproduction{options: &o, gpus: gpus, day: load, result: r}).write(ctx, p.figures)
}

// newWorkload returns a workload with the queries and the seed of the options.
func newWorkload(r *reproduction, g gpu, devices int, services ...sim.Service) workload {
	return workload{gpu: g, services: services, devices: devices, shape: 1, queries: r.options.Queries, seed: r.options.Seed}
}

// cell holds the runs of contenders on a workload, one for each seed.
type cell struct {
	// name is the case in a figure.
	name string

	// policies are the contenders, in the order of the figure.
	policies []string

	// runs holds the runs by contender, in the order of the seeds.
	runs map[string][]rateRun
}

// compete plans a run of do for each contender and seed.
func compete(r *reproduction, stage, name string, w workload, policies []string, work float64, do func(context.Context, *workload, contender) (rateRun, error)) cell {
	c := cell{name, policies, map[string][]rateRun{}}
	for _, policy := range policies {
		runs := make([]rateRun, r.options.Seeds)
		c.runs[policy] = runs
		for k := range runs {
			// Each seed has a workload and a device of its own, because jobs run in parallel.
			w := w
			w.seed += uint64(k)
			r.plan.add(stage, work, func(ctx context.Context, _ *lane) (err error) {
				if w.gpu, err = newGPU(w.profile, nil); err == nil {
					runs[k], err = do(ctx, &w, contenderNamed(policy))
				}
				return err
			})
		}
	}
	return c
}

// goodputs plans the search for the goodput of each contender.
func goodputs(r *reproduction, stage, name string, w workload, policies []string) cell {
	return compete(r, stage, name, w, policies, goodputSteps*secondsOf(w.queries)/32, func(ctx context.Context, w *workload, c contender) (rateRun, error) {
		return w.goodput(ctx, c)
	})
}

// atRate plans runs at one rate.
func atRate(r *reproduction, stage, name string, w workload, policies []string, rate float64) cell {
	return compete(r, stage, name, w, policies, secondsOf(w.queries)/32, func(_ context.Context, w *workload, c contender) (rateRun, error) {
		return w.serve(c, w.arrivals(w.queries), rate)
	})
}

// of returns a value of a contender's runs, by seed.
func (c *cell) of(policy string, value func(*rateRun) float64) []float64 {
	list := make([]float64, len(c.runs[policy]))
	for i := range list {
		list[i] = value(&c.runs[policy][i])
	}
	return list
}

// The values of runs that figures show.
func foundRate(r *rateRun) float64   { return r.found }
func medianBatch(r *rateRun) float64 { return float64(r.batch) }
func timely(r *rateRun) float64      { return r.good }
func useOf(r *rateRun) float64       { return r.Busy }

// fill adds a value of the runs to a figure, with the paper's numbers by policy.
func (c *cell) fill(f *figure, value func(*rateRun) float64, paper map[string]float64) {
	for _, policy := range c.policies {
		f.Rows = append(f.Rows, seedsRow(c.name, policy, c.of(policy, value), paper[policy]))
	}
}

// seedsRow returns a row with the median over the seeds, the range if there are several seeds, and
// the paper's number unless it is 0.
func seedsRow(name, policy string, ours []float64, paper float64) row {
	r := row{Case: name, Policy: policy, Ours: rounded(stats.Median(ours))}
	if len(ours) > 1 {
		r.Least, r.Most = rounded(slices.Min(ours)), rounded(slices.Max(ours))
	}
	if paper != 0 {
		r.Paper = rounded(paper)
	}
	return r
}

// fewest returns the smallest number of devices that sustain a rate, at most those of the workload,
// or 0 if all of them do not.
func (w *workload) fewest(ctx context.Context, c contender, rate float64) (at rateRun, err error) {
	once, some := w.arrivals(w.queries), *w
	low, high := 0, w.devices+1
	for high-low > 1 {
		some.devices = (low + high) / 2
		run, err := some.serve(c, once, rate)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return at, err
		}
		if run.keeps() {
			high = some.devices
		} else {
			low = some.devices
		}
	}
	if high <= w.devices {
		at.found = float64(high)
	}
	return at, nil
}
