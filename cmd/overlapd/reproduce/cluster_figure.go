package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
)

// The cluster of section 7.6.
const (
	clusterDevices = 16

	// replayed is the part of each minute of the trace that is replayed: two
	// seconds, one after the other.
	replayed = 30.0

	// crowded is how many times what the devices do one query after another
	// the scaled trace asks for.
	crowded = 1.2
)

// clusterVariants are those of figure 22, where they were chosen.
var clusterVariants = []string{"edf-unmerged", "clockwork-unmerged", "abacus-authors", "overlap-unmerged", "edf", "clockwork", "abacus", "overlap"}

// clusterWays are how the queries of a variant may be spread.
var clusterWays = []string{sim.LeastLoaded, sim.Pool}

// clusterLoads name the loads of the trace.
var clusterLoads = []string{"as given", "scaled"}

// clusterRun is what a variant made of a load of the trace, so many times as high as
// the trace has it.
type clusterRun struct {
	variant variant
	load    string
	times   int
	result  *sim.Result
}

// planCluster plans figure 22.
func planCluster(r *reproduction) func() []*figure {
	s, minutes := r.quad(), r.data.minutes
	if s == nil {
		return nil
	}
	if minutes == nil {
		return r.missing("22", "a cluster of 16 devices", "there is no "+loadsFile)
	}
	deploy := s.quadruplet()
	var runs []*clusterRun
	for _, load := range clusterLoads {
		for _, v := range among(r.variants, clusterVariants...) {
			run := &clusterRun{variant: v, load: load, times: 1}
			runs = append(runs, run)
			queries := stats.Mean(minutes) * float64(len(minutes)) / replayed // times some, where they are scaled
			r.plan.add("figure 22", secondsOf(int(queries)), func(_ context.Context, l *lane) error {
				return run.serve(l, trial{stock: s, deploy: deploy, variant: v, seed: r.options.Seed}, minutes)
			})
		}
	}
	return func() []*figure { return clusterFigures(runs, minutes, s.sizes()) }
}

// serve serves the trace in the way that has the fewest violations, and of those that
// have as few the shortest tail.
func (r *clusterRun) serve(l *lane, t trial, minutes []float64) error {
	d, err := l.device(t.stock)
	if err != nil {
		return err
	}
	if r.load == "scaled" {
		capacity := clusterDevices / meanSolo(d, t.deploy).Seconds()
		r.times = max(int(math.Ceil(crowded*capacity/(stats.Mean(minutes)/60))), 1)
	}
	sc := t.scenario(d)
	sc.Devices = clusterDevices
	sc.Arrivals = sim.Arrivals{Process: sim.Loads, Loads: minutes, Scale: replayed, Keep: min(float64(r.times)/replayed, 1)}
	for _, sc.Dispatch = range clusterWays {
		got, err := sim.Run(sc)
		if err != nil {
			return err
		}
		if r.result == nil || cmp.Or(cmp.Compare(got.Violations, r.result.Violations), cmp.Compare(got.LatencyMS.P99, r.result.LatencyMS.P99)) < 0 {
			r.result = got
		}
	}
	return nil
}

// clusterFigures are figure 22, one for each unit.
func clusterFigures(runs []*clusterRun, minutes []float64, sizes map[string][]int) []*figure {
	scale := 1
	for _, r := range runs {
		scale = max(scale, r.times)
	}
	notes := []string{
		fmt.Sprintf("The four models of figure 18 share each device, with a target of %v. %s The paper's devices were V100s. %d minutes, of each of which two seconds are replayed. As given, the loads are %.0f queries per second for all devices; \"scaled\" multiplies them by %d, so that they ask for more than the devices do one query after another.",
			manyTarget, unusualSizes(sizes), len(minutes), stats.Mean(minutes)/60, scale),
		"A query goes to the device with the fewest queries, or all wait together and one scheduler decides for all devices; of each policy that is shown which has fewer violations or, with as many, the shorter tail.",
	}
	filled := func(f *figure, name string, value func(*sim.Result) float64) *figure {
		for _, r := range runs {
			f.Rows = append(f.Rows, row{Case: name + r.load, Policy: r.variant.name, Ours: rounded(value(r.result))})
		}
		return f
	}
	served := &figure{Figure: "22", Title: "a cluster of 16 devices under the trace of section 7.6", Unit: "queries per second", decimals: 1, more: true, Notes: notes}
	filled(served, "throughput, ", throughput)
	filled(served, "goodput, ", goodput)
	clockwork := []string{"clockwork-unmerged", "clockwork"}
	served.compare("throughput, scaled", 0, overlapping, clockwork, statement{"7.6", map[string]float64{"clockwork-unmerged": 17.8}})
	served.compare("goodput, scaled", 0, overlapping, clockwork, statement{})
	missed := &figure{Figure: "22, violations", Title: "the cluster: violations, drops counted", Unit: "violations", decimals: 4, percent: true}
	took := &figure{Figure: "22, latency", Title: "the cluster: latency of answered queries", Unit: "ms", decimals: 1, level: float64(manyTarget.Milliseconds())}
	filled(took, "99th percentile, ", func(r *sim.Result) float64 { return r.LatencyMS.P99 })
	return []*figure{served, filled(missed, "", violations), filled(took, "mean, ", func(r *sim.Result) float64 { return r.LatencyMS.Mean })}
}
