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

// programName is the control program. It is both the daemon and the client that sends
// commands to it.
const programName = "nvidia-cuda-mps-control"

// DefaultPipe is the default pipe directory of a control daemon. RootPipe is that of a
// daemon that root started with protocol 3 (NVIDIA's "MPS v3 Interface", drivers of branch
// 610 on). Our daemons use protocol 2, the default.
const (
	DefaultPipe = "/tmp/nvidia-mps"
	RootPipe    = "/run/nvidia-mps"
)

// socketLimit is the longest path of a Unix socket on Linux in bytes: 108 less the
// terminating zero.
const socketLimit = 107

// longestSocket is the longest socket name that the control daemon uses in its pipe
// directory.
const longestSocket = "control_privileged"

// Options selects the daemon to run or to attach to. Zero durations and counts select
// the defaults.
type Options struct {
	// Program is the path of nvidia-cuda-mps-control. With "" it is searched in PATH.
	Program string

	// Device is the UUID of the GPU or MIG instance. Start requires it, because the
	// server renumbers devices.
	Device string

	// Directory is, for Start, a directory for this daemon alone, which is created if it
	// does not exist; the pipe and log directories lie in it. For Existing it is the pipe
	// directory of the other daemon; "" selects CUDA_MPS_PIPE_DIRECTORY or DefaultPipe.
	Directory string

	// ReadyTimeout limits the time from the start to the first answer (10 s).
	ReadyTimeout time.Duration

	// CommandTimeout limits one command (5 s).
	CommandTimeout time.Duration

	// StopTimeout is the time from quit to SIGKILL (5 s).
	StopTimeout time.Duration

	// Poll is the interval between queries for the servers (2 s).
	Poll time.Duration

	// Policy decides when a daemon of ours that died is restarted: after 100 ms to 10 s,
	// and at most 5 times a minute by default.
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

// findProgram returns the absolute path of the control program, since commands run later
// from any working directory.
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

// priorities maps the configuration's priority of a client's kernels, compared with those
// of other clients, to the number that MPS uses. The driver takes it as a hint.
var priorities = map[string]string{"": "0", "normal": "0", "below_normal": "1"}

const (
	pipeVariable   = "CUDA_MPS_PIPE_DIRECTORY"
	deviceVariable = "CUDA_VISIBLE_DEVICES"
)

// Limits restricts one client. The configuration has checked the values. The zero value
// restricts nothing.
type Limits struct {
	// ActiveThreadPercentage is the maximum share of the device's multiprocessors that
	// the client may use, 1 to 100; 0 keeps the server's default.
	ActiveThreadPercentage int

	// PinnedMemoryBytes limits the device memory that the client may allocate, 0 for no
	// limit. MPS counts in MiB, so it is rounded down.
	PinnedMemoryBytes int64

	// Priority is "normal" or "below_normal"; "" means "normal".
	Priority string
}

const mebi = 1 << 20

// variables returns the environment variables that set the limits. The memory limit is
// for device 0, because a client of ours sees only one device.
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

// offPipe is a pipe directory in which no control daemon can exist.
const offPipe = "/dev/null"

// OffEnv returns the environment of a worker that uses the device without MPS. It sets a
// pipe directory, because without one the worker would join any daemon in DefaultPipe.
func OffEnv(device string) []string {
	return environment(deviceVariable+"="+device, pipeVariable+"="+offPipe)
}

// environment returns the environment of this process without its settings of devices
// and MPS, plus the given variables.
func environment(more ...string) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "CUDA_MPS_") && !strings.HasPrefix(variable, deviceVariable+"=") {
			env = append(env, variable)
		}
	}
	return append(env, more...)
}
