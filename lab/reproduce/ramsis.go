package reproduce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/planning/selection"
)

// RAMSIS reproduces the figures of the RAMSIS paper, as [Run] does those of Abacus.
func RAMSIS(ctx context.Context, o Options) (*Result, error) { return section7.run(ctx, o) }

// run reproduces the figures for a setup.
func (s *setup) run(ctx context.Context, o Options) (*Result, error) {
	if _, err := o.check(ramsisFigures); err != nil {
		return nil, err
	}
	d, err := s.read(o.Data)
	if err != nil {
		return nil, err
	}
	r := o.result("Emulated: a batch takes the 95th percentile that the authors measured, in virtual time, and nothing else takes time.", d.sha256, "workers as in "+variantsFolder)
	r.title = "RAMSIS, reproduced"
	r.about = "Our numbers appear next to those of the paper's prototype, in text and tables. Its batches mostly take less than the 95th percentile, and sometimes more."
	// Runs last 30 s or 270 s, whatever the number of queries.
	r.Queries = 0
	return (&reproduction{options: &o, selection: d, result: r}).write(ctx, ramsisFigures)
}

// RAMSISFigures returns the values of Options.Figures for RAMSIS.
func RAMSISFigures() []string { return namesOf(ramsisFigures) }

// ramsisFigures are the figures of the RAMSIS paper, and some of ours.
var ramsisFigures = []shown{
	{"5", planTrace},
	{"6", planSteady},
	{"7", planFidelity},
	{"8", planModels},
	{"10", planLevels},
	{"11", planBatching},
	{"12", planFewer},
	{"bursts", planClusters},
	{"dropping", planDropping},
	{"table 2", planSolving},
}

// RAMSISQueries is the largest number of queries of a run at a constant load. A run is as long as
// the paper's, steadySeconds, unless that takes more queries.
const (
	RAMSISQueries = 120_000
	steadySeconds = 30.0
)

// The files of variantsFolder, in addition to those of [selection.ReadRAMSIS]: the load of a day,
// replayed in 270 seconds.
const (
	variantsFolder = "ramsis"
	traceFile      = "twitter_trace_qps.txt"

	// traceStep is the time between two loads of the trace, in seconds.
	traceStep = 10.0
)

// setup is the paper's experimental setup.
type setup struct {
	// tasks are image and text classification.
	tasks []task

	// loads are the constant loads in queries a second.
	loads []float64

	// workers are the numbers of workers under the trace.
	workers []int

	// levels is the number of levels of slack.
	levels int
}

// task is a task of the paper. workers is the number of workers under a constant load.
type task struct {
	// name is the task in the data's files.
	name string

	// targets are the targets in milliseconds.
	targets []float64

	// workers is the number of workers, see above.
	workers int
}

// section7 is the setup of the paper's section 7.
var section7 = setup{
	tasks:   []task{{"image", []float64{150, 300, 500}, 60}, {"text", []float64{100, 200, 300}, 20}},
	loads:   []float64{400, 800, 1200, 1600, 2000, 2400, 2800, 3200, 3600, 4000},
	workers: []int{20, 30, 40, 50, 60, 70, 80, 90, 100},
	levels:  100,
}

// variantData is the setup with the measured variants and the load of the trace.
type variantData struct {
	*setup

	// variants holds the front of each task.
	variants map[string][]selection.Variant

	// trace is the load of each step in queries a second.
	trace []float64

	// sha256 identifies the files that were read.
	sha256 string
}

// read reads the data of a setup.
func (s *setup) read(dir string) (d *variantData, err error) {
	if inside := filepath.Join(dir, variantsFolder); exists(inside) {
		dir = inside
	}
	d = &variantData{setup: s, variants: map[string][]selection.Variant{}}
	for _, t := range s.tasks {
		v, err := selection.ReadRAMSIS(dir, t.name)
		if err != nil {
			return nil, err
		}
		d.variants[t.name] = selection.Front(v)
	}
	row := func(t *textfile.Table) {
		// A row has a second and a load, separated by a space. The seconds must rise by the step.
		at, load, _ := strings.Cut(t.Fields[0], " ")
		rate, err := strconv.ParseFloat(load, 64)
		if want := fmt.Sprint(traceStep * float64(len(d.trace))); at != want || err != nil || !(rate >= 1 && rate <= maxDayRate) {
			t.Refuse(0, "give the second %s and the queries a second, 1 to %v", want, maxDayRate)
		}
		d.trace = append(d.trace, rate)
	}
	sheet := textfile.Sheet{Form: "rows with a second and a load", MaxRows: 1 << 12, Unusable: errData, TooLarge: errData}
	if err := sheet.ReadFile(filepath.Join(dir, traceFile), row, row); err != nil {
		return nil, err
	}
	d.sha256, err = hashOf(dir, filepath.Join(dir, traceFile))
	return d, err
}

// place is a point on the axis of a figure: the workers, the arrivals, and the results.
type place struct {
	// fleet has the workers and the variants.
	fleet

	// name is the case among those of the task.
	task, name string

	// x is the position on the axis.
	x float64

	// load is the constant, known load, or 0 under the trace.
	load float64

	// trace is the load of each step in queries a second.
	trace []float64

	// cv is the coefficient of variation of inter-arrival times.
	cv float64

	// levels is the number of levels of slack.
	levels int

	// paper holds the paper's percentages of late queries for ramsisRivals, if it has any.
	paper []float64

	// runs holds the outcomes by chooser and seed.
	runs map[string][]outcome

	// expected is the policy of a constant load, with the accuracy that it predicts.
	expected *selection.Policy
}

// steady returns a place with a constant load.
func (d *variantData) steady(task string, target float64, workers int, load float64) *place {
	return &place{
		fleet: fleet{d.variants[task], target, workers}, task: task, name: fmt.Sprintf("%g ms", target),
		x: load, load: load, cv: 1, levels: d.levels,
	}
}

