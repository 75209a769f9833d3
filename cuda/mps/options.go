package mps

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

	// Device is the UUID of the GPU or MIG instance. Start requires it.
	Device string

	// Directory is an absolute path. For Start it is ours alone, made if
	// missing; the daemon's pipe and log directories lie below it. For
	// Existing it is the pipe directory of the other daemon; "" is what
	// CUDA_MPS_PIPE_DIRECTORY says, or DefaultPipe.
	Directory string

	ReadyTimeout   time.Duration // from start to the first answer: 10 s
	CommandTimeout time.Duration // for one command: 5 s
	StopTimeout    time.Duration // from quit to SIGKILL: 5 s
	Poll           time.Duration // between questions for the servers: 2 s

	// Policy says when a daemon of ours that died is started again: after 100 ms
	// to 10 s, and no more than 5 times a minute.
	child.Policy
}

// withDefaults fills in what is zero.
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

// deviceUUID is how NVML and nvidia-smi -L name GPUs and MIG instances. A
// comma would name a second device.
var deviceUUID = regexp.MustCompile(`^(GPU|MIG)-[0-9A-Za-z/-]+$`)

// validate reports all faults at once.
func (o Options) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !filepath.IsAbs(o.Directory) {
		fault("directory %q is not an absolute path: workers start elsewhere and must find it too", o.Directory)
	}
	if o.Device != "" && !deviceUUID.MatchString(o.Device) {
		fault("device %q is not the UUID of one GPU or MIG instance: nvidia-smi -L lists them", o.Device)
	}
	return join(ErrOptions, faults)
}

// validateOwn reports the faults that only a daemon of our own can have.
func (o Options) validateOwn() error {
	var faults []error
	if o.Device == "" {
		faults = append(faults, errors.New("no device: name the UUID of the GPU or MIG instance that the daemon serves"))
	}
	if err := checkLength(o.Directory); err != nil {
		faults = append(faults, err)
	}
	return join(ErrOptions, faults)
}

// join returns the faults below a sentinel, or nil if there are none.
func join(sentinel error, faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", sentinel, errors.Join(faults...))
}

// findProgram returns the absolute path of the control program.
func findProgram(name string) (string, error) {
	if name == "" {
		name = programName
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w; it comes with NVIDIA's driver: install nvidia-compute-utils (Ubuntu), "+
			"nvidia-cuda-mps (Debian) or nvidia-driver-cuda (Fedora, RHEL), or set mps mode = \"off\"", ErrNoProgram, err)
	}
	return path, nil
}

// existingPipe returns the pipe directory that a client would use.
func existingPipe() string {
	if path := os.Getenv("CUDA_MPS_PIPE_DIRECTORY"); path != "" {
		return path
	}
	return DefaultPipe
}
