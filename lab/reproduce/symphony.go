package reproduce

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/lab/sim"
)

// Symphony reproduces the figures of the Symphony paper, as [Run] does those of Abacus.
func Symphony(ctx context.Context, o Options) (*Result, error) { return symphony.run(ctx, o) }

// SymphonyFigures returns the values of Options.Figures for Symphony.
func SymphonyFigures() []string { return namesOf(symphony.figures) }

// The devices of the paper.
const (
	gpuA100   = "A100"
	gpu1080Ti = "1080Ti"

	// gpuOwn has the models of table 2 and of other parts of the paper's text.
	gpuOwn = "table 2"
)

// zooGPUs are the devices of tables 3 and 4.
var zooGPUs = []string{gpu1080Ti, gpuA100}

// symphony describes the paper. Its own rows are those of table 2.
var symphony = linearPaper{"Symphony", "symphony_profiles.csv", zooGPUs, "ResNet50,1.053,5.072\nInceptionResNetV2,5.090,18.368\n", []shown{
	{"table 2", planTable2},
	{"9", planMixed},
	{"2", planOverload},
	{"7", planSynthetic},
	{"10", planFewest},
	{"11", planCharacter},
	{"13", planScale},
	{"15", planChanging},
}}

// table2 is the paper's table 2: one model on 8 devices.
var table2 = []struct {
	// model is the only model of the workload, with one target.
	model  string
	target time.Duration

	// goodput holds the paper's numbers by policy, in requests per second.
	goodput map[string]float64

	// batch is the median batch size, from section 2.2.
	batch map[string]float64
}{
	{"ResNet50", 25 * time.Millisecond, map[string]float64{"deferred": 5264, "clockwork": 1358, "nexus": 4027, "shepherd": 4445}, map[string]float64{"deferred": 14, "clockwork": 1, "nexus": 6, "shepherd": 9}},
	{"InceptionResNetV2", 70 * time.Millisecond, map[string]float64{"deferred": 926, "clockwork": 458, "nexus": 618, "shepherd": 778}, map[string]float64{"deferred": 8, "clockwork": 1, "nexus": 2, "shepherd": 4}},
}

// planTable2 plans table 2: goodput, and the median batch at that rate.
func planTable2(r *reproduction) func() []*figure {
	// Each model is a workload of its own.
	const devices = 8
	var all []cell
	for _, t := range table2 {
		g := r.gpus[gpuOwn]
		all = append(all, goodputs(r, "table 2", t.model, newWorkload(r, g, devices, g.service(t.model, t.target)), contenderNames()))
	}
	return func() []*figure {
		rates := &figure{Figure: "table 2", Title: "one model on 8 devices: goodput", Unit: "requests per second", more: true, words: true}
		batch := &figure{Figure: "table 2, batches", Title: "one model on 8 devices: median batch at that rate", Unit: "queries", more: true, words: true, Notes: []string{
			"The paper's numbers are those of section 2.2. Devices that take perfect turns could have 16 and 8, without coordination 7 and 3 (section 5.3).",
		}}
		for i, t := range table2 {
			all[i].fill(rates, foundRate, t.goodput)
			all[i].fill(batch, medianBatch, t.batch)
		}
		return []*figure{rates, batch}
	}
}

// mixes are the settings of figure 9. times is the gain over the best baseline that the paper
// states, by device.
var mixes = []struct {
	// name is the name of the setting.
	name string

	// takes selects models by the alpha and beta of their batches.
	takes func(alpha, beta float64) bool

	// times holds the stated gains by device.
	times map[string]float64
}{
	{"mixed", func(_, _ float64) bool { return true }, map[string]float64{gpu1080Ti: 2.0, gpuA100: 2.4}},
	{"strong", func(alpha, beta float64) bool { return beta > 2*alpha }, map[string]float64{gpu1080Ti: 3.5, gpuA100: 5.7}},
	{"weak", func(alpha, beta float64) bool { return beta <= 2*alpha }, map[string]float64{gpu1080Ti: 1.23, gpuA100: 1.10}},
}

// rivalsOfDeferred are the baselines of Symphony.
var rivalsOfDeferred = []string{"clockwork", "nexus", "shepherd", "clockwork-unmerged"}

// mixedNames are the contenders of figure 9.
var mixedNames = slices.Concat(pooledNames, []string{"clockwork-unmerged"})

