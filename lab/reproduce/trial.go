package reproduce

import (
	"context"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training/fit"
)

// variant is a policy as it appears in a figure.
type variant struct {
	// name is the name in figures.
	name string

	// policy is the name in package overlap.
	policy string

	// maxBatch is the largest batch, 1 for no batching.
	maxBatch int

	// recipe determines how the predictor is fitted.
	recipe string

	// knows is what the policy knows of queries, see [sim.Scenario].
	knows string

	// summary describes the variant in the result.
	summary string
}

// mergedBatch is the largest batch, which is the largest one measured.
const mergedBatch = 32

// variants are in the order of the figures. A variant with the name of one of the daemon's policies
// is that policy as in the daemon, with batching.
var variants = []variant{
	{"fcfs-authors", "fcfs", 1, fit.RecipeOurs, sim.KnowsNothing, "first come, first served, as on the authors' server: without batching, and a query is dropped only once it is late (section 7.1)"},
	{"sjf-authors", "sjf", 1, fit.RecipeOurs, sim.KnowsOrder, "shortest job first of all queued queries, likewise. The authors attribute its bad results to the time of predictions (section 7.2), which take none here"},
	{"edf-authors", "edf", 1, fit.RecipeOurs, sim.KnowsNothing, "earliest deadline first, likewise"},
	{"edf-unmerged", "edf", 1, fit.RecipeOurs, sim.KnowsAll, "edf without batching"},
	{"sjf-unmerged", "sjf", 1, fit.RecipeOurs, sim.KnowsAll, "sjf without batching"},
	{"clockwork-unmerged", "clockwork", 1, fit.RecipeOurs, sim.KnowsAll, "clockwork without batching"},
	{"abacus-authors", "abacus", 1, fit.RecipePaper, sim.KnowsAll, "the published algorithm, without batching, with a predictor of the paper's recipe"},
	{"overlap-unmerged", "overlap", 1, fit.RecipeOurs, sim.KnowsAll, "overlap without batching"},
	{"edf", "edf", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "earliest deadline first, one batch at a time, with batching up to the largest measured batch; drops queries that cannot be in time. As all services have one target here, fcfs does the same"},
	{"sjf", "sjf", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "shortest job first, with batching and dropping as in edf"},
	{"clockwork", "clockwork", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "edf that never starts work that might be late"},
	{"abacus", "abacus", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "the published algorithm, with the batching and dropping of edf added, and the predictor of overlap"},
	{"overlap", "overlap", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "ours: operators of several services at a time, with batching and dropping as in edf"},
}

// sequentials are the variants that the paper compares Abacus with.
var sequentials = []string{"fcfs-authors", "sjf-authors", "edf-authors"}

// rivals are the variants that batch as one of ours does.
var rivals = map[string][]string{
	"overlap-unmerged": {"edf-unmerged", "sjf-unmerged", "clockwork-unmerged"},
	"overlap":          {"edf", "sjf", "clockwork", "abacus"},
}

// own are our variants, in the order of the figures.
var own = []string{"overlap-unmerged", "overlap"}

// contenders returns the variants without those that only reproduce the authors' server.
func (r *reproduction) contenders() []variant {
	return slices.DeleteFunc(slices.Clone(r.variants), func(v variant) bool { return slices.Contains(sequentials, v.name) })
}

// VariantNames returns the values of Options.Policies.
func VariantNames() (names []string) {
	for _, v := range variants {
		names = append(names, v.name)
	}
	return names
}

// among returns the variants with the given names, in the order of the figures.
func among(list []variant, names ...string) []variant {
	return slices.DeleteFunc(slices.Clone(list), func(v variant) bool { return !slices.Contains(names, v.name) })
}

// trial describes one run.
type trial struct {
	// stock is what the deployment runs on, and variant the policy.
	stock   *stock
	deploy  *deployment
	variant variant

	// arrivals, queries and seed determine the queries.
	arrivals sim.Arrivals
	queries  int
	seed     uint64

	// shares holds the shares of a static split, in percent, by model.
	shares []int
	circumstances
}

// circumstances are the differences of a trial from the authors' runs.
type circumstances struct {
	// variation is the coefficient of variation of inter-arrival times, 0 for a Poisson process.
	variation float64

	// targets are multiples of the isolated latency of the largest query, 0 for the deployment's
	// targets.
	targets float64

	// devices is the size of a pool, 0 for one device.
	devices int

	// units is how many parts the device has, of which batches may have some to themselves; 0 for one.
	units int

	// each applies the limit on violations to each service, instead of all queries together.
	each bool
}

// arriving returns arrivals at a rate.
func (c *circumstances) arriving(qps float64) sim.Arrivals {
	if c.variation == 0 {
		return poisson(qps)
	}
	return sim.Arrivals{Process: sim.Gamma, QPS: qps, Shape: 1 / (c.variation * c.variation)}
}

// bad returns the violations summed over runs. If each service counts separately, it returns those
// of the service with the most.
func (c *circumstances) bad(of []*sim.Result) (most float64) {
	for i := range of[0].Services {
		sum, all := 0.0, 0.0
		for _, r := range of {
			sum, all = sum+r.Services[i].Violations, all+r.Violations
		}
		if !c.each {
			sum = all
		}
		most = max(most, sum)
	}
	return most
}

