package watching

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
)

// replayed is the report of a replay. Its JSON is for scripts that compare logs, so names stay.
type replayed struct {
	Log     string    `json:"log"`
	Version string    `json:"recorded_version"`
	Commit  string    `json:"recorded_commit"`
	Device  string    `json:"device"`
	Created time.Time `json:"created"`
	Policy  string    `json:"policy"`
	// Services are by ID; where several had the same, the last.
	Services   []string `json:"services"`
	Reproduced bool     `json:"reproduced"`
	Records    uint64   `json:"records"`
	Rounds     uint64   `json:"rounds"`
	FirstRound uint64   `json:"first_round"`
	LastRound  uint64   `json:"last_round"`
	// Seconds are those from the first record to the last. Lost are records before the file. It is Torn
	// if the last line had no end and was left out, as after a crash.
	Seconds    float64             `json:"seconds"`
	Lost       uint64              `json:"lost"`
	Torn       bool                `json:"torn"`
	Arrived    uint64              `json:"arrived"`
	Finished   uint64              `json:"finished"`
	Dropped    map[string]uint64   `json:"dropped"`
	Failed     map[string]uint64   `json:"failed"`
	Cancelled  uint64              `json:"cancelled"`
	Errors     []spanErrors        `json:"measured_over_predicted"`
	Difference *journal.Difference `json:"difference,omitempty"`
}

// spanErrors is how far predictions were off, for groups of so many spans.
type spanErrors struct {
	Spans  int    `json:"spans"`
	Rounds uint64 `json:"rounds"`
	// None had no prediction, or did not run to their end.
	None uint64 `json:"unpredicted"`
	// MAPE is in percent, and the quantiles are of measured over predicted.
	MAPE float64 `json:"mape"`
	P01  float64 `json:"p01"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`

	// OverBound is the percentage of the predicted rounds that took longer than the bound.
	OverBound float64 `json:"over_bound"`

	ratios []float64
	over   int
}

// replayedRound is a round with the records of its choice and its end, and the answers to its queries.
type replayedRound struct {
	*overlap.Round
	chosen, end *journal.Record
	answers     []overlap.Answer
}

// add counts a round.
func (e *spanErrors) add(x *replayedRound) {
	e.Rounds++
	ratio, ok := x.ratio()
	if !ok {
		e.None++
		return
	}
	e.ratios = append(e.ratios, ratio)
	if x.latency() > x.Predicted.Bound {
		e.over++
	}
}

// summary calculates what needs all rounds.
func (e *spanErrors) summary() spanErrors {
	slices.Sort(e.ratios)
	e.P01, e.P50 = stats.Quantile(e.ratios, 0.01), stats.Quantile(e.ratios, 0.5)
	e.P90, e.P99 = stats.Quantile(e.ratios, 0.9), stats.Quantile(e.ratios, 0.99)
	n := float64(max(len(e.ratios), 1))
	e.OverBound = 100 * float64(e.over) / n
	for _, ratio := range e.ratios {
		e.MAPE += 100 * math.Abs(1-1/ratio) / n
	}
	return *e
}

// latency returns how long the group took, as predictions are of: on an emulated device without
// the host's delay. A log that does not say so has the time of the round.
func (x *replayedRound) latency() time.Duration {
	return cmp.Or(x.end.Outcome.Latency, x.end.Outcome.Took)
}

// ratio returns measured/predicted, and false if there is none: then nothing was predicted, or not
// every span ran to its end.
func (x *replayedRound) ratio() (float64, bool) {
	o := &x.end.Outcome
	// A span that was stopped or failed says nothing of how long it would have taken.
	broken := slices.ContainsFunc(o.Spans, func(s models.SpanOutcome) bool { return s.Status != models.SpanDone })
	if x.Predicted.Latency <= 0 || x.latency() <= 0 || broken || len(o.Spans) != len(x.Spans) {
		return 0, false
	}
	return float64(x.latency()) / float64(x.Predicted.Latency), true
}

// deployed returns the name of each service once. A service that replaced another
// may have its name, and one that was removed before the log began has none.
func (r *replayed) deployed() (names []string) {
	for _, name := range r.Services {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// writeReport writes the report as text. Whether the decisions were reproduced comes first, since nothing
// below it holds if they were not.
func (r *replayed) writeReport(w io.Writer) error {
	fmt.Fprintf(w, "%s: policy %s, services %s; recorded by overlapd %s (%s) on %s\n",
		filepath.Base(r.Log), r.Policy, strings.Join(r.deployed(), ", "), r.Version, r.Commit, r.Device)
	which := ""
	if r.Rounds > 0 {
		which = fmt.Sprintf(" (%d to %d)", r.FirstRound, r.LastRound)
	}
	// The numbers below are of the rounds before a difference, and still hold for these.
	if r.Reproduced {
		fmt.Fprintf(w, "reproduced: %s%s and %s\n", report.Count(r.Rounds, "round"), which, report.Count(r.Records, "record"))
	} else {
		fmt.Fprintf(w, "NOT reproduced: a difference after %s%s\n", report.Count(r.Rounds, "round"), which)
	}
	if r.Lost > 0 {
		fmt.Fprintf(w, "%s before the first one lost\n", report.Count(r.Lost, "record"))
	}
	if r.Torn {
		fmt.Fprintln(w, "the last line is incomplete and was skipped")
	}
	fmt.Fprintf(w, "queries: %d arrived, %d finished, %d cancelled, dropped %s, failed %s, in %.1f s\n",
		r.Arrived, r.Finished, r.Cancelled, summed(r.Dropped), summed(r.Failed), r.Seconds)
	if len(r.Errors) > 0 {
		fmt.Fprintln(w, "\nmeasured/predicted:")
	}
	// Groups of more spans are harder to predict, and have rows of their own for that.
	t := report.NewTable("SPANS", "ROUNDS", "UNPREDICTED", "MAPE", "P01", "P50", "P90", "P99", "OVER BOUND")
	for _, e := range r.Errors {
		t.Rowf("%d\t%d\t%d\t%.1f %%\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f %%",
			e.Spans, e.Rounds, e.None, e.MAPE, e.P01, e.P50, e.P90, e.P99, e.OverBound)
	}
	if err := t.WriteText(w); err != nil {
		return err
	}
	if d := r.Difference; d != nil {
		fmt.Fprintf(w, "\n%s: %v\n", r.Log, d)
	}
	return nil
}

// summed formats the sum of counts and, behind it, each of them.
func summed(of map[string]uint64) string {
	if total := stats.Sum(of); total > 0 {
		return fmt.Sprintf("%d (%s)", total, report.Frequent(of))
	}
	return "0"
}

// micros rounds to what is worth reading of a latency.
func micros(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
