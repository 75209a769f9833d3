package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
)

func replayCommand() *cobra.Command {
	var out cli.Output
	var verbose bool
	var one uint64
	r := replay{
		found:   replayed{Dropped: map[string]uint64{}, Failed: map[string]uint64{}, Errors: []spanErrors{}},
		bySpans: map[int]*spanErrors{}, running: map[uint64]*replayedRound{},
	}
	cmd := &cobra.Command{
		Use:   "replay LOG",
		Short: "Reproduce the decisions of a decision log, and compare",
		Long: `Replay feeds the events of a decision log to a scheduler and compares its decisions with
those in the log. Use it to find out why the scheduler decided as it did, or whether
another version would. It stops at the first difference, shows it, and fails. The
predictor is not needed: its answers are in the log.

A daemon writes the log if log = true in [decisions]. Each file of it can be replayed
by itself.`,
		Example: `  overlapd replay decisions.log
  overlapd replay decisions.log.2 --from 1000 --to 1100 --verbose
  overlapd replay decisions.log --round 1042    explain one round
  overlapd replay decisions.log --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := bufio.NewWriter(cmd.OutOrStdout())
			defer w.Flush()
			switch {
			case out.JSON && (verbose || one != 0):
				return errors.New("--json prints the report, not the rounds: leave out --json or the others")
			case one != 0 && (verbose || r.from != 0 || r.to != 0):
				return errors.New("--round shows one round: leave out --from, --to and --verbose")
			case r.to != 0 && r.from > r.to:
				return fmt.Errorf("--from is %d and --to is %d: give --to of at least --from", r.from, r.to)
			case one != 0:
				r.from, r.to = one, one
				r.each = func(x *replayedRound) { r.found.writeRound(w, x) }
			case verbose:
				r.each = func(x *replayedRound) { r.found.writeRoundLine(w, x) }
			}
			if err := r.run(args[0]); err != nil {
				return err
			}
			if one == 0 || !r.found.Reproduced {
				if err := out.Print(w, &r.found, r.found.writeReport); err != nil {
					return err
				}
			}
			switch {
			case !r.found.Reproduced:
				return cli.ErrReported
			case r.found.Rounds == 0 && one != 0:
				return fmt.Errorf("%s does not hold round %d completely", args[0], one)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&r.from, "from", 0, "first round to report; earlier ones are replayed too")
	f.Uint64Var(&r.to, "to", 0, "last round to replay, 0 for all")
	f.Uint64Var(&one, "round", 0, "explain one round: candidates, predictions, choice and measurement")
	f.BoolVarP(&verbose, "verbose", "v", false, "print a line for each round")
	out.Flags(f)
	return cmd
}

// replayed is the report of a replay.
type replayed struct {
	Log        string              `json:"log"`
	Version    string              `json:"recorded_version"`
	Commit     string              `json:"recorded_commit"`
	Device     string              `json:"device"`
	Created    time.Time           `json:"created"`
	Policy     string              `json:"policy"`
	Services   []string            `json:"services"` // by ID; where several had the same, the last
	Reproduced bool                `json:"reproduced"`
	Records    uint64              `json:"records"`
	Rounds     uint64              `json:"rounds"`
	FirstRound uint64              `json:"first_round"`
	LastRound  uint64              `json:"last_round"`
	Seconds    float64             `json:"seconds"` // from the first record to the last
	Lost       uint64              `json:"lost"`    // records before the file
	Torn       bool                `json:"torn"`    // the last line had no end and was left out
	Arrived    uint64              `json:"arrived"`
	Finished   uint64              `json:"finished"`
	Dropped    map[string]uint64   `json:"dropped"`
	Failed     map[string]uint64   `json:"failed"`
	Cancelled  uint64              `json:"cancelled"`
	Errors     []spanErrors        `json:"measured_over_predicted"`
	Difference *journal.Difference `json:"difference,omitempty"`
}

// replay is a replay in progress.
type replay struct {
	found    replayed
	from, to uint64               // rounds to report, 0 for no bound
	each     func(*replayedRound) // is called for each of them, if it is not nil
	bySpans  map[int]*spanErrors
	first    time.Duration

	plan    *journal.Record // the last one, until its round is chosen
	running map[uint64]*replayedRound
	ended   []*replayedRound // whose queries were not answered yet
}

// spanErrors is how far predictions were off, for groups of so many spans.
type spanErrors struct {
	Spans  int     `json:"spans"`
	Rounds uint64  `json:"rounds"`
	None   uint64  `json:"unpredicted"` // without prediction, or not run to their end
	MAPE   float64 `json:"mape"`        // percent
	P01    float64 `json:"p01"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`

	OverBound float64 `json:"over_bound"` // percent of the predicted rounds that took longer than the bound

	ratios []float64
	over   int // rounds
}

// replayedRound is a round with the records of its choice and its end, and the answers to its queries.
type replayedRound struct {
	*overlap.Round
	chosen, end *journal.Record
	answers     []overlap.Answer
}

// run replays a log.
func (r *replay) run(path string) error {
	in, err := textfile.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	l, err := journal.Replay(path, in, func(l *journal.Log, c *journal.Record) bool {
		if l.Records == 1 {
			r.first = c.At
			r.found.begin(l)
		}
		r.found.Seconds = (c.At - r.first).Seconds()
		r.take(c)
		return r.to == 0 || r.found.LastRound < r.to
	})
	if err != nil && !errors.As(err, &r.found.Difference) {
		return err
	}
	r.report(nil)
	if l.Records == 0 {
		r.found.begin(l)
	}
	r.found.Log, r.found.Reproduced, r.found.Records, r.found.Lost, r.found.Torn = path, err == nil, l.Records, l.Lost, l.Torn
	for _, n := range slices.Sorted(maps.Keys(r.bySpans)) {
		r.found.Errors = append(r.found.Errors, r.bySpans[n].summary())
	}
	return nil
}

// begin adds the header of a log to the report.
func (r *replayed) begin(l *journal.Log) {
	r.Version, r.Commit, r.Device, r.Created, r.Policy = l.Version, l.Commit, l.Device, l.Created, l.Config.Policy
	for _, m := range l.State.Definitions() {
		r.service(m)
	}
}

// take adds a record to the report.
func (r *replay) take(c *journal.Record) {
	switch {
	case c.Kind == overlap.Add && c.Failure == "":
		r.found.service(c.Definition)
	case c.Kind == overlap.Arrive && c.Failure == "":
		r.found.Arrived++
	case c.Kind == overlap.Finish && r.running[c.Outcome.Round] != nil:
		x := r.running[c.Outcome.Round]
		delete(r.running, c.Outcome.Round)
		x.end, r.ended = c, append(r.ended, x)
	case c.Type == "advance":
		r.plan = c
	case c.Type == "ready":
		r.report(c.Ended)
		if c.Round != nil {
			if c.Round.Planned && r.plan != nil {
				c.Calls, r.plan = append(r.plan.Calls, c.Calls...), nil
			}
			r.running[c.Round.Number] = &replayedRound{Round: c.Round, chosen: c}
		}
	}
	for i := range c.Ended {
		switch a := &c.Ended[i]; a.Result {
		case overlap.Finished:
			r.found.Finished++
		case overlap.Dropped:
			r.found.Dropped[a.Reason.String()]++
		case overlap.Failed:
			r.found.Failed[a.Reason.String()]++
		case overlap.Cancelled:
			r.found.Cancelled++
		}
	}
}

// service adds the name of a service. One that was removed keeps its name until another one has
// its ID.
func (r *replayed) service(m models.Service) {
	for int(m.ID) >= len(r.Services) {
		r.Services = append(r.Services, "")
	}
	if m.Name != "" {
		r.Services[m.ID] = m.Name
	}
}

// report adds the rounds that have ended to the report, with the answers that were given then.
func (r *replay) report(answers []overlap.Answer) {
	for _, x := range r.ended {
		if x.Number < r.from || r.to != 0 && x.Number > r.to {
			continue
		}
		if r.found.Rounds++; r.found.Rounds == 1 {
			r.found.FirstRound = x.Number
		}
		r.found.LastRound = max(r.found.LastRound, x.Number)
		for _, a := range answers {
			if slices.ContainsFunc(x.Spans, func(s models.Span) bool { return s.Batch == a.Batch }) {
				x.answers = append(x.answers, a)
			}
		}
		e := r.bySpans[len(x.Spans)]
		if e == nil {
			e = &spanErrors{Spans: len(x.Spans)}
			r.bySpans[e.Spans] = e
		}
		e.add(x)
		if r.each != nil {
			r.each(x)
		}
	}
	r.ended = nil
}

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

func (r *replayed) writeReport(w io.Writer) error {
	fmt.Fprintf(w, "%s: policy %s, services %s; recorded by overlapd %s (%s) on %s\n",
		filepath.Base(r.Log), r.Policy, strings.Join(r.deployed(), ", "), r.Version, r.Commit, r.Device)
	which := ""
	if r.Rounds > 0 {
		which = fmt.Sprintf(" (%d to %d)", r.FirstRound, r.LastRound)
	}
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
		r.Arrived, r.Finished, r.Cancelled, counts(r.Dropped), counts(r.Failed), r.Seconds)
	if len(r.Errors) > 0 {
		fmt.Fprintln(w, "\nmeasured/predicted:")
	}
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

// counts formats the sum of counts and, behind it, each of them.
func counts(of map[string]uint64) string {
	if total := stats.Sum(of); total > 0 {
		return fmt.Sprintf("%d (%s)", total, report.Frequent(of))
	}
	return "0"
}

func (r *replayed) writeRoundLine(w io.Writer, x *replayedRound) {
	ratio := ""
	if q, ok := x.ratio(); ok {
		ratio = fmt.Sprintf(" (%.2f)", q)
	}
	fmt.Fprintf(w, "%d at %v: %s: predicted %v, took %v%s\n", x.Number, x.chosen.At.Round(time.Microsecond),
		r.spans(x.Group), micros(x.Predicted.Latency), micros(x.latency()), ratio)
}

func (r *replayed) writeRound(w io.Writer, x *replayedRound) {
	fmt.Fprintf(w, "round %d at %v, policy %s, line %d\n", x.Number, x.chosen.At, r.Policy, x.chosen.Line)
	if x.Planned {
		fmt.Fprintf(w, "planned ahead for %v, while another round ran\n", x.chosen.Explanation.For)
	}
	r.writeCandidates(w, x)
	r.writeQuestions(w, x)
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

func (r *replayed) writeCandidates(w io.Writer, x *replayedRound) {
	fmt.Fprintln(w, "\ncandidates, most urgent first:")
	t := report.NewTable("SERVICE", "QUERY", "FROM OPERATOR", "SIZE", "HEADROOM", "REMAINING ALONE", "PLACE IN THE GROUP")
	for _, c := range x.chosen.Explanation.Candidates {
		solo, place := "not asked", "-"
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

func (r *replayed) writeQuestions(w io.Writer, x *replayedRound) {
	groups := 0
	for _, call := range x.chosen.Calls {
		groups += len(call)
	}
	fmt.Fprintf(w, "\npredictions: %s in %s\n", report.Count(groups, "group"), report.Count(len(x.chosen.Calls), "call"))
	for i, call := range x.chosen.Calls {
		for _, q := range call {
			says := "unknown"
			if q.Estimate.Latency > 0 {
				says = fmt.Sprintf("%v, bound %v", micros(q.Estimate.Latency), micros(q.Estimate.Bound))
			}
			fmt.Fprintf(w, "  %d: %s: %s\n", i+1, r.spans(q.Group), says)
		}
	}
}

func (r *replayed) reason(x *replayedRound) string {
	first := r.Services[x.Spans[0].Service]
	asked := false // about several spans together
	for _, q := range slices.Concat(x.chosen.Calls...) {
		asked = asked || len(q.Group.Spans) > 1
	}
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

func (r *replayed) writeMeasured(w io.Writer, x *replayedRound) {
	fmt.Fprintf(w, "measured: %v", micros(x.latency()))
	if ratio, ok := x.ratio(); ok {
		fmt.Fprintf(w, ", %.2f times the prediction", ratio)
	}
	fmt.Fprintf(w, ", over at %v\n", x.end.At)
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

func (r *replayed) spans(g models.Group) string {
	var parts []string
	for _, s := range g.Spans {
		name := fmt.Sprintf("service %d", s.Service)
		if s.Service >= 0 && int(s.Service) < len(r.Services) {
			name = r.Services[s.Service]
		}
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

func micros(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
