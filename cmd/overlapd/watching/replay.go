package watching

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
)

// replayCommand needs no daemon and no predictor, only a log: a bug in decisions can be looked into on any
// machine, and a changed scheduler compared with what an old one did.
func replayCommand() *cobra.Command {
	var out cli.Output
	var verbose bool
	var one uint64
	r := replayer{
		out:     replayed{Dropped: map[string]uint64{}, Failed: map[string]uint64{}, Errors: []spanErrors{}},
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
			// A line for each of a million rounds should not be a write each.
			w := bufio.NewWriter(cmd.OutOrStdout())
			defer w.Flush()
			// Each way to look at a log has flags of its own.
			switch {
			case out.JSON && (verbose || one != 0):
				return errors.New("--json prints the report, not the rounds: leave out --json or the others")
			case one != 0 && (verbose || r.from != 0 || r.to != 0):
				return errors.New("--round shows one round: leave out --from, --to and --verbose")
			case r.to != 0 && r.from > r.to:
				return fmt.Errorf("--from is %d and --to is %d: give --to of at least --from", r.from, r.to)
			// A round is explained when it is over, so the log is read up to there and no further.
			case one != 0:
				r.from, r.to = one, one
				r.each = func(x *replayedRound) { r.out.writeRound(w, x) }
			case verbose:
				r.each = func(x *replayedRound) { r.out.writeRoundLine(w, x) }
			}
			if err := r.replay(args[0]); err != nil {
				return err
			}
			// A round of a scheduler that decides otherwise explains nothing: the report says so.
			if one == 0 || !r.out.Reproduced {
				if err := out.Print(w, &r.out, r.out.writeReport); err != nil {
					return err
				}
			}
			switch {
			case !r.out.Reproduced: // which the report has said
				return cli.ErrReported
			// It may have begun before the log, or not have ended in it.
			case r.out.Rounds == 0 && one != 0:
				return fmt.Errorf("%s does not hold round %d completely", args[0], one)
			}
			return nil
		},
	}
	f := cmd.Flags()
	// From a round on means from its report on: the scheduler needs every event before it.
	f.Uint64Var(&r.from, "from", 0, "first round to report; earlier ones are replayed too")
	f.Uint64Var(&r.to, "to", 0, "last round to replay, 0 for all")
	f.Uint64Var(&one, "round", 0, "explain one round: candidates, predictions, choice and measurement")
	f.BoolVarP(&verbose, "verbose", "v", false, "print a line for each round")
	out.Flags(f)
	return cmd
}

// replayer makes the report of a replay from the records of the log.
type replayer struct {
	out replayed

	// from and to are the rounds to report, 0 for no bound. Each is called for each of them, if it is
	// not nil.
	from, to uint64
	each     func(*replayedRound)
	bySpans  map[int]*spanErrors
	// first is when the first record was written.
	first time.Duration

	// plan is the last one, until its round is chosen.
	plan    *journal.Record
	running map[uint64]*replayedRound
	// ended are rounds whose queries were not answered yet.
	ended []*replayedRound
}

// replay replays a log, up to the last round that is wanted. A difference is a result and no error.
func (r *replayer) replay(path string) error {
	in, err := textfile.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	l, err := journal.Replay(path, in, func(l *journal.Log, c *journal.Record) bool {
		if l.Records == 1 {
			r.first = c.At
			r.begin(l)
		}
		r.out.Seconds = (c.At - r.first).Seconds()
		r.take(c)
		return r.to == 0 || r.out.LastRound < r.to
	})
	// Any other error is of the file, which then is none of ours, or was changed.
	if err != nil && !errors.As(err, &r.out.Difference) {
		return err
	}
	r.report(nil)
	if l.Records == 0 {
		r.begin(l)
	}
	r.out.Log, r.out.Reproduced, r.out.Records, r.out.Lost, r.out.Torn = path, err == nil, l.Records, l.Lost, l.Torn
	for _, n := range slices.Sorted(maps.Keys(r.bySpans)) {
		r.out.Errors = append(r.out.Errors, r.bySpans[n].summary())
	}
	return nil
}

// begin adds the header of a log to the report. A log without records has one, too.
func (r *replayer) begin(l *journal.Log) {
	r.out.Version, r.out.Commit, r.out.Device, r.out.Created, r.out.Policy = l.Version, l.Commit, l.Device, l.Created, l.Config.Policy
	for _, m := range l.State.Definitions() {
		r.service(m)
	}
}

// take adds a record to the report.
func (r *replayer) take(c *journal.Record) {
	switch {
	case c.Kind == overlap.Add && c.Failure == "":
		r.service(c.Definition)
	case c.Kind == overlap.Arrive && c.Failure == "":
		r.out.Arrived++
	case c.Kind == overlap.Finish && r.running[c.Outcome.Round] != nil:
		x := r.running[c.Outcome.Round]
		delete(r.running, c.Outcome.Round)
		x.end, r.ended = c, append(r.ended, x)
	case c.Type == "advance":
		r.plan = c
	case c.Type == "ready":
		r.report(c.Ended)
		// The questions about a round that was planned ahead were asked when it was planned.
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
			r.out.Finished++
		case overlap.Dropped:
			r.out.Dropped[a.Reason.String()]++
		case overlap.Failed:
			r.out.Failed[a.Reason.String()]++
		case overlap.Cancelled:
			r.out.Cancelled++
		}
	}
}

// service adds the name of a service. One that was removed keeps its name until another one has
// its ID.
func (r *replayer) service(m models.Service) {
	// IDs are given in order, but a log may begin late.
	for int(m.ID) >= len(r.out.Services) {
		r.out.Services = append(r.out.Services, "")
	}
	if m.Name != "" {
		r.out.Services[m.ID] = m.Name
	}
}

// report adds the rounds that have ended to the report, with the answers that were given then.
func (r *replayer) report(answers []overlap.Answer) {
	// Answers come with the decision after the round, and name its batches.
	for _, x := range r.ended {
		if x.Number < r.from || r.to != 0 && x.Number > r.to {
			continue
		}
		if r.out.Rounds++; r.out.Rounds == 1 {
			r.out.FirstRound = x.Number
		}
		r.out.LastRound = max(r.out.LastRound, x.Number)
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
