package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/planning"
)

// ppipeFigures are the figures of the PPipe paper, and one of ours.
var ppipeFigures = []shown{
	{"6", planFactors},
	{"7", planAttainment},
	{"8", planClasses},
	{"10", planReservation},
	{"13", planSensitivity},
	{"shared", planShared},
}

// The margins of plans: that of section 7.1, and that of the ablation, which is in the authors'
// program.
const (
	mainMargin     = 0.4
	ablationMargin = 0.1
)

// hosted is a group of models on a cluster: its plans by system, and the runs of each model.
type hosted struct {
	*hybrid

	// group is the index of hybridGroups.
	group int

	// plans holds the services of the group with their pipelines, by system.
	plans map[string][]planning.Service

	// runs holds the runs by system, model and seed.
	runs map[string][][]hybridRun
}

// host plans the pipelines of all groups on all clusters, once for each kind of arrivals.
func (d *blockData) host(r *reproduction, bursty bool) []*hosted {
	shares, name := poissonShares, "figure 6, Poisson"
	if bursty {
		shares, name = burstyShares, "figure 6, bursty"
	}
	if d.hosted[bursty] == nil {
		for i := range hybrids {
			for g, names := range hybridGroups {
				p := &hosted{hybrid: &hybrids[i], group: g, plans: map[string][]planning.Service{}, runs: map[string][][]hybridRun{}}
				d.hosted[bursty] = append(d.hosted[bursty], p)
				// Plans are made before any run, because the loads of runs depend on PPipe's plan.
				services := d.services(p.hybrid, names, shares, 1, mainMargin)
				r.fitting.add("plans of "+name, 1, func(ctx context.Context, _ *lane) (err error) {
					for _, s := range systems {
						if p.plans[s.name], err = s.make(ctx, p.hybrid, services); err != nil {
							return fmt.Errorf("%s, G%d, %s: %w", p.name, g+1, s.name, err)
						}
					}
					return nil
				})
			}
		}
	}
	return d.hosted[bursty]
}

// searched plans the search for the load factor of each model on each cluster, once.
func (d *blockData) searched(r *reproduction, bursty bool) []*hosted {
	all := d.host(r, bursty)
	var trace []float64
	if bursty {
		trace = d.bursty
	}
	for _, p := range all {
		// Another figure already planned the search.
		if len(p.runs) > 0 {
			return all
		}
		for _, s := range systems {
			list := make([][]hybridRun, len(hybridGroups[p.group]))
			p.runs[s.name] = list
			for i := range list {
				list[i] = make([]hybridRun, r.options.Seeds)
				for k := range list[i] {
					r.plan.add("figure 6", 1, func(ctx context.Context, _ *lane) (err error) {
						list[i][k], err = lay(p.hybrid, s.policy, p.plans[s.name][i]).search(ctx, r.options, p.full(i), trace, r.options.Seed+uint64(k))
						return err
					})
				}
			}
		}
	}
	return all
}

// full returns the rate of a model at load factor 1, in queries a second: its share of the highest
// total load that PPipe's plan sustains.
func (p *hosted) full(model int) float64 {
	least := math.Inf(1)
	for i := range p.plans[ppipe.name] {
		s := &p.plans[ppipe.name][i]
		// All models of a group scale together, so the one that gets least limits the load.
		least = min(least, planned(s)/s.Rate)
	}
	return least * p.plans[ppipe.name][model].Rate
}

// factors returns the mean load factor of the models under a system, by seed.
func factors(list []*hosted, system string) []float64 {
	return acrossSeeds(list, system, func(r *hybridRun) float64 { return r.factor })
}

// acrossSeeds returns the mean of a value over the models of groups, by seed.
func acrossSeeds(list []*hosted, system string, value func(*hybridRun) float64) (means []float64) {
	for k := range list[0].runs[system][0] {
		var all []float64
		for _, p := range list {
			for i := range p.runs[system] {
				all = append(all, value(&p.runs[system][i][k]))
			}
		}
		means = append(means, stats.Mean(all))
	}
	return means
}

// on returns the groups on a cluster.
func on(all []*hosted, h *hybrid) []*hosted {
	return slices.DeleteFunc(slices.Clone(all), func(p *hosted) bool { return p.hybrid != h })
}

