package reproduce

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/stats"
)

// Axes of figures.
const (
	axisLoad    = "queries a second"
	axisWorkers = "workers"
)

// accuracies and violations return what choosers made of places: the two rows of pictures
// that section 7 has of everything.
func accuracies(number, title, axis string, places []*place, names ...string) *figure {
	f := &figure{Figure: number, Title: title + ": accuracy", Unit: "percent of the queries in time", X: axis, decimals: 2, more: true, words: true}
	for _, p := range places {
		for _, name := range names {
			at := seedsRow(p.name, name, p.of(name, (*outcome).mean), 0)
			if !p.bears(name) {
				at.Ours, at.Least, at.Most = nil, nil, nil
			}
			at.X = p.x
			f.Rows = append(f.Rows, at)
		}
	}
	f.Notes = append(f.Notes, "As in the paper, there is no accuracy where 5 % or more are late.")
	return f
}

func violationsOf(number, title, axis string, places []*place, paper map[string][]float64, names ...string) *figure {
	f := &figure{Figure: number + ", late", Title: title + ": queries that are late", Unit: "late", X: axis, percent: true, decimals: 6, words: true}
	for i, p := range places {
		for _, name := range names {
			at := seedsRow(p.name, name, p.of(name, (*outcome).violations), 0)
			if list := paper[name]; i < len(list) {
				at.Paper = rounded(list[i] / 100)
			}
			at.X = p.x
			f.Rows = append(f.Rows, at)
		}
	}
	return f
}

func namesOfChoosers(list []chooser) (names []string) {
	for _, c := range list {
		names = append(names, c.name)
	}
	return names
}

// planSteady is figure 6 and table 4: constant load.
func planSteady(r *reproduction) func() []*figure {
	var all []*place
	for _, t := range r.selection.tasks {
		for _, target := range t.targets {
			for _, load := range r.selection.loads {
				all = append(all, r.selection.steady(t.name, target, t.workers, load).compete(r, "figure 6", ramsisRivals...))
			}
		}
	}
	return func() []*figure {
		const title = "constant load"
		return []*figure{
			accuracies("6", title, axisLoad, all, namesOfChoosers(ramsisRivals)...),
			violationsOf("6", title, axisLoad, all, nil, namesOfChoosers(ramsisRivals)...),
			r.selection.gains("6", title, all, nil),
		}
	}
}

// byTask returns the places of a task.
func byTask(all []*place, task string) []*place {
	return slices.DeleteFunc(slices.Clone(all), func(p *place) bool { return p.task != task })
}

// gains is by how many points RAMSIS is more accurate than the baselines, in the mean of what
// both bear.
func (d *variantData) gains(number, title string, all []*place, paper map[string]float64) *figure {
	f := &figure{Figure: number + ", gain", Title: title + ": accuracy of RAMSIS less that of baselines", Unit: "points", decimals: 2, more: true, words: true}
	for _, t := range d.tasks {
		for _, other := range []string{jellyfish.name, switching.name} {
			var gain []float64
			for k := range len(all[0].runs[other]) {
				var list []float64
				for _, p := range byTask(all, t.name) {
					if p.bears(ramsis.name) && p.bears(other) {
						list = append(list, p.of(ramsis.name, (*outcome).mean)[k]-p.of(other, (*outcome).mean)[k])
					}
				}
				gain = append(gain, stats.Mean(list))
			}
			f.Rows = append(f.Rows, seedsRow(fmt.Sprint(t.name), "over "+other, gain, paper[t.name+other]))
		}
	}
	return f
}
