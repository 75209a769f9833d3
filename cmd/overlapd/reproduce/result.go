package reproduce

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/overlapd/overlapd/report"
	"github.com/overlapd/overlapd/stats"
)

// Result is what was reproduced. Nothing in its JSON form and its Document
// depends on when, where or how fast it was made.
type Result struct {
	Label    string    `json:"label"` // says that the device is emulated
	Commit   string    `json:"commit"`
	Data     string    `json:"data_sha256"`
	Device   string    `json:"device"`
	Seed     uint64    `json:"seed"`
	Seeds    int       `json:"seeds"`
	Queries  int       `json:"queries"` // per run
	Policies []policy  `json:"policies"`
	Figures  []*figure `json:"figures"`
	Missing  []missing `json:"missing"` // figures that cannot be reproduced

	timing timing
	title  string // "" for that of Abacus
	about  string // what stands beside ours
}

// policy describes a series of the figures.
type policy struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

// missing is a figure without data.
type missing struct {
	Figure string `json:"figure"`
	Title  string `json:"title"`
	Why    string `json:"why"`
}

// figure is a figure of the paper, or one that it does not have.
type figure struct {
	Figure string   `json:"figure"` // its number, or a name
	Title  string   `json:"title"`
	Unit   string   `json:"unit"`
	X      string   `json:"x,omitempty"` // what rows are drawn over as lines; empty for bars
	Notes  []string `json:"notes"`
	Rows   []row    `json:"rows"`

	// Comparisons hold what the paper gives in words: a policy against
	// another, in percent.
	Comparisons []row `json:"comparisons"`

	decimals int
	percent  bool    // values are parts of 1
	more     bool    // is better
	level    float64 // dashed line across, 0 for none
	table    bool    // values of different kinds, which no chart can hold
	words    bool    // the paper has numbers at most, its authors published no others
}

// row is one number of a figure, beside what the paper and its authors have
// for it.
type row struct {
	Case    string   `json:"case"`
	QPS     float64  `json:"qps,omitempty"`
	X       float64  `json:"x,omitempty"`
	Policy  string   `json:"policy"`
	Ours    *float64 `json:"ours"`
	Spread  *float64 `json:"spread,omitempty"` // standard deviation over the seeds
	Least   *float64 `json:"least,omitempty"`  // over the seeds; ours is the median
	Most    *float64 `json:"most,omitempty"`
	Paper   *float64 `json:"paper"`
	Authors *float64 `json:"authors"`
	Section string   `json:"section,omitempty"` // paper's
}

// Cases that stand for others, or are the only one of their kind.
const (
	caseMean       = "mean" // over all other cases of a load and policy
	caseAll        = "all"
	caseQuad       = "quadruplets"
	caseTriplets   = "mean of triplets"
	caseQuadruplet = "quadruplet"
)

func isMean(name string) bool {
	return slices.Contains([]string{caseMean, caseAll, caseQuad, caseTriplets, caseQuadruplet}, name)
}

// rounded keeps six significant digits, so that what is written is what was
// meant.
func rounded(v float64) *float64 {
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

// loads are those of the rows, in their order.
func (f *figure) loads() []float64 { return distinct(f.Rows, func(r *row) float64 { return r.QPS }) }

// cases are those of the rows of a load.
func (f *figure) cases(qps float64) []string {
	others := func(r row) bool { return r.QPS != qps }
	return distinct(slices.DeleteFunc(slices.Clone(f.Rows), others), func(r *row) string { return r.Case })
}

func (f *figure) policies() []string {
	return distinct(f.Rows, func(r *row) string { return r.Policy })
}

// distinct returns the values of rows, each once.
func distinct[T comparable](rows []row, of func(*row) T) (list []T) {
	for i := range rows {
		if v := of(&rows[i]); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// addMeans adds, for each load and policy, the mean over the cases that are not means
// themselves. The authors have one if they have a number for each case.
func (f *figure) addMeans(name string, mean func([]float64) float64) {
	for _, qps := range f.loads() {
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

func present(list []float64, v *float64) []float64 {
	if v == nil {
		return list
	}
	return append(list, *v)
}

// meanOf is nil of no values.
func meanOf(list []float64) *float64 {
	if len(list) == 0 {
		return nil
	}
	return rounded(stats.Mean(list))
}

// compare adds by how much each policy in whose is better in a case than each in
// against, in percent.
func (f *figure) compare(name string, qps float64, whose, against []string, says statement) {
	for _, policy := range whose {
		a := f.find(name, qps, policy)
		for _, other := range against {
			b := f.find(name, qps, other)
			if a == nil || b == nil || policy == other {
				continue
			}
			row := row{Case: name + ": " + policy + " against " + other, QPS: qps, Policy: policy}
			row.Ours, row.Authors = change(a.Ours, b.Ours, f.more), change(a.Authors, b.Authors, f.more)
			if v, ok := says.against[other]; ok && policy == "abacus-authors" {
				row.Paper, row.Section = rounded(v), says.section
			}
			f.Comparisons = append(f.Comparisons, row)
		}
	}
}

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

// timing is what differs from run to run.
type timing struct {
	Began     time.Time      `json:"began"`
	Seconds   float64        `json:"seconds"`
	Decisions []decisionTime `json:"decisions,omitempty"`
	Solving   []solvingTime  `json:"solving,omitempty"` // of table 2 of RAMSIS
}

// Times returns what differs from run to run, for a terminal.
func (r *Result) Times() *report.Document {
	t, d := &r.timing, &report.Document{}
	if len(t.Decisions) > 0 {
		d.Heading("what a decision took in the middle, on this machine")
		table := report.NewTable("policy", "ways", "µs")
		for _, k := range t.Decisions {
			table.Rowf("%s\t%d\t%.1f", k.Policy, k.Ways, k.Median)
		}
		d.Table(table)
	}
	if len(t.Solving) > 0 {
		d.Heading("table 2: how long a policy takes with %s", report.Count(runtime.GOMAXPROCS(0), "core"))
		table := report.NewTable("levels of slack", "batches", "models", "seconds", "paper")
		for _, s := range t.Solving {
			name, batches := fmt.Sprint(s.Levels), "all that wait"
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
