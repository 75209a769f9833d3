package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
)

func replayCommand() *cobra.Command {
	var o journal.ReplayOptions
	var out output
	var verbose bool
	var round uint64
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
			case out.json && (verbose || round != 0):
				return errors.New("--json prints the report, not the rounds: leave out --json or the others")
			case round != 0 && (verbose || o.From != 0 || o.To != 0):
				return errors.New("--round shows one round: leave out --from, --to and --verbose")
			case o.To != 0 && o.From > o.To:
				return fmt.Errorf("--from is %d and --to is %d: give --to of at least --from", o.From, o.To)
			case round != 0:
				o.From, o.To = round, round
				o.Each = func(r *journal.Report, round *journal.Round) { writeRound(w, r, round) }
			case verbose:
				o.Each = func(r *journal.Report, round *journal.Round) { writeRoundLine(w, r, round) }
			}
			log, err := textfile.Open(args[0])
			if err != nil {
				return err
			}
			defer log.Close()
			found, err := journal.Replay(args[0], log, o)
			if err != nil {
				return err
			}
			switch {
			case round == 0 || !found.Reproduced:
				err = out.print(w, struct {
					*journal.Report
					Log        string `json:"log"`
					Commit     string `json:"commit"`
					ReplayedOn string `json:"replayed_on"`
				}{found, args[0], buildCommit(), cpuName()}, func(w io.Writer) error { return writeReport(w, args[0], found) })
			case found.Rounds == 0:
				err = fmt.Errorf("%s does not hold round %d completely", args[0], round)
			}
			if err == nil && !found.Reproduced {
				return errReported
			}
			return err
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.From, "from", 0, "first round to report; earlier ones are replayed too")
	f.Uint64Var(&o.To, "to", 0, "last round to replay, 0 for all")
	f.Uint64Var(&round, "round", 0, "explain one round: candidates, predictions, choice and measurement")
	f.StringVar(&o.Policy, "policy", "", "fail unless the log was recorded with this policy")
	f.BoolVarP(&verbose, "verbose", "v", false, "print a line for each round")
	out.flag(f)
	return cmd
}

