package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
)

// The cluster of section 7.6 (Abacus).
const (
	clusterDevices = 16

	// replayed is the factor by which each minute of the trace is shortened: to two seconds,
	// replayed back to back.
	replayed = 30.0

	// crowded is the load of the scaled trace, as a multiple of what the devices sustain one query
	// after another.
	crowded = 1.2
)

// clusterVariants are the variants of figure 22, unless options exclude them.
var clusterVariants = []string{"edf-unmerged", "clockwork-unmerged", "abacus-authors", "overlap-unmerged", "edf", "clockwork", "abacus", "overlap"}

// clusterWays are the ways to distribute the queries of a variant.
var clusterWays = []string{sim.LeastLoaded, sim.Pool}

// clusterLoads are the names of the trace's loads.
var clusterLoads = []string{"as given", "scaled"}

// clusterRun is the result of a variant at a load of the trace. times is the factor by which the
// load exceeds that of the trace.
type clusterRun struct {
	variant variant
	load    string
	times   int
	result  *sim.Result
}

// planCluster plans figure 22: a cluster of 16 devices under a trace.
func planCluster(r *reproduction) func() []*figure {
	s, minutes := r.quad(), r.data.minutes
	if s == nil {
		return nil
	}
	if minutes == nil {
		return r.missing("22", "a cluster of 16 devices", "the folder with data has no "+loadsFile)
	}
	// Each variant runs each load once, with both ways to distribute queries.
	deploy := s.quadruplet()
	var runs []*clusterRun
	for _, load := range clusterLoads {
		for _, v := range among(r.variants, clusterVariants...) {
			run := &clusterRun{variant: v, load: load, times: 1}
			runs = append(runs, run)
			// A scaled trace has several times as many queries, which is not known yet.
			queries := stats.Mean(minutes) * float64(len(minutes)) / replayed
			r.plan.add("figure 22", secondsOf(int(queries)), func(_ context.Context, l *lane) error {
				return run.serve(l, trial{stock: s, deploy: deploy, variant: v, seed: r.options.Seed}, minutes)
			})
		}
	}
	return func() []*figure { return clusterFigures(runs, minutes, s.sizes()) }
}