// The paper's statements on figure 6 (section 7.2): mean load factors, and PPipe's gain over others
// in percent, on each cluster and on average.
var (
	saidFactors = map[bool]map[string]float64{
		false: {ppipe.name: 0.965, dart.name: 0.749, unparted.name: 0.668},
		true:  {ppipe.name: 0.903, dart.name: 0.694, unparted.name: 0.611},
	}
	saidGains = map[bool]map[string][]float64{
		false: {dart.name: {47.2, 17.3, 34.8, 29.3, 32.2}, unparted.name: {64.9, 34.8, 46.7, 45.5, 48.0}},
		true:  {dart.name: {50.4, 18.1, 40.2, 34.5, 35.8}, unparted.name: {161.6, 34.1, 50.4, 54.1, 75.1}},
	}
)

// planFactors plans figure 6: the highest load factors.
func planFactors(r *reproduction) func() []*figure {
	// Bursty arrivals need the trace. Without it there is only the Poisson part.
	kinds := map[bool]string{false: "Poisson", true: "bursty"}
	all := map[bool][]*hosted{false: r.blocks.searched(r, false)}
	if r.blocks.bursty != nil {
		all[true] = r.blocks.searched(r, true)
	} else {
		r.missing("6, bursty", "load factors of bursty arrivals", "the folder with data has no "+burstyFile+"")
	}
	return func() (list []*figure) {
		for _, bursty := range []bool{false, true} {
			if all[bursty] == nil {
				continue
			}
			f := &figure{Figure: "6, " + kinds[bursty], Title: kinds[bursty] + " arrivals: highest load factor at which 99 % are in time", Unit: "load factor", decimals: 3, more: true, words: true}
			gains := &figure{Figure: "6, " + kinds[bursty] + ", gains", Title: kinds[bursty] + " arrivals: by how much PPipe's load factor is higher", Unit: "percent, mean over models", decimals: 1, more: true, words: true, table: true}
			for _, p := range all[bursty] {
				for _, s := range systems {
					f.Rows = append(f.Rows, seedsRow(fmt.Sprintf("%s G%d", p.name, p.group+1), s.name, factors([]*hosted{p}, s.name), 0))
				}
			}
			for i := range hybrids {
				here := on(all[bursty], &hybrids[i])
				for _, s := range systems {
					f.Rows = append(f.Rows, seedsRow(hybrids[i].name+", mean", s.name, factors(here, s.name), 0))
				}
				gains.Rows = append(gains.Rows, gainRows(hybrids[i].name, here, saidGains[bursty], i)...)
			}
			for _, s := range systems {
				f.Rows = append(f.Rows, seedsRow(caseMean, s.name, factors(all[bursty], s.name), saidFactors[bursty][s.name]))
			}
			gains.Rows = append(gains.Rows, gainRows(caseMean, all[bursty], saidGains[bursty], len(hybrids))...)
			list = append(list, f, gains)
		}
		return list
	}
}

// gainRows returns PPipe's gain over the other systems in percent.
func gainRows(name string, list []*hosted, paper map[string][]float64, at int) (rows []row) {
	for _, s := range systems[1:] {
		var means []float64
		for k := range list[0].runs[s.name][0] {
			var each []float64
			for _, p := range list {
				for i := range p.runs[s.name] {
					// A model that another system cannot serve has no finite gain.
					if other := p.runs[s.name][i][k].factor; other > 0 {
						each = append(each, 100*(p.runs[ppipe.name][i][k].factor/other-1))
					}
				}
			}
			means = append(means, stats.Mean(each))
		}
		rows = append(rows, seedsRow(name, "over "+s.name, means, paper[s.name][at]))
	}
	return rows
}

// planClasses plans figure 8: the use of both classes at the load factors of figure 6.
func planClasses(r *reproduction) func() []*figure {
	all := r.blocks.searched(r, false)
	return func() []*figure {
		f := &figure{Figure: "8", Title: "use of GPUs at the highest load factor, Poisson arrivals", Unit: "share of time", percent: true, decimals: 3, more: true, words: true}
		said := map[string]float64{ppipe.name: 0.736, dart.name: 0.295, unparted.name: 0.081}
		for c, class := range []string{"high class", "low class"} {
			// The models of a group together have all devices.
			use := func(list []*hosted, system string) []float64 {
				means := acrossSeeds(list, system, func(r *hybridRun) float64 { return r.use[c] })
				for k := range means {
					means[k] *= float64(len(hybridGroups[0]))
				}
				return means
			}
			for i := range hybrids {
				for _, s := range systems {
					f.Rows = append(f.Rows, seedsRow(hybrids[i].name+", "+class, s.name, use(on(all, &hybrids[i]), s.name), 0))
				}
			}
			for _, s := range systems {
				paper := 0.0
				if c == 1 {
					paper = said[s.name]
				}
				f.Rows = append(f.Rows, seedsRow("mean, "+class, s.name, use(all, s.name), paper))
			}
		}
		return []*figure{f}
	}
}

