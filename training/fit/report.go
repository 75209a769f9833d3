package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// fitted describes a fit of a predictor or a device. TrainRows counts the rows of one fold to
// fit with, and TestRows the held-out rows of all folds. MAPETest is the mean absolute
// percentage error on the latter (Abacus, equation 1). Seconds is the time to fit and test.
type fitted struct {
	Device    string   `json:"device"`
	Models    []string `json:"models"`
	Rows      int      `json:"rows"`
	TrainRows int      `json:"train_rows"`
	TestRows  int      `json:"test_rows"`
	Hidden    []int    `json:"hidden"`
	Epochs    int      `json:"epochs"`
	Seed      uint64   `json:"seed"`
	Split     string   `json:"split"`
	Seconds   float64  `json:"seconds"`
	MAPETest  float64  `json:"mape_test"`
}

// newFitted returns the description of a fit without its results.
func newFitted(d *training.Dataset, o *Options, train, test int) fitted {
	f := fitted{
		Device: d.Device, Rows: len(d.Rows), TrainRows: train, TestRows: test,
		Hidden: o.Hidden, Epochs: newSchedule(o, train).epochs, Seed: o.Seed, Split: o.Split,
	}
	for _, m := range d.Models {
		f.Models = append(f.Models, m.Name)
	}
	return f
}

// Report describes how a predictor was trained, and its errors in percent.
type Report struct {
	fitted
	Recipe string `json:"recipe"`
	Inputs int    `json:"inputs"`

	// Regularization is nil for RecipePaper.
	Regularization *regularization `json:"regularization,omitempty"`

	// Folds holds the error of each fold on its held-out rows. Quantiles are those of
	// measured/predicted on them.
	MAPETrain float64             `json:"mape_train"`
	Folds     []float64           `json:"folds"`
	Quantiles predictor.Quantiles `json:"quantiles"`

	// Sets is sorted by the models of a group, and Spans by the number of its spans. Worst holds
	// the rows with the largest errors of the network.
	Techniques []techniqueErrors `json:"techniques"`
	Sets       []groupErrors     `json:"sets"`
	Spans      []groupErrors     `json:"spans"`
	Worst      []worstRow        `json:"worst"`

	// tested holds the held-out rows with their predictions, by technique.
	tested map[string][]point
}

// techniqueErrors holds the errors of one technique. PerSet is its error on held-out rows with
// separate predictors for each set of models. Fitted counts these predictors, and Skipped the
// rows whose set has too few rows to fit one.
type techniqueErrors struct {
	Name    string   `json:"name"`
	Test    float64  `json:"test"`
	Train   float64  `json:"train"`
	PerSet  *float64 `json:"per_set,omitempty"`
	Fitted  int      `json:"per_set_fitted,omitempty"`
	Skipped int      `json:"per_set_skipped,omitempty"`
}

// groupErrors holds the errors on held-out groups of the same models, or with the same number
// of spans. Its maps are keyed by technique.
type groupErrors struct {
	Models []string           `json:"models,omitempty"`
	Spans  int                `json:"spans,omitempty"`
	Rows   int                `json:"rows"`
	MAPE   map[string]float64 `json:"mape"`
	PerSet map[string]float64 `json:"per_set,omitempty"`
}

// worstRow is a badly predicted row. Std is the standard deviation of its runs.
type worstRow struct {
	Group     string  `json:"group"`
	Measured  float64 `json:"measured_us"`
	Predicted float64 `json:"predicted_us"`
	Std       float64 `json:"std_us"`
}

// maxWorst is the number of rows in Report.Worst.
const maxWorst = 10

// newReport returns the report of a trained network. Techniques are added by compare.
func newReport(d *training.Dataset, o *Options, folds []fold, f *predictor.File, out *outcome) *Report {
	r := &Report{
		fitted: newFitted(d, o, len(folds[0].train), len(out.test)), Recipe: o.Recipe, Inputs: f.Features.Width(),
		MAPETrain: mape(out.train), Folds: out.folds, Quantiles: f.Test.Quantiles,
		tested: map[string][]point{},
	}
	r.MAPETest = f.Test.MAPE
	worst := slices.Clone(out.test)
	slices.SortStableFunc(worst, func(a, b point) int { return cmp.Compare(b.off(), a.off()) })
	for _, p := range worst[:min(maxWorst, len(worst))] {
		r.Worst = append(r.Worst, worstRow{
			Group: groupText(d, &d.Rows[p.row]), Measured: p.measured, Predicted: p.predicted, Std: d.Rows[p.row].Std,
		})
	}
	return r
}

