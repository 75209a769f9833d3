package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
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
		var notes []string
		var err error
		c, notes, err = readRepository(o.repository, o.target)
		// Settings without an effect are worth a warning at each start, since there is no file that lists
		// them.
		for _, note := range notes {
			log := NewLogger(c, os.Stderr)
			log.Warn().Msg(note)
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
	return c, c.Validate()
}

// readRepository reads a repository of Triton, within the time that one of its models may
// take to load: it is often on a file system of the network, which may not answer.
func readRepository(dir string, target time.Duration) (config.Config, []string, error) {
	type repository struct {
		config config.Config
		notes  []string
	}
	ctx, cancel := context.WithTimeout(context.Background(), config.Default().Worker.LoadTimeout)
	defer cancel()
	r, err := textfile.Within(ctx, dir, func() (r repository, err error) {
		r.config, r.notes, err = triton.Read(dir, target)
		return r, err
	})
	return r.config, r.notes, err
}

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
