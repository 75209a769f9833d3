package reproduce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/selection"
	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/textfile"
)

// RAMSIS reproduces the figures of the RAMSIS paper, as Run those of Abacus.
func RAMSIS(ctx context.Context, o Options) (*Result, error) { return section7.run(ctx, o) }

func (s *setup) run(ctx context.Context, o Options) (*Result, error) {
	if _, err := o.check(ramsisFigures); err != nil {
		return nil, err
	}
	d, err := s.read(o.Data)
	if err != nil {
		return nil, err
	}
	r := o.result("Emulated: a batch takes what the authors measured as its 95th percentile, in virtual time, and nothing else takes any.", d.sha256, "workers as in "+variantsFolder)
	r.title = "RAMSIS, reproduced"
	r.about = "Beside ours stands what the paper says in words and tables of its prototype, whose batches mostly take less than the 95th percentile and sometimes more."
	r.Queries = 0 // runs last 30 s or 270 s
	return (&reproduction{options: &o, selection: d, result: r}).write(ctx, ramsisFigures)
}

// RAMSISFigures lists what Options.Figures may name for RAMSIS.
func RAMSISFigures() []string { return namesOf(ramsisFigures) }

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

// RAMSISQueries is how many queries a run at a constant load has at most. It lasts as long as
// the paper's unless these are fewer.
const (
	RAMSISQueries = 120_000
	steadySeconds = 30.0
)

// The files of variantsFolder beside those of selection.ReadRAMSIS: the load of a day, which
// is passed in 270 seconds.
const (
	variantsFolder = "ramsis"
	traceFile      = "twitter_trace_qps.txt"
	traceStep      = 10.0 // seconds
)

// setup is what the paper looks at.
type setup struct {
	tasks   []task
	loads   []float64 // that are constant, queries a second
	workers []int     // under the trace
	levels  int       // of slack
}

// task has the number of workers under a constant load, too.
type task struct {
	name    string
	targets []float64
	workers int
}

var section7 = setup{
	tasks:   []task{{"image", []float64{150, 300, 500}, 60}, {"text", []float64{100, 200, 300}, 20}},
	loads:   []float64{400, 800, 1200, 1600, 2000, 2400, 2800, 3200, 3600, 4000},
	workers: []int{20, 30, 40, 50, 60, 70, 80, 90, 100},
	levels:  100,
}

