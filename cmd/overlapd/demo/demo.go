// Package demo has the command that shows what overlapping gains, first in virtual time and then on a
// daemon. It is the one bridge from the program to the lab, whose simulator it compares policies with.
package demo

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
)

// Command returns the command.
func Command() *cobra.Command {
	o := demo{seed: 1}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See in a second what overlapping gains, on an emulated GPU",
		Long: `Demo compares four scheduling policies on an emulated GPU and shows what overlapping
gains. Start here: it needs no GPU, no ONNX Runtime and no data. Three services run in
virtual time. Demo shows what runs when, and the highest load of each policy with at
most 1 % of the queries late or rejected. All policies use dynamic batching.

Then it runs a daemon on the same emulated device under load, with its dashboard,
until Ctrl-C. With --headless or --json it ends after the comparison.`,
		Example: `  overlapd demo
  overlapd demo --headless --duration 10s --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.headless, "headless", false, "only compare; start no daemon")
	f.DurationVar(&o.duration, "duration", 0, "how long the load lasts: in virtual time with --headless (default 3s), else on the daemon (default until Ctrl-C)")
	f.StringVar(&o.listen, "listen", "", "address of the daemon (default 127.0.0.1:8000, or another port if that is taken)")
	f.Uint64Var(&o.seed, "seed", o.seed, "seed of the virtual-time comparison")
	o.Flags(f)
	return cmd
}

// demo has the flags.
type demo struct {
	cli.Output
	headless bool
	duration time.Duration
	listen   string
	seed     uint64
}

// run compares, and shows the result as soon as there is one: the picture, the numbers, the daemon.
func (o *demo) run(cmd *cobra.Command) error {
	if o.duration < 0 || o.duration > longestTime && o.headless {
		return fmt.Errorf("--duration is %v; give 0 to %v", o.duration, longestTime)
	}
	// With a daemon --duration is about that, in real time.
	virtual := virtualTime
	if o.headless || o.JSON {
		virtual = cmp.Or(o.duration, virtual)
	}
	c, err := newComparison(o.seed, virtual)
	if err == nil {
		err = c.each((*policy).record)
	}
	out := newPainter(cmd.OutOrStdout())
	if err == nil && !o.JSON {
		// Before the rest, which takes most of the second.
		err = c.draw(out)
	}
	if err == nil {
		err = c.each((*policy).findHighest)
	}
	if err != nil {
		return err
	}
	c.judge()
	if err := o.Print(out.to, c, func(io.Writer) error { return c.write(out) }); err != nil || o.headless || o.JSON {
		return err
	}
	// In real time the host may be late, so the load leaves some room: the demo is no test of the machine.
	return o.serve(out.to, 0.75*c.QPS)
}
