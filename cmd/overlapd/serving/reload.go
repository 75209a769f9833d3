package serving

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
)

// reloadCommand waits for the result, which SIGHUP cannot tell: its exit status is what scripts and
// units go by.
func reloadCommand() *cobra.Command {
	var at socketOptions
	var out cli.Output
	var last bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running daemon apply its changed configuration file",
		Long: `Reload makes a running daemon read its configuration file again, and waits until the
daemon has applied it. No query is dropped. Use it after you edited the file, and run
overlapd check first.

  services   are added and removed; a removed service answers the queries that it
             accepted
  targets    and limits of a service apply to queries that arrive afterwards
  models     that changed get a new worker; the old one serves until the new one
             is ready

Of the other keys, log_level and drain_timeout apply immediately; the rest takes effect
after a restart, and reload lists them. An invalid file changes nothing. SIGHUP does the
same, and the log reports the result. docs/reload.md has the details.

Exit status: 0, the file is applied; 1, a model could not be loaded and its previous
state was kept, or no daemon answered; 78, the file is invalid.`,
		Example: `  overlapd reload
  overlapd reload --config /etc/overlapd/0.toml
  overlapd reload --last                 show the current reload, or the last one`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			// --last has the same flags and output, but changes nothing.
			if last {
				return lastReload(cmd, c, out)
			}
			return reload(cmd, c, out)
		},
	}
	at.flags(cmd)
	out.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&last, "last", false, "change nothing; show the current reload, or the last one")
	return cmd
}

// reload shows each state of a service while the daemon works, since loading a model may take minutes.
// Some services may fail and others not; then the result is printed, and the error besides.
func reload(cmd *cobra.Command, c *admin.Client, out cli.Output) error {
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	to := cmd.OutOrStdout()
	// With --json the result alone is printed, as one object.
	show := printSteps(to)
	if out.JSON {
		show = func(config.Step) {}
	}
	done, err := c.Reload(ctx, show)
	switch {
	case err != nil && ctx.Err() != nil:
		// The daemon does not undo half a reload because a terminal was closed.
		return errors.New("stopped waiting; the reload continues; see its result with: overlapd reload --last")
	case err != nil:
		return err
	}
	if len(done.Failed) > 0 {
		// What could be applied is applied. The command fails all the same, as a script would go on else.
		names := strings.Join(slices.Sorted(maps.Keys(done.Failed)), ", ")
		err = fmt.Errorf("the file is not fully applied: %s could not be loaded, and the previous state was kept; fix the cause, then run: overlapd reload", names)
	}
	return errors.Join(out.Print(to, done, changes(done).WriteText), err)
}

// lastReload prints what became of the last reload: one that came by SIGHUP, or whose command was
// interrupted, has told nobody else.
func lastReload(cmd *cobra.Command, c *admin.Client, out cli.Output) error {
	r, err := c.Last(cmd.Context())
	if err != nil {
		return err
	}
	return out.Print(cmd.OutOrStdout(), r, func(w io.Writer) error {
		if r.State == admin.ReportNone {
			_, err := fmt.Fprintln(w, "no reload since the daemon started")
			return err
		}
		fmt.Fprintf(w, "%s, started at %s\n", r.State, r.Began.Local().Format(time.DateTime))
		show := printSteps(w)
		for _, s := range r.Steps {
			show(s)
		}
		// A reload that still runs has neither an error nor a result.
		switch {
		case r.Error != nil:
			_, err = fmt.Fprintln(w, r.Error.Message)
		case r.Reloaded != nil:
			err = changes(r.Reloaded).WriteText(w)
		}
		return err
	})
}

// printSteps returns a function that prints each state of a service once, however often the daemon
// reports it.
func printSteps(w io.Writer) func(config.Step) {
	shown := map[string]string{}
	words := map[string]string{config.StepLoading: "loading", config.StepSwitch: "loaded, replacing the old one"}
	return func(s config.Step) {
		if shown[s.Service] != s.State {
			shown[s.Service] = s.State
			fmt.Fprintf(w, "%s: %s\n", s.Service, cmp.Or(words[s.State], s.State))
		}
	}
}

// changes reports what a reload did: a line for each change and one at the end, how long it took.
// Failures keep their place among the changes, in capitals, because they are what to act on.
func changes(r *config.Reloaded) *report.Document {
	d := new(report.Document)
	t := report.NewTable("", "", "")
	for _, c := range changeList(r) {
		switch {
		case c.fault != "":
			t.Rowf("FAILED\t%s\tnot %s: %s; %s", c.name, c.verb, c.fault, c.instead)
		case c.later:
			t.Rowf("later\t%s\ttakes effect after a restart", c.name)
		default:
			t.Row(c.verb, c.name)
		}
	}
	d.Table(t)
	if r.None() {
		d.Text("nothing changed")
	}
	d.Text("took %v", r.Took.Round(time.Millisecond))
	return d
}

// restartCommand is apart from reload: no configuration is read, and what has failed for good is the
// only thing that it starts. A service that serves is never interrupted by it.
func restartCommand() *cobra.Command {
	var at socketOptions
	cmd := &cobra.Command{
		Use:   "restart SERVICE",
		Short: "Restart a service that failed permanently",
		Long: `Restart makes a running daemon start a service again that failed permanently: its worker
exited more often than worker.restart_limit allows, or a GPU had no memory left for it.
The daemon's log has the reason; fix it first. Other services keep serving.`,
		Example: `  overlapd restart resnet50
  overlapd restart resnet50 --config /etc/overlapd/0.toml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			// The daemon answers once it has begun: loading may take minutes, and may fail again.
			if err := c.Restart(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is restarting; overlapd status shows when it is ready\n", args[0])
			return err
		},
	}
	at.flags(cmd)
	return cmd
}
