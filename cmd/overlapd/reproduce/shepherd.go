package reproduce

import (
	"context"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/sim"
)

// Shepherd reproduces the figures of the Shepherd paper, as Run those of Abacus.
func Shepherd(ctx context.Context, o Options) (*Result, error) { return shepherd.run(ctx, o) }

// ShepherdFigures lists what Options.Figures may name for Shepherd.
func ShepherdFigures() []string { return namesOf(shepherd.figures) }

var shepherd = linearPaper{"Shepherd", "shepherd_profiles.csv", []string{""}, []shown{
	{"11", planBursts},
}}

// The streams of section 7.2: A asks a fast model for many queries at once, B a slow one
// for one each millisecond. No batch is larger than the paper's default.
const (
	burstModel  = "ResNet18 (RN18)"
	steadyModel = "ResNeSt269 (RS269)"
	burstSize   = 1024
	burstEvery  = 120 * time.Millisecond
	burstFirst  = 5 * time.Millisecond
	burstBatch  = 128
)

// bursts returns the queries of both streams, about as many of the first as are wanted.
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

// planBursts is figure 11, left, of section 7.2.
func planBursts(r *reproduction) func() []*figure {
	p := r.zoos[""]
	cases := []struct {
		target             time.Duration
		clockwork, without float64 // how many times as much goodput preemption has, as the paper says
	}{{250 * time.Millisecond, 3.7, 1}, {90 * time.Millisecond, 6.2, 6.2}}
	names := []string{"shepherd", "no-preemption", "clockwork", "flex-resume", "eager", "deferred", "overlap"}
	type goodput struct {
		sim.Result
		first float64 // of the first burst
	}
	all := map[string]*goodput{}
	for _, c := range cases {
		for _, name := range names {
			at := new(goodput)
			all[c.target.String()+name] = at
			r.plan.add("figure 11", 1, func(context.Context, *lane) error {
				m, err := device.NewModel(p)
				if err != nil {
					return err
				}
				services := []sim.Service{service(m, burstModel, c.target), service(m, steadyModel, c.target)}
				for i := range services {
					services[i].MaxBatch = min(services[i].MaxBatch, burstBatch)
				}
				sc := sim.Scenario{Services: services, Given: bursts(r.options.Queries), Seed: r.options.Seed, Policy: contenderNamed(name).policy, Device: m, Dispatch: sim.Pool}
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
		rates := &figure{Figure: "11", Title: "bursts beside a steady stream on one device: goodput", Unit: "requests per second", more: true, words: true}
		times := &figure{Figure: "11, gain", Title: "bursts beside a steady stream on one device: goodput of shepherd over others", Unit: "times", decimals: 2, more: true, words: true}
		for _, c := range cases {
			of := func(name string) float64 { return all[c.target.String()+name].GoodputQPS }
			name := fmt.Sprintf("target %v", c.target)
			for _, policy := range names {
				rates.Rows = append(rates.Rows, pooledRow(name, policy, of(policy), 0))
			}
			for _, other := range []string{"clockwork", "no-preemption"} {
				says := map[string]float64{"clockwork": c.clockwork, "no-preemption": c.without}[other]
				first := func(name string) float64 { return all[c.target.String()+name].first }
				times.Rows = append(times.Rows, pooledRow(name, "over "+other, of("shepherd")/of(other), says))
				if c.target < burstEvery { // and so a burst is over before the next
					times.Rows = append(times.Rows, pooledRow(name+", first burst", "over "+other, first("shepherd")/first(other), says))
				}
			}
		}
		rates.Notes = append(rates.Notes, "With a target of 90 ms the first burst is as the paper describes it, and preemption gains what the paper says. Without preemption later bursts fare better: the device is idle when the first is over, and the batch of the steady stream that starts then leaves twice as much time for the next burst.")
		return []*figure{rates, times}
	}
}