// groupText describes the spans of a row.
func groupText(d *training.Dataset, row *training.Row) string {
	var parts []string
	for _, s := range row.Group.Spans {
		text := fmt.Sprintf("%s [%d,%d) batch %d", d.Models[s.Service].Name, s.Start, s.End, s.Size)
		if s.SeqLen > 0 {
			text += fmt.Sprintf(" length %d", s.SeqLen)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// add records the results of a technique: one predictor for all rows and, unless sets is nil,
// separate predictors for each set of models.
func (r *Report) add(name string, d *training.Dataset, unified, sets *outcome) {
	e := techniqueErrors{Name: name, Test: mape(unified.test), Train: mape(unified.train)}
	r.tested[name] = unified.test
	bySpans := func(row *training.Row) groupErrors { return groupErrors{Spans: len(row.Group.Spans)} }
	byModels := func(row *training.Row) (g groupErrors) {
		for _, s := range row.Group.Spans {
			g.Models = append(g.Models, d.Models[s.Service].Name)
		}
		return g
	}
	tally(&r.Spans, d, unified.test, bySpans, func(g *groupErrors, percent float64) { g.MAPE[name] = percent })
	tally(&r.Sets, d, unified.test, byModels, func(g *groupErrors, percent float64) { g.MAPE[name] = percent })
	if sets != nil {
		perSet := mape(sets.test)
		e.PerSet, e.Fitted, e.Skipped = &perSet, sets.fitted, len(unified.test)-len(sets.test)
		tally(&r.Sets, d, sets.test, byModels, func(g *groupErrors, percent float64) { g.PerSet[name] = percent })
	}
	r.Techniques = append(r.Techniques, e)
}

// tally sets the errors in list, which has one element for each kind of group, and adds missing
// kinds.
func tally(list *[]groupErrors, d *training.Dataset, tested []point, kind func(*training.Row) groupErrors, set func(g *groupErrors, percent float64)) {
	byKind := map[int][]point{}
	for _, p := range tested {
		of := kind(&d.Rows[p.row])
		i := slices.IndexFunc(*list, func(g groupErrors) bool { return g.Spans == of.Spans && slices.Equal(g.Models, of.Models) })
		if i < 0 {
			i = len(*list)
			of.MAPE, of.PerSet = map[string]float64{}, map[string]float64{}
			*list = append(*list, of)
		}
		// Positions stay valid in this loop, because the list is sorted only at the end.
		byKind[i] = append(byKind[i], p)
	}
	for i, points := range byKind {
		g := &(*list)[i]
		g.Rows = max(g.Rows, len(points))
		set(g, mape(points))
	}
	slices.SortFunc(*list, func(a, b groupErrors) int {
		return cmp.Or(slices.Compare(a.Models, b.Models), cmp.Compare(a.Spans, b.Spans))
	})
}

// point is a row of the dataset, by its index, with its measured and its predicted latency in
// microseconds.
type point struct {
	row       int
	measured  float64
	predicted float64
}

// newPoints combines rows with their predictions in microseconds.
func newPoints(rows []training.Row, micros []float64) []point {
	all := make([]point, len(micros))
	for i, v := range micros {
		all[i] = point{row: i, measured: rows[i].Median, predicted: v}
	}
	return all
}

// off returns the relative error of the prediction.
func (p point) off() float64 { return math.Abs(p.predicted/p.measured - 1) }

// mape returns the mean absolute percentage error (Abacus, equation 1).
func mape(points []point) float64 {
	sum := 0.0
	for _, p := range points {
		sum += p.off()
	}
	return 100 * sum / float64(max(len(points), 1))
}

// leastPredicted is the least prediction that counts, as a fraction of the measured time. It keeps
// measured/predicted finite where a linear technique predicts zero or less.
const leastPredicted = 1e-2

// errorsOf summarizes the errors of predictions.
func errorsOf(points []point) predictor.Errors {
	if len(points) == 0 {
		return predictor.Errors{Quantiles: predictor.Exact}
	}
	ratios := make([]float64, len(points))
	for i, p := range points {
		ratios[i] = p.measured / max(p.predicted, leastPredicted*p.measured)
	}
	slices.Sort(ratios)
	return predictor.Errors{
		Rows: len(points), MAPE: mape(points),
		Quantiles: predictor.Quantiles{
			P01: stats.Quantile(ratios, 0.01), P50: stats.Quantile(ratios, 0.50), P90: stats.Quantile(ratios, 0.90),
			P95: stats.Quantile(ratios, 0.95), P99: stats.Quantile(ratios, 0.99),
		},
	}
}
