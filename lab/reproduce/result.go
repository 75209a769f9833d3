package reproduce

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

// Result is what was reproduced. Its JSON form and its Document do not depend on when, where or how
// fast it was made.
type Result struct {
	// Label states that the device is emulated.
	Label string `json:"label"`

	// Commit, Data and Device identify the build, the data and what was emulated.
	Commit string `json:"commit"`
	Data   string `json:"data_sha256"`
	Device string `json:"device"`

	// Seed is the first of Seeds seeds.
	Seed  uint64 `json:"seed"`
	Seeds int    `json:"seeds"`

	// Queries is the number of queries of a run, 0 if runs have a duration instead.
	Queries int `json:"queries"`

	// Policies describes the series of the figures.
	Policies []policy `json:"policies"`

	// Figures are in the order of the paper's command.
	Figures []*figure `json:"figures"`

	// Missing lists the figures that cannot be reproduced.
	Missing []missing `json:"missing"`

	// timing holds what differs from run to run.
	timing timing

	// title is "" for Abacus.
	title string

	// about describes the numbers that ours are compared with.
	about string
}

// policy describes a series of the figures.
type policy struct {
	// Name is the name in figures.
	Name string `json:"name"`

	// Summary is one sentence on the policy.
	Summary string `json:"summary"`
}

// missing is a figure without data.
type missing struct {
	// Figure is the number or the name of the figure.
	Figure string `json:"figure"`

	// Title is its title.
	Title string `json:"title"`

	// Why is the reason, with what is missing.
	Why string `json:"why"`
}

// figure is a figure of a paper, or one that the paper does not have.
type figure struct {
	// Figure is its number, or a name.
	Figure string `json:"figure"`

	// Title describes the content, and Unit the values.
	Title string `json:"title"`
	Unit  string `json:"unit"`

	// X is the axis of rows that are drawn as lines, or "" for bars.
	X string `json:"x,omitempty"`

	// Notes are sentences below the figure.
	Notes []string `json:"notes"`

	// Rows are the numbers of the figure.
	Rows []row `json:"rows"`

	// Comparisons hold the comparisons that the paper states in words: a policy against another, in
	// percent.
	Comparisons []row `json:"comparisons"`

	// decimals is the number of decimals of a value.
	decimals int

	// percent means that values are fractions of 1.
	percent bool

	// more means that larger values are better.
	more bool

	// level is the height of a dashed line across charts, 0 for none.
	level float64

	// table means that values are of different kinds, so that no chart can show them.
	table bool

	// words means that only the paper has numbers, and the authors published no others.
	words bool
}

// row is one number of a figure, with the numbers of the paper and of its authors.
type row struct {
	// Case is the deployment or other condition, and QPS the load, 0 if there is none.
	Case string  `json:"case"`
	QPS  float64 `json:"qps,omitempty"`

	// X is the position on the figure's axis.
	X float64 `json:"x,omitempty"`

	// Policy is the series that the row belongs to.
	Policy string `json:"policy"`

	// Ours is our number, or nil if there is none.
	Ours *float64 `json:"ours"`

	// Spread is the standard deviation over the seeds.
	Spread *float64 `json:"spread,omitempty"`

	// Least and Most are the range over the seeds. Ours then is the median.
	Least *float64 `json:"least,omitempty"`
	Most  *float64 `json:"most,omitempty"`

	// Paper and Authors are the numbers of the paper's text and of its authors' files, or nil.
	Paper   *float64 `json:"paper"`
	Authors *float64 `json:"authors"`

	// Section is the section of the paper that has its number.
	Section string `json:"section,omitempty"`
}

// Cases that summarize others, or are the only one of their kind.
const (
	// caseMean is the mean over all other cases of a load and policy.
	caseMean       = "mean"
	caseAll        = "all"
	caseQuad       = "quadruplets"
	caseTriplets   = "mean of triplets"
	caseQuadruplet = "quadruplet"
)

// isMean reports whether a case summarizes others.
func isMean(name string) bool {
	return slices.Contains([]string{caseMean, caseAll, caseQuad, caseTriplets, caseQuadruplet}, name)
}

// rounded returns a number with six significant digits, or nil if it is not a number, so that
// results do not depend on rounding errors.
func rounded(v float64) *float64 {
	// Zero has no logarithm. Other numbers are rounded relative to their magnitude.
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		zero := 0.0
		if v == 0 {
			return &zero
		}
		return nil
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	r := math.Round(v*scale) / scale
	return &r
}

// find returns a row, or nil.
func (f *figure) find(name string, qps float64, policy string) *row {
	for i := range f.Rows {
		if r := &f.Rows[i]; r.Case == name && r.QPS == qps && r.Policy == policy {
			return r
		}
	}
	return nil
}

