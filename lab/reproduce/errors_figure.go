package reproduce

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// The techniques of figure 10 (Abacus).
const (
	techniqueLinear  = "linear regression"
	techniqueVectors = "support vector regression"
	techniquePaper   = "network, paper's recipe"
	techniqueOurs    = "network, ours"
	techniqueCross   = "cross-validation, paper's recipe"
	techniqueOurFold = "cross-validation, ours"
)

// crossFolds is the number of folds of cross-validation. networkOfFit is the network's name in a
// report of package fit.
const (
	crossFolds   = 2
	networkOfFit = "network"
)

// errorTable holds the errors of techniques in percent: with one predictor for each set of models,
// by label, and with one for all sets.
type errorTable struct {
	// Own has the errors by technique and label, with one predictor for each set.
	Own map[string]map[string]float64 `json:"own"`

	// Unified has them by technique and label, with one predictor for all sets.
	Unified map[string]map[string]float64 `json:"unified"`

	// All has the errors by technique over all sets.
	All map[string]float64 `json:"all"`
}

// errorsKind is the format of a file with an errorTable.
var errorsKind = textfile.Kind[errorTable]{MaxBytes: 1 << 20, Foreign: errData, Damaged: errData}

// WriteFile writes the table for later runs.
func (t *errorTable) WriteFile(path string) error { return errorsKind.WriteFile(path, t) }

// newErrorTable returns the errors of a fitting report.
func newErrorTable(r *fit.Report) *errorTable {
	t := &errorTable{map[string]map[string]float64{}, map[string]map[string]float64{}, map[string]float64{}}
	for _, e := range r.Techniques {
		t.All[e.Name] = e.Test
		t.Own[e.Name], t.Unified[e.Name] = map[string]float64{}, map[string]float64{}
		for _, s := range r.Sets {
			// The figure is about groups of several models.
			if len(s.Models) < 2 {
				continue
			}
			if v, ok := s.PerSet[e.Name]; ok {
				t.Own[e.Name][setLabel(s.Models)] = v
			}
			t.Unified[e.Name][setLabel(s.Models)] = s.MAPE[e.Name]
		}
	}
	return t
}

// setLabel returns the label of models in the paper's order.
func setLabel(list []string) string {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b string) int { return shortPosition(short(a)) - shortPosition(short(b)) })
	return label(list)
}

// planErrors plans figure 10: the errors of predictors.
func planErrors(r *reproduction) func() []*figure {
	// train plans to fit one predictor, or reads the errors of an earlier run.
	train := func(what string, work float64, d *training.Dataset, recipe string, change func(*fit.Options)) *errorTable {
		into, o := new(errorTable), r.train(recipe)
		change(&o)
		r.plan.add("figure 10", work, func(ctx context.Context, _ *lane) error {
			t, err := kept(r, "errors-"+what, ".json", errorsKind.ReadFile, func() (*errorTable, error) {
				_, report, err := fit.Train(ctx, d, o)
				if err != nil {
					return nil, err
				}
				return newErrorTable(report), nil
			})
			if err == nil {
				*into = *t
			}
			return err
		})
		return into
	}
	plain := func(*fit.Options) {}
	// Cross-validation has folds instead of the usual split into rows for fitting and testing.
	folds := func(o *fit.Options) { o.Split, o.Folds = fit.SplitFolds, crossFolds }
	pairs, quad := r.data.pairs, r.data.quad
	paper := train("paper", 2*errorsWork, pairs, fit.RecipePaper, func(o *fit.Options) { o.Compare, o.Pairs = true, true })
	ours := train("overlapd", errorsWork, pairs, fit.RecipeOurs, func(o *fit.Options) { o.Pairs = true })
	cross := train("folds-paper", foldsWork, pairs, fit.RecipePaper, folds)
	ourCross := train("folds-overlapd", foldsWork, pairs, fit.RecipeOurs, folds)
	var quadOurs, quadPaper *errorTable
	if quad != nil {
		quadOurs = train("quad-overlapd", errorsWork/2, quad, fit.RecipeOurs, plain)
		quadPaper = train("quad-paper", errorsWork/2, quad, fit.RecipePaper, plain)
	}
	return func() []*figure {
		f := &figure{
			Figure: "10", Title: "errors of prediction, one predictor for each pair", Unit: "mean absolute percentage error", decimals: 2,
			Notes: []string{
				"Fitted on 80 % of the rows and tested on the rest, as in section 5.5. \"all\" is one predictor for all pairs; \"quadruplets\" is one for the groups of up to four models (paper: 4.9 % for three, 6.4 % for four).",
				"Cross-validation holds out each half of the rows in turn, with one predictor for all pairs. The device of the other figures and its predictors are fitted to disjoint halves, which this figure does not use.",
			},
			Rows: slices.Concat(
				errorRows(techniqueLinear, paper.Own[techniqueLinear], paper.All[techniqueLinear], 23.5, 30.1),
				errorRows(techniqueVectors, paper.Own[techniqueVectors], paper.All[techniqueVectors], 21.5, 29.2),
				errorRows(techniquePaper, paper.Own[networkOfFit], paper.All[networkOfFit], 5.5, 5.7),
				errorRows(techniqueOurs, ours.Own[networkOfFit], ours.All[networkOfFit], 0, 0),
				errorRows(techniqueCross, cross.Unified[networkOfFit], cross.All[networkOfFit], 0, 0),
				errorRows(techniqueOurFold, ourCross.Unified[networkOfFit], ourCross.All[networkOfFit], 0, 0)),
		}
		if quad != nil {
			f.Rows = append(f.Rows,
				row{Case: caseQuad, Policy: techniquePaper, Ours: rounded(quadPaper.All[networkOfFit]), Paper: rounded(6.4), Section: "5.5"},
				row{Case: caseQuad, Policy: techniqueOurs, Ours: rounded(quadOurs.All[networkOfFit])})
		}
		return []*figure{f}
	}
}

// errorRows returns the errors of a technique: that of each pair's own predictor, their mean, and
// that of one predictor for all pairs. The paper's numbers are 0 if it has none.
func errorRows(technique string, own map[string]float64, all, paperOwn, paperAll float64) (rows []row) {
	var list []float64
	for _, l := range slices.SortedFunc(maps.Keys(own), compareLabels) {
		rows = append(rows, row{Case: l, Policy: technique, Ours: rounded(own[l])})
		list = append(list, own[l])
	}
	rows = append(rows, row{Case: caseMean, Policy: technique, Ours: meanOf(list)}, row{Case: caseAll, Policy: technique, Ours: rounded(all)})
	if paperOwn > 0 {
		mean, unified := &rows[len(rows)-2], &rows[len(rows)-1]
		mean.Paper, mean.Section = rounded(paperOwn), "5.5"
		unified.Paper, unified.Section = rounded(paperAll), "5.5"
	}
	return rows
}

// compareLabels orders labels in the paper's order of models.
func compareLabels(a, b string) int {
	x, y := strings.Split(a, "+"), strings.Split(b, "+")
	return slices.CompareFunc(x, y, func(p, q string) int { return shortPosition(p) - shortPosition(q) })
}

// shortPosition returns the position of a short name in table 1.
func shortPosition(name string) int {
	for i, n := range shortNames {
		if n.short == name {
			return i
		}
	}
	return len(shortNames)
}
