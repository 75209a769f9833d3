package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/config/triton"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/textfile"
)

// Options are the flags that choose a configuration and change it.
type Options struct {
	Path       string
	follow     bool
	Embedded   bool
	repository string
	// target is that of models of the repository without one.
	target time.Duration
	// control is a Triton model control mode: it says who loads models, and whether the
	// repository is polled, every pollSecs. keep are the models to load at the start, in the
	// mode explicit.
	control  string
	pollSecs int
	keep     []string
	// last is the configuration of the last successful read of the repository.
	last struct {
		sync.Mutex
		config config.Config
	}
	listen string
	grpc   string
	policy string
	dryRun bool
	on     string
}

// Config returns the configuration that the flags choose, with what they change. A reload calls it
// again, so that flags hold for the file that it reads then, too.
func (o *Options) Config() (config.Config, error) {
	var c config.Config
	switch {
	case o.Embedded:
		c = config.Embedded()
	case o.Path != "":
		var err error
		if c, err = config.Load(o.Path); err != nil {
			return c, err
		}
	case o.repository != "":
		o.last.Lock()
		defer o.last.Unlock()
		before := o.last.config.Services
		var notes []string
		var err error
		c, notes, err = readRepository(o.repository, o.target, before)
		// Settings without an effect are worth a warning at each start, since there is no file that lists
		// them.
		for _, note := range notes {
			log := NewLogger(c, os.Stderr)
			log.Warn().Msg(note)
		}
		if err == nil {
			err = o.controlled(&c, before == nil)
		}
		if err != nil {
			return c, err
		}
	default:
		return c, errors.New("no configuration: there is no " + cli.LocalConfig + " in this folder; give --config FILE, or --embedded to try overlapd")
	}
	c.Listen, c.GRPCListen, c.Policy = cmp.Or(o.listen, c.Listen), cmp.Or(o.grpc, c.GRPCListen), cmp.Or(o.policy, c.Policy)
	// Flags are a part of the configuration that is validated: some of them exclude keys of the file.
	if err := runOn(&c, o.on); err != nil {
		return c, err
	}
	err := c.Validate()
	if err == nil && o.repository != "" {
		o.last.config = c
	}
	return c, err
}

// controlled sets who loads the models of a repository. At the first read, the models to keep
// must be there.
func (o *Options) controlled(c *config.Config, first bool) error {
	if o.control != controlExplicit {
		return nil
	}
	c.Models.Load = config.LoadByRequest
	for _, name := range o.keep {
		found := false
		for i := range c.Services {
			if s := &c.Services[i]; name == "*" || s.Base() == name {
				s.Keep, found = true, true
			}
		}
		if !found && first {
			return fmt.Errorf("--load-model %s: there is no such model in %s that can be served", name, o.repository)
		}
	}
	return nil
}

// Reread implements [daemon.Options.Reread]: it returns the last configuration with one model
// as the repository has it now.
func (o *Options) reread(model string) (config.Config, error) {
	o.last.Lock()
	defer o.last.Unlock()
	c := o.last.config
	// The services of the model are left out, so that faults in it are not hidden by what it was.
	c.Services = slices.DeleteFunc(slices.Clone(c.Services), func(s config.Service) bool { return s.Base() == model })
	now, notes, err := readRepository(o.repository, o.target, c.Services)
	if err != nil {
		return c, err
	}
	now.Services = slices.DeleteFunc(now.Services, func(s config.Service) bool { return s.Base() != model })
	if len(now.Services) == 0 {
		for _, note := range notes {
			if why, is := strings.CutPrefix(note, fmt.Sprintf("skipping model %q: ", model)); is {
				return c, errors.New(why)
			}
		}
		return c, errors.New("the model repository has no such model")
	}
	if err := o.controlled(&now, false); err != nil {
		return c, err
	}
	c.Services = append(c.Services, now.Services...)
	slices.SortStableFunc(c.Services, func(a, b config.Service) int { return strings.Compare(a.Base(), b.Base()) })
	if err := c.Validate(); err != nil {
		return c, err
	}
	o.last.config = c
	return c, nil
}

// readRepository reads a repository of Triton, within the time that one of its models may
// take to load: it is often on a file system of the network, which may not answer. before are
// the services of models that may have become faulty.
func readRepository(dir string, target time.Duration, before []config.Service) (config.Config, []string, error) {
	type repository struct {
		config config.Config
		notes  []string
	}
	ctx, cancel := context.WithTimeout(context.Background(), config.Default().Worker.LoadTimeout)
	defer cancel()
	r, err := textfile.Within(ctx, dir, func() (r repository, err error) {
		r.config, r.notes, err = triton.Read(dir, target, before...)
		return r, err
	})
	return r.config, r.notes, err
}

