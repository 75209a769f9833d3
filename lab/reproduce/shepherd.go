package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/baselines"
	"github.com/overlapd/overlapd/lab/sim"
)

// Shepherd reproduces the figures of the Shepherd paper, as [Run] does those of Abacus.
func Shepherd(ctx context.Context, o Options) (*Result, error) { return shepherd.run(ctx, o) }

// ShepherdFigures returns the values of Options.Figures for Shepherd.
func ShepherdFigures() []string { return namesOf(shepherd.figures) }

// shepherd has one device, whose name its table leaves empty.
var shepherd = linearPaper{"Shepherd", "shepherd_profiles.csv", []string{""}, "", []shown{
	{"7", planWild("7", "load", "The paper: at 144,000 requests per second shepherd has 4.6 (bursty 5.2) times the goodput of clockwork and 7.1 (18.1) times that of nexus.",
		[]float64{3e3, 6e3, 12e3, 36e3, 144e3}, []time.Duration{wildTarget})},
	{"9", planWild("9", "target", "The paper: with tight targets shepherd has up to 38 times the goodput of nexus and 1.3 times that of clockwork.",
		[]float64{3e3}, []time.Duration{25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, wildTarget, 2 * wildTarget})},
	{"11", planBursts},
}}

// The streams of section 7.2. A sends many queries at a time to a fast model, and B one query each
// millisecond to a slow model. The largest batch is the paper's default.
const (
	burstModel  = "ResNet18 (RN18)"
	steadyModel = "ResNeSt269 (RS269)"
	burstSize   = 1024
	burstEvery  = 120 * time.Millisecond
	burstFirst  = 5 * time.Millisecond
	burstBatch  = 128
)

// bursts returns the queries of both streams, with about the given number of queries in the first.
func bursts(queries int) (list []sim.Query) {
	next, rounds := burstFirst, max(queries/burstSize, 1)
	for at := time.Duration(0); at < time.Duration(rounds)*burstEvery; at += time.Millisecond {
		if at == next {
			for range burstSize {
				list = append(list, sim.Query{At: at, Size: 1})
			}
			next += burstEvery
		}
		list = append(list, sim.Query{At: at, Service: 1, Size: 1})
	}
	return list
}

// planBursts plans the left part of figure 11 (section 7.2).
func planBursts(r *reproduction) func() []*figure {
	cases := []struct {
		// target is the target of both streams.
		target time.Duration

		// clockwork and without are the gains in goodput over clockwork and over no preemption that
		// the paper states.
		clockwork, without float64
	}{{250 * time.Millisecond, 3.7, 1}, {90 * time.Millisecond, 6.2, 6.2}}
	names := []string{"shepherd", "no-preemption", "clockwork", "flex-resume", "eager", "deferred", "overlap"}
	type goodput struct {
		sim.Result

		// first is the number of queries of the first burst that are in time.
		first float64
	}
	all := map[string]*goodput{}
	for _, c := range cases {
		for _, name := range names {
			at := new(goodput)
			all[c.target.String()+name] = at
			r.plan.add("figure 11", 1, func(context.Context, *lane) error {
				g, err := newGPU(r.gpus[""].profile, nil)
				if err != nil {
					return err
				}
				services := []sim.Service{g.service(burstModel, c.target), g.service(steadyModel, c.target)}
				for i := range services {
					services[i].MaxBatch = min(services[i].MaxBatch, burstBatch)
				}
				sc := sim.Scenario{Services: services, Given: bursts(longer * r.options.Queries), Seed: r.options.Seed, Policy: contenderNamed(name).policy, Scheduler: baselines.New, Device: g.model, Dispatch: sim.Pool}
				all, err := sim.Run(sc)
				if err != nil {
					return err
				}
				sc.Given = bursts(burstSize)
				one, err := sim.Run(sc)
				if err == nil {
					at.GoodputQPS, at.first = all.GoodputQPS, float64(one.Services[0].Answered-one.Services[0].Late)
				}
				return err
			})
		}
	}
	return func() []*figure {
		rates := &figure{Figure: "11", Title: "bursts and a steady stream on one device: goodput", Unit: "requests per second", more: true, words: true}
		times := &figure{Figure: "11, gain", Title: "bursts and a steady stream on one device: goodput of shepherd over others", Unit: "times", decimals: 2, more: true, words: true}
		for _, c := range cases {
			// of returns the goodput of a policy with this target.
			of := func(name string) float64 { return all[c.target.String()+name].GoodputQPS }
			name := fmt.Sprintf("target %v", c.target)
			for _, policy := range names {
				rates.Rows = append(rates.Rows, seedsRow(name, policy, []float64{of(policy)}, 0))
			}
			for _, other := range []string{"clockwork", "no-preemption"} {
				says := map[string]float64{"clockwork": c.clockwork, "no-preemption": c.without}[other]
				first := func(name string) float64 { return all[c.target.String()+name].first }
				times.Rows = append(times.Rows, seedsRow(name, "over "+other, []float64{of("shepherd") / of(other)}, says))
				// A burst then ends before the next one.
				if c.target < burstEvery {
					times.Rows = append(times.Rows, seedsRow(name+", first burst", "over "+other, []float64{first("shepherd") / first(other)}, says))
				}
			}
		}
		rates.Notes = append(rates.Notes, "With a target of 90 ms the first burst is as the paper describes it, and preemption gains what the paper says. Without preemption later bursts fare better: the device is idle when the first is over, and the batch of the steady stream that starts then leaves twice as much time for the next burst.")
		return []*figure{rates, times}
	}
}

