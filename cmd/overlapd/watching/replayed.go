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

// writeRoundLine writes what ran, when, and how far the prediction was off.
func (r *replayed) writeRoundLine(w io.Writer, x *replayedRound) {
	ratio := ""
	if q, ok := x.ratio(); ok {
		ratio = fmt.Sprintf(" (%.2f)", q)
	}
	fmt.Fprintf(w, "%d at %v: %s: predicted %v, took %v%s\n", x.Number, x.chosen.At.Round(time.Microsecond),
		r.spans(x.Group), micros(x.Predicted.Latency), micros(x.latency()), ratio)
}

// writeRound explains a round in the order in which it came about: what there was to run, what the
// predictor was asked, what was chosen, and what became of it.
func (r *replayed) writeRound(w io.Writer, x *replayedRound) {
	fmt.Fprintf(w, "round %d at %v, policy %s, line %d\n", x.Number, x.chosen.At, r.Policy, x.chosen.Line)
	// What was known when it was planned may have changed until it ran.
	if x.Planned {
		fmt.Fprintf(w, "planned ahead for %v, while another round ran\n", x.chosen.Explanation.For)
	}
	r.writeCandidates(w, x)
	r.writeQuestions(w, x)
	// Shedding load is part of the same decision.
	for _, a := range x.chosen.Ended {
		fmt.Fprintf(w, "\nquery %d of %s ended earlier: %v (%v)\n", a.Query, r.Services[a.Service], a.Result, a.Reason)
	}
	fmt.Fprintf(w, "\nchosen: %s\n", r.spans(x.Group))
	fmt.Fprintf(w, "  because %s\n", r.reason(x))
	for i, s := range x.Spans {
		fmt.Fprintf(w, "  %s: batch %d, size %d, queries %v\n", r.Services[s.Service], s.Batch, s.Size, x.Queries[i])
	}
	fmt.Fprintf(w, "predicted: %v, bound %v\n", micros(x.Predicted.Latency), micros(x.Predicted.Bound))
	r.writeMeasured(w, x)
}

// writeCandidates lists the most urgent work of each service, which is all that a decision sees.
func (r *replayed) writeCandidates(w io.Writer, x *replayedRound) {
	fmt.Fprintln(w, "\ncandidates, most urgent first:")
	t := report.NewTable("SERVICE", "QUERY", "FROM OPERATOR", "SIZE", "HEADROOM", "REMAINING ALONE", "PLACE IN THE GROUP")
	for _, c := range x.chosen.Explanation.Candidates {
		solo, place := "not asked", "-"
		// What comes after the group is full is not asked about.
		if c.Solo.Latency > 0 {
			solo = micros(c.Solo.Latency).String()
		}
		if c.Place > 0 {
			place = fmt.Sprint(c.Place)
		}
		t.Rowf("%s\t%d\t%d\t%d\t%v\t%s\t%s", r.Services[c.Service], c.Query, c.Start, c.Size, micros(c.Headroom), solo, place)
	}
	_ = t.WriteText(w) // w keeps its first error
}

// writeQuestions lists what the predictor was asked, in the calls in which it was: groups of one call
// were weighed against each other.
func (r *replayed) writeQuestions(w io.Writer, x *replayedRound) {
	groups := 0
	for _, call := range x.chosen.Calls {
		groups += len(call)
	}
	fmt.Fprintf(w, "\npredictions: %s in %s\n", report.Count(groups, "group"), report.Count(len(x.chosen.Calls), "call"))
	for i, call := range x.chosen.Calls {
		for _, q := range call {
			// The predictor does not guess: what it was never trained on it does not know.
			says := "unknown"
			if q.Estimate.Latency > 0 {
				says = fmt.Sprintf("%v, bound %v", micros(q.Estimate.Latency), micros(q.Estimate.Bound))
			}
			fmt.Fprintf(w, "  %d: %s: %s\n", i+1, r.spans(q.Group), says)
		}
	}
}

// reason says why the group was chosen, as far as the record tells: the scheduler notes numbers, not
// reasons, so that logging costs little.
func (r *replayed) reason(x *replayedRound) string {
	first := r.Services[x.Spans[0].Service]
	asked := false // about several spans together
	for _, q := range slices.Concat(x.chosen.Calls...) {
		asked = asked || len(q.Group.Spans) > 1
	}
	// What the record holds tells these cases apart. Where a group was refused, it is not known for which of
	// its services.
	switch {
	case len(x.Spans) > 1:
		text := fmt.Sprintf("%s is the most urgent, and the whole group is predicted to finish within %v", first, micros(x.chosen.Explanation.Headroom))
		if x.chosen.Explanation.Solo > 0 {
			text += fmt.Sprintf(", where one after another they take %v", micros(x.chosen.Explanation.Solo))
		}
		return text
	case len(x.chosen.Explanation.Candidates) < 2:
		return "there was nothing else to run"
	case len(x.chosen.Calls) == 0:
		return first + " comes first, and the others were not predicted"
	case asked:
		return first + " comes first, and no group with others was predicted to meet the deadlines and gain"
	}
	return first + " comes first, and no group with others was predicted"
}

// writeMeasured says how long it took, and what the clients got.
func (r *replayed) writeMeasured(w io.Writer, x *replayedRound) {
	fmt.Fprintf(w, "measured: %v", micros(x.latency()))
	if ratio, ok := x.ratio(); ok {
		fmt.Fprintf(w, ", %.2f times the prediction", ratio)
	}
	fmt.Fprintf(w, ", over at %v\n", x.end.At)
	// A span that was stopped ended at another operator than was planned.
	for _, so := range x.end.Outcome.Spans {
		for _, s := range x.Spans {
			if s.Batch == so.Span.Batch {
				fmt.Fprintf(w, "  %s: %v at operator %d after %v\n", r.Services[s.Service], so.Status, so.Reached, micros(so.Took))
			}
		}
	}
	for _, a := range x.answers {
		if a.Reason == overlap.ReasonNone {
			fmt.Fprintf(w, "  query %d: %v, queued %v, ran %v\n", a.Query, a.Result, micros(a.Queue), micros(a.Run))
		} else {
			fmt.Fprintf(w, "  query %d: %v (%v)\n", a.Query, a.Result, a.Reason)
		}
	}
}

// spans names what runs together. Of a service that the log does not name, the number is all there is.
func (r *replayed) spans(g models.Group) string {
	var parts []string
	for _, s := range g.Spans {
		name := fmt.Sprintf("service %d", s.Service)
		if s.Service >= 0 && int(s.Service) < len(r.Services) {
			name = r.Services[s.Service]
		}
		// Operators are half open, as everywhere; sizes and lengths only where they say something.
		part := fmt.Sprintf("%s [%d,%d)", name, s.Start, s.End)
		if s.Size > 1 {
			part += fmt.Sprintf(" ×%d", s.Size)
		}
		if s.SeqLen > 0 {
			part += fmt.Sprintf(" seq %d", s.SeqLen)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " + ")
}
