package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/overlapd/overlapd/daemon/config"
)

// gpuName matches the names of a GPU that can be nothing else: an index, or a
// UUID or its beginning.
var gpuName = regexp.MustCompile(`(?i)^([0-9]+|(GPU|MIG)-[0-9a-f-]+)$`)

// runOn lets a configuration run on a device, "cpu" or a GPU, which is how an
// instance of the systemd unit is named. What the configuration says itself
// stands. But a copy of one GPU's file that still names that GPU would put two
// daemons on it, so another name is refused. Instances of other names have a
// configuration that names a device.
func runOn(c *config.Config, device string) error {
	switch {
	case device == "cpu" && c.Device == "auto" && c.GPU == "":
		c.Device = device
	case device == "cpu" && (c.Device == "cuda" || c.GPU != ""):
		return fmt.Errorf("the daemon is to run on the processor, and the configuration names a GPU: leave out device and gpu, or run it on that GPU")
	case !gpuName.MatchString(device) || c.Device == "emulated":
		return nil
	case c.Device == "cpu":
		return fmt.Errorf("the daemon is to run on the GPU %s, and the configuration has device = \"cpu\": leave it out", device)
	case c.GPU == "":
		c.Device, c.GPU = "cuda", device
	case !sameGPU(c.GPU, device):
		return fmt.Errorf("the daemon is to run on the GPU %s, and the configuration has gpu = %q: leave it out", device, c.GPU)
	default:
		c.Device = "cuda"
	}
	return nil
}

// sameGPU reports whether two names may be of one GPU. Names of different kinds
// may: an index is that of some UUID, and a GPU has MIG devices.
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
