package watching

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
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