// serve runs the trace in each way of distributing queries, and keeps the one with the fewest
// violations. Among equals it keeps the one with the shortest tail.
func (r *clusterRun) serve(l *lane, t trial, minutes []float64) error {
	d, err := l.device(t.stock)
	if err != nil {
		return err
	}
	// The capacity is that of running queries one after another, without batching.
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

// clusterFigures returns figure 22, as one figure for each unit.
func clusterFigures(runs []*clusterRun, minutes []float64, sizes map[string][]int) []*figure {
	// All scaled runs have the same factor, since the device is the same.
	scale := 1
	for _, r := range runs {
		scale = max(scale, r.times)
	}
	notes := []string{
		fmt.Sprintf("The four models of figure 18 share each device, with a target of %v. %s The paper's devices were V100s. %d minutes, of which two seconds each are replayed. As given, the load is %.0f queries per second for all devices; \"scaled\" multiplies it by %d, to more than the devices sustain one query after another.",
			manyTarget, unusualSizes(sizes), len(minutes), stats.Mean(minutes)/60, scale),
		"Queries either go to the device with the fewest queries, or share one queue whose scheduler decides for all devices. For each policy the figure shows the way with fewer violations or, if equal, the shorter tail.",
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

// podsCase is a load of pods behind balancers, some of them slow.
type podsCase struct {
	// name is the name of the load in the figure.
	name string

	// pods run in parallel, each with a queue of its own unless the dispatch is central. Queries
	// are spread over the balancers.
	pods, balancers int

	// slow is the number of pods that run at half the speed, and age the age that load reports
	// reach.
	slow     int
	age      time.Duration
	arrivals sim.Arrivals

	// queries is the number of queries, 0 for all those of the arrivals.
	queries int

	// variant is the policy of the pods, and dispatches are the ways to distribute queries.
	variant    string
	dispatches []string

	// clockwork adds clockwork for comparison. rates shows goodput instead of violations.
	clockwork, rates bool
}

// The loads of the page about clusters. Rates are for each pod. Slow pods take podsSlowed times as
// long.
const (
	podsQPS     = 120.0
	podsSeconds = 20
	podsMany    = 1000
	podsManyQPS = 100.0
	podsSlowed  = 2.0
)

// podsAges are the ages that load reports reach. With the longest, no report arrives within a run.
var podsAges = []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, time.Hour}

// podsCases returns the loads of the figures of pods.
func podsCases(minutes []float64) (list []podsCase) {
	even := func(slow int) string {
		if slow == 0 {
			return "even pods"
		}
		return fmt.Sprintf("%d half as fast", slow)
	}
	// Sixteen pods, all equal or a quarter of them slow. Only the ways that use reports depend on
	// their age.
	for _, slow := range []int{0, clusterDevices / 4} {
		c := podsCase{name: even(slow), pods: clusterDevices, balancers: 1, slow: slow, age: time.Second, variant: "overlap",
			arrivals: poisson(podsQPS * clusterDevices), queries: podsQPS * clusterDevices * podsSeconds}
		c.dispatches = []string{sim.Pool, sim.RoundRobin, sim.LeastLoaded}
		list = append(list, c)
		for _, age := range podsAges {
			c.age, c.dispatches = age, []string{sim.ORCA, sim.ORCATwo}
			list = append(list, c)
		}
	}
	// A thousand pods behind ten balancers, each of which sees a tenth of the queries.
	for _, slow := range []int{0, podsMany / 8} {
		list = append(list, podsCase{name: fmt.Sprintf("%d pods, %s", podsMany, even(slow)), pods: podsMany, balancers: 10, slow: slow, age: time.Second, variant: "overlap",
			arrivals: poisson(podsManyQPS * podsMany), queries: 4 * podsManyQPS * podsMany, dispatches: []string{sim.Pool, sim.ORCA, sim.ORCATwo, sim.RoundRobin}})
	}
	// The trace of figure 22 at several times its load.
	all := []string{sim.Pool, sim.ORCA, sim.ORCATwo, sim.LeastLoaded, sim.RoundRobin}
	for _, c := range []struct {
		name    string
		times   float64
		variant string
	}{{"unmerged, 9 times", 9, "overlap-unmerged"}, {"unmerged, 15 times", 15, "overlap-unmerged"}, {"merged, 30 times", 30, "overlap"}} {
		scale := max(240, 16*c.times)
		list = append(list, podsCase{name: c.name, pods: clusterDevices, balancers: 1, age: time.Second, variant: c.variant, dispatches: all, clockwork: true, rates: true,
			arrivals: sim.Arrivals{Process: sim.Loads, Loads: minutes, Scale: scale, Keep: c.times / scale}})
	}
	return list
}

// planPods plans the figures of pods behind balancers.
func planPods(r *reproduction) func() []*figure {
	s := r.quad()
	if s == nil {
		return nil
	}
	missed := &figure{Figure: "pods", Title: "pods behind balancers that use load reports", Unit: "violations", decimals: 4, percent: true}
	good := &figure{Figure: "pods, trace", Title: "16 pods under the trace of section 7.6", Unit: "queries per second in time", decimals: 0, more: true}
	var fill []func()
	deploy := s.quadruplet()
	for _, c := range podsCases(r.data.minutes) {
		// Options scale the length of runs from the authors' number of queries.
		c.queries = c.queries * r.options.Queries / authorsQueries
		if c.rates && r.data.minutes == nil {
			r.missing("pods, trace", "the trace of section 7.6", "the folder with data has no "+loadsFile)
			continue
		}
		// serve plans one run and, later, its row in a figure.
		serve := func(f *figure, line, column, variant, dispatch string) {
			result := new(sim.Result)
			r.plan.add("pods", secondsOf(max(c.queries, 40_000)), func(_ context.Context, l *lane) error {
				d, err := l.device(s)
				if err != nil {
					return err
				}
				t := trial{stock: s, deploy: deploy, variant: among(variants, variant)[0], arrivals: c.arrivals, queries: c.queries, seed: r.options.Seed}
				sc := t.scenario(d)
				sc.Devices, sc.Dispatch, sc.Balancers, sc.ReportAge = c.pods, dispatch, c.balancers, c.age
				for i := range c.pods {
					sc.Slow = append(sc.Slow, 1)
					if i < c.slow {
						sc.Slow[i] = podsSlowed
					}
				}
				got, err := sim.Run(sc)
				if err == nil {
					*result = *got
				}
				return err
			})
			fill = append(fill, func() {
				v := result.Violations
				if c.rates {
					v = result.GoodputQPS
				}
				f.Rows = append(f.Rows, row{Case: line, Policy: column, Ours: rounded(v)})
			})
		}
		for _, dispatch := range c.dispatches {
			// The page has another name for the pool.
			name := map[string]string{sim.Pool: "central dispatch"}[dispatch]
			name = cmp.Or(name, dispatch)
			switch reports := dispatch == sim.ORCA || dispatch == sim.ORCATwo; {
			case c.rates:
				serve(good, c.name, "overlap, "+name, c.variant, dispatch)
				continue
			case reports && c.age > time.Minute:
				name += ", never reported"
			case reports:
				name += fmt.Sprintf(", reports up to %v old", c.age)
			}
			serve(missed, name, c.name, c.variant, dispatch)
		}
		if c.clockwork {
			serve(good, c.name, "clockwork, central dispatch", strings.Replace(c.variant, "overlap", "clockwork", 1), sim.Pool)
		}
	}
	return func() []*figure {
		for _, f := range fill {
			f()
		}
		missed.Notes = []string{fmt.Sprintf("The four services of section 7.4 on each of %d pods, %g queries per second a pod for %d s and one balancer; %d pods have %g for 4 s and ten balancers. Central dispatch is one scheduler for all.", clusterDevices, podsQPS, podsSeconds, podsMany, podsManyQPS)}
		if len(good.Rows) == 0 {
			return []*figure{missed}
		}
		return []*figure{missed, good}
	}
}
