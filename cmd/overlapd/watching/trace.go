package watching

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/perfetto"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
)

// traceOptions are the flags of trace, and the daemon that they name.
type traceOptions struct {
	target
	seconds float64
	out     string
	asJSON  bool
}

// traceCommand asks a daemon again and again for what is over, instead of having it record: the daemon
// remembers its last rounds anyway, and serves as if nobody traced.
func traceCommand() *cobra.Command {
	o := traceOptions{}
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Record the rounds of a running daemon for Perfetto",
		Long: `Trace records what a daemon runs for some seconds, as a Chrome trace. Use it to see
which operators ran together, and why a query was late. Open the file at
ui.perfetto.dev, which keeps it on your machine, or in chrome://tracing.

The trace has a row of rounds with predicted and measured times and the scheduler's
candidates and predictions; a row for each service with its operators and deadlines;
and the answered queries, with their arrival, their time in the queue, and an arrow to
the first operators that ran for them.

Ctrl-C ends a trace early; what was recorded until then is complete.`,
		Example: `  overlapd trace --seconds 5 > trace.json
  overlapd trace --seconds 30 --out trace.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.Interruptible(cmd)
			defer stop()
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.flags(cmd)
	// Seconds are a plain number, as in other recorders of traces.
	f := cmd.Flags()
	f.Float64Var(&o.seconds, "seconds", 5, "how long to record")
	f.StringVarP(&o.out, "out", "o", "", "write the trace to this file instead of standard output")
	f.BoolVar(&o.asJSON, "json", false, "with --out: print one JSON object that describes the recording")
	return cmd
}

// run records and says how much was recorded, on standard error, since standard output may be the trace.
func (o *traceOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	// NaN is not above 0 either.
	if !(o.seconds > 0) || o.seconds > maxTraceSeconds {
		return fmt.Errorf("--seconds is %v: give more than 0 and at most %d", o.seconds, maxTraceSeconds)
	}
	// Two JSON documents on one output could be read by nobody.
	if o.asJSON && o.out == "" {
		return errors.New("--json describes the file of a trace: give --out FILE")
	}
	// First, so that no empty file is left where no daemon answers.
	s, err := askStatus(&o.target)
	if err != nil {
		return err
	}
	r := recorder{traced: traced{Device: s.Overview.Device}}
	// A trace that was cut short is closed, so that what it has can be read.
	record := func(to io.Writer) error {
		r.w = perfetto.NewWriter(to)
		err := r.record(ctx, &o.target, time.Duration(o.seconds*float64(time.Second)))
		return errors.Join(err, r.w.Close())
	}
	switch {
	case o.out != "":
		err = textfile.Create(o.out, record)
	case term.IsTerminal(int(os.Stdout.Fd())):
		err = errors.New("a trace is not for a terminal: write it to a file, overlapd trace --seconds 5 > trace.json")
	default:
		err = record(stdout)
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		return report.WriteJSON(stdout, r.traced)
	}
	// What the daemon had forgotten is told, as its absence would look like an idle device.
	fmt.Fprintf(stderr, "%s and %s in %.1f s, %d missed; open the file at ui.perfetto.dev\n",
		report.Count(r.traced.Rounds, "round"), report.Count(r.traced.Queries, "query", "queries"), r.traced.Seconds, r.traced.Missed+r.traced.QueriesMissed)
	return nil
}
