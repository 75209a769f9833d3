package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"

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
func clusterVariants(list []variant) []variant {
	return slices.DeleteFunc(slices.Clone(list), func(v variant) bool {
		return !slices.Contains([]string{"fcfs-dropping", "clockwork", "abacus", "overlap-unmerged", "overlap"}, v.name)
	})
}

// clusterWays are how the queries of a variant may be spread. Clockwork's may
// wait together too, for the device that is free first.
func clusterWays(v *variant) []string {
	if v.policy == "clockwork" {
		return []string{sim.LeastLoaded, sim.Central}
	}
	return []string{sim.LeastLoaded}
}

type clusterRun struct {
	variant variant
	scaled  bool
	times   int // the load of the trace
	result  *sim.Result
}

// planCluster plans figure 22.
func planCluster(p *plan, o *Options, s *stock, list []variant, minutes []float64) func() []*figure {
	sizes := sizesBeyondPairs(s.measured)
	deploy := &beyondPairs(sizes)[len(quadModels)]
	// The device is not fitted yet: how often the load fits is told when it is.
	var runs []*clusterRun
	for _, scaled := range []bool{false, true} {
		for _, v := range clusterVariants(list) {
			r := &clusterRun{variant: v, scaled: scaled}
			runs = append(runs, r)
			queries := stats.Mean(minutes) * float64(len(minutes)) / replayed
			if scaled {
				queries *= crowded * typicalScale
			}
			p.add("figure 22", v.seconds(int(queries)), func(_ context.Context, l *lane) (err error) {
				r.times = 1
				if scaled {
					d, err := l.device(s)
					if err != nil {
						return err
					}
					capacity := clusterDevices / meanSolo(d, deploy).Seconds()
					r.times = max(int(math.Ceil(crowded*capacity/(stats.Mean(minutes)/60))), 1)
				}
				for _, way := range clusterWays(&v) {
					got, err := l.run(&trial{stock: s, deploy: deploy, variant: v, seed: o.Seed, devices: clusterDevices, dispatch: way,
						arrivals: sim.Arrivals{Process: sim.Loads, Loads: minutes, Scale: replayed, Keep: min(float64(r.times)/replayed, 1)}})
					if err != nil {
						return err
					}
					if r.result == nil || got.GoodputQPS > r.result.GoodputQPS {
						r.result = got
					}
				}
				return nil
			})
		}
	}
	return func() []*figure { return clusterFigures(runs, minutes, sizes) }
}

// typicalScale is how many times the trace is usually scaled, for the
// progress.
const typicalScale = 6

// clusterFigures are figure 22, one for each unit.
func clusterFigures(runs []*clusterRun, minutes []float64, sizes map[string][]int) []*figure {
	notes := []string{
		fmt.Sprintf("The four models of figure 18 share each device, with a target of %v. %s The paper's devices were V100s. %d minutes, of each of which two seconds are replayed. As given, the loads are %.0f queries per second for all devices; \"scaled\" multiplies them by %d, so that they ask for more than the devices do one query after another.",
			manyTarget, unusualSizes(sizes), len(minutes), stats.Mean(minutes)/60, scaleOf(runs)),
		"A query goes to the device with the fewest queries. Clockwork's are also tried waiting together, a device that runs nothing getting the earliest deadline; what gives the better goodput is shown.",
	}
	type value struct {
		name string
		of   func(*sim.Result) float64
	}
	filled := func(f *figure, values ...value) *figure {
		for _, v := range values {
			for _, r := range runs {
				f.Rows = append(f.Rows, row{Case: v.name + r.load(), Policy: r.variant.name, Ours: rounded(v.of(r.result))})
			}
		}
		return f
	}
	served := filled(&figure{Figure: "22", Title: "a cluster of 16 devices under the trace of section 7.6", Unit: "queries per second", decimals: 1, more: true, Notes: notes},
		value{"throughput, ", throughput}, value{"goodput, ", goodput})
	served.compare("throughput, "+clusterLoads[1], 0, overlapping, []string{"clockwork"}, paperCluster)
	served.compare("goodput, "+clusterLoads[1], 0, overlapping, []string{"clockwork"}, statement{})
	return []*figure{
		served,
		filled(&figure{Figure: "22, violations", Title: "the cluster: violations, drops counted", Unit: "violations", decimals: 4, percent: true}, value{"", violations}),
		filled(&figure{Figure: "22, latency", Title: "the cluster: latency of answered queries", Unit: "ms", decimals: 1, level: float64(manyTarget.Milliseconds())},
			value{"99th percentile, ", func(r *sim.Result) float64 { return r.LatencyMS.P99 }},
			value{"mean, ", func(r *sim.Result) float64 { return r.LatencyMS.Mean }}),
	}
}

// clusterLoads name the loads of the trace.
var clusterLoads = [2]string{"as given", "scaled"}

func (r *clusterRun) load() string {
	if r.scaled {
		return clusterLoads[1]
	}
	return clusterLoads[0]
}

func scaleOf(runs []*clusterRun) int {
	times := 1
	for _, r := range runs {
		times = max(times, r.times)
	}
	return times
}
