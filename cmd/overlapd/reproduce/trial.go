package reproduce

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
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

// Recipes of the predictors.
const (
	recipeOurs  = "overlapd"
	recipePaper = "paper"
)

// The variants, in the order of the figures.
var variants = []variant{
	{"fcfs", "fcfs", 1, recipeOurs, sim.KnowsNothing, "first come, first served; a query is dropped only once it is late, as the authors' server does (section 7.1)"},
	{"sjf", "sjf", 1, recipeOurs, sim.KnowsOrder, "shortest job first, by predicted latency; a query is dropped only once it is late. The authors explain by the time that predictions take why theirs is worst (section 7.2); here they take none"},
	{"edf", "edf", 1, recipeOurs, sim.KnowsNothing, "earliest deadline first; a query is dropped only once it is late"},
	{"fcfs-dropping", "fcfs", 1, recipeOurs, sim.KnowsAll, "first come, first served, as the daemon does it: what cannot be in time is dropped"},
	{"sjf-dropping", "sjf", 1, recipeOurs, sim.KnowsAll, "shortest job first, as the daemon does it: what cannot be in time is dropped"},
	{"edf-dropping", "edf", 1, recipeOurs, sim.KnowsAll, "earliest deadline first, as the daemon does it: what cannot be in time is dropped"},
	{"clockwork", "clockwork", 1, recipeOurs, sim.KnowsAll, "earliest deadline first; work that might be late is never started"},
	{"abacus", "abacus", 1, recipePaper, sim.KnowsAll, "the paper's algorithm, with a predictor of the paper's recipe"},
	{"overlap-unmerged", "overlap", 1, recipeOurs, sim.KnowsAll, "ours, each query a batch of its own"},
	{"overlap", "overlap", mergedBatch, recipeOurs, sim.KnowsAll, "ours, queries of one service merged up to the largest measured batch"},
}

// sequentials are the variants that the paper compares Abacus with.
var sequentials = []string{"fcfs", "sjf", "edf"}

// knowing are the other variants that run one model at a time.
var knowing = []string{"fcfs-dropping", "sjf-dropping", "edf-dropping", "clockwork"}

// VariantNames lists what Options.Policies may name.
func VariantNames() []string {
	names := make([]string, len(variants))
	for i, v := range variants {
		names[i] = v.name
	}
	return names
}

func variantNamed(name string) *variant {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return &variants[i]
}

// chosen returns the named variants in the order of the figures, all of them
// if none is named.
func chosen(names []string) ([]variant, error) {
	for _, n := range names {
		if variantNamed(n) == nil {
			return nil, fmt.Errorf("%w: unknown policy %q; there are %s", errOptions, n, strings.Join(VariantNames(), ", "))
		}
	}
	var list []variant
	for _, v := range variants {
		if len(names) == 0 || slices.Contains(names, v.name) {
			list = append(list, v)
		}
	}
	return list, nil
}

// lane does one job after another. Devices belong to a lane, since one serves
// one run at a time.
type lane struct {
	devices map[*stock]sim.Device
}

func newLane() *lane { return &lane{devices: map[*stock]sim.Device{}} }

// device returns the lane's own device of a stock.
func (l *lane) device(s *stock) (sim.Device, error) {
	if d := l.devices[s]; d != nil {
		return d, nil
	}
	d, err := device.NewModel(s.profile)
	if err != nil {
		return nil, err
	}
	l.devices[s] = d
	return d, nil
}

// trial is one run.
type trial struct {
	stock    *stock
	deploy   *deployment
	variant  variant
	arrivals sim.Arrivals
	queries  int
	devices  int
	dispatch string
	seed     uint64

	// twiceSolo makes the target of each service two times what its smallest
	// query takes alone, instead of the target of the deployment.
	twiceSolo bool
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
		Device: d, Predictor: t.stock.files[t.variant.recipe], Devices: t.devices, Dispatch: t.dispatch,
	}
	for i, m := range t.deploy.models {
		target := t.deploy.targets[i]
		if t.twiceSolo {
			target = 2 * solo(d, m, t.deploy.sizes[i][0], t.deploy.seqLens[0])
		}
		s := sim.Service{Name: m, Target: target, MaxBatch: min(t.variant.maxBatch, largest(d, m)), Sizes: t.deploy.sizes[i]}
		if m == sequenceModel {
			s.SeqLens = t.deploy.seqLens
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

// Queries that are served in a second or so of one core.
const (
	sequentialSpeed  = 30_000
	overlappingSpeed = 8_000
)

// seconds is about what a run takes.
func (v *variant) seconds(queries int) float64 {
	if v.policy == "abacus" || v.policy == "overlap" {
		return float64(queries) / overlappingSpeed
	}
	return float64(queries) / sequentialSpeed
}

// sample is the runs of a trial with one seed after the other.
type sample struct {
	results []*sim.Result
}

// sampled adds a run for each seed.
func (o *Options) sampled(p *plan, stage string, t trial) *sample {
	s := &sample{results: make([]*sim.Result, o.Seeds)}
	for i := range s.results {
		t.seed = o.Seed + uint64(i)
		one := t
		p.add(stage, one.variant.seconds(one.queries), func(_ context.Context, l *lane) (err error) {
			s.results[i], err = l.run(&one)
			return err
		})
	}
	return s
}

// of returns the mean of a value over the seeds, and its standard deviation.
func (s *sample) of(value func(*sim.Result) float64) (mid, spread *float64) {
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

// inTimeOf1000 is how many of 1,000 queries are answered in time.
func inTimeOf1000(r *sim.Result) float64 { return authorsQueries * (1 - r.Violations) }

// answeredOf1000 is what the authors call throughput: queries answered, late
// ones too, of 1,000.
func answeredOf1000(r *sim.Result) float64 {
	return authorsQueries * float64(r.Answered) / float64(max(r.Queries, 1))
}
