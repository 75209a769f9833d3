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

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
)

// How goodput is found: the highest rate at which at most goodputBad of the queries of
// each service are not answered in time, which is that the 99th percentile of each is
// within its target (Symphony, section 2.1). It is searched for by bisection between 0
// and what the devices would do if all batches were as large as targets allow, in
// goodputSteps steps, with the same queries at all rates, closer together or farther
// apart. A run lasts at least goodputTargets times the longest target.
const (
	goodputBad     = 0.01
	goodputSteps   = 9
	goodputTargets = 20
)

// What a run is unless options say otherwise: how many queries it has at least, and how
// many there are, each with arrivals of its own.
const (
	LinearQueries = 20_000
	LinearSeeds   = 5
)

// queueRoom is how many queries of a service may wait, so that none is refused for that.
const queueRoom = 1 << 16

// gpu is a linear device: its profile, of which each run makes a model of its own, and one
// to plan with.
type gpu struct {
	profile *device.Profile
	model   *device.Model
}

func newGPU(p *device.Profile, err error) (gpu, error) {
	if err != nil {
		return gpu{}, err
	}
	m, err := device.NewModel(p)
	return gpu{p, m}, err
}

// workload is what a goodput is of.
type workload struct {
	gpu
	services []sim.Service // Share is the part of the queries
	devices  int
	shape    float64 // of the gamma distribution of distances in each service, 1 for Poisson
	queries  int
	seed     uint64
	part     time.Duration // runs are also looked at in parts of this length, 0 for not
}

// contender is a policy over several devices.
type contender struct {
	name, policy, dispatch string
	summary                string
	alone                  bool // each query is a batch of its own
}

var contenders = []contender{
	{"deferred", "deferred", sim.Pool, "Symphony", false},
	{"clockwork", "clockwork", sim.Pool, "earliest deadline first over all devices, which merges as many queries as are in time together; Clockwork merges less", false},
	{"clockwork-unmerged", "clockwork", sim.Pool, "the same, each query a batch of its own, which is what the paper measured of Clockwork", true},
	{"nexus", "nexus", sim.Split, "squishy bin packing, by the rates of the very run; on each device the batch that must start first, not its turn, with early drop", false},
	{"shepherd", "flex", sim.Pool, "largest batch first, which stops one a third as large", false},
	{"no-preemption", "largest", sim.Pool, "Shepherd without preemption", false},
	{"eager", "eager", sim.Pool, "of all batches the one that must start first, as soon as a device is free", false},
	{"flex-resume", "flex-resume", sim.Pool, "as shepherd, but what was stopped goes on from there", false},
	{"overlap", "overlap", sim.Pool, "ours; on devices that gain nothing from running batches together", false},
}

func contenderNames() (names []string) {
	for _, c := range contenders {
		names = append(names, c.name)
	}
	return names
}

func contenderNamed(name string) contender {
	return contenders[slices.IndexFunc(contenders, func(c contender) bool { return c.name == name })]
}

// service returns a model with a target as a service that merges as many queries as
// could ever be in time.
func (g gpu) service(model string, target time.Duration) sim.Service {
	most := 1
	for most < device.LinearMaxSize && solo(g.model, model, most+1, 0) <= target {
		most++
	}
	return sim.Service{Name: model, Model: model, Target: target, MaxBatch: most, QueueLimit: queueRoom, Share: 1}
}

// zoo returns services of all models that a rule takes, with their targets.
func (g gpu) zoo(takes func(alpha, beta float64) bool) (list []sim.Service) {
	for _, info := range g.model.Models() {
		one, two := solo(g.model, info.Name, 1, 0), solo(g.model, info.Name, 2, 0)
		if takes(float64(two-one), float64(2*one-two)) {
			list = append(list, g.service(info.Name, time.Duration(g.profile.Targets[info.Name]*float64(time.Millisecond))))
		}
	}
	return list
}

// copies returns services that are alike but for their names, with shares as of Zipf's
// law with an exponent, 0 for equal ones.
func copies(s sim.Service, n int, zipf float64) (list []sim.Service) {
	for i := range n {
		s.Name, s.Share = fmt.Sprintf("%s %d", s.Model, i+1), math.Pow(float64(i+1), -zipf)
		list = append(list, s)
	}
	return list
}

// longest is the longest target.
func (w *workload) longest() (target time.Duration) {
	for i := range w.services {
		target = max(target, w.services[i].Target)
	}
	return target
}

// ceiling is what the devices would do with the largest batches that are in time.
func (w *workload) ceiling() float64 {
	seconds, shares := 0.0, 0.0
	for i := range w.services {
		s := &w.services[i]
		seconds += s.Share * solo(w.model, s.Model, s.MaxBatch, 0).Seconds() / float64(s.MaxBatch)
		shares += s.Share
	}
	return float64(w.devices) * shares / seconds
}