// chooser is a way to choose variants. prepare returns the function that serves the queries of a
// place.
type chooser struct {
	name, summary string
	prepare       func(context.Context, *place, *Options) (server, error)
}

// server serves a stream of queries.
type server func(*stream) outcome

// The contenders of the paper.
var (
	ramsis    = byPolicy("RAMSIS", "ours: the policy of section 4, with queries dealt out to workers in turn, batches of all queued queries, and 100 levels of slack", nil)
	jellyfish = chooser{"Jellyfish+", "the most accurate variant that sustains 5 % more than the load in batches that take at most half the target; one queue", func(_ context.Context, p *place, _ *Options) (server, error) {
		return func(s *stream) outcome { return p.central(s, p.jellyfish) }, nil
	}}
	switching = chooser{"ModelSwitching", "the most accurate variant whose 99th percentile, measured under that load, is within the target; one queue", prepareSwitching}

	ramsisRivals = []chooser{ramsis, jellyfish, switching}
)

// maxWaiting is the longest queue of policies (section 6).
const maxWaiting = 32

// byPolicy returns a chooser that follows the policies computed for the workers. change may modify
// the workers before.
func byPolicy(name, summary string, change func(*place, *selection.Worker)) chooser {
	return chooser{name, summary, func(ctx context.Context, p *place, _ *Options) (server, error) {
		// Queues are as long as the largest batch that was measured, but at most as in the paper.
		w := selection.Worker{Variants: p.variants, Target: p.target, Workers: p.workers, Rate: p.load, CV: 1, Levels: p.levels}
		for _, v := range p.variants {
			w.Queue = max(w.Queue, min(len(v.Latency), maxWaiting))
		}
		if change != nil {
			change(p, &w)
		}
		// A changing load needs a set of policies, and a constant one a single policy.
		if p.trace != nil {
			low, high := p.span()
			set, err := w.SolveSet(ctx, low, high, nil)
			return func(s *stream) outcome { return p.dealt(s, set.At) }, err
		}
		policy, err := w.Solve(ctx)
		p.expected = policy
		return func(s *stream) outcome {
			return p.dealt(s, func(float64) *selection.Policy { return policy })
		}, err
	}}
}

// prepareSwitching measures the variants for ModelSwitching.
func prepareSwitching(_ context.Context, p *place, o *Options) (server, error) {
	low, high := p.span()
	// The authors' program measures ten times as long as a run.
	seconds := func(load float64) float64 { return 10 * o.seconds(load) }
	choose := p.switching(low, high, p.cv, seconds, rand.New(rand.NewPCG(o.Seed, measuring)))
	return func(s *stream) outcome { return p.central(s, choose) }, nil
}

// span returns the range of loads to prepare for. For a trace it includes some room for errors of
// the load monitor.
func (p *place) span() (low, high float64) {
	if p.trace == nil {
		return p.load, p.load
	}
	return slices.Min(p.trace) / 2, slices.Max(p.trace) * 1.1
}

// with returns a chooser with other variants to choose from.
func with(c chooser, name string, change func([]selection.Variant) []selection.Variant) chooser {
	return chooser{name, c.name + " with other variants", func(ctx context.Context, p *place, o *Options) (server, error) {
		other := *p
		other.variants = change(p.variants)
		return c.prepare(ctx, &other, o)
	}}
}

// The streams of random numbers.
const (
	measuring = iota
	arriving
)

// contend plans that choosers serve the same queries at places.
func contend(r *reproduction, stage string, places []*place, choosers ...chooser) {
	o := r.options
	for _, c := range choosers {
		if known := func(p policy) bool { return p.Name == c.name }; !slices.ContainsFunc(r.result.Policies, known) {
			r.result.Policies = append(r.result.Policies, policy{c.name, c.summary})
		}
	}
	for _, p := range places {
		p.runs = map[string][]outcome{}
		r.plan.add(stage, float64(16*len(p.trace)/len(r.selection.trace)+1), func(ctx context.Context, _ *lane) error {
			// Preparing computes policies or measures variants. It is part of the job, since it
			// takes long.
			serve := make([]server, len(choosers))
			for i, c := range choosers {
				var err error
				if serve[i], err = c.prepare(ctx, p, o); err != nil {
					return fmt.Errorf("%s, %s, %s at %v: %w", c.name, p.task, p.name, p.x, err)
				}
			}
			for k := range o.Seeds {
				// All choosers serve the same queries.
				s := p.stream(o, rand.New(rand.NewPCG(o.Seed+uint64(k), arriving)))
				for i, c := range choosers {
					p.runs[c.name] = append(p.runs[c.name], serve[i](s))
				}
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// stream returns the queries of a run at a place.
func (p *place) stream(o *Options, random *rand.Rand) *stream {
	if p.trace != nil {
		return changing(p.trace, traceStep, random)
	}
	return constant(p.load, o.seconds(p.load), p.cv, random)
}

// seconds returns the duration of a run at a constant load.
func (o *Options) seconds(load float64) float64 {
	return min(steadySeconds, float64(o.Queries)/load)
}

// of returns a value of a chooser's runs, by seed.
func (p *place) of(name string, value func(*outcome) float64) []float64 {
	list := make([]float64, len(p.runs[name]))
	for i := range list {
		list[i] = value(&p.runs[name][i])
	}
	return list
}

// shownLate is the fraction of late queries from which the paper shows no accuracy.
const shownLate = 0.05

// bears reports whether a chooser has few enough late queries for its accuracy to be shown.
func (p *place) bears(name string) bool {
	return stats.Median(p.of(name, (*outcome).violations)) < shownLate
}