// planMixed plans figure 9: many models on 64 devices.
func planMixed(r *reproduction) func() []*figure {
	const devices = 64
	type setting struct {
		cell
		times, ceiling float64
	}
	var all []setting
	for _, gpu := range zooGPUs {
		for _, m := range mixes {
			w := newWorkload(r, r.gpus[gpu], devices, r.gpus[gpu].zoo(m.takes)...)
			all = append(all, setting{goodputs(r, "figure 9", fmt.Sprintf("%s, %s", m.name, gpu), w, mixedNames), m.times[gpu], w.ceiling()})
		}
	}
	return func() []*figure {
		rates := &figure{Figure: "9", Title: "many models on 64 devices: goodput", Unit: "requests per second", more: true, words: true}
		times := &figure{Figure: "9, gain", Title: "many models on 64 devices: goodput of deferred over that of others", Unit: "times", decimals: 2, more: true, words: true}
		for _, s := range all {
			s.fill(rates, foundRate, nil)
			rates.Rows = append(rates.Rows, seedsRow(s.name, "ceiling", []float64{s.ceiling}, 0))
			ours := s.of("deferred", foundRate)
			for _, rival := range rivalsOfDeferred {
				// Gains are computed for each seed, so that their range is known.
				theirs, gain := s.of(rival, foundRate), make([]float64, len(ours))
				for k := range gain {
					gain[k] = ours[k] / theirs[k]
				}
				times.Rows = append(times.Rows, seedsRow(s.name, "over "+rival, gain, s.times))
			}
		}
		rates.Notes = append(rates.Notes, "With the largest batches that targets allow, all devices would do the rate of the ceiling; nobody can do much more. Where the baselines come near to it, no policy can be many times as good.")
		times.Notes = append(times.Notes, "The paper says one number for each setting, and not of which of its baselines.")
		return []*figure{rates, times}
	}
}

// pooledNames are the contenders of figures with many services and devices.
var pooledNames = []string{"deferred", "clockwork", "nexus", "shepherd", "eager"}

// resNets returns a workload of copies of ResNet50, for the figures that do not name a model.
func resNets(r *reproduction, devices, models int, target time.Duration, zipf float64) workload {
	g := r.gpus[gpuOwn]
	return newWorkload(r, g, devices, copies(g.service("ResNet50", target), models, zipf)...)
}

// longer multiplies the length of runs that would otherwise last less than ten targets: those of
// figure 2 and of Shepherd's bursts.
const longer = 5

// planOverload plans figure 2: loads below and above what the devices sustain.
func planOverload(r *reproduction) func() []*figure {
	const models, devices, target = 10, 24, 100 * time.Millisecond
	w := resNets(r, devices, models, target, 0)
	w.queries *= longer
	// Loads are fractions of the ceiling.
	most := w.ceiling()
	loads := []float64{0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5}
	var all []cell
	for _, load := range loads {
		name := fmt.Sprintf("%.0f offered, %.0f %% of the ceiling", load*most, 100*load)
		all = append(all, atRate(r, "figure 2", name, w, pooledNames, load*most))
	}
	return func() []*figure {
		rates := &figure{Figure: "2, left", Title: "10 models on 24 devices: goodput by offered load", Unit: "requests per second", more: true, words: true}
		busy := &figure{Figure: "2, right", Title: "10 models on 24 devices: use of devices by offered load", Unit: "share of time", percent: true, decimals: 3, words: true}
		for _, c := range all {
			c.fill(rates, timely, nil)
			c.fill(busy, useOf, nil)
		}
		return []*figure{rates, busy}
	}
}

// Table 1 of the paper: the parameters of its synthetic workloads, and their number.
var (
	syntheticModels   = []string{"DenseNet121", "InceptionV3", "ResNet50V2", "VGG16", "Xception", "BERT"}
	syntheticNumbers  = []int{8, 16, 24, 32, 48, 64}
	syntheticDevices  = []float64{1, 1.5, 2, 2.5, 3, 3.5, 4}
	syntheticTargets  = []time.Duration{20, 25, 30, 40, 50}
	syntheticShapes   = []float64{0.1, 0.2, 0.3, 0.5, 0.7, 1}
	syntheticWorkload = 5880
)

// syntheticSample is the number of workloads of table 1 that are run. They are spread evenly over
// the table, with a step that has no factor in common with its sides.
const syntheticSample = 60

// synthetic returns a workload of table 1, or nil if not even one query can be in time. The paper
// does not state which of the combinations are its 5,880.
func synthetic(r *reproduction, number int) *workload {
	// The number encodes one choice for each parameter of the table.
	pick := func(n int) (at int) {
		at = number % n
		number /= n
		return at
	}
	model, models := syntheticModels[pick(len(syntheticModels))], syntheticNumbers[pick(len(syntheticNumbers))]
	devices := int(syntheticDevices[pick(len(syntheticDevices))] * float64(models))
	target, shape := syntheticTargets[pick(len(syntheticTargets))]*time.Millisecond, syntheticShapes[pick(len(syntheticShapes))]
	g := r.gpus[gpu1080Ti]
	if solo(g.model, model, 1, 0) > target {
		return nil
	}
	w := newWorkload(r, g, devices, copies(g.service(model, target), models, 0)...)
	w.shape = shape
	return &w
}

