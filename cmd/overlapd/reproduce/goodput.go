package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
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

// LinearQueries is how many queries a run has at least, unless options say otherwise.
const LinearQueries = 100_000

// queueRoom is how many queries of a service may wait, so that none is refused for that.
const queueRoom = 1 << 16

// workload is what a goodput is of.
type workload struct {
	profile  *device.Profile
	services []sim.Service // Share is the part of the queries
	devices  int
	shape    float64 // of the gamma distribution of distances in each service, 1 for Poisson
	queries  int
	seed     uint64
}

// contender is a policy over several devices.
type contender struct {
	name, policy, dispatch string
	summary                string
}

var contenders = []contender{
	{"deferred", "deferred", sim.Pool, "Symphony"},
	{"clockwork", "clockwork", sim.Pool, "earliest deadline first over all devices, which merges as many queries as are in time together; Clockwork merges less"},
	{"nexus", "nexus", sim.Split, "squishy bin packing, by the rates of the very run; on each device the batch that must start first, not its turn, with early drop"},
	{"shepherd", "flex", sim.Pool, "largest batch first, which stops one a third as large"},
	{"no-preemption", "largest", sim.Pool, "Shepherd without preemption"},
	{"eager", "eager", sim.Pool, "of all batches the one that must start first, as soon as a device is free"},
	{"flex-resume", "flex-resume", sim.Pool, "as shepherd, but what was stopped goes on from there"},
	{"overlap", "overlap", sim.Pool, "ours; on devices that gain nothing from running batches together"},
}

func contenderNamed(name string) contender {
	return contenders[slices.IndexFunc(contenders, func(c contender) bool { return c.name == name })]
}

// service returns a model with a target as a service that merges as many queries as
// could ever be in time.
func service(m *device.Model, model string, target time.Duration) sim.Service {
	most := 1
	for most < device.LinearMaxSize && solo(m, model, most+1, 0) <= target {
		most++
	}
	return sim.Service{Name: model, Model: model, Target: target, MaxBatch: most, QueueLimit: queueRoom, Share: 1}
}

