package mps

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// Priority is how a client's kernels rank beside those of other clients. It is
// a hint to the driver.
type Priority uint8

// The priorities that MPS knows.
const (
	PriorityNormal Priority = iota
	PriorityBelowNormal
)

// String returns the word that a configuration uses.
func (p Priority) String() string {
	switch p {
	case PriorityNormal:
		return "normal"
	case PriorityBelowNormal:
		return "below_normal"
	}
	return "Priority(" + strconv.Itoa(int(p)) + ")"
}

// ParsePriority reads the word of a configuration; "" is normal.
func ParsePriority(word string) (Priority, error) {
	switch word {
	case "", "normal":
		return PriorityNormal, nil
	case "below_normal":
		return PriorityBelowNormal, nil
	}
	return 0, fmt.Errorf("%w: client priority %q: write \"normal\" or \"below_normal\"", ErrLimits, word)
}

// Limits are what one client may use. The zero value limits nothing.
type Limits struct {
	// ActiveThreadPercentage is the share of the device's multiprocessors that
	// the client may use at most, 1 to 100; 0 leaves the server's default.
	ActiveThreadPercentage int

	// PinnedMemoryBytes is how much device memory the client may allocate; 0
	// sets no limit. MPS counts in MiB: it is rounded down.
	PinnedMemoryBytes int64

	Priority Priority
}

const mebi = 1 << 20

// Validate reports all faults at once.
func (l Limits) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if l.ActiveThreadPercentage < 0 || l.ActiveThreadPercentage > 100 {
		fault("active thread percentage is %d: write 1 to 100, or 0 for the server's default", l.ActiveThreadPercentage)
	}
	if l.PinnedMemoryBytes < 0 || l.PinnedMemoryBytes > 0 && l.PinnedMemoryBytes < mebi {
		fault("pinned memory limit is %d bytes: write at least 1 MiB, or 0 for no limit", l.PinnedMemoryBytes)
	}
	if l.PinnedMemoryBytes/mebi > math.MaxInt32 {
		fault("pinned memory limit is %d bytes: no device has that much", l.PinnedMemoryBytes)
	}
	if l.Priority > PriorityBelowNormal {
		fault("client priority is %d: there are 0 (normal) and 1 (below normal)", l.Priority)
	}
	return join(ErrLimits, faults)
}

// variables returns what the client's environment says of the limits. Device 0
// is the only one that a client of ours sees.
func (l Limits) variables() []string {
	env := []string{"CUDA_MPS_CLIENT_PRIORITY=" + strconv.Itoa(int(l.Priority))}
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
	return environment("CUDA_VISIBLE_DEVICES="+device, "CUDA_MPS_PIPE_DIRECTORY="+offPipe)
}

// environment returns our own environment, without what it says of devices and
// MPS, and with more.
func environment(more ...string) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "CUDA_MPS_") && !strings.HasPrefix(variable, "CUDA_VISIBLE_DEVICES=") {
			env = append(env, variable)
		}
	}
	return append(env, more...)
}