// arrivals returns when queries come at one per second. Those of each service have
// random numbers of their own.
func (w *workload) arrivals(queries int) (list []sim.Query) {
	shares := 0.0
	for i := range w.services {
		shares += w.services[i].Share
	}
	for i := range w.services {
		r := rand.New(rand.NewPCG(w.seed, uint64(i)))
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

// rateRun is a run at one rate, or what a search over such runs found.
type rateRun struct {
	*sim.Result
	found float64
	good  float64 // in time per second, without those of the first and the last target
	batch int     // median
	parts []part  // of workload.part each
}

// part is what happened in a part of a run: how many queries came, how many of these were
// in time, and how long the devices were busy.
type part struct {
	came, good int
	busy       time.Duration
}

// partOf returns a part of a run, which is empty if the run was over before.
func (r *rateRun) partOf(number int) part {
	if number >= len(r.parts) {
		return part{}
	}
	return r.parts[number]
}

// serve runs queries, that come at one per second, at a rate.
func (w *workload) serve(c contender, once []sim.Query, rate float64) (run rateRun, err error) {
	sc := sim.Scenario{Services: w.services, Given: make([]sim.Query, len(once)), Seed: w.seed, Policy: c.policy, Device: w.model, Devices: w.devices, Dispatch: c.dispatch}
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
	from, until := w.longest(), last-w.longest() // before, nobody waits yet; after it, devices are asked no more
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
			begin := time.Duration(i) * w.part
			run.parts[i].busy += max(min(r.Start+r.Took, begin+w.part)-max(r.Start, begin), 0)
		}
	}
	run.Result, err = sim.Run(sc)
	slices.Sort(sizes)
	run.found, run.batch = rate, int(stats.Quantile(sizes, 0.5))
	return run, err
}

// keeps reports whether each service is within its target.
func (m *rateRun) keeps() bool {
	for i := range m.Services {
		if m.Services[i].Violations > goodputBad {
			return false
		}
	}
	return true
}

// goodput returns the highest rate that the search finds, 0 if there is none, and what
// the run at it was like.
func (w *workload) goodput(ctx context.Context, c contender) (at rateRun, err error) {
	low, high := 0.0, w.ceiling()
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
	title, file string
	gpus        []string
	own         string // rows of gpuOwn, which the file does not have
	figures     []shown
}

// run writes what is reproduced of a paper.
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
	r := o.result("Emulated: no GPU was used. A batch of b queries takes alpha b + beta, as the paper's tables say, in virtual time, and nothing else takes any; the scheduler is that of the daemon.",
		sum, "linear devices of "+p.file)
	r.title = p.title + ", reproduced"
	r.about = "Beside ours stands what the paper says in words and tables. Its baselines ran on real networks and in other programs; ours merge, drop what cannot be in time, know exactly what batches take, and have no network, and so do better than the paper's."
	for _, c := range contenders {
		r.Policies = append(r.Policies, policy{c.name, c.summary})
	}
	return (&reproduction{options: &o, gpus: gpus, day: load, result: r}).write(ctx, p.figures)
}

// newWorkload returns one with the queries and the seed of the options.
func newWorkload(r *reproduction, g gpu, devices int, services ...sim.Service) workload {
	return workload{gpu: g, services: services, devices: devices, shape: 1, queries: r.options.Queries, seed: r.options.Seed}
}

// cell is what contenders made of a workload, each with one seed after the other.
type cell struct {
	name     string
	policies []string
	runs     map[string][]rateRun
}

// compete plans that contenders do something with a workload.
func compete(r *reproduction, stage, name string, w workload, policies []string, work float64, do func(context.Context, *workload, contender) (rateRun, error)) cell {
	c := cell{name, policies, map[string][]rateRun{}}
	for _, policy := range policies {
		runs := make([]rateRun, r.options.Seeds)
		c.runs[policy] = runs
		for k := range runs {
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

// goodputs plans to search for those of contenders.
func goodputs(r *reproduction, stage, name string, w workload, policies []string) cell {
	return compete(r, stage, name, w, policies, goodputSteps*secondsOf(w.queries)/32, func(ctx context.Context, w *workload, c contender) (rateRun, error) {
		return w.goodput(ctx, c)
	})
}

// atRate plans to serve at one rate.
func atRate(r *reproduction, stage, name string, w workload, policies []string, rate float64) cell {
	return compete(r, stage, name, w, policies, secondsOf(w.queries)/32, func(_ context.Context, w *workload, c contender) (rateRun, error) {
		return w.serve(c, w.arrivals(w.queries), rate)
	})
}

// of returns a value of the runs of a contender, by seed.
func (c *cell) of(policy string, value func(*rateRun) float64) []float64 {
	list := make([]float64, len(c.runs[policy]))
	for i := range list {
		list[i] = value(&c.runs[policy][i])
	}
	return list
}

func foundRate(r *rateRun) float64   { return r.found }
func medianBatch(r *rateRun) float64 { return float64(r.batch) }
func timely(r *rateRun) float64      { return r.good }
func useOf(r *rateRun) float64       { return r.Busy }

// fill adds values to a figure, and those of the paper, by policy.
func (c *cell) fill(f *figure, value func(*rateRun) float64, paper map[string]float64) {
	for _, policy := range c.policies {
		f.Rows = append(f.Rows, seedsRow(c.name, policy, c.of(policy, value), paper[policy]))
	}
}

// seedsRow returns one with the median over the seeds, the range if there are several,
// and the number of the paper if that is not 0.
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

// fewest finds with how many devices, at most those of the workload, a rate is borne, 0 if
// not with all of them.
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
