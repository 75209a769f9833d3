package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
)

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

func reload(cmd *cobra.Command, c *admin.Client, out cli.Output) error {
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	to := cmd.OutOrStdout()
	show := printSteps(to)
	if out.JSON {
		show = func(config.Step) {}
	}
	done, err := c.Reload(ctx, show)
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("stopped waiting; the reload continues; see its result with: overlapd reload --last")
	case err != nil:
		return err
	}
	if len(done.Failed) > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(done.Failed)), ", ")
		err = fmt.Errorf("the file is not fully applied: %s could not be loaded, and the previous state was kept; fix the cause, then run: overlapd reload", names)
	}
	return errors.Join(out.Print(to, done, changes(done).WriteText), err)
}

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
		switch {
		case r.Error != nil:
			_, err = fmt.Fprintln(w, r.Error.Message)
		case r.Reloaded != nil:
			err = changes(r.Reloaded).WriteText(w)
		}
		return err
	})
}

// printSteps returns a function that prints each state of a service once.
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

// change is one thing that a reload did, to a service or to a key (setting). A key
// may take effect after a restart only (later). Where it could not be done, fault
// gives the reason and instead what holds now.
type change struct {
	name, verb     string
	setting, later bool
	fault, instead string
}

// changeList returns what a reload did, services first.
func changeList(r *config.Reloaded) (list []change) {
	for _, of := range []struct {
		verb, instead string
		names         []string
	}{
		{"added", "there is no service of that name", r.Added},
		{"replaced", "the old one keeps serving", r.Replaced},
		{"started again", "it remains failed", r.Retried},
		{"moved", "it serves on the other devices", r.Moved},
		{"changed", "it serves as before", r.Changed},
		{"removed", "it keeps serving", r.Removed},
	} {
		for _, name := range of.names {
			c := change{name: name, verb: of.verb, fault: r.Failed[name], instead: of.instead}
			if slices.Contains(r.Down, name) {
				c.instead = "nothing serves it, because the previous one failed permanently"
			}
			list = append(list, c)
		}
	}
	for _, key := range r.Settings {
		list = append(list, change{name: key, verb: "changed", setting: true})
	}
	for _, key := range r.Restart {
		list = append(list, change{name: key, verb: "changed", later: true})
	}
	return list
}

// changes reports what a reload did: a line for each change and one at the end.
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

type socketOptions struct {
	path   string
	config string
}

func (o *socketOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.path, "admin", "", "path of the daemon's admin socket")
	f.StringVarP(&o.config, "config", "c", "", "the daemon's configuration file, to find its admin socket")
	cmd.MarkFlagsMutuallyExclusive("admin", "config")
}

func (o *socketOptions) client() (*admin.Client, error) {
	path, err := o.find("/run/overlapd") // the runtime folders that systemd makes for instances
	if err != nil {
		return nil, err
	}
	return admin.NewClient(path), nil
}

// find returns the admin socket that the flags name, the one of the configuration that
// they name, or the only one of this host that a daemon listens at. If none listens for
// a configuration it is the first that could, so that the error names it.
func (o *socketOptions) find(systemd string) (string, error) {
	if o.path != "" {
		return o.path, nil
	}
	c, instance := config.Default(), "*"
	if o.config != "" {
		var err error
		if c, err = config.Load(o.config); err != nil {
			return "", err
		}
		instance = strings.TrimSuffix(filepath.Base(o.config), ".toml")
	}
	places := c.AdminPaths()
	if len(places) == 0 {
		return "", fmt.Errorf(`%s: admin_socket is off; set it to "auto" and restart the daemon, or send it SIGHUP`, o.config)
	}
	if !c.AdminChosen() {
		places = append(places, filepath.Join(systemd, instance, "admin.sock"))
	}
	if dir := config.UserSockets(); dir != "" && o.config == "" {
		places = append(places, filepath.Join(dir, "admin-*.sock"))
	}
	var found []string
	for _, place := range places {
		paths, err := filepath.Glob(place)
		if err != nil {
			return "", err
		}
		found = append(found, slices.DeleteFunc(paths, func(path string) bool { return !listened(path) })...)
	}
	if o.config != "" {
		return append(found, places[0])[0], nil
	}
	slices.Sort(found)
	switch found = slices.Compact(found); len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", errors.New("no running daemon with an admin socket was found; name its configuration with --config, or its socket with --admin (admin_socket)")
	}
	return "", fmt.Errorf("%d daemons are running; name one:\n  --admin %s", len(found), strings.Join(found, "\n  --admin "))
}

// listened reports whether a daemon listens at a path, also one that refuses this user.
func listened(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EAGAIN)
}
