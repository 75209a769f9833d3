package reproduce

import (
	"context"
	"slices"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
)

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
