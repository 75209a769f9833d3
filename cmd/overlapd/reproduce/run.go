// Package reproduce puts the tables of papers beside ours. For that of Abacus, [Run] fits
// an emulated device and predictors to disjoint halves of what the paper's authors
// measured, and has the simulator serve their deployments on it with the production
// scheduler. [Symphony] and [Shepherd] do the same on several devices, whose batches take
// what those papers' tables say; [RAMSIS] has workers choose between models. A [Result], as
// text, JSON and one page, depends on the data, the options and the build only; whatever
// differs from run to run is a [Result.Times]'s. It is the command "reproduce", and nothing
// else uses it.
package reproduce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/report"
	"github.com/overlapd/overlapd/textfile"
)

// Names of the files below the folder for results.
const (
	resultFile = "result.json"
	PageFile   = "index.html"
	timingFile = "run.json"
)

// emulatedLabel stands first in every result.
const emulatedLabel = "Emulated: no GPU was used. Groups take as long as a device model says that was made of the authors' measurements, in virtual time; the scheduler and the predictors are those of the daemon."

// figureMIG is why figures 20 and 21 are not reproduced.
const figureMIG = "nothing was measured on MIG instances, and what a part of a device does does not follow from what the whole does"

// Run reproduces the figures and writes the result, the page and the timing
// to the folder of the options.
func Run(ctx context.Context, o Options) (*Result, error) {
	list, err := o.check(figures)
	if err != nil {
		return nil, err
	}
	d, err := readData(o.Data)
	if err != nil {
		return nil, err
	}
	if err := d.atClocks(ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(o.Out, fittedFolder), 0o755); err != nil {
		return nil, err
	}
	r := o.result(emulatedLabel, d.sha256, deviceName)
	for _, v := range list {
		r.Policies = append(r.Policies, policy{v.name, v.summary})
	}
	return (&reproduction{options: &o, variants: list, data: d, result: r, stocks: map[stockKey]*stock{}}).write(ctx, figures)
}

// result is one without figures.
func (o *Options) result(label, data, device string) *Result {
	return &Result{
		Label: label, Commit: o.Commit, Data: data, Device: device, Seed: o.Seed, Seeds: o.Seeds, Queries: o.Queries,
		Figures: []*figure{}, Missing: []missing{}, timing: timing{Began: time.Now().UTC()},
	}
}

// reproduction is one run of the command: first fitting is done, then plan.
type reproduction struct {
	options  *Options
	variants []variant
	data     *data
	gpus     map[string]gpu // of papers whose devices are linear
	day      day
	result   *Result

	selection *variantData // of RAMSIS
	blocks    *blockData   // of PPipe

	fitting, plan plan

	// What several figures share is nil until one of them needs it.
	stocks             map[stockKey]*stock
	pairRuns, manyRuns []*served
}

// planner adds the jobs of some figures, and returns what draws them once these are
// done; nil if there is no data for them.
type planner func(*reproduction) func() []*figure

// shown is what Options.Figures may name.
type shown struct {
	name string
	plan planner
}

// figures are those of the Abacus paper, in the order in which they are shown.
var figures = []shown{
	{"highest-load", planHighest},
	{"gain", planGain},
	{"pool", planPool},
	{"10", planErrors},
	{"14", planPairs(&pairTails)},
	{"15", planViolations},
	{"17", planPairs(&pairAnswered)},
	{"18", planMany(&manyTails, &manyViolations)},
	{"19", planMany(&manyAnswered)},
	{"20", planMIG},
	{"21", planMIG},
	{"22", planCluster},
	{"pods", planPods},
	{"23", planWays},
	{"credibility", planCredibility},
	{"static", planStatic},
}

// write reproduces figures and writes them to the folder of the options.
func (r *reproduction) write(ctx context.Context, figures []shown) (*Result, error) {
	if err := r.run(ctx, figures); err != nil {
		return nil, err
	}
	t := &r.result.timing
	t.Seconds, t.Began = time.Since(t.Began).Seconds(), t.Began.Truncate(time.Second)
	if err := os.MkdirAll(r.options.Out, 0o755); err != nil {
		return nil, err
	}
	return r.result, r.result.write(r.options.Out)
}

