package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/selection"
	"github.com/overlapd/overlapd/stats"
)

// Axes of figures.
const (
	axisLoad    = "queries a second"
	axisWorkers = "workers"
)

// pictures are the two rows of pictures that section 7 has of everything: accuracy, and
// queries that are late.
func pictures(number, title, axis string, places []*place, choosers ...chooser) []*figure {
	good := &figure{Figure: number, Title: title + ": accuracy", Unit: "percent of those in time", X: axis, decimals: 2, more: true, words: true, Notes: []string{
		"As in the paper, there is no accuracy where 5 % or more are late.",
	}}
	late := &figure{Figure: number + ", late", Title: title + ": queries late or dropped", Unit: "late", X: axis, percent: true, decimals: 6, words: true}
	for _, p := range places {
		for i, c := range choosers {
			g, l := seedsRow(p.name, c.name, p.of(c.name, (*outcome).mean), 0), seedsRow(p.name, c.name, p.of(c.name, (*outcome).violations), 0)
			if !p.bears(c.name) {
				g.Ours, g.Least, g.Most = nil, nil, nil
			}
			if i < len(p.paper) {
				l.Paper = rounded(p.paper[i] / 100)
			}
			g.X, l.X = p.x, p.x
			good.Rows, late.Rows = append(good.Rows, g), append(late.Rows, l)
		}
	}
	return []*figure{good, late}
}

// planTrace is figure 5 and table 3: the load of the trace, by workers.
func planTrace(r *reproduction) func() []*figure {
	d := r.selection
	var all []*place
	for _, t := range d.tasks {
		for i, target := range t.targets {
			for k, workers := range d.workers {
				p := d.steady(t.name, target, workers, 0)
				p.x, p.trace, p.paper = float64(workers), d.trace, table3[t.name].of(k, i)
				all = append(all, p)
			}
		}
	}
	contend(r, "figure 5", all, ramsisRivals...)
	return func() []*figure {
		const title = "the load of a day, in 270 seconds"
		return append(pictures("5", title, axisWorkers, all, ramsisRivals...), d.summary("5", title, all, saidOfTrace))
	}
}

// planSteady is figure 6 and table 4: a constant load.
func planSteady(r *reproduction) func() []*figure {
	d := r.selection
	var all []*place
	for _, t := range d.tasks {
		for i, target := range t.targets {
			for k, load := range d.loads {
				p := d.steady(t.name, target, t.workers, load)
				p.paper = table4[t.name].of(k, i)
				all = append(all, p)
			}
		}
	}
	contend(r, "figure 6", all, ramsisRivals...)
	return func() []*figure {
		const title = "constant load"
		return append(pictures("6", title, axisLoad, all, ramsisRivals...), d.summary("6", title, all, saidOfSteady))
	}
}

// summary compares RAMSIS with baselines over all places where both have an accuracy.
func (d *variantData) summary(number, title string, all []*place, paper map[string]said) *figure {
	f := &figure{Figure: number + ", sums", Title: title + ": RAMSIS against baselines", Unit: "where both have an accuracy", decimals: 2, words: true, table: true}
	seeds := len(all[0].runs[ramsis.name])
	add := func(name, policy string, paper float64, value func(seed int) float64) {
		list := make([]float64, seeds)
		for k := range list {
			list[k] = value(k)
		}
		f.Rows = append(f.Rows, seedsRow(name, policy, list, paper))
	}
	for _, t := range d.tasks {
		for _, other := range ramsisRivals[1:] {
			both := slices.DeleteFunc(slices.Clone(all), func(p *place) bool { return p.task != t.name || !p.bears(ramsis.name) || !p.bears(other.name) })
			over := "over " + other.name
			says := paper[t.name+" "+over]
			gains := func(k int) (list []float64) {
				for _, p := range both {
					list = append(list, p.runs[ramsis.name][k].mean()-p.runs[other.name][k].mean())
				}
				return list
			}
			late := func(name string, k int) float64 {
				sum := 0.0
				for _, p := range both {
					sum += 100 * p.runs[name][k].violations()
				}
				return sum / float64(len(both))
			}
			add(t.name+": points of accuracy, mean", over, says.mean, func(k int) float64 { return stats.Mean(gains(k)) })
			add(t.name+": points of accuracy, most", over, says.most, func(k int) float64 { return slices.Max(gains(k)) })
			add(t.name+": points of accuracy, least", over, 0, func(k int) float64 { return slices.Min(gains(k)) })
			add(t.name+": percent late, more", over, 0, func(k int) float64 { return late(ramsis.name, k) - late(other.name, k) })
			if both[0].trace != nil {
				add(t.name+": percent of workers saved for equal accuracy, mean", over, says.fewer, func(k int) float64 { return saved(both, other.name, k) })
			}
		}
	}
	return f
}