// deployed returns the name of each service once. A service that replaced another
// may have its name, and one that was removed before the log began has none.
func deployed(r *journal.Report) (names []string) {
	for _, name := range r.Services {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func writeReport(w io.Writer, path string, r *journal.Report) error {
	fmt.Fprintf(w, "%s: policy %s, services %s; recorded by overlapd %s (%s) on %s\n",
		filepath.Base(path), r.Policy, strings.Join(deployed(r), ", "), r.Version, r.Commit, r.Device)
	which := ""
	if r.Rounds > 0 {
		which = fmt.Sprintf(" (%d to %d)", r.FirstRound, r.LastRound)
	}
	if r.Reproduced {
		fmt.Fprintf(w, "reproduced: %s%s and %s\n", report.Count(r.Rounds, "round"), which, report.Count(r.Events, "event"))
	} else {
		fmt.Fprintf(w, "NOT reproduced: a difference after %s%s\n", report.Count(r.Rounds, "round"), which)
	}
	if r.Gaps > 0 {
		fmt.Fprintf(w, "gaps: %d, events lost: %d\n", r.Gaps, r.Lost)
	}
	if r.Torn {
		fmt.Fprintln(w, "the last line is incomplete and was skipped")
	}
	fmt.Fprintf(w, "queries: %d arrived, %d finished, %d cancelled, dropped %s, failed %s, in %.1f s\n",
		r.Arrived, r.Finished, r.Cancelled, counts(r.Dropped), counts(r.Failed), r.Seconds)
	fmt.Fprintf(w, "choosing a round: median %.1f µs, p99 %.1f µs\n", r.Decision.P50, r.Decision.P99)
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
		fmt.Fprintf(w, "\n%s:%d: %s at %v: %s (%q)\n  logged:  %s\n  decided: %s\n",
			path, d.Line, d.Event, d.At, d.What, d.Field, d.Logged, d.Decided)
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

func writeRoundLine(w io.Writer, r *journal.Report, round *journal.Round) {
	ratio := ""
	if q, ok := round.Ratio(); ok {
		ratio = fmt.Sprintf(" (%.2f)", q)
	}
	fmt.Fprintf(w, "%d at %v: %s: predicted %v, took %v%s\n", round.Number, round.At.Round(time.Microsecond),
		spans(r, round.Group), micros(round.Predicted.Latency), micros(round.Latency()), ratio)
}

func writeRound(w io.Writer, r *journal.Report, round *journal.Round) {
	fmt.Fprintf(w, "round %d at %v, policy %s, line %d\n", round.Number, round.At, r.Policy, round.Line)
	if round.Planned {
		fmt.Fprintf(w, "planned ahead for %v, while another round ran\n", round.Why.For)
	}
	writeCandidates(w, r, round)
	writeQuestions(w, r, round)
	for _, a := range round.Dropped {
		fmt.Fprintf(w, "\nquery %d of %s ended earlier: %v (%v)\n", a.Query, r.Services[a.Service], a.Result, a.Reason)
	}
	fmt.Fprintf(w, "\nchosen: %s\n", spans(r, round.Group))
	fmt.Fprintf(w, "  because %s\n", reason(r, round))
	for i, s := range round.Group.Spans {
		fmt.Fprintf(w, "  %s: batch %d, size %d, queries %v\n", r.Services[s.Service], s.Batch, s.Size, round.Queries[i])
	}
	fmt.Fprintf(w, "predicted: %v, bound %v\n", micros(round.Predicted.Latency), micros(round.Predicted.Bound))
	writeMeasured(w, r, round)
}

func writeCandidates(w io.Writer, r *journal.Report, round *journal.Round) {
	fmt.Fprintln(w, "\ncandidates, most urgent first:")
	t := report.NewTable("SERVICE", "QUERY", "FROM OPERATOR", "SIZE", "HEADROOM", "REMAINING ALONE", "PLACE IN THE GROUP")
	for _, c := range round.Why.Candidates {
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

func writeQuestions(w io.Writer, r *journal.Report, round *journal.Round) {
	groups := 0
	for _, call := range round.Calls {
		groups += len(call)
	}
	fmt.Fprintf(w, "\npredictions: %s in %s\n", report.Count(groups, "group"), report.Count(len(round.Calls), "call"))
	for i, call := range round.Calls {
		for _, q := range call {
			says := "unknown"
			if q.Estimate.Latency > 0 {
				says = fmt.Sprintf("%v, bound %v", micros(q.Estimate.Latency), micros(q.Estimate.Bound))
			}
			fmt.Fprintf(w, "  %d: %s: %s\n", i+1, spans(r, q.Group), says)
		}
	}
}

func reason(r *journal.Report, round *journal.Round) string {
	first := r.Services[round.Group.Spans[0].Service]
	asked := false // about several spans together
	for _, q := range slices.Concat(round.Calls...) {
		asked = asked || len(q.Group.Spans) > 1
	}
	switch {
	case len(round.Group.Spans) > 1:
		text := fmt.Sprintf("%s is the most urgent, and the whole group is predicted to finish within %v", first, micros(round.Why.Headroom))
		if round.Why.Solo > 0 {
			text += fmt.Sprintf(", where one after another they take %v", micros(round.Why.Solo))
		}
		return text
	case len(round.Why.Candidates) < 2:
		return "there was nothing else to run"
	case len(round.Calls) == 0:
		return first + " comes first, and the others were not predicted"
	case asked:
		return first + " comes first, and no group with others was predicted to meet the deadlines and gain"
	}
	return first + " comes first, and no group with others was predicted"
}

func writeMeasured(w io.Writer, r *journal.Report, round *journal.Round) {
	fmt.Fprintf(w, "measured: %v", micros(round.Latency()))
	if ratio, ok := round.Ratio(); ok {
		fmt.Fprintf(w, ", %.2f times the prediction", ratio)
	}
	fmt.Fprintf(w, ", over at %v\n", round.Finished)
	for _, so := range round.Outcome.Spans {
		for _, s := range round.Group.Spans {
			if s.Batch == so.Span.Batch {
				fmt.Fprintf(w, "  %s: %v at operator %d after %v\n", r.Services[s.Service], so.Status, so.Reached, micros(so.Took))
			}
		}
	}
	for _, a := range round.Answers {
		if a.Reason == overlap.ReasonNone {
			fmt.Fprintf(w, "  query %d: %v, queued %v, ran %v\n", a.Query, a.Result, micros(a.Queue), micros(a.Run))
		} else {
			fmt.Fprintf(w, "  query %d: %v (%v)\n", a.Query, a.Result, a.Reason)
		}
	}
}

func spans(r *journal.Report, g models.Group) string {
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