// zoo returns services of all models of a profile that a rule takes, with their targets.
func zoo(p *device.Profile, takes func(alpha, beta float64) bool) ([]sim.Service, error) {
	m, err := device.NewModel(p)
	if err != nil {
		return nil, err
	}
	var list []sim.Service
	for _, info := range m.Models() {
		one, two := solo(m, info.Name, 1, 0), solo(m, info.Name, 2, 0)
		if takes(float64(two-one), float64(2*one-two)) {
			list = append(list, service(m, info.Name, time.Duration(p.Targets[info.Name]*float64(time.Millisecond))))
		}
	}
	return list, nil
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

// ceiling is what the devices would do with the largest batches that are in time.
func (w *workload) ceiling(m sim.Device) float64 {
	seconds, shares := 0.0, 0.0
	for i := range w.services {
		s := &w.services[i]
		seconds += s.Share * solo(m, s.Model, s.MaxBatch, 0).Seconds() / float64(s.MaxBatch)
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

// rateRun is a run at one rate.
type rateRun struct {
	*sim.Result
	batch int // median
}

// serve runs queries, that come at one per second, at a rate.
func (w *workload) serve(m sim.Device, c contender, once []sim.Query, rate float64) (rateRun, error) {
	sc := sim.Scenario{Services: w.services, Given: make([]sim.Query, len(once)), Seed: w.seed, Policy: c.policy, Device: m, Devices: w.devices, Dispatch: c.dispatch}
	for i, q := range once {
		q.At = time.Duration(float64(q.At) / rate)
		sc.Given[i] = q
	}
	var sizes []int64
	sc.Observer.Round = func(r *sim.Round) { sizes = append(sizes, int64(r.Spans[0].Size)) }
	result, err := sim.Run(sc)
	slices.Sort(sizes)
	return rateRun{result, int(stats.Quantile(sizes, 0.5))}, err
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
func (w *workload) goodput(ctx context.Context, c contender) (rate float64, at rateRun, err error) {
	m, err := device.NewModel(w.profile)
	if err != nil {
		return 0, at, err
	}
	longest := time.Duration(0)
	for i := range w.services {
		longest = max(longest, w.services[i].Target)
	}
	low, high := 0.0, w.ceiling(m)
	once := w.arrivals(min(max(w.queries, int(goodputTargets*longest.Seconds()*high)), maxQueries))
	for range goodputSteps {
		mid := (low + high) / 2
		run, err := w.serve(m, c, once, mid)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return 0, at, err
		}
		if run.keeps() {
			low, at = mid, run
		} else {
			high = mid
		}
	}
	return low, at, nil
}

// linearPaper is a paper whose devices are linear.
type linearPaper struct {
	title, file string
	gpus        []string
	figures     []shown
}

// run writes what is reproduced of a paper.
func (p *linearPaper) run(ctx context.Context, o Options) (*Result, error) {
	if _, err := o.check(p.figures); err != nil {
		return nil, err
	}
	began := time.Now()
	path := filepath.Join(o.Data, p.file)
	sum, err := hashOf(path, path)
	if err != nil {
		return nil, err
	}
	zoos := map[string]*device.Profile{}
	for _, gpu := range p.gpus {
		if zoos[gpu], err = device.ReadLinear(path, gpu); err != nil {
			return nil, err
		}
	}
	r := &Result{
		Label:  "Emulated: no GPU was used. A batch of b queries takes alpha b + beta, as the paper's tables say, in virtual time, and nothing else takes any; the scheduler is that of the daemon.",
		Commit: o.Commit, Data: sum, Device: "linear devices of " + p.file, Seed: o.Seed, Seeds: 1, Queries: o.Queries,
		Figures: []*figure{}, Missing: []missing{}, timing: timing{Began: began.UTC().Truncate(time.Second)},
		title: p.title + ", reproduced",
		about: "Beside ours stands what the paper says in words and tables. Its baselines ran on real networks and in other programs; ours merge, drop what cannot be in time, know exactly what batches take, and have no network, and so do better than the paper's.",
	}
	for _, c := range contenders {
		r.Policies = append(r.Policies, policy{c.name, c.summary})
	}
	if err := (&reproduction{options: &o, zoos: zoos, result: r}).run(ctx, p.figures); err != nil {
		return nil, err
	}
	r.timing.Seconds = time.Since(began).Seconds()
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, err
	}
	return r, r.write(o.Out)
}

// newWorkload returns one with the queries and the seed of the options.
func newWorkload(r *reproduction, p *device.Profile, devices int, services ...sim.Service) workload {
	return workload{profile: p, services: services, devices: devices, shape: 1, queries: r.options.Queries, seed: r.options.Seed}
}

// found is a goodput that is searched for while the plan runs.
type found struct {
	rate float64
	at   rateRun
}

// goodputOf plans to search for a goodput.
func goodputOf(r *reproduction, stage string, w workload, c contender) *found {
	f := &found{}
	r.plan.add(stage, goodputSteps*secondsOf(w.queries)/32, func(ctx context.Context, _ *lane) (err error) {
		f.rate, f.at, err = w.goodput(ctx, c)
		return err
	})
	return f
}

// pooledRow returns one with a number, and that of the paper if it is not 0.
func pooledRow(name, policy string, ours, paper float64) row {
	r := row{Case: name, Policy: policy, Ours: rounded(ours)}
	if paper != 0 {
		r.Paper = rounded(paper)
	}
	return r
}

// goodputs plans to search for those of several contenders.
func goodputs(r *reproduction, stage string, w workload, names []string) map[string]*found {
	all := map[string]*found{}
	for _, name := range names {
		all[name] = goodputOf(r, stage, w, contenderNamed(name))
	}
	return all
}

// atRate plans to serve at one rate.
func atRate(r *reproduction, stage string, w workload, c contender, rate float64) *found {
	f := &found{rate: rate}
	r.plan.add(stage, secondsOf(w.queries)/32, func(context.Context, *lane) error {
		m, err := device.NewModel(w.profile)
		if err == nil {
			f.at, err = w.serve(m, c, w.arrivals(w.queries), rate)
		}
		return err
	})
	return f
}

// most is the ceiling of a workload.
func (w *workload) most() (float64, error) {
	m, err := device.NewModel(w.profile)
	if err != nil {
		return 0, err
	}
	return w.ceiling(m), nil
}

// fewest returns with how many devices, at most those of a workload, a rate is borne, 0 if
// not with all of them.
func fewest(ctx context.Context, w workload, c contender, rate float64) (int, error) {
	m, err := device.NewModel(w.profile)
	if err != nil {
		return 0, err
	}
	once := w.arrivals(w.queries)
	most := w.devices
	low, high := 0, most+1
	for high-low > 1 {
		w.devices = (low + high) / 2
		run, err := w.serve(m, c, once, rate)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return 0, err
		}
		if run.keeps() {
			high = w.devices
		} else {
			low = w.devices
		}
	}
	if high > most {
		return 0, nil
	}
	return high, nil
}