// saved is how many percent fewer workers RAMSIS needs for the accuracy that another has at
// a place, in the mean of places.
func saved(places []*place, other string, seed int) float64 {
	var list []float64
	for _, p := range places {
		fewest := p.workers
		for _, q := range places {
			if q.name == p.name && q.workers < fewest && q.runs[ramsis.name][seed].mean() >= p.runs[other][seed].mean() {
				fewest = q.workers
			}
		}
		list = append(list, 100*(1-float64(fewest)/float64(p.workers)))
	}
	return stats.Mean(list)
}

// expectation is the name of what a policy expects, among those of choosers.
const expectation = "expected"

// grid returns places with the loads of section 7.2.
func (d *variantData) grid(task string, target float64, workers int) (list []*place) {
	for _, load := range d.loads {
		list = append(list, d.steady(task, target, workers, load))
	}
	return list
}

// planFidelity is figure 7, and section 5.1: what is expected, and what is simulated.
func planFidelity(r *reproduction) func() []*figure {
	d, t := r.selection, r.selection.tasks[0]
	var all []*place
	for _, thirds := range []int{2, 3, 4} {
		for _, p := range d.grid(t.name, t.targets[len(t.targets)/2], t.workers*thirds/3) {
			p.name += fmt.Sprintf(", %d workers", p.workers)
			all = append(all, p)
		}
	}
	contend(r, "figure 7", all, ramsis)
	return func() []*figure {
		const title, expected = "expected and simulated", "expected"
		drawn := pictures("7", title, axisLoad, all, ramsis)
		for _, p := range all {
			for i, v := range []float64{p.expected.Accuracy, p.expected.Violations} {
				e := seedsRow(p.name, expected, []float64{v}, 0)
				if e.X = p.x; i == 0 && p.expected.Violations >= shownLate {
					e.Ours = nil
				}
				drawn[i].Rows = append(drawn[i].Rows, e)
			}
		}
		return append(drawn, bounds("7", title, all))
	}
}

// bounds says where the expected accuracy is a lower bound of the simulated one, and the
// expected violations an upper bound of the simulated ones.
func bounds(number, title string, all []*place) *figure {
	f := &figure{Figure: number + ", sums", Title: title + ": is what is expected a bound?", Unit: "percent", decimals: 2, words: true, table: true, Notes: []string{
		"The paper takes the expected accuracy for a lower bound and the expected violations for an upper one (section 5.1). The mean keeps to a bound if it is beyond it by at most two standard errors.",
	}}
	add := func(name string, ours float64) {
		f.Rows = append(f.Rows, seedsRow(name, ramsis.name, []float64{ours}, 0))
	}
	for i, name := range []string{"accuracy", "violations"} {
		var means, seeds, gaps []float64
		for _, p := range all {
			if i == 0 && p.expected.Violations >= shownLate {
				continue
			}
			list := p.of(ramsis.name, func(o *outcome) float64 {
				if i == 0 {
					return o.mean() - p.expected.Accuracy
				}
				return 100 * (p.expected.Violations - o.violations())
			})
			kept := 0.0
			for _, better := range list {
				if better >= 0 {
					kept++
				}
			}
			gap := stats.Mean(list)
			gaps, seeds, means = append(gaps, gap), append(seeds, 100*kept/float64(len(list))), append(means, 0)
			if gap >= -2*stats.Deviation(list)/math.Sqrt(float64(len(list))) {
				means[len(means)-1] = 100
			}
		}
		add(name+": loads and workers at which the mean keeps to it", stats.Mean(means))
		add(name+": seeds that keep to it", stats.Mean(seeds))
		add(name+": points by which the mean is better, mean", stats.Mean(gaps))
		add(name+": points by which the mean is better, least", slices.Min(gaps))
	}
	return f
}

// ablation plans a figure of the first task that compares choosers at all loads, for some of
// its targets.
func ablation(number, title string, workers func(task) int, targets func(task) []float64, choosers ...chooser) planner {
	return func(r *reproduction) func() []*figure {
		var all []*place
		t := r.selection.tasks[0]
		for _, target := range targets(t) {
			all = append(all, r.selection.grid(t.name, target, workers(t))...)
		}
		contend(r, "figure "+number, all, choosers...)
		return func() []*figure { return pictures(number, title, axisLoad, all, choosers...) }
	}
}

