package mps

import (
	"os"
	"strconv"
	"strings"
)

// priorities are the words of a configuration for how a client's kernels rank
// beside those of other clients, which is a hint to the driver, and the numbers of
// MPS for them.
var priorities = map[string]string{"": "0", "normal": "0", "below_normal": "1"}

const (
	pipeVariable   = "CUDA_MPS_PIPE_DIRECTORY"
	deviceVariable = "CUDA_VISIBLE_DEVICES"
)

// Limits are what one client may use, as the configuration has checked it. The zero
// value limits nothing.
type Limits struct {
	// ActiveThreadPercentage is the share of the device's multiprocessors that
	// the client may use at most, 1 to 100; 0 leaves the server's default.
	ActiveThreadPercentage int

	// PinnedMemoryBytes is how much device memory the client may allocate; 0
	// sets no limit. MPS counts in MiB: it is rounded down.
	PinnedMemoryBytes int64

	// Priority is "normal", which "" is too, or "below_normal".
	Priority string
}

const mebi = 1 << 20

// variables returns what the client's environment says of the limits. Device 0
// is the only one that a client of ours sees.
func (l Limits) variables() []string {
	env := []string{"CUDA_MPS_CLIENT_PRIORITY=" + priorities[l.Priority]}
	if l.ActiveThreadPercentage > 0 {
		env = append(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+strconv.Itoa(l.ActiveThreadPercentage))
	}
	if l.PinnedMemoryBytes > 0 {
		env = append(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0="+strconv.FormatInt(l.PinnedMemoryBytes/mebi, 10)+"M")
	}
	return env
}

// offPipe is a pipe directory in which no control daemon can be.
const offPipe = "/dev/null"

// OffEnv returns the environment of a worker that uses the device without MPS.
// With no pipe directory set it would join a daemon in DefaultPipe, whoever
// runs it.
func OffEnv(device string) []string {
	return environment(deviceVariable+"="+device, pipeVariable+"="+offPipe)
}

// environment returns our own environment, without what it says of devices and
// MPS, and with more.
func environment(more ...string) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "CUDA_MPS_") && !strings.HasPrefix(variable, deviceVariable+"=") {
			env = append(env, variable)
		}
	}
	return append(env, more...)
}
