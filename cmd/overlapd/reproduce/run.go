// Package reproduce puts the tables of the Abacus paper beside ours: it fits
// an emulated device and predictors to disjoint halves of what the paper's
// authors measured, has the simulator serve their deployments on it with the
// production scheduler, and writes what comes out as text, JSON and one page.
// [Run] gives a [Result], which depends on the data, the options and the build
// only; whatever differs from run to run is a [Result.Times]'s. It is the command
// "reproduce abacus", and nothing else uses it.
package reproduce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/sim"
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
	list, err := o.check()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	d, err := readData(o.Data)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(o.Out, fittedFolder), folderMode); err != nil {
		return nil, err
	}
	r := &Result{
		Label: emulatedLabel, Commit: o.Commit, Data: d.sha256, Device: deviceName, Seed: o.Seed, Seeds: o.Seeds, Queries: o.Queries,
		Figures: []*figure{}, Missing: []*missing{}, timing: timing{Began: began.UTC().Truncate(time.Second)},
	}
	for _, v := range list {
		r.Policies = append(r.Policies, policy{v.name, v.summary})
	}
	if err := (&reproduction{options: &o, variants: list, data: d, result: r}).run(ctx); err != nil {
		return nil, err
	}
	r.timing.Seconds = time.Since(began).Seconds()
	return r, r.write(o.Out)
}

// reproduction is one run of the command.
type reproduction struct {
	options  *Options
	variants []variant
	data     *data
	result   *Result

	pairs, quad *stock // what was fitted; nil where nothing needs it
	finish      []func()
}

func (r *reproduction) run(ctx context.Context) error {
	fitting, serving := &plan{}, &plan{}
	if err := errors.Join(r.planFitting(fitting), r.planServing(serving)); err != nil {
		return err
	}
	t := newTally(r.options.Progress)
	t.expect(fitting.work() + serving.work())
	for _, p := range []*plan{fitting, serving} {
		if err := p.run(ctx, newLane, t); err != nil {
			return err
		}
		if p == fitting {
			r.gather()
		}
	}
	for _, f := range r.finish {
		f()
	}
	r.order()
	return nil
}

func (r *reproduction) gather() {
	for _, s := range []*stock{r.pairs, r.quad} {
		if s != nil {
			s.gather()
		}
	}
}

func (r *reproduction) planFitting(p *plan) error {
	o := r.options
	f := &fitter{o, r.data}
	if o.wants("14", "15", "16", "17", "highest-load", "credibility") {
		r.pairs = f.stockUp(p, "pairs", r.data.pairs, r.data.solo)
	}
	if r.data.quad != nil && o.wants("18", "19", "22", "23") {
		together, err := r.data.beyondPairs()
		if err != nil {
			return err
		}
		r.quad = f.stockUp(p, "quadruplets", together, r.data.soloOf(together))
	}
	if o.wants("10") {
		r.later(f.errorsFigure(p))
	}
	return nil
}

// later adds a figure once all jobs are done.
func (r *reproduction) later(figure func() *figure) {
	r.finish = append(r.finish, func() { r.result.Figures = append(r.result.Figures, figure()) })
}

func (r *reproduction) laterMany(figures func() []*figure) {
	r.finish = append(r.finish, func() { r.result.Figures = append(r.result.Figures, figures()...) })
}

func (r *reproduction) missing(figure, title, why string) {
	r.result.Missing = append(r.result.Missing, &missing{figure, title, why})
}

func (r *reproduction) planServing(p *plan) error {
	o := r.options
	var served *runs
	if o.wants("14", "15", "17", "credibility") {
		served = planPairs(p, o, r.pairs, r.variants, r.data.authors)
		if o.wants("15") {
			served.bounds = planBounds(p, o, r.pairs)
		}
		r.laterMany(func() []*figure { return served.pairFigures(o) })
	}
	if o.wants("16") {
		r.laterMany(planSmall(p, o, r.pairs, r.variants))
	}
	if o.wants("highest-load") {
		r.later(planHighest(p, o, r.pairs, r.variants))
	}
	if o.wants("credibility") {
		devices := []*trust{planTrust(p, r.pairs)}
		if r.quad != nil {
			devices = append(devices, planTrust(p, r.quad))
		}
		r.later(func() *figure { return credibility(served, devices) })
	}
	if o.wants("20", "21") {
		r.missing("20 and 21", "MIG instances", figureMIG)
	}
	return r.planQuad(p)
}

// planQuad plans what the measured quadruplets are for.
func (r *reproduction) planQuad(p *plan) error {
	o := r.options
	if r.quad == nil {
		if o.wants("18", "19", "22", "23") {
			r.missing("18, 19, 22 and 23", "more than two services", "there are no groups of four models below "+quadFolder)
		}
		return nil
	}
	if o.wants("18", "19") {
		r.laterMany(planMany(p, o, r.quad, r.variants))
	}
	if o.wants("23") {
		ways := planWays(p, o, r.quad, r.variants)
		r.later(func() *figure { return ways(&r.result.timing) })
	}
	if !o.wants("22") {
		return nil
	}
	if r.data.loads == "" {
		r.missing("22", "a cluster of 16 devices", "there is no "+loadsFile)
		return nil
	}
	minutes, err := sim.ReadLoads(r.data.loads)
	if err != nil {
		return err
	}
	r.laterMany(planCluster(p, o, r.quad, r.variants, minutes))
	return nil
}

// order puts the figures into that of the paper.
func (r *reproduction) order() {
	place := func(f *figure) int {
		for i, n := range figureNames {
			if f.Figure == n || len(f.Figure) > len(n) && f.Figure[:len(n)+1] == n+"," {
				return i
			}
		}
		return len(figureNames)
	}
	slices.SortStableFunc(r.result.Figures, func(a, b *figure) int { return place(a) - place(b) })
}

func (r *Result) write(dir string) error {
	return errors.Join(
		writeFile(filepath.Join(dir, resultFile), func(w io.Writer) error { return writeJSON(w, r) }),
		writeFile(filepath.Join(dir, timingFile), func(w io.Writer) error { return writeJSON(w, &r.timing) }),
		writeFile(filepath.Join(dir, PageFile), r.Document().WriteHTML),
	)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func writeFile(path string, fill func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(file), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
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

// The figures, in the order in which they are shown.
var figureNames = []string{"10", "14", "15", "16", "17", "18", "19", "20", "21", "22", "23", "highest-load", "credibility"}

// FigureNames lists what Options.Figures may name.
func FigureNames() []string { return slices.Clone(figureNames) }

// check returns the chosen variants, or an error that wraps errOptions and names
// every fault.
func (o *Options) check() ([]variant, error) {
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
		fault(!slices.Contains(figureNames, f), "there is no figure %q; there are %s", f, strings.Join(figureNames, ", "))
	}
	list, err := chosen(o.Policies)
	if err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %w", errOptions, errors.Join(faults...))
	}
	return list, nil
}

func (o *Options) wants(figures ...string) bool {
	return len(o.Figures) == 0 || slices.ContainsFunc(figures, func(f string) bool { return slices.Contains(o.Figures, f) })
}

// What makes a reproduction impossible.
var (
	// errOptions is returned when the options cannot be met.
	errOptions = errors.New("cannot be reproduced")

	// errData is returned when a folder or file does not hold what a figure
	// needs.
	errData = errors.New("unusable data")
)