// loads returns the loads of the rows, in their order.
func (f *figure) loads() []float64 { return distinct(f.Rows, func(r *row) float64 { return r.QPS }) }

// cases returns the cases of a load, in their order.
func (f *figure) cases(qps float64) []string {
	others := func(r row) bool { return r.QPS != qps }
	return distinct(slices.DeleteFunc(slices.Clone(f.Rows), others), func(r *row) string { return r.Case })
}

// policies returns the policies of the rows, in their order.
func (f *figure) policies() []string {
	return distinct(f.Rows, func(r *row) string { return r.Policy })
}

// distinct returns the distinct values of rows, in their order.
func distinct[T comparable](rows []row, of func(*row) T) (list []T) {
	for i := range rows {
		if v := of(&rows[i]); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// addMeans adds a row for each load and policy with the mean over the cases that are not means
// themselves. It has the authors' mean only if they have a number for each case.
func (f *figure) addMeans(name string, mean func([]float64) float64) {
	for _, qps := range f.loads() {
		// Means of means would count cases twice.
		cases := slices.DeleteFunc(f.cases(qps), isMean)
		for _, policy := range f.policies() {
			var ours, authors []float64
			for _, c := range cases {
				if r := f.find(c, qps, policy); r != nil {
					ours, authors = present(ours, r.Ours), present(authors, r.Authors)
				}
			}
			if len(ours) == 0 {
				continue
			}
			row := row{Case: name, QPS: qps, Policy: policy, Ours: rounded(mean(ours))}
			if len(authors) == len(ours) {
				row.Authors = rounded(mean(authors))
			}
			f.Rows = append(f.Rows, row)
		}
	}
}

// present appends a number unless it is missing.
func present(list []float64, v *float64) []float64 {
	if v == nil {
		return list
	}
	return append(list, *v)
}

// meanOf returns the mean of a list, or nil if it is empty.
func meanOf(list []float64) *float64 {
	if len(list) == 0 {
		return nil
	}
	return rounded(stats.Mean(list))
}

// compare adds the improvement of each policy in whose over each in against, in percent.
func (f *figure) compare(name string, qps float64, whose, against []string, says statement) {
	for _, policy := range whose {
		a := f.find(name, qps, policy)
		for _, other := range against {
			b := f.find(name, qps, other)
			if a == nil || b == nil || policy == other {
				continue
			}
			// Only the paper's own policy has a stated number.
			row := row{Case: name + ": " + policy + " against " + other, QPS: qps, Policy: policy}
			row.Ours, row.Authors = change(a.Ours, b.Ours, f.more), change(a.Authors, b.Authors, f.more)
			if v, ok := says.against[other]; ok && policy == "abacus-authors" {
				row.Paper, row.Section = rounded(v), says.section
			}
			f.Comparisons = append(f.Comparisons, row)
		}
	}
}

// change returns the improvement of a over b in percent, or nil if it is unknown.
func change(a, b *float64, more bool) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	c := 100 * (1 - *a / *b)
	if more {
		c = -c
	}
	return rounded(c)
}

// timing holds what differs from run to run.
type timing struct {
	// Began is the start of the run, and Seconds its duration.
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`

	// Decisions has the times of figure 23 of Abacus.
	Decisions []decisionTime `json:"decisions,omitempty"`

	// Solving has the rows of table 2 of RAMSIS.
	Solving []solvingTime `json:"solving,omitempty"`
}

// Times returns the timing as a document for a terminal.
func (r *Result) Times() *report.Document {
	t, d := &r.timing, &report.Document{}
	if len(t.Decisions) > 0 {
		d.Heading("median time of a decision, on this machine")
		table := report.NewTable("policy", "ways", "µs")
		for _, k := range t.Decisions {
			table.Rowf("%s\t%d\t%.1f", k.Policy, k.Ways, k.Median)
		}
		d.Table(table)
	}
	if len(t.Solving) > 0 {
		d.Heading("table 2: time to compute a policy with %s", report.Count(runtime.GOMAXPROCS(0), "core"))
		table := report.NewTable("levels of slack", "batches", "models", "seconds", "paper")
		for _, s := range t.Solving {
			name, batches := fmt.Sprint(s.Levels), "all queued queries"
			if s.Levels == 0 {
				name = "one at each latency"
			}
			if s.Variable {
				batches = "variable"
			}
			table.Rowf("%s\t%s\t%d\t%.2f\t%.2f", name, batches, s.Models, s.Seconds, s.Paper)
		}
		d.Table(table)
	}
	d.Heading("%.0f s in all", t.Seconds)
	return d
}