// The testbed of section 7.1, on which the load of a day passes in 6 seconds.
const (
	wildDevices = 12
	wildModels  = 13
	wildTarget  = 250 * time.Millisecond
	wildHour    = 250 * time.Millisecond
)

// wildNames are the contenders on the testbed.
var wildNames = []string{"shepherd", "clockwork", "nexus", "no-preemption", "deferred", "overlap"}

// wildLoads are the names of the two kinds of arrivals.
var wildLoads = map[bool]string{true: "stable", false: "bursty"}

// wild plans to serve the load of a day with a mean rate. The models are the thirteen that take the
// least time for one query, because the paper does not name its thirteen.
func wild(r *reproduction, name string, target time.Duration, rate float64, stable bool) cell {
	g := r.gpus[""]
	// Sort by isolated latency, and take the fastest.
	list := slices.Clone(g.model.Models())
	slices.SortStableFunc(list, func(a, b device.ModelInfo) int {
		return cmp.Compare(solo(g.model, a.Name, 1, 0), solo(g.model, b.Name, 1, 0))
	})
	var services []sim.Service
	for _, info := range list[:min(wildModels, len(list))] {
		services = append(services, g.service(info.Name, target))
	}
	work := secondsOf(int(rate*dayHours*wildHour.Seconds())) / 32
	return compete(r, "the wild", name, newWorkload(r, g, wildDevices, services...), wildNames, work, func(_ context.Context, w *workload, c contender) (rateRun, error) {
		return w.serve(c, r.day.arrivals(len(w.services), rate, wildHour, stable, w.seed), 1)
	})
}

// planWild returns a planner for figure 7, by load, or 9, by target: goodput and use of the
// devices.
func planWild(number, by, says string, rates []float64, targets []time.Duration) planner {
	return func(r *reproduction) func() []*figure {
		title := "the load of a day on 12 devices by " + by
		if len(r.day.clients) == 0 {
			return missingDay(r, number, title)
		}
		var all []cell
		for _, stable := range []bool{true, false} {
			for _, rate := range rates {
				for _, target := range targets {
					all = append(all, wild(r, fmt.Sprintf("%s, %.0f offered, %v", wildLoads[stable], rate, target), target, rate, stable))
				}
			}
		}
		return func() []*figure {
			good := &figure{Figure: number, Title: title + ": goodput", Unit: "requests per second", more: true, words: true}
			busy := &figure{Figure: number + ", use", Title: title + ": use of devices", Unit: "share of time", percent: true, decimals: 3, words: true}
			for _, c := range all {
				c.fill(good, timely, nil)
				c.fill(busy, useOf, nil)
			}
			good.Notes = append(good.Notes, says, fmt.Sprintf("The load of %d real clients (ServeGen) instead of the paper's (Azure Functions), which ask %d models of table 4 in turn; an hour takes %v. Stable arrivals are Poisson in each hour, bursty ones vary as the clients' do. nexus is planned once, for the whole day.", len(r.day.clients), wildModels, wildHour))
			return []*figure{good, busy}
		}
	}
}