func usualWorkers(t task) int       { return t.workers }
func allTargets(t task) []float64   { return t.targets }
func middleTarget(t task) []float64 { return t.targets[len(t.targets)/2:][:1] }

// three returns the fastest variant, a medium one and a slow one, those of appendix E.
func three(front []selection.Variant) (set []selection.Variant) {
	for i := range 3 {
		set = append(set, front[i*len(front)/3])
	}
	return set
}

// levels returns a chooser with so many levels of slack, 0 for one at each latency.
func levels(name string, n int) chooser {
	return byPolicy(name, "RAMSIS with other levels of slack", func(_ *place, w *selection.Worker) { w.Levels = n })
}

// What is compared with RAMSIS itself.
var (
	variable = byPolicy("RAMSIS, variable batches", "RAMSIS whose batches may have less than all that wait", func(_ *place, w *selection.Worker) { w.Variable = true })
	dropping = byPolicy("RAMSIS, dropping", "RAMSIS that drops what cannot be in time", func(_ *place, w *selection.Worker) { w.Drop = true })
	knowing  = byPolicy("RAMSIS, CV known", "RAMSIS whose policy knows how far from Poisson the arrivals are", func(p *place, w *selection.Worker) { w.CV = p.cv })
)

var (
	planLevels   = ablation("10", "levels of slack", usualWorkers, allTargets, levels("MD", 0), levels("FLD, 100", 100), levels("FLD, 10", 10), levels("FLD, 2", 2))
	planBatching = ablation("11", "all that wait in a batch, or fewer", usualWorkers, middleTarget, ramsis, variable)
	planFewer    = ablation("12", "9 and 3 models", usualWorkers, allTargets, ramsis, jellyfish, with(ramsis, "RAMSIS, 3 models", three), with(jellyfish, "Jellyfish+, 3 models", three))
	planDropping = ablation("dropping", "late queries are served, or dropped", usualWorkers, allTargets, ramsis, dropping)
)

// planModels is figure 8, with models that are interpolated.
func planModels(r *reproduction) func() []*figure {
	many := func(front []selection.Variant) []selection.Variant {
		return selection.Resize(front, r.selection.models)
	}
	return ablation("8", "9 and 60 models", func(t task) int { return t.workers * 5 / 3 }, allTargets, ramsis, switching,
		with(ramsis, "RAMSIS, 60 models", many), with(switching, "ModelSwitching, 60 models", many))(r)
}

// planClusters has arrivals that come in clusters: what a policy for a Poisson process makes of
// them, and one that knows.
func planClusters(r *reproduction) func() []*figure {
	t := r.selection.tasks[0]
	var all []*place
	for _, cv := range []float64{2, 4} {
		for _, p := range r.selection.grid(t.name, middleTarget(t)[0], t.workers) {
			p.cv = cv
			p.name += fmt.Sprintf(", CV %g", cv)
			all = append(all, p)
		}
	}
	choosers := []chooser{ramsis, knowing, jellyfish, switching}
	contend(r, "bursts", all, choosers...)
	return func() []*figure {
		return pictures("bursts", "gamma arrivals with a coefficient of variation", axisLoad, all, choosers...)
	}
}

// planSolving is table 2. It is one job, done before all others, so that nothing else takes
// time, and its numbers are among what differs from run to run.
func planSolving(r *reproduction) func() []*figure {
	d, t := r.selection, r.selection.tasks[0]
	r.fitting.add("table 2", 32, func(ctx context.Context, _ *lane) error {
		for _, row := range table2OfRAMSIS {
			p := d.steady(t.name, slices.Max(t.targets), t.workers, d.loads[len(d.loads)/2])
			p.variants = selection.Resize(p.variants, min(row.Models, d.models))
			c := byPolicy("", "", func(_ *place, w *selection.Worker) { w.Levels, w.Variable = min(row.Levels, d.levels), row.Variable })
			began := time.Now()
			if _, err := c.prepare(ctx, p, r.options); err != nil {
				return err
			}
			row.Seconds = time.Since(began).Seconds()
			r.result.timing.Solving = append(r.result.timing.Solving, row)
		}
		return nil
	})
	return nil
}