// variantData is the setup with what was measured of variants, and the load of the trace.
type variantData struct {
	*setup
	variants map[string][]selection.Variant // front, by task
	trace    []float64                      // queries a second in each step
	sha256   string
}

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
		at, load, _ := strings.Cut(t.Fields[0], " ")
		rate, err := strconv.ParseFloat(load, 64)
		if want := fmt.Sprint(traceStep * float64(len(d.trace))); at != want || err != nil || !(rate >= 1 && rate <= maxDayRate) {
			t.Refuse(0, "it must be the second %s and the queries a second, 1 to %v", want, maxDayRate)
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

// place is one on the axis of a figure: who serves there, what comes, and what became of it.
type place struct {
	fleet
	task, name string    // name is of the case among those of its task
	x          float64   // on the axis
	load       float64   // that is constant and known, 0 for the trace
	trace      []float64 // queries a second in each step
	cv         float64   // of the time between queries
	levels     int       // of slack
	paper      []float64 // percent of late queries of ramsisRivals, if it says so

	runs     map[string][]outcome // by chooser, a seed after the other
	expected *selection.Policy    // under a constant load
}

// steady is a place with a constant load.
func (d *variantData) steady(task string, target float64, workers int, load float64) *place {
	return &place{
		fleet: fleet{d.variants[task], target, workers}, task: task, name: fmt.Sprintf("%g ms", target),
		x: load, load: load, cv: 1, levels: d.levels,
	}
}

// chooser is a way to choose variants. For a place it returns what serves queries there.
type chooser struct {
	name, summary string
	prepare       func(context.Context, *place, *Options) (server, error)
}

type server func(*stream) outcome

// The contenders of the paper.
var (
	ramsis    = byPolicy("RAMSIS", "ours: the policy of section 4, for queries that are dealt out to workers in turn; a batch has all that wait, and slack 100 levels", nil)
	jellyfish = chooser{"Jellyfish+", "the most accurate variant that does 5 % more than the load in batches that take at most half the target; one queue", func(_ context.Context, p *place, _ *Options) (server, error) {
		return func(s *stream) outcome { return p.central(s, p.jellyfish) }, nil
	}}
	switching = chooser{"ModelSwitching", "the most accurate variant whose 99th percentile, measured under such a load, is within the target; one queue", prepareSwitching}

	ramsisRivals = []chooser{ramsis, jellyfish, switching}
)

// maxWaiting is the longest queue that policies know (section 6).
const maxWaiting = 32

// byPolicy returns a chooser with the policies of workers, which are changed before.
func byPolicy(name, summary string, change func(*place, *selection.Worker)) chooser {
	return chooser{name, summary, func(ctx context.Context, p *place, _ *Options) (server, error) {
		w := selection.Worker{Variants: p.variants, Target: p.target, Workers: p.workers, Rate: p.load, CV: 1, Levels: p.levels}
		for _, v := range p.variants {
			w.Queue = max(w.Queue, min(len(v.Latency), maxWaiting))
		}
		if change != nil {
			change(p, &w)
		}
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

func prepareSwitching(_ context.Context, p *place, o *Options) (server, error) {
	low, high := p.span()
	seconds := func(load float64) float64 { return 10 * o.seconds(load) } // as in the program of RAMSIS's authors
	choose := p.switching(low, high, p.cv, seconds, rand.New(rand.NewPCG(o.Seed, measuring)))
	return func(s *stream) outcome { return p.central(s, choose) }, nil
}

// span returns the loads to prepare for: the trace's, with room for what the monitor says.
func (p *place) span() (low, high float64) {
	if p.trace == nil {
		return p.load, p.load
	}
	return slices.Min(p.trace) / 2, slices.Max(p.trace) * 1.1
}

// with returns a chooser that has other variants to choose from.
func with(c chooser, name string, change func([]selection.Variant) []selection.Variant) chooser {
	return chooser{name, c.name + " with other variants", func(ctx context.Context, p *place, o *Options) (server, error) {
		other := *p
		other.variants = change(p.variants)
		return c.prepare(ctx, &other, o)
	}}
}

// Streams of random numbers.
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
			serve := make([]server, len(choosers))
			for i, c := range choosers {
				var err error
				if serve[i], err = c.prepare(ctx, p, o); err != nil {
					return fmt.Errorf("%s, %s, %s at %v: %w", c.name, p.task, p.name, p.x, err)
				}
			}
			for k := range o.Seeds {
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

// stream returns what comes to a place in a run.
func (p *place) stream(o *Options, random *rand.Rand) *stream {
	if p.trace != nil {
		return changing(p.trace, traceStep, random)
	}
	return constant(p.load, o.seconds(p.load), p.cv, random)
}

// seconds is how long a run at a constant load lasts.
func (o *Options) seconds(load float64) float64 {
	return min(steadySeconds, float64(o.Queries)/load)
}

// of returns a value of the runs of a chooser, by seed.
func (p *place) of(name string, value func(*outcome) float64) []float64 {
	list := make([]float64, len(p.runs[name]))
	for i := range list {
		list[i] = value(&p.runs[name][i])
	}
	return list
}

// shownLate is the part of late queries from which on the paper shows no accuracy.
const shownLate = 0.05

// bears reports whether a chooser's accuracy is shown.
func (p *place) bears(name string) bool {
	return stats.Median(p.of(name, (*outcome).violations)) < shownLate
}
