package reproduce

import (
	"context"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/training/fit"
)

// variant is a policy as it is put into a figure.
type variant struct {
	name     string
	policy   string // name in package overlap
	maxBatch int    // 1 for no merging
	recipe   string // how its predictor is fitted
	knows    string
	summary  string
}

// mergedBatch is the largest batch that is merged: the largest that was
// measured.
const mergedBatch = 32

// The variants, in the order of the figures. One that is named like a policy of the
// daemon is that policy as the daemon runs it, with merging.
var variants = []variant{
	{"fcfs-authors", "fcfs", 1, fit.RecipeOurs, sim.KnowsNothing, "first come, first served, as on the authors' server: unmerged, and a query is dropped only once it is late (section 7.1)"},
	{"sjf-authors", "sjf", 1, fit.RecipeOurs, sim.KnowsOrder, "shortest job first of all that wait, likewise. The authors explain by the time that predictions take why theirs is worst (section 7.2); here they take none"},
	{"edf-authors", "edf", 1, fit.RecipeOurs, sim.KnowsNothing, "earliest deadline first, likewise"},
	{"edf-unmerged", "edf", 1, fit.RecipeOurs, sim.KnowsAll, "edf, each query a batch of its own"},
	{"sjf-unmerged", "sjf", 1, fit.RecipeOurs, sim.KnowsAll, "sjf, each query a batch of its own"},
	{"clockwork-unmerged", "clockwork", 1, fit.RecipeOurs, sim.KnowsAll, "clockwork, each query a batch of its own"},
	{"abacus-authors", "abacus", 1, fit.RecipePaper, sim.KnowsAll, "the published algorithm, each query a batch of its own, with a predictor of the paper's recipe"},
	{"overlap-unmerged", "overlap", 1, fit.RecipeOurs, sim.KnowsAll, "overlap, each query a batch of its own"},
	{"edf", "edf", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "earliest deadline first, one batch at a time, queries of a service merged up to the largest measured batch; what cannot be in time is dropped. Where all services have one target, as here, fcfs does the same"},
	{"sjf", "sjf", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "shortest job first, with merging and dropping as under edf"},
	{"clockwork", "clockwork", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "edf, but work that might be late is never started"},
	{"abacus", "abacus", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "the published algorithm with merging and dropping as under edf, which it has not, and the predictor of overlap"},
	{"overlap", "overlap", mergedBatch, fit.RecipeOurs, sim.KnowsAll, "ours: operators of several services at a time, with merging and dropping as under edf"},
}

// sequentials are the variants that the paper compares Abacus with.
var sequentials = []string{"fcfs-authors", "sjf-authors", "edf-authors"}

// rivals are the variants that merge as a variant of ours does.
var rivals = map[string][]string{
	"overlap-unmerged": {"edf-unmerged", "sjf-unmerged", "clockwork-unmerged"},
	"overlap":          {"edf", "sjf", "clockwork", "abacus"},
}

// own are the variants with rivals, in the order of the figures.
var own = []string{"overlap-unmerged", "overlap"}

// contenders are the variants without those that only stand beside the authors' runs.
func (r *reproduction) contenders() []variant {
	return slices.DeleteFunc(slices.Clone(r.variants), func(v variant) bool { return slices.Contains(sequentials, v.name) })
}

// VariantNames lists what Options.Policies may name.
func VariantNames() (names []string) {
	for _, v := range variants {
		names = append(names, v.name)
	}
	return names
}

// among returns the variants of these names, in the order of the figures.
func among(list []variant, names ...string) []variant {
	return slices.DeleteFunc(slices.Clone(list), func(v variant) bool { return !slices.Contains(names, v.name) })
}

// trial is one run.
type trial struct {
	stock    *stock
	deploy   *deployment
	variant  variant
	arrivals sim.Arrivals
	queries  int
	seed     uint64
	shares   []int // of a static split, percent, by model
	circumstances
}

// circumstances are what a trial has that is not as in the authors' runs.
type circumstances struct {
	variation float64 // of the distances between queries (their coefficient), 0 for Poisson
	targets   float64 // times what the largest query takes alone, 0 for those of the deployment
	devices   int     // in a pool, 0 for one device
	each      bool    // what is allowed to violate is so of each service, not of all queries
}

// arriving are arrivals of so many queries per second.
func (c *circumstances) arriving(qps float64) sim.Arrivals {
	if c.variation == 0 {
		return poisson(qps)
	}
	return sim.Arrivals{Process: sim.Gamma, QPS: qps, Shape: 1 / (c.variation * c.variation)}
}

// bad is the part of the queries that violate, of the service of which most do where each
// counts by itself.
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

// poisson are arrivals of so many queries per second.
func poisson(qps float64) sim.Arrivals { return sim.Arrivals{Process: sim.Poisson, QPS: qps} }

// scenario is the trial as the simulator takes it. Groups are chosen while
// others run; to choose, send and await them takes no time beside what the
// authors measured of groups.
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

// largest is the largest measured batch of a model, 1 if the device does not
// know it.
func largest(d sim.Device, model string) int {
	for _, m := range d.Models() {
		if m.Name == model && len(m.Sizes) > 0 {
			return slices.Max(m.Sizes)
		}
	}
	return 1
}

// run serves the queries of a trial.
func (l *lane) run(t *trial) (*sim.Result, error) {
	d, err := l.device(t.stock)
	if err != nil {
		return nil, err
	}
	return sim.Run(t.scenario(d))
}

// solo is what a whole model takes alone on a device, 0 if that does not know
// it.
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

// meanSolo is what a query of a deployment takes alone in the mean.
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

// secondsOf is about what a run of so many queries takes one core. All work is exact in
// binary, so that it adds up to the whole.
func secondsOf(queries int) float64 { return float64(queries) / 8192 }

// served is a deployment under a variant, with one seed after the other.
type served struct {
	deploy  *deployment
	variant string
	results []*sim.Result
}

// serve adds runs of every deployment under each of some variants, each with so many
// seeds, and with what all of them have in common.
func (r *reproduction) serve(stage string, seeds int, variants []variant, common trial, deploys []deployment) (list []*served) {
	for i := range deploys {
		for _, v := range variants {
			s := &served{&deploys[i], v.name, make([]*sim.Result, seeds)}
			list = append(list, s)
			for k := range s.results {
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

func violations(r *sim.Result) float64 { return r.Violations }
func tail(r *sim.Result) float64       { return r.P99OverTarget }
func throughput(r *sim.Result) float64 { return r.ThroughputQPS }
func goodput(r *sim.Result) float64    { return r.GoodputQPS }

// answeredOf1000 is what the authors call throughput: queries answered, late
// ones too, of 1,000.
func answeredOf1000(r *sim.Result) float64 {
	return authorsQueries * float64(r.Answered) / float64(max(r.Queries, 1))
}