// Triton's model control modes: models are loaded at the start, by request, or at the start
// and whenever the repository changes.
const (
	controlNone     = "none"
	controlExplicit = "explicit"
	controlPoll     = "poll"
)

// repositoryFlags adds the options for a model repository.
func (o *Options) repositoryFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.repository, "model-repository", "", "serve the ONNX models of a Triton model repository, as overlapd import reads it")
	targetFlag(cmd, &o.target)
	f.StringVar(&o.control, "model-control-mode", controlNone, "who loads models of the repository: none (all at the start), explicit (clients), or poll (all, and again after changes)")
	f.StringSliceVar(&o.keep, "load-model", nil, `models to load at the start in the mode explicit; "*" is all of them`)
	f.IntVar(&o.pollSecs, "repository-poll-secs", 15, "how often the repository is checked for changes in the mode poll, in seconds")
}

// checkControl checks the flags of the model control mode.
func (o *Options) checkControl(cmd *cobra.Command) error {
	flags := cmd.Flags()
	for _, name := range []string{"model-control-mode", "load-model", "repository-poll-secs"} {
		if flags.Changed(name) && o.repository == "" {
			return fmt.Errorf("--%s needs --model-repository; with a configuration file, set load and keep in it", name)
		}
	}
	switch {
	case !slices.Contains([]string{controlNone, controlExplicit, controlPoll}, o.control):
		return fmt.Errorf("--model-control-mode must be %s, %s or %s, not %q", controlNone, controlExplicit, controlPoll, o.control)
	case len(o.keep) > 0 && o.control != controlExplicit:
		return fmt.Errorf("--load-model needs --model-control-mode %s: otherwise all models are loaded", controlExplicit)
	case flags.Changed("repository-poll-secs") && o.control != controlPoll:
		return fmt.Errorf("--repository-poll-secs needs --model-control-mode %s", controlPoll)
	case o.pollSecs < 1 || o.pollSecs > maxPollSecs:
		return fmt.Errorf("--repository-poll-secs must be in [1, %d], not %d", maxPollSecs, o.pollSecs)
	}
	return nil
}

// maxPollSecs is the longest interval of polling, a day.
const maxPollSecs = 24 * 60 * 60

// targetFlag adds the option for the target of models that have none.
func targetFlag(cmd *cobra.Command, target *time.Duration) {
	cmd.Flags().DurationVar(target, "target", config.DefaultService().Target, "latency target of models of a model repository without a default timeout")
}

// gpuName matches what can only be a GPU: an index, or a UUID or its beginning.
var gpuName = regexp.MustCompile(`(?i)^([0-9]+|(GPU|MIG)-[0-9a-f-]+)$`)

// runOn lets a configuration run on a device, "cpu" or a GPU, which is how an instance of
// the systemd unit is named. Other names mean nothing. What the configuration says itself
// stands; but a copy of one GPU's file would put two daemons on it, and is refused.
func runOn(c *config.Config, device string) error {
	switch {
	case len(c.Devices) > 0 && (device == "cpu" || gpuName.MatchString(device)):
		return fmt.Errorf("--on %s does not go with the configuration's own devices: leave out the [[device]] tables, or --on", device)
	case device == "cpu" && c.Device == "auto" && c.GPU == "":
		c.Device = device
	case device == "cpu" && (c.Device == "cuda" || c.GPU != ""):
		return fmt.Errorf("--on cpu, but the configuration names a GPU: leave out device and gpu, or run on that GPU")
	// An instance may have any other name, such as that of its model. An emulated device has no GPU.
	case !gpuName.MatchString(device) || c.Device == "emulated":
		return nil
	case c.Device == "cpu":
		return fmt.Errorf("--on %s, but the configuration has device = \"cpu\": leave it out", device)
	case c.GPU == "": // the file is for any GPU, as that of a template unit is
		c.Device, c.GPU = "cuda", device
	case !sameGPU(c.GPU, device):
		return fmt.Errorf("--on %s, but the configuration has gpu = %q: leave it out", device, c.GPU)
	default: // both name the same GPU, so that device = "auto" need not guess
		c.Device = "cuda"
	}
	return nil
}

// sameGPU reports whether two names can be of one GPU. Names of different kinds can:
// every index has a UUID, and a GPU has MIG devices.
func sameGPU(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	kind, _, uuid := strings.Cut(a, "-")
	other, _, both := strings.Cut(b, "-")
	switch {
	case uuid != both, uuid && kind != other:
		return true
	case uuid:
		return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
	}
	return a == b
}
