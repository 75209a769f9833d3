package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
)

func reloadCommand() *cobra.Command {
	var at socketOptions
	var asJSON, last bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have a running daemon follow its configuration file",
		Long: `Reload has a running daemon read its configuration file again and waits until it
is as the file says, without dropping a query:

  services   are added and removed; one that is removed answers what it has
             accepted
  targets    and limits of a service (target, queue_limit, max_batch,
             max_query_batch, best_effort, sizes, seq_lens) hold for the
             queries that arrive from then on
  models     that are another file, or a file with other content, and services
             with other threads, cut or limits of the GPU get a new worker; the
             old one serves until the new one is ready
  settings   log_level and drain_timeout hold at once

All else takes effect after a restart; reload says what that is. A file that is
wrong changes nothing. SIGHUP does the same, and the log says how it went.

The daemon is asked at its admin socket, which is found if one runs here. Root,
the daemon's own user and the members of its admin_group may.

Exit status: 0, all is as the file says; 1, a model could not be loaded and what
served before serves on, or there was nobody to ask; 78, the file is wrong.`,
		Example: `  overlapd reload
  overlapd reload --config /etc/overlapd/0.toml
  overlapd reload --last                 how the one that runs does, or the last one did`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			if last {
				return lastReload(cmd, c, asJSON)
			}
			return reload(cmd, c, asJSON)
		},
	}
	at.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&last, "last", false, "change nothing; show the reload that runs, or the last one")
	return cmd
}

// reload asks for a reload, shows how it goes and what became of it.
func reload(cmd *cobra.Command, c *admin.Client, asJSON bool) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	out := cmd.OutOrStdout()
	steps := &stepPrinter{to: out, shown: map[string]string{}}
	if asJSON {
		steps.to = io.Discard
	}
	done, err := c.Reload(ctx, steps.print)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("you left; the reload goes on, and overlapd reload --last shows it")
		}
		return err
	}
	if asJSON {
		err = printJSON(out, done)
	} else {
		err = writeChanges(out, done)
	}
	return errors.Join(err, unloaded(done))
}

// unloaded returns the error of a reload that could not load everything.
func unloaded(done *config.Reloaded) error {
	names := failedServices(done)
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("not all is as the file says: %s could not be loaded; what served before serves on. Mend it and reload again", strings.Join(names, ", "))
}

func lastReload(cmd *cobra.Command, c *admin.Client, asJSON bool) error {
	r, err := c.Last(cmd.Context())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if asJSON {
		return printJSON(out, r)
	}
	if r.State == admin.ReportNone {
		_, err := fmt.Fprintln(out, "the daemon has not read its configuration again since it was started")
		return err
	}
	fmt.Fprintf(out, "%s, begun at %s\n", r.State, r.Began.Local().Format(time.DateTime))
	steps := &stepPrinter{to: out, shown: map[string]string{}}
	for _, s := range r.Steps {
		steps.print(s)
	}
	switch {
	case r.Error != nil:
		_, err = fmt.Fprintln(out, r.Error.Message)
	case r.Reloaded != nil:
		err = writeChanges(out, r.Reloaded)
	}
	return err
}

// stepPrinter prints progress, a line for each state of a service.
type stepPrinter struct {
	to    io.Writer
	shown map[string]string // the last of each service
}

func (p *stepPrinter) print(s config.Step) {
	if p.shown[s.Service] == s.State {
		return
	}
	p.shown[s.Service] = s.State
	fmt.Fprintf(p.to, "%s: %s\n", s.Service, stepText(s.State))
}

func stepText(state string) string {
	switch state {
	case config.StepLoading:
		return "loading"
	case config.StepSwitch:
		return "loaded, takes over"
	}
	return state
}