// planAttainment plans figure 7: the models of a group served together, by load factor.
func planAttainment(r *reproduction) func() []*figure {
	type point struct {
		*hosted

		// system is the name of the system.
		system string

		// factor is the load factor, the same for all models.
		factor float64

		// runs are in the order of the seeds.
		runs []hybridRun
	}
	var all []*point
	for _, p := range r.blocks.host(r, false) {
		// The paper shows the first group only.
		if p.group > 0 {
			continue
		}
		for _, s := range systems {
			for step := 1; step <= hybridSteps; step++ {
				at := &point{p, s.name, float64(step) / hybridSteps, make([]hybridRun, r.options.Seeds)}
				all = append(all, at)
				for k := range at.runs {
					r.plan.add("figure 7", at.factor, func(_ context.Context, _ *lane) (err error) {
						var rates []float64
						for i := range p.plans[ppipe.name] {
							rates = append(rates, at.factor*p.full(i))
						}
						seed := r.options.Seed + uint64(k)
						at.runs[k], err = lay(p.hybrid, s.policy, p.plans[s.name]...).serve(r.options.arrivals(rates, nil, seed), seed)
						return err
					})
				}
			}
		}
	}
	said := map[string]float64{"HC1" + ppipe.name: 0.984}
	return func() []*figure {
		f := &figure{Figure: "7", Title: "G1, Poisson arrivals: queries in time by load factor", Unit: "share of the queries, mean over models", X: "load factor", percent: true, decimals: 3, more: true, words: true}
		for _, p := range all {
			var list []float64
			for k := range p.runs {
				list = append(list, p.runs[k].attained())
			}
			paper := 0.0
			if p.factor == 1 {
				paper = said[p.name+p.system]
			}
			row := seedsRow(p.name, p.system, list, paper)
			row.X = p.factor
			f.Rows = append(f.Rows, row)
		}
		return []*figure{f}
	}
}

// planReservation plans figure 10: reservations compared with independent pools, with small
// margins.
func planReservation(r *reproduction) func() []*figure {
	h := &hybrids[1]
	// The systems share a plan, so that only the way to run it differs.
	contenders := []system{{name: "PPipe", policy: "edf"}, reactive, overlapped}
	var all []map[string][]hybridRun
	for _, s := range r.blocks.services(h, r.blocks.names(), nil, 1, ablationMargin) {
		// The key "" is our plan and gurobi the authors'.
		plans, runs := map[string]*planning.Service{"": {}, gurobi: &s}, map[string][]hybridRun{}
		all = append(all, runs)
		r.fitting.add("plans of figure 10", 1, func(ctx context.Context, _ *lane) error {
			made, err := reactive.make(ctx, h, []planning.Service{s})
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			*plans[""] = made[0]
			return nil
		})
		for _, c := range contenders {
			for by, p := range plans {
				list := make([]hybridRun, r.options.Seeds)
				runs[c.name+by] = list
				for k := range list {
					r.plan.add("figure 10", 2, func(ctx context.Context, _ *lane) (err error) {
						list[k], err = lay(h, c.policy, *p).search(ctx, r.options, planned(p), nil, r.options.Seed+uint64(k))
						return err
					})
				}
			}
		}
	}
	said := map[string]float64{"PPipe": 0.92, reactive.name: 0.71, "PPipe" + gurobi: 0.92, reactive.name + gurobi: 0.71}
	return func() []*figure {
		f := &figure{Figure: "10", Title: "18 models on HC2: reservations, and pools by themselves", Unit: "load factor", decimals: 3, more: true, words: true}
		for _, c := range contenders {
			for _, by := range []string{"", gurobi} {
				means := make([]float64, r.options.Seeds)
				for i, runs := range all {
					var each []float64
					for k := range means {
						each = append(each, runs[c.name+by][k].factor)
						means[k] += each[k] / float64(len(all))
					}
					f.Rows = append(f.Rows, seedsRow(r.blocks.models[i].Name, c.name+by, each, 0))
				}
				f.Rows = append(f.Rows, seedsRow(caseMean, c.name+by, means, said[c.name+by]))
			}
		}
		return []*figure{f}
	}
}

