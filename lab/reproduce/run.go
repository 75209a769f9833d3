// Package reproduce compares the tables and figures of papers with ours. For Abacus, [Run] fits an
// emulated device and predictors to disjoint halves of the measurements that the paper's authors
// published. The simulator then serves the authors' deployments on this device with the production
// scheduler.
//
// [Symphony] and [Shepherd] do the same on several devices, whose batches take the time in those
// papers' tables. [RAMSIS] lets workers choose between models. [PPipe] runs pipelines over devices
// of two classes.
//
// A [Result] has the forms of text, JSON and one page. It depends only on the data, the options and
// the build. What differs from run to run is in [Result.Times]. Only the command "reproduce" uses
// this package.
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

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
)

// The names of files below the folder for results.
const (
	resultFile = "result.json"

	// PageFile is the name of the page with all figures.
	PageFile   = "index.html"
	timingFile = "run.json"
)

// emulatedLabel stands first in the results for Abacus.
const emulatedLabel = "Emulated: no GPU was used. Groups take the time of a device model fitted to the authors' measurements, in virtual time; the scheduler and the predictors are those of the daemon."

// figureMIG is the reason why figures 20 and 21 are missing.
const figureMIG = "nothing was measured on MIG instances, and the speed of a part of a device cannot be derived from that of the whole"

// Run reproduces the figures of the Abacus paper. It writes the result, the page and the timing to
// the folder of the options.
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

// result returns a result without figures.
func (o *Options) result(label, data, device string) *Result {
	return &Result{
		Label: label, Commit: o.Commit, Data: data, Device: device, Seed: o.Seed, Seeds: o.Seeds, Queries: o.Queries,
		Figures: []*figure{}, Missing: []missing{}, timing: timing{Began: time.Now().UTC()},
	}
}

// reproduction is one run of the command. All jobs of fitting run before those of plan.
type reproduction struct {
	// options are those of the command.
	options *Options

	// variants are the chosen policies, and data that of Abacus.
	variants []variant
	data     *data

	// gpus are the devices of papers with linear devices, and day is the load of a day.
	gpus map[string]gpu
	day  day

	// result collects figures and the reasons for missing ones.
	result *Result

	// selection is the data of RAMSIS, and blocks that of PPipe.
	selection *variantData
	blocks    *blockData

	// fitting holds the jobs whose results other jobs need.
	fitting, plan plan

	// What several figures share is nil until one of them needs it.
	stocks             map[stockKey]*stock
	pairRuns, manyRuns []*served
}

// planner adds the jobs of some figures. It returns a function that draws the figures after these
// jobs, or nil if the figures lack data.
type planner func(*reproduction) func() []*figure