// poisson returns Poisson arrivals at a rate.
func poisson(qps float64) sim.Arrivals { return sim.Arrivals{Process: sim.Poisson, QPS: qps} }

// scenario returns the trial in the simulator's form. Groups are chosen while others run. Choosing,
// sending and awaiting a group takes no time beyond what the authors measured of groups.
func (t *trial) scenario(d sim.Device) sim.Scenario {
	sc := sim.Scenario{
		Arrivals: t.arrivals, Queries: t.queries, Seed: t.seed,
		Policy: t.variant.policy, Knows: t.variant.knows, Plan: true,
		Device: d, Predictor: t.stock.files[t.variant.recipe],
	}
	if t.devices > 0 {
		sc.Devices, sc.Dispatch = t.devices, sim.Pool
	}
	for i, m := range t.deploy.models {
		// Batches are at most as large as those that were measured.
		s := sim.Service{Name: m, Target: t.deploy.target, MaxBatch: min(t.variant.maxBatch, largest(d, m)), Sizes: t.deploy.sizes[i]}
		if m == sequenceModel {
			s.SeqLens = t.deploy.seqLens
		}
		if t.targets > 0 {
			s.Target = time.Duration(t.targets * float64(solo(d, m, slices.Max(s.Sizes), slices.Max(t.deploy.seqLens))))
		}
		if t.shares != nil {
			s.Percentage = t.shares[i]
		}
		sc.Services = append(sc.Services, s)
	}
	return sc
}

// largest returns the largest measured batch of a model, or 1 if the device does not have the
// model.
func largest(d sim.Device, model string) int {
	for _, m := range d.Models() {
		if m.Name == model && len(m.Sizes) > 0 {
			return slices.Max(m.Sizes)
		}
	}
	return 1
}

// run runs a trial.
func (l *lane) run(t *trial) (*sim.Result, error) {
	d, err := l.divided(divided{t.stock, max(t.units, 1)})
	if err != nil {
		return nil, err
	}
	return sim.Run(t.scenario(d))
}

// solo returns the isolated latency of a whole model, or 0 if the device does not have it.
func solo(d sim.Device, model string, size, seqLen int) time.Duration {
	if model != sequenceModel {
		seqLen = 0
	}
	for i, m := range d.Models() {
		if m.Name == model {
			return d.Latency(models.Group{Spans: []models.Span{{
				Service: models.ServiceID(i), End: m.Operators, Size: size, SeqLen: seqLen,
			}}})
		}
	}
	return 0
}

// meanSolo returns the mean isolated latency of the queries of a deployment.
func meanSolo(d sim.Device, of *deployment) time.Duration {
	var sum time.Duration
	n := time.Duration(0)
	for i, m := range of.models {
		for _, size := range of.sizes[i] {
			for _, seqLen := range of.seqLens {
				sum += solo(d, m, size, seqLen)
				n++
			}
		}
	}
	return sum / max(n, 1)
}

// secondsOf returns the rough duration of a run on one core. The numbers are exact in binary, so
// that the parts of the work add up to the whole.
func secondsOf(queries int) float64 { return float64(queries) / 8192 }

// served holds the runs of a deployment under a variant, one for each seed.
type served struct {
	// deploy and variant are what was run.
	deploy  *deployment
	variant string

	// results are in the order of the seeds.
	results []*sim.Result
}

// serve plans runs of every deployment under each variant and for each seed. common has what all
// runs share.
func (r *reproduction) serve(stage string, seeds int, variants []variant, common trial, deploys []deployment) (list []*served) {
	for i := range deploys {
		for _, v := range variants {
			s := &served{&deploys[i], v.name, make([]*sim.Result, seeds)}
			list = append(list, s)
			for k := range s.results {
				// Runs that only differ in the seed are separate jobs.
				t := common
				t.deploy, t.variant, t.seed = s.deploy, v, r.options.Seed+uint64(k)
				t.arrivals, t.queries = poisson(s.deploy.load), r.options.Queries
				r.plan.add(stage, secondsOf(t.queries), func(_ context.Context, l *lane) (err error) {
					s.results[k], err = l.run(&t)
					return err
				})
			}
		}
	}
	return list
}

// of returns the mean of a value over the seeds, and its standard deviation.
func (s *served) of(value func(*sim.Result) float64) (mid, spread *float64) {
	list := make([]float64, len(s.results))
	for i, r := range s.results {
		list[i] = value(r)
	}
	return meanOf(list), rounded(stats.Deviation(list))
}

// The values of runs that figures show.
func violations(r *sim.Result) float64 { return r.Violations }
func tail(r *sim.Result) float64       { return r.P99OverTarget }
func throughput(r *sim.Result) float64 { return r.ThroughputQPS }
func goodput(r *sim.Result) float64    { return r.GoodputQPS }

// answeredOf1000 returns what the authors call throughput: the number of queries answered, late
// ones included, out of 1,000.
func answeredOf1000(r *sim.Result) float64 {
	return authorsQueries * float64(r.Answered) / float64(max(r.Queries, 1))
}