// planSynthetic plans figure 7: deferred compared with eager.
func planSynthetic(r *reproduction) func() []*figure {
	all := len(syntheticModels) * len(syntheticNumbers) * len(syntheticDevices) * len(syntheticTargets) * len(syntheticShapes)
	var list []cell
	for i := range syntheticSample {
		if w := synthetic(r, (i*all/syntheticSample+59*i)%all); w != nil {
			list = append(list, goodputs(r, "figure 7", "", *w, []string{"deferred", "eager"}))
		}
	}
	return func() []*figure {
		f := &figure{Figure: "7", Title: "synthetic workloads: goodput of deferred over that of eager", Unit: "share of the workloads", percent: true, decimals: 3, words: true, Notes: []string{
			fmt.Sprintf("%d workloads, spread evenly over the %d that table 1 spans, less those in which not even a query alone is in time; the paper has %d, mixtures among them.", len(list), all, syntheticWorkload),
		}}
		for _, s := range []struct {
			name         string
			least, paper float64
		}{{"at least 0.95 times", 0.95, 0}, {"at least 1.05 times", 1.05, 0}, {"at least 1.5 times", 1.5, 0.16}, {"at least twice", 2, 0}} {
			shares := make([]float64, r.options.Seeds)
			for k := range shares {
				// Workloads in which neither policy reaches any goodput do not count.
				n, of := 0.0, 0.0
				for _, c := range list {
					ours, theirs := c.runs["deferred"][k].found, c.runs["eager"][k].found
					if ours > 0 || theirs > 0 {
						of++
						if ours >= s.least*theirs {
							n++
						}
					}
				}
				shares[k] = n / max(of, 1)
			}
			f.Rows = append(f.Rows, seedsRow(s.name, "deferred", shares, s.paper))
		}
		return []*figure{f}
	}
}

// planFewest plans figure 10: the number of devices that sustain 15,000 requests per second.
func planFewest(r *reproduction) func() []*figure {
	const rate, most = 15_000, 256
	g := r.gpus[gpuA100]
	cases := []struct {
		name     string
		services []sim.Service
	}{{"ResNet50, 25 ms", []sim.Service{g.service("ResNet50", 25*time.Millisecond)}}, {"37 models", g.zoo(mixes[0].takes)}}
	var all []cell
	for _, c := range cases {
		all = append(all, compete(r, "figure 10", c.name, newWorkload(r, g, most, c.services...), pooledNames, secondsOf(r.options.Queries), func(ctx context.Context, w *workload, c contender) (rateRun, error) {
			return w.fewest(ctx, c, rate)
		}))
	}
	return func() []*figure {
		f := &figure{Figure: "10", Title: "devices for 15,000 requests per second", Unit: "devices", words: true}
		for _, c := range all {
			c.fill(f, foundRate, nil)
		}
		f.Notes = append(f.Notes, fmt.Sprintf("Where 0 stands not even %d devices are enough. The paper: with one model deferred saves 2 to 6 devices over nexus and shepherd, with 37 nexus needs 166 %% more and shepherd 90 %%.", most))
		return []*figure{f}
	}
}

// planCharacter plans figure 11: varying targets, popularity and arrivals.
func planCharacter(r *reproduction) func() []*figure {
	const models, devices = 20, 32
	var all []cell
	for _, zipf := range []float64{0, 0.9} {
		for _, shape := range []float64{1, 0.05} {
			for _, target := range []time.Duration{15, 25, 50, 100} {
				w := resNets(r, devices, models, target*time.Millisecond, zipf)
				w.shape = shape
				name := fmt.Sprintf("%d ms, Zipf %g, gamma %g", target, zipf, shape)
				all = append(all, goodputs(r, "figure 11", name, w, pooledNames))
			}
		}
	}
	return func() []*figure {
		f := &figure{Figure: "11", Title: "20 models on 32 devices: goodput by target, popularity and burstiness", Unit: "requests per second", more: true, words: true}
		for _, c := range all {
			c.fill(f, foundRate, nil)
		}
		return []*figure{f}
	}
}

// planScale plans the right part of figure 13: varying numbers of devices.
func planScale(r *reproduction) func() []*figure {
	const models, target = 20, 100 * time.Millisecond
	numbers := []int{8, 16, 32, 64, 128}
	var all []cell
	for _, devices := range numbers {
		all = append(all, goodputs(r, "figure 13", fmt.Sprintf("%d devices", devices), resNets(r, devices, models, target, 0), []string{"deferred", "eager"}))
	}
	return func() []*figure {
		f := &figure{Figure: "13, right", Title: "20 models: goodput by the number of devices", Unit: "requests per second and device", decimals: 1, more: true, words: true, Notes: []string{
			"The paper's grows in proportion to the devices, which here is a number that stays the same.",
		}}
		for i, devices := range numbers {
			all[i].fill(f, func(r *rateRun) float64 { return r.found / float64(devices) }, nil)
		}
		return []*figure{f}
	}
}
