package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training/fit"
)

// instances are the parts of an A100 that two services share: 3 and 4 of its 7 parts. Everything is
// assumed to take 7/3 and 7/4 times as long there. That was not measured, and cannot be derived
// from the whole device (see figureMIG).
var instances = []float64{7.0 / 3, 7.0 / 4}

// The parameters of the figure of shared devices.
const (
	// sharedSize is the batch size of a query, and sharedBatch the largest batch.
	sharedSize   = 4
	sharedBatch  = 16
	sharedSeqLen = 32

	// sharedTarget is the target, as a multiple of the time of two queries of the slower model in
	// one batch on the faster instance.
	sharedTarget = 5
	sharedMove   = 50 * time.Microsecond

	// sharedSteps is the number of steps of the search for a goodput.
	sharedSteps = 9
	mostShared  = 4000.0

	// sharedRun is the number of queries of a run.
	sharedRun = 4000
)

// sharing are the ways to serve two services on both instances.
var sharing = []contender{
	{name: "edf, pipelines", policy: "edf", summary: "PPipe's own rule: a device runs one batch at a time"},
	{name: "overlap, pipelines", policy: "overlap", summary: "ours with the same pipelines"},
	{name: "overlap, whole", policy: "overlap", summary: "ours without pipelines", alone: true},
}

// planShared plans a figure in which two services run pipelines from the slow instance of an A100
// to the fast one. Both use the same two devices, which PPipe's plans do not allow.
func planShared(r *reproduction) func() []*figure {
	if r.data == nil {
		return r.missing("shared", "two services on the same two devices", "the folder with data has no "+pairsFolder+"")
	}
	s := r.pairs()
	var all []cell
	for _, d := range s.pairs(fullLoad) {
		c := cell{name: d.label(), runs: map[string][]rateRun{}}
		for _, way := range sharing {
			runs := make([]rateRun, r.options.Seeds)
			c.policies, c.runs[way.name] = append(c.policies, way.name), runs
			for k := range runs {
				r.plan.add("shared", 1, func(ctx context.Context, l *lane) error {
					on, err := l.device(s)
					if err != nil {
						return err
					}
					sc := shared(on, d.models, way)
					sc.Predictor, sc.Seed = s.files[fit.RecipeOurs], r.options.Seed+uint64(k)
					runs[k].found, err = highestShared(ctx, sc)
					return err
				})
			}
		}
		all = append(all, c)
	}
	return func() []*figure {
		f := &figure{Figure: "shared", Title: "two services on the same 3g and 4g instance of an A100, made by scaling", Unit: "queries per second, 1 % violations at most", more: true, words: true, Notes: []string{
			"Instances were not measured: all that the whole device does is taken to last 7/3 and 7/4 times as long.",
		}}
		for i := range all {
			all[i].fill(f, foundRate, nil)
		}
		f.addMeans(caseMean, geometricMean)
		return []*figure{f}
	}
}

// shared returns the scenario of services with one target, whose rates are inversely proportional
// to their latencies. The slow instance runs the part of the operators that it is of the GPU.
func shared(on sim.Device, names []string, way contender) sim.Scenario {
	sc := sim.Scenario{Device: on, Devices: len(instances), Dispatch: sim.Pool, Slow: instances, Links: []int{0, 1}, Policy: way.policy, Plan: true, Queries: sharedRun}
	longest := time.Duration(0)
	for _, m := range on.Models() {
		if !slices.Contains(names, m.Name) {
			continue
		}
		// Shares and targets follow from the time of two queries in one batch.
		took := solo(on, m.Name, 2*sharedSize, sharedSeqLen)
		longest = max(longest, took)
		s := sim.Service{Name: m.Name, MaxBatch: min(sharedBatch, largest(on, m.Name)), Sizes: []int{sharedSize}, Share: 1 / took.Seconds(), QueueLimit: queueRoom}
		if m.Name == sequenceModel {
			s.SeqLens = []int{sharedSeqLen}
		}
		if !way.alone {
			// Both stages then take about the same time.
			cut := int(math.Round(float64(m.Operators) / instances[0]))
			s.Pipelines = []models.Pipeline{{Batch: s.MaxBatch, Stages: []models.Stage{{End: cut, Devices: []int{0}, Move: sharedMove}, {End: m.Operators, Devices: []int{1}}}}}
		}
		sc.Services = append(sc.Services, s)
	}
	for i := range sc.Services {
		sc.Services[i].Target = time.Duration(sharedTarget * instances[1] * float64(longest))
	}
	return sc
}

// highestShared returns the highest rate at which no service violates more than goodputBad of its
// targets.
func highestShared(ctx context.Context, sc sim.Scenario) (found float64, err error) {
	low, high := 0.0, mostShared
	for range sharedSteps {
		mid := (low + high) / 2
		sc.Arrivals = poisson(mid)
		run, err := sim.Run(sc)
		if err != nil || ctx.Err() != nil {
			return 0, fmt.Errorf("%s and %s at %.0f per second: %w", sc.Services[0].Name, sc.Services[1].Name, mid, err)
		}
		if (&rateRun{Result: run}).keeps() {
			low = mid
		} else {
			high = mid
		}
	}
	return low, nil
}