// gurobi marks the runs that use the authors' plans, which their solver Gurobi made.
const gurobi = ", Gurobi's plan"

// small returns HC1-S with the given numbers of devices of each class.
func small(high, low int) *hybrid {
	return &hybrid{"HC1-S", hybrids[0].classes, []int{high, low}, hybrids[0].perServer, hybrids[0].gbps}
}

// planSensitivity plans figure 13: each model on 16 devices, with varying targets, devices and
// margins.
func planSensitivity(r *reproduction) func() []*figure {
	type place struct {
		// x is the position on the axis.
		x float64

		// said is the paper's gain over NP, in percent.
		said float64

		// runs holds the runs by system, model and seed.
		runs map[string][][]hybridRun
	}
	type panel struct {
		// number, title and axis are those of the figure.
		number, title, axis string
		places              []*place
	}
	var all []*panel
	add := func(number, title, axis string, said map[float64]float64, list []float64, set func(x float64) (*hybrid, float64, float64)) {
		p := &panel{number: number, title: title, axis: axis}
		all = append(all, p)
		for _, x := range list {
			// set translates the position on the axis into a cluster, a scale of targets and a
			// margin.
			h, scale, margin := set(x)
			at := &place{x: x, said: said[x], runs: map[string][][]hybridRun{}}
			p.places = append(p.places, at)
			for _, s := range r.blocks.services(h, r.blocks.names(), nil, scale, margin) {
				results := map[string][]hybridRun{ppipe.name: make([]hybridRun, r.options.Seeds), unparted.name: make([]hybridRun, r.options.Seeds)}
				for name := range results {
					at.runs[name] = append(at.runs[name], results[name])
				}
				r.plan.add("figure 13", 1, func(ctx context.Context, _ *lane) error {
					rate := 0.0
					for _, c := range []system{ppipe, unparted} {
						made, err := c.make(ctx, h, []planning.Service{s})
						if err != nil {
							// Without a plan no query is in time.
							continue
						}
						if rate == 0 {
							rate = planned(&made[0])
						}
						for k := range results[c.name] {
							if results[c.name][k], err = lay(h, c.policy, made[0]).search(ctx, r.options, rate, nil, r.options.Seed+uint64(k)); err != nil {
								return err
							}
						}
					}
					return nil
				})
			}
		}
	}
	add("13a", "targets", "times the latency on the fastest GPU", map[float64]float64{2: 0}, []float64{2, 3, 4, 5, 6, 8, 10}, func(x float64) (*hybrid, float64, float64) { return small(4, 12), x / 5, mainMargin })
	add("13b", "GPUs of the high class, of 16", "GPUs", map[float64]float64{2: 64.03, 12: 5.64}, []float64{2, 4, 6, 8, 10, 12}, func(x float64) (*hybrid, float64, float64) { return small(int(x), 16-int(x)), 1, mainMargin })
	add("13c", "margins of the plan", "percent of the target", map[float64]float64{20: 24.9, 40: 52.8, 60: 16.4}, []float64{10, 20, 30, 40, 50, 60}, func(x float64) (*hybrid, float64, float64) { return small(4, 12), 1, x / 100 })
	return func() (list []*figure) {
		for _, p := range all {
			f := &figure{Figure: p.number, Title: p.title + ": load factor, mean over 18 models on 16 devices of HC1", Unit: "load factor", X: p.axis, decimals: 3, more: true, words: true}
			g := &figure{Figure: p.number + ", gain", Title: p.title + ": by how much PPipe's is higher", Unit: "percent", X: p.axis, decimals: 1, more: true, words: true, table: true}
			for _, at := range p.places {
				means := map[string][]float64{}
				for name, runs := range at.runs {
					for k := range r.options.Seeds {
						sum := 0.0
						for i := range runs {
							sum += runs[i][k].factor / float64(len(runs))
						}
						means[name] = append(means[name], sum)
					}
				}
				for _, name := range []string{ppipe.name, unparted.name} {
					row := seedsRow("18 models", name, means[name], 0)
					row.X = at.x
					f.Rows = append(f.Rows, row)
				}
				gain := make([]float64, r.options.Seeds)
				for k := range gain {
					gain[k] = 100 * (means[ppipe.name][k]/math.Max(means[unparted.name][k], 1e-9) - 1)
				}
				row := seedsRow("18 models", "PPipe over NP", gain, at.said)
				row.X = at.x
				g.Rows = append(g.Rows, row)
			}
			list = append(list, f, g)
		}
		return list
	}
}
