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
	"github.com/overlapd/overlapd/report"
)

func reloadCommand() *cobra.Command {
	var at socketOptions
	var out output
	var last bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have a running daemon follow its configuration file",
		Long: `Reload has a running daemon read its configuration file again and waits until it
is as the file says, without dropping a query:

  services   are added and removed; one that is removed answers what it has
             accepted
  targets    and limits of a service hold for queries that arrive from then on
  models     that have changed get a new worker; the old one serves until the
             new one is ready

All else but log_level and drain_timeout takes effect after a restart; reload says
what that is. A file that is wrong changes nothing. SIGHUP does the same, and the
log says how it went. docs/reload.md tells the rest.

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
				return lastReload(cmd, c, out)
			}
			return reload(cmd, c, out)
		},
	}
	at.flags(cmd)
	out.flag(cmd.Flags())
	cmd.Flags().BoolVar(&last, "last", false, "change nothing; show the reload that runs, or the last one")
	return cmd
}

func reload(cmd *cobra.Command, c *admin.Client, out output) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	to := cmd.OutOrStdout()
	show := printSteps(to)
	if out.json {
		show = func(config.Step) {}
	}
	done, err := c.Reload(ctx, show)
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("you left; the reload goes on, and overlapd reload --last shows it")
	case err != nil:
		return err
	}
	if len(done.Failed) > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(done.Failed)), ", ")
		err = fmt.Errorf("not all is as the file says: %s could not be loaded; what served before serves on. Mend it and reload again", names)
	}
	return errors.Join(out.print(to, done, changes(done).WriteText), err)
}

func lastReload(cmd *cobra.Command, c *admin.Client, out output) error {
	r, err := c.Last(cmd.Context())
	if err != nil {
		return err
	}
	return out.print(cmd.OutOrStdout(), r, func(w io.Writer) error {
		if r.State == admin.ReportNone {
			_, err := fmt.Fprintln(w, "the daemon has not read its configuration again since it was started")
			return err
		}
		fmt.Fprintf(w, "%s, begun at %s\n", r.State, r.Began.Local().Format(time.DateTime))
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
	words := map[string]string{config.StepLoading: "loading", config.StepSwitch: "loaded, takes over"}
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
		Short: "Try a service again that a daemon gave up",
		Long: `Restart has a running daemon try a service again that it gave up: one whose worker
was lost more often than worker.restart_limit allows, or for which a GPU had no
room. The log of the daemon says which it was. The others serve meanwhile.`,
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is started again; overlapd status shows when it serves\n", args[0])
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
		{"added", "there is none of that name", r.Added},
		{"replaced", "the old one serves on", r.Replaced},
		{"started again", "it stays given up", r.Retried},
		{"moved", "it serves where it can", r.Moved},
		{"changed", "it serves as before", r.Changed},
		{"removed", "it serves on", r.Removed},
	} {
		for _, name := range of.names {
			c := change{name: name, verb: of.verb, fault: r.Failed[name], instead: of.instead}
			if slices.Contains(r.Down, name) {
				c.instead = "nothing answers for it, since the one before was given up"
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
		d.Text("nothing has changed")
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
	f.StringVar(&o.path, "admin", "", "its admin socket")
	f.StringVarP(&o.config, "config", "c", "", "its configuration file, to find the socket by")
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
		return "", errors.New("no daemon runs that can be administered here; name its configuration with --config, or its socket with --admin (admin_socket)")
	}
	return "", fmt.Errorf("%d daemons run here; name one:\n  --admin %s", len(found), strings.Join(found, "\n  --admin "))
}

// listened reports whether a daemon listens at a path, also one that refuses this user.
func listened(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EAGAIN)
}
