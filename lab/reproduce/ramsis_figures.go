package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/planning/selection"
)

// The axes of figures.
const (
	axisLoad    = "queries a second"
	axisWorkers = "workers"
)

// pictures returns the two kinds of pictures that section 7 has, accuracy and late queries, for
// each task.
func pictures(number, title, axis string, decimals int, places []*place, choosers ...chooser) (drawn []*figure) {
	for _, list := range split(places, func(p *place) string { return p.task }) {
		drawn = append(drawn, taskPictures(number+", "+list[0].task, title, axis, decimals, list, choosers...)...)
	}
	return drawn
}

// split divides places into runs of adjacent places with the same key.
func split(places []*place, key func(*place) string) (list [][]*place) {
	for i, p := range places {
		if i == 0 || key(p) != key(places[i-1]) {
			list = append(list, nil)
		}
		list[len(list)-1] = append(list[len(list)-1], p)
	}
	return list
}

// taskPictures returns the two pictures of one task.
func taskPictures(number, title, axis string, decimals int, places []*place, choosers ...chooser) []*figure {
	good := &figure{Figure: number, Title: title + ": accuracy", Unit: "percent of those in time", X: axis, decimals: decimals, more: true, words: true, Notes: []string{
		"As in the paper, there is no accuracy where 5 % or more are late.",
	}}
	late := &figure{Figure: number + ", late", Title: title + ": queries late or dropped", Unit: "late", X: axis, percent: true, decimals: 6, words: true}
	for _, p := range places {
		for i, c := range choosers {
			// An accuracy with many late queries is left out, but their percentage is shown.
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

// planTrace plans figure 5 and table 3: the load of the trace, by number of workers.
func planTrace(r *reproduction) func() []*figure {
	d := r.selection
	return rivalry(r, "5", "the load of a day, in 270 seconds", axisWorkers, saidOfTrace, func(t task, target float64, i int) (list []*place) {
		for k, workers := range d.workers {
			// A load of 0 stands for one that is not known in advance.
			p := d.steady(t.name, target, workers, 0)
			p.x, p.trace, p.paper = float64(workers), d.trace, table3[t.name].of(k, i)
			list = append(list, p)
		}
		return list
	})
}

// planSteady plans figure 6 and table 4: a constant load.
func planSteady(r *reproduction) func() []*figure {
	return rivalry(r, "6", "constant load", axisLoad, saidOfSteady, func(t task, target float64, i int) []*place {
		list := r.selection.grid(t.name, target, t.workers)
		for k, p := range list {
			p.paper = table4[t.name].of(k, i)
		}
		return list
	})
}

// rivalry plans that RAMSIS and its rivals serve at places of all tasks and targets.
func rivalry(r *reproduction, number, title, axis string, paper map[string]said, places func(t task, target float64, i int) []*place) func() []*figure {
	var all []*place
	for _, t := range r.selection.tasks {
		for i, target := range t.targets {
			all = append(all, places(t, target, i)...)
		}
	}
	contend(r, "figure "+number, all, ramsisRivals...)
	return func() []*figure {
		return append(pictures(number, title, axis, 1, all, ramsisRivals...), r.selection.summary(number, title, all, paper))
	}
}

// summary returns a comparison of RAMSIS with its rivals, over all places where both have an
// accuracy.
func (d *variantData) summary(number, title string, all []*place, paper map[string]said) *figure {
	f := &figure{Figure: number + ", sums", Title: title + ": RAMSIS against baselines", Unit: "where both have an accuracy", decimals: 2, words: true, table: true}
	for _, t := range d.tasks {
		// Compare only places where both have an accuracy.
		ours := slices.DeleteFunc(slices.Clone(all), func(p *place) bool { return p.task != t.name || !p.bears(ramsis.name) })
		for _, other := range ramsisRivals[1:] {
			both := slices.DeleteFunc(slices.Clone(ours), func(p *place) bool { return !p.bears(other.name) })
			if len(both) == 0 {
				continue
			}
			over := "over " + other.name
			add := func(name string, paper float64, value func(gains, late []float64, seed int) float64) {
				var list []float64
				for k := range both[0].runs[other.name] {
					var gains, late []float64
					for _, p := range both {
						a, b := &p.runs[ramsis.name][k], &p.runs[other.name][k]
						gains, late = append(gains, a.mean()-b.mean()), append(late, 100*(a.violations()-b.violations()))
					}
					list = append(list, value(gains, late, k))
				}
				f.Rows = append(f.Rows, seedsRow(t.name+": "+name, over, list, paper))
			}
			says := paper[t.name+" "+over]
			add("points of accuracy, mean", says.mean, func(gains, _ []float64, _ int) float64 { return stats.Mean(gains) })
			add("points of accuracy, most", says.most, func(gains, _ []float64, _ int) float64 { return slices.Max(gains) })
			add("points of accuracy, least", 0, func(gains, _ []float64, _ int) float64 { return slices.Min(gains) })
			add("percent of places where it is at least as accurate", 100, func(gains, _ []float64, _ int) float64 {
				return 100 * shareOf(gains, func(gain float64) bool { return gain > -1e-6 })
			})
			add("percent late, more, mean", says.late, func(_, late []float64, _ int) float64 { return stats.Mean(late) })
			if both[0].trace != nil {
				add("percent of workers saved for equal accuracy, mean", says.fewer, func(_, _ []float64, k int) float64 { return saved(both, ours, other.name, k) })
			}
		}
	}
	return f
}

// shareOf returns the fraction of a list that has a property.
func shareOf(list []float64, has func(float64) bool) float64 {
	n := 0.0
	for _, v := range list {
		if has(v) {
			n++
		}
	}
	return n / float64(len(list))
}

// saved returns by how many percent fewer workers RAMSIS reaches the accuracy of another chooser,
// on average over places. It may reach it at any place of ours with the same name.
func saved(places, ours []*place, other string, seed int) float64 {
	var list []float64
	for _, p := range places {
		// Look for a place with fewer workers and the same target that is at least as accurate.
		fewest := p.workers
		for _, q := range ours {
			if q.name == p.name && q.workers < fewest && q.runs[ramsis.name][seed].mean() >= p.runs[other][seed].mean() {
				fewest = q.workers
			}
		}
		list = append(list, 100*(1-float64(fewest)/float64(p.workers)))
	}
	return stats.Mean(list)
}

// grid returns places with the loads of section 7.2.
func (d *variantData) grid(task string, target float64, workers int) (list []*place) {
	for _, load := range d.loads {
		list = append(list, d.steady(task, target, workers, load))
	}
	return list
}

// planFidelity plans figure 7 (section 5.1): predicted and simulated accuracy and violations.
func planFidelity(r *reproduction) func() []*figure {
	d, t := r.selection, r.selection.tasks[0]
	var all []*place
	for _, thirds := range []int{2, 3, 4} {
		for _, p := range d.grid(t.name, t.middle(), t.workers*thirds/3) {
			p.name += fmt.Sprintf(", %d workers", p.workers)
			all = append(all, p)
		}
	}
	contend(r, "figure 7", all, ramsis)
	return func() []*figure {
		const title, expected = "expected and simulated", "expected"
		drawn := pictures("7", title, axisLoad, 2, all, ramsis)
		for _, p := range all {
			for i, v := range []float64{p.expected.Accuracy, p.expected.Violations} {
				// The prediction is one number, without seeds.
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

// bounds returns a figure that shows where the predicted accuracy is a lower bound of the simulated
// one, and the predicted violations an upper bound.
func bounds(number, title string, all []*place) *figure {
	f := &figure{Figure: number + ", sums", Title: title + ": is what is expected a bound?", Unit: "where less than 5 % are expected late", decimals: 2, words: true, table: true, Notes: []string{
		"The paper takes the expected accuracy for a lower bound and the expected violations for an upper one (section 5.1). The mean keeps to a bound if it is beyond it by at most two standard errors.",
	}}
	for _, bound := range []struct {
		name   string
		better func(*place, *outcome) float64
	}{
		{"accuracy", func(p *place, o *outcome) float64 { return o.mean() - p.expected.Accuracy }},
		{"violations", func(p *place, o *outcome) float64 { return 100 * (p.expected.Violations - o.violations()) }},
	} {
		var means, within, seeds []float64
		for _, p := range all {
			if p.expected.Violations < shownLate {
				list := p.of(ramsis.name, func(o *outcome) float64 { return bound.better(p, o) })
				// A mean keeps to the bound if it is beyond it by at most two standard errors.
				seeds, means = append(seeds, list...), append(means, stats.Mean(list))
				within = append(within, stats.Mean(list)+2*stats.Deviation(list)/math.Sqrt(float64(len(list))))
			}
		}
		if len(seeds) == 0 {
			continue
		}
		kept := func(v float64) bool { return v > -1e-6 }
		for _, row := range []struct {
			name string
			ours float64
		}{
			{"loads and workers whose mean keeps to it, percent", 100 * shareOf(within, kept)},
			{"runs that keep to it, percent", 100 * shareOf(seeds, kept)},
			{"points by which means are better, mean", stats.Mean(means)},
			{"points by which means are better, least", slices.Min(means)},
		} {
			f.Rows = append(f.Rows, seedsRow(bound.name+": "+row.name, ramsis.name, []float64{row.ours}, 0))
		}
	}
	return f
}

// ablation returns a planner for a figure that compares choosers on the first task, at all loads
// and on average over them. times multiplies the usual number of workers. all selects all targets
// instead of the middle one.
func ablation(number, title string, times float64, all bool, choosers ...chooser) planner {
	return func(r *reproduction) func() []*figure {
		var places []*place
		t := r.selection.tasks[0]
		for _, target := range t.targets {
			if all || target == t.middle() {
				places = append(places, r.selection.grid(t.name, target, int(times*float64(t.workers)))...)
			}
		}
		contend(r, "figure "+number, places, choosers...)
		return func() []*figure {
			return append(pictures(number, title, axisLoad, 2, places, choosers...), means(number, title, places, choosers...))
		}
	}
}

// means returns a comparison of choosers, as a mean over the loads at which all of them have an
// accuracy.
func means(number, title string, places []*place, choosers ...chooser) *figure {
	f := &figure{Figure: number + ", means", Title: title + ": mean accuracy", Unit: "percent, mean over the loads at which all have an accuracy", decimals: 2, more: true, words: true, table: true}
	// A load at which one chooser has no accuracy is left out for all, so that means are
	// comparable.
	lost := func(p *place) bool {
		return slices.ContainsFunc(choosers, func(c chooser) bool { return !p.bears(c.name) })
	}
	places = slices.DeleteFunc(slices.Clone(places), lost)
	for _, same := range split(places, func(p *place) string { return p.name }) {
		for _, c := range choosers {
			list := make([]float64, len(same[0].runs[c.name]))
			for _, p := range same {
				for k, v := range p.of(c.name, (*outcome).mean) {
					list[k] += v / float64(len(same))
				}
			}
			f.Rows = append(f.Rows, seedsRow(same[0].name, c.name, list, 0))
		}
	}
	return f
}

// middle returns the middle target of a task.
func (t *task) middle() float64 { return t.targets[len(t.targets)/2] }

// many returns a set of 60 variants made from a front of 9 (section 7.3.2).
func many(front []selection.Variant) []selection.Variant {
	return selection.Resize(front, len(front)*60/9)
}

// three returns a fast, a medium and a slow variant, those of appendix E.
func three(front []selection.Variant) (set []selection.Variant) {
	for i := range 3 {
		set = append(set, front[i*len(front)/3])
	}
	return set
}

// levels returns a chooser with n levels of slack, 0 for one at each latency.
func levels(name string, n int) chooser {
	return byPolicy(name, "RAMSIS with other levels of slack", func(_ *place, w *selection.Worker) { w.Levels = n })
}

// Modifications of RAMSIS that are compared with it.
var (
	variable = byPolicy("RAMSIS, variable batches", "RAMSIS whose batches may have a part of the queued queries", func(_ *place, w *selection.Worker) { w.Variable = true })
	dropping = byPolicy("RAMSIS, dropping", "RAMSIS that drops queries that cannot be in time", func(_ *place, w *selection.Worker) { w.Drop = true })
	knowing  = byPolicy("RAMSIS, CV known", "RAMSIS whose policy knows the coefficient of variation of the arrivals", func(p *place, w *selection.Worker) { w.CV = p.cv })
)

// The planners of figures that compare RAMSIS with modifications of it.
var (
	planModels   = ablation("8", "9 and 60 models", 5./3, true, ramsis, switching, with(ramsis, "RAMSIS, 60 models", many), with(switching, "ModelSwitching, 60 models", many))
	planLevels   = ablation("10", "levels of slack", 1, true, levels("MD", 0), levels("FLD, 100", 100), levels("FLD, 10", 10), levels("FLD, 2", 2))
	planBatching = ablation("11", "all that wait in a batch, or fewer", 1, false, ramsis, variable)
	planFewer    = ablation("12", "9 and 3 models", 1, true, ramsis, jellyfish, with(ramsis, "RAMSIS, 3 models", three), with(jellyfish, "Jellyfish+, 3 models", three))
	planDropping = ablation("dropping", "late queries are served, or dropped", 1, true, ramsis, dropping)
)

// planClusters plans a figure of arrivals in clusters. It compares a policy for a Poisson process
// with one that knows the coefficient of variation.
func planClusters(r *reproduction) func() []*figure {
	t := r.selection.tasks[0]
	var all []*place
	for _, cv := range []float64{2, 4} {
		for _, p := range r.selection.grid(t.name, t.middle(), t.workers) {
			p.cv = cv
			p.name += fmt.Sprintf(", CV %g", cv)
			all = append(all, p)
		}
	}
	choosers := []chooser{ramsis, knowing, jellyfish, switching}
	contend(r, "bursts", all, choosers...)
	return func() []*figure {
		return pictures("bursts", "gamma arrivals with a coefficient of variation", axisLoad, 2, all, choosers...)
	}
}

// planSolving plans table 2. It is one job that runs before all others, so that nothing else takes
// time. Its numbers belong to the timing.
func planSolving(r *reproduction) func() []*figure {
	d, t := r.selection, r.selection.tasks[0]
	r.fitting.add("table 2", 32, func(ctx context.Context, _ *lane) error {
		for _, row := range table2OfRAMSIS {
			p := d.steady(t.name, slices.Max(t.targets), t.workers, d.loads[len(d.loads)/2])
			// The number of variants is relative to the front of 9.
			p.variants = selection.Resize(p.variants, len(p.variants)*row.Models/9)
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