// shown is a value of Options.Figures.
type shown struct {
	// name is the value of the option.
	name string

	// plan adds the jobs of the figure or figures with that name.
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

// run plans the wanted figures, runs their jobs, and draws them.
func (r *reproduction) run(ctx context.Context, figures []shown) error {
	// Planners add their jobs first. Figures are drawn after all jobs, in the order of the list.
	var drawn []func() []*figure
	for _, f := range figures {
		if r.options.wants(f.name) {
			drawn = append(drawn, f.plan(r))
		}
	}
	// Both plans count towards the same progress.
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

// pairs returns the stock of the measured pairs at the clock of all figures.
func (r *reproduction) pairs() *stock { return r.stock(pairsStock, 0) }

// quad is pairs for the quadruplets. It returns nil if there are none.
func (r *reproduction) quad() *stock {
	if r.data.quad == nil {
		r.missing("18, 19, 22 and 23", "more than two services", "the folder with data has no groups of four models in "+quadFolder)
		return nil
	}
	return r.stock(quadStock, 0)
}

// missing records why a figure is missing, once.
func (r *reproduction) missing(figures, title, why string) func() []*figure {
	if m := (missing{figures, title, why}); !slices.Contains(r.result.Missing, m) {
		r.result.Missing = append(r.result.Missing, m)
	}
	return nil
}

// planMIG records that figures 20 and 21 are missing.
func planMIG(r *reproduction) func() []*figure {
	return r.missing("20 and 21", "MIG instances", figureMIG)
}

// write writes the files of a result.
func (r *Result) write(dir string) error {
	return errors.Join(
		textfile.Create(filepath.Join(dir, resultFile), func(w io.Writer) error { return report.WriteJSON(w, r) }),
		textfile.Create(filepath.Join(dir, timingFile), func(w io.Writer) error { return report.WriteJSON(w, &r.timing) }),
		textfile.Create(filepath.Join(dir, PageFile), r.Document().WriteHTML),
	)
}

// Limits of options.
const (
	maxSeeds = 1000

	// maxQueries is the most queries of a run.
	maxQueries = 1_000_000
	maxEpochs  = 10_000
)

// Options determine what is reproduced.
type Options struct {
	// Data is the folder with abacus-a100, or that folder itself.
	Data string

	// Out is the folder for results and for fitted files.
	Out string

	// Seed determines how rows are divided, where fitting begins, and the first run.
	Seed uint64

	// Seeds is the number of runs of each deployment.
	Seeds int

	// Queries is the number of queries of a run.
	Queries int

	// Epochs is the number of passes of fitting, 0 for those of the recipes.
	Epochs int

	// Figures selects figures, see [FigureNames]. nil selects all.
	Figures []string

	// Policies selects policies, see [VariantNames]. nil selects all.
	Policies []string

	// Commit identifies the build.
	Commit string

	// Progress, unless nil, is called as work is done, by one goroutine at a time. done is the
	// fraction of the work, from 0 to 1, and left the estimated time for the rest.
	Progress func(stage string, done float64, left time.Duration)
}

// DefaultOptions returns the options of the published tables.
func DefaultOptions() Options { return Options{Seed: 1, Seeds: 10, Queries: authorsQueries} }

// FigureNames returns the values of Options.Figures for Abacus.
func FigureNames() []string { return namesOf(figures) }

// namesOf returns the names of figures.
func namesOf(figures []shown) (names []string) {
	for _, f := range figures {
		names = append(names, f.name)
	}
	return names
}

// check returns the chosen variants, or an error that wraps errOptions and lists all faults.
func (o *Options) check(figures []shown) ([]variant, error) {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(o.Data == "", "no folder with data; give --data DIR")
	fault(o.Out == "", "no folder for results; give --out DIR")
	fault(o.Seeds < 1 || o.Seeds > maxSeeds, "%d seeds; give 1 to %d", o.Seeds, maxSeeds)
	fault(o.Queries < 1 || o.Queries > maxQueries, "%d queries a run; give 1 to %d", o.Queries, maxQueries)
	fault(o.Epochs < 0 || o.Epochs > maxEpochs, "%d epochs; give 0 to %d", o.Epochs, maxEpochs)
	for _, f := range o.Figures {
		fault(!slices.Contains(namesOf(figures), f), "no figure %q; give some of %s", f, strings.Join(namesOf(figures), ", "))
	}
	for _, p := range o.Policies {
		fault(!slices.Contains(VariantNames(), p), "unknown policy %q; give some of %s", p, strings.Join(VariantNames(), ", "))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %w", errOptions, errors.Join(faults...))
	}
	if len(o.Policies) == 0 {
		return variants, nil
	}
	return among(variants, o.Policies...), nil
}

// wants reports whether a figure is selected.
func (o *Options) wants(figure string) bool {
	return len(o.Figures) == 0 || slices.Contains(o.Figures, figure)
}

// The errors of a reproduction.
var (
	// errOptions is wrapped by errors about options.
	errOptions = errors.New("cannot be reproduced")

	// errData is wrapped by errors about a folder or file that lacks what a figure needs.
	errData = errors.New("unusable data")
)
