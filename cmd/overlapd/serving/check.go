package serving

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
)

// checkCommand does what a start does up to serving, so that what it accepts starts. It changes nothing and
// opens no state. How GPUs would be divided, serve --dry-run prints.
func checkCommand() *cobra.Command {
	var asJSON, embedded bool
	var on, key string
	cmd := &cobra.Command{
		Use:   "check [CONFIG]",
		Short: "Check a configuration and what this host can run",
		Long: `Check reports all faults of a configuration at once. Run it before serve, and before
reload. If there is no fault, it prints the effective configuration, with every
default filled in, to standard output. To standard error it prints what this host
has, and warns of addresses, tokens and certificates that are unsafe.
Without CONFIG it checks overlapd.toml in this folder, or else the built-in
configuration.

It also checks:
  models      each file is loaded on the CPU in its own process, as a worker
              would load it; this takes as long as at a start
  selection   policy files match the device, the models and the threads
  sockets     those passed by a service manager (LISTEN_FDS) match the addresses
  GPU         driver, library versions, permissions, MPS and MIG, with a remedy for
              each fault; a small model runs on the GPU in its own process

With --explain it only explains a key, or all keys of a table such as worker: meaning,
type, default, the value in effect, and whether a reload can change it.`,
		Example: `  overlapd check overlapd.toml
  overlapd check --explain max_batch           explain a key; --json for programs
  overlapd check --explain worker              explain all keys of a table
  overlapd check --embedded > overlapd.toml    write a file to start from
  overlapd check overlapd.toml --on 0          check it for GPU 0`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && embedded {
				return errors.New("a file and --embedded cannot be checked together: give one of them")
			}
			// The file is an argument here and a flag of serve, since it is what check is about.
			o := Options{Path: strings.Join(args, ""), on: on}
			// Without an argument check takes the file that serve would take. Where there is none it shows
			// the built-in configuration, to begin with.
			if len(args) == 0 && !embedded {
				o.Path = cli.Local(cmd)
			}
			if o.Embedded = o.Path == ""; o.Embedded && !embedded {
				fmt.Fprintf(cmd.ErrOrStderr(), "overlapd: checking the built-in configuration: there is no %s in this folder\n", cli.LocalConfig)
			}
			// What a key means does not depend on the rest of the file being right.
			c, err := o.Config()
			if cmd.Flags().Changed("explain") {
				return explainKeys(cmd.OutOrStdout(), key, asJSON, c, err)
			}
			if err != nil {
				return err
			}
			// Cheap checks come first, so that a mistake in the file shows at once and models are loaded last.
			exposed, notes, err := refuse(&c)
			if err != nil {
				return err
			}
			found, err := examine(cmd.Context(), &c, notes)
			found.Exposed = exposed
			if asJSON {
				return errors.Join(report.WriteJSON(cmd.OutOrStdout(), found), err)
			}
			// The configuration alone is on standard output, so that it can be kept as a file.
			fmt.Fprintf(cmd.OutOrStdout(), "%s", c.TOML())
			found.writeText(cmd.ErrOrStderr())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what the host has, or what --explain says of each key, as JSON")
	cmd.Flags().BoolVar(&embedded, "embedded", false, "check the built-in configuration")
	cmd.Flags().StringVar(&on, "on", "", "device to check for, as in serve --on: cpu, or index or UUID of a GPU")
	cmd.Flags().StringVar(&key, "explain", "", "only explain this key, or all keys of this table")
	return cmd
}

// refuse returns an error where the daemon would not start, whatever the host is. Else it returns what
// of the configuration is unsafe, and what there is to say of texts and sockets.
func refuse(c *config.Config) (exposed, notes []string, err error) {
	if err := daemon.CheckModels(c); err != nil {
		return nil, nil, err
	}
	if notes, err = daemon.CheckTexts(c); err != nil {
		return nil, nil, err
	}
	if err := daemon.CheckCores(c); err != nil {
		return nil, nil, err
	}
	if err := daemon.CheckSelection(*c, OfflineOptions(c)); err != nil {
		return nil, nil, err
	}
	if exposed, err = daemon.CheckAccess(c); err != nil {
		return nil, nil, err
	}
	given, err := access.Inherit(activation.Files(true), c)
	return exposed, append(notes, socketNotes(given.Each)...), err
}

// examine looks at the host and tries the models there. An error does not end it, so that one run of
// check shows everything that is missing.
func examine(ctx context.Context, c *config.Config, notes []string) (found host, err error) {
	found, err = lookAtHost(ctx, *c)
	found.Notes = slices.Concat(notes, c.Devices.Idle(c.Services))
	for i, d := range c.Devices {
		found.Pool = append(found.Pool, poolDevice{d.Name, d.Kind, c.Devices.ServicesOn(i, c.Services)})
	}
	// It is what a unit or a pod must be given. Of a model that is built later nothing is known yet.
	if bytes, err := HostMemory(c, modelFile); err == nil && !found.Emulated {
		found.Notes = append(found.Notes, fmt.Sprintf("peak host memory of the daemon and its workers: %d MiB", bytes>>20))
	}
	if found.ORTPath != "" {
		notes, faults := tryModels(ctx, c, found.ORTPath)
		found.Notes, err = append(found.Notes, notes...), errors.Join(err, faults)
	}
	return found, err
}

// reloads says what it takes to change a key, by what [config.Explain] says of it.
var reloads = map[string]string{
	"restart":  "needs a restart of the daemon",
	"now":      "takes effect with a reload",
	"worker":   "takes effect with a reload, which loads the model in a new worker",
	"replicas": "takes effect with a reload, which starts and ends workers",
	"name":     "a reload takes another name for another service",
}

// explainKeys prints what a key, or each key of a table, means. A faulty configuration has no
// values in effect; the keys are explained all the same, since that helps to correct it.
func explainKeys(w io.Writer, name string, asJSON bool, c config.Config, faulty error) error {
	in := &c
	if faulty != nil {
		in = nil
	}
	keys, err := config.Explain(name, in)
	if err != nil {
		return err
	}
	if asJSON {
		return errors.Join(report.WriteJSON(w, map[string]any{"keys": keys}), faulty)
	}
	for i, k := range keys {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n  %s\n  type       %s\n  default    %s\n", k.Key, k.Meaning, k.Type, cmp.Or(k.Missing, string(k.Default)))
		for _, v := range k.InEffect {
			fmt.Fprintf(w, "  in effect  %s\n", strings.TrimSpace(string(v.Value)+"  "+v.Of))
		}
		fmt.Fprintf(w, "  a change   %s\n", reloads[k.Reload])
	}
	return faulty
}

// socketNotes says which sockets a daemon would not open itself, and what that means for a restart: it is
// seen only then, when connections are refused.
func socketNotes(each func(func(name string, ln net.Listener))) (list []string) {
	each(func(name string, ln net.Listener) {
		list = append(list, fmt.Sprintf("socket %s (%s) is inherited: connections wait while the daemon restarts", name, ln.Addr()))
	})
	if len(list) == 0 {
		list = []string{"no socket is inherited: connections are refused while the daemon restarts, unless systemd holds its sockets (overlapd@.socket, docs/install.md)"}
	}
	return list
}

// modelFile returns the file of a model that need not be built first: a check should take no minutes to
// build a model of the zoo, about which there is nothing to find out.
func modelFile(model string) (string, error) {
	if !config.IsPath(model) {
		return "", errors.New("it is built when the daemon starts")
	}
	return model, nil
}

// tryModels loads the model file of each service in a process of its own, one after the
// other, and returns what was written meanwhile, and the faults. The daemon's process
// never links ONNX Runtime, and no model may end this one.
func tryModels(ctx context.Context, c *config.Config, library string) (notes []string, err error) {
	tried := map[string]bool{} // services may share a file
	for _, s := range c.Expanded().Services {
		key := strings.Join(append([]string{s.Model}, s.OpLibraries...), "\x00")
		if !config.IsPath(s.Model) || tried[key] {
			continue
		}
		tried[key] = true
		lines, fault := loadModel(ctx, &s, library, c.Worker.LoadTimeout)
		for _, line := range lines {
			notes = append(notes, fmt.Sprintf("service %s: %s", s.Name, line))
		}
		// By its status the child says that the model is at fault, which no restart would help with. Any
		// other end may be the host's.
		if exit, ok := errors.AsType[*exec.ExitError](fault); ok && exit.ExitCode() == cli.ExitConfig {
			fault = config.ModelFault(s.Name, errors.New(string(exit.Stderr)))
		} else if fault != nil {
			fault = fmt.Errorf("service %s: its model could not be loaded: %w", s.Name, fault)
		}
		err = errors.Join(err, fault)
	}
	return notes, err
}

// loadModel has models inspect load the model of a service, with a cache that is removed again. It returns
// what was written besides the error, which is an [exec.ExitError] with its reason where
// the process ended by itself.
func loadModel(ctx context.Context, s *config.Service, library string, limit time.Duration) (lines []string, err error) {
	cache, err := os.MkdirTemp("", "overlapd-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(cache)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("loading took longer than worker.load_timeout (%v)", limit))
	defer cancel()
	var out bytes.Buffer
	args := []string{"models", "inspect", "--json"}
	for _, path := range s.OpLibraries {
		args = append(args, "--op-library="+path)
	}
	command := cli.Self(append(args, "--", s.Model)...)
	child := exec.CommandContext(ctx, command[0], command[1:]...)
	// The cache is not the user's, since a file that is only checked should leave nothing there.
	child.Stderr, child.Env = &out, append(os.Environ(), "CACHE_DIRECTORY=", "XDG_CACHE_HOME="+cache, "OVERLAPD_ORT="+library)
	err = child.Run()
	// What stands before the error is what ONNX Runtime wrote, and may be of use without one.
	text, why, _ := strings.Cut("\n"+strings.TrimSpace(out.String()), "\noverlapd: ")
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx) // "signal: killed" would not say why
	case ended && exit.ExitCode() == cli.ExitConfig:
		exit.Stderr = []byte(why)
	case ended:
		err = fmt.Errorf("%w: %s", err, cmp.Or(why, strings.Join(lines, "; ")))
	}
	return lines, err
}
