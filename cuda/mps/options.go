package mps

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/executor/child"
)

// programName is the control program: the daemon, and what commands it.
const programName = "nvidia-cuda-mps-control"

// DefaultPipe is the pipe directory of a control daemon that was told none, and
// RootPipe that of one which root started with protocol 3 (NVIDIA's "MPS v3
// Interface", drivers of branch 610 on). Ours speak protocol 2, the default.
const (
	DefaultPipe = "/tmp/nvidia-mps"
	RootPipe    = "/run/nvidia-mps"
)

// socketLimit is the longest path of a Unix socket on Linux, in bytes: 108
// with the zero at its end.
const socketLimit = 107

// longestSocket is the longest name that the control daemon binds below its
// pipe directory.
const longestSocket = "control_privileged"

// Options say which daemon to run, or to attach to. Zero durations and counts
// take the defaults that are named beside them.
type Options struct {
	// Program is the path of nvidia-cuda-mps-control; "" looks in PATH.
	Program string

	// Device is the UUID of the GPU or MIG instance, which Start requires: a number is
	// counted anew by the server.
	Device string

	// Directory is, for Start, ours alone and made if missing; the daemon's pipe and
	// log directories lie below it. For Existing it is the pipe directory of the other
	// daemon; "" is what CUDA_MPS_PIPE_DIRECTORY says, or DefaultPipe.
	Directory string

	ReadyTimeout   time.Duration // from start to the first answer: 10 s
	CommandTimeout time.Duration // for one command: 5 s
	StopTimeout    time.Duration // from quit to SIGKILL: 5 s
	Poll           time.Duration // between questions for the servers: 2 s

	// Policy says when a daemon of ours that died is started again: after 100 ms
	// to 10 s, and no more than 5 times a minute.
	child.Policy
}

func (o Options) withDefaults() Options {
	o.ReadyTimeout = cmp.Or(o.ReadyTimeout, 10*time.Second)
	o.CommandTimeout = cmp.Or(o.CommandTimeout, 5*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 5*time.Second)
	o.Poll = cmp.Or(o.Poll, 2*time.Second)
	o.Policy = o.Policy.WithDefaults(child.Policy{
		BackoffMin: 100 * time.Millisecond, BackoffMax: 10 * time.Second, HealthyAfter: time.Minute,
		RestartLimit: 5, RestartWindow: time.Minute,
	})
	return o
}

func findProgram(name string) (string, error) {
	path, err := exec.LookPath(cmp.Or(name, programName))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w; it comes with NVIDIA's driver: install nvidia-compute-utils (Ubuntu), "+
			"nvidia-cuda-mps (Debian) or nvidia-driver-cuda (Fedora, RHEL), or set mps mode = \"off\"", ErrNoProgram, err)
	}
	return path, nil
}

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