func (r *reproduction) run(ctx context.Context, figures []shown) error {
	var drawn []func() []*figure
	for _, f := range figures {
		if r.options.wants(f.name) {
			drawn = append(drawn, f.plan(r))
		}
	}
	t := newTally(r.options.Progress, r.fitting.work()+r.plan.work())
	for _, p := range []*plan{&r.fitting, &r.plan} {
		if err := p.run(ctx, newLane, t); err != nil {
			return err
		}
	}
	for _, draw := range drawn {
		if draw != nil {
			r.result.Figures = append(r.result.Figures, draw()...)
		}
	}
	return nil
}

// pairs returns what is fitted to the measured pairs at the clock of all figures.
func (r *reproduction) pairs() *stock { return r.stock(pairsStock, 0) }

// quad is pairs for the quadruplets, nil without these.
func (r *reproduction) quad() *stock {
	if r.data.quad == nil {
		r.missing("18, 19, 22 and 23", "more than two services", "there are no groups of four models below "+quadFolder)
		return nil
	}
	return r.stock(quadStock, 0)
}

// missing puts down, once, why there is no figure.
func (r *reproduction) missing(figures, title, why string) func() []*figure {
	if m := (missing{figures, title, why}); !slices.Contains(r.result.Missing, m) {
		r.result.Missing = append(r.result.Missing, m)
	}
	return nil
}

func planMIG(r *reproduction) func() []*figure {
	return r.missing("20 and 21", "MIG instances", figureMIG)
}

func (r *Result) write(dir string) error {
	return errors.Join(
		textfile.Create(filepath.Join(dir, resultFile), func(w io.Writer) error { return report.WriteJSON(w, r) }),
		textfile.Create(filepath.Join(dir, timingFile), func(w io.Writer) error { return report.WriteJSON(w, &r.timing) }),
		textfile.Create(filepath.Join(dir, PageFile), r.Document().WriteHTML),
	)
}

// Limits of options.
const (
	maxSeeds   = 1000
	maxQueries = 1_000_000 // per run
	maxEpochs  = 10_000
)

// Options are what is reproduced from what.
type Options struct {
	Data     string   // folder with abacus-a100, or that folder itself
	Out      string   // folder for results and for what was fitted
	Seed     uint64   // splits the rows, begins fitting, and is the first run's
	Seeds    int      // runs of each deployment
	Queries  int      // per run
	Epochs   int      // passes of fitting, 0 for those of the recipes
	Figures  []string // FigureNames, none for all
	Policies []string // VariantNames, none for all
	Commit   string

	// Progress is called, by one goroutine at a time, as work is done: with the
	// part of the whole work that is, 0 to 1, and about the time that the rest
	// takes. It may be nil.
	Progress func(stage string, done float64, left time.Duration)
}

// DefaultOptions are those of the published tables.
func DefaultOptions() Options { return Options{Seed: 1, Seeds: 10, Queries: authorsQueries} }

// FigureNames lists what Options.Figures may name.
func FigureNames() []string { return namesOf(figures) }

func namesOf(figures []shown) (names []string) {
	for _, f := range figures {
		names = append(names, f.name)
	}
	return names
}

// check returns the chosen variants, or an error that wraps errOptions and names
// every fault.
func (o *Options) check(figures []shown) ([]variant, error) {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(o.Data == "", "no folder with data; give --data DIR")
	fault(o.Out == "", "no folder for results; give --out DIR")
	fault(o.Seeds < 1 || o.Seeds > maxSeeds, "%d seeds, not 1 to %d", o.Seeds, maxSeeds)
	fault(o.Queries < 1 || o.Queries > maxQueries, "%d queries a run, not 1 to %d", o.Queries, maxQueries)
	fault(o.Epochs < 0 || o.Epochs > maxEpochs, "%d epochs, not 0 to %d", o.Epochs, maxEpochs)
	for _, f := range o.Figures {
		fault(!slices.Contains(namesOf(figures), f), "there is no figure %q; there are %s", f, strings.Join(namesOf(figures), ", "))
	}
	for _, p := range o.Policies {
		fault(!slices.Contains(VariantNames(), p), "unknown policy %q; there are %s", p, strings.Join(VariantNames(), ", "))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %w", errOptions, errors.Join(faults...))
	}
	if len(o.Policies) == 0 {
		return variants, nil
	}
	return among(variants, o.Policies...), nil
}

func (o *Options) wants(figure string) bool {
	return len(o.Figures) == 0 || slices.Contains(o.Figures, figure)
}

// What makes a reproduction impossible.
var (
	// errOptions is returned when the options cannot be met.
	errOptions = errors.New("cannot be reproduced")

	// errData is returned when a folder or file does not hold what a figure
	// needs.
	errData = errors.New("unusable data")
)
