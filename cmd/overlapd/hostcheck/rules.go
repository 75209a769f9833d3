package hostcheck

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/overlapd/overlapd/cuda"
)

// ErrHost is returned by Report.Err when the host cannot do what is wanted.
var ErrHost = errors.New("this host cannot run the configuration")

// The levels of a finding. Only a fault keeps services from running.
const (
	OK      = "ok"
	Note    = "note"
	Warning = "warning"
	Fault   = "fault"
)

// Finding is an instance of a rule. It has no remedy where the sentence says what to
// do, or nothing is to be done.
type Finding struct {
	Rule   string `json:"rule"`
	Level  string `json:"level"`
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitempty"`
}

// String returns the finding as one sentence.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.Says
	}
	return f.Says + "; " + f.Remedy
}

// Report is the result of a check. Device and UUID name the GPU that services would run
// on. Facts are absent where there is no driver. Layout draws the MIG instances as the
// daemon would make them.
type Report struct {
	Device   string      `json:"device,omitempty"`
	UUID     string      `json:"uuid,omitempty"`
	Facts    *cuda.Facts `json:"facts,omitempty"`
	Layout   string      `json:"layout,omitempty"`
	Findings []Finding   `json:"findings"`
}

// add appends the finding of a rule. Words are pairs of a name in braces and its
// replacement.
func (r *Report) add(id string, words ...string) {
	for _, rule := range rules {
		if rule.id == id {
			for i := 0; i < len(words); i += 2 {
				words[i] = "{" + words[i] + "}"
			}
			fill := strings.NewReplacer(words...)
			r.Findings = append(r.Findings, Finding{rule.id, rule.level, fill.Replace(rule.says), fill.Replace(rule.remedy)})
			return
		}
	}
	panic("hostcheck: no rule " + id)
}

// Err returns all faults as one error, nil if there are none.
func (r *Report) Err() error {
	var faults []error
	for _, f := range r.Findings {
		if f.Level == Fault {
			faults = append(faults, errors.New(f.String()))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrHost, errors.Join(faults...))
}

// WriteText writes a line for each finding as a comment of a configuration file, with
// the level of warnings and faults.
func (r *Report) WriteText(w io.Writer) {
	for _, f := range r.Findings {
		text := strings.ReplaceAll(f.String(), "\n", "\n#   ")
		if f.Level == OK || f.Level == Note {
			fmt.Fprintf(w, "# %s\n", text)
			continue
		}
		fmt.Fprintf(w, "# %s: %s\n", f.Level, text)
	}
	if r.Layout != "" {
		fmt.Fprintf(w, "# %s\n", strings.ReplaceAll(strings.TrimRight(r.Layout, "\n"), "\n", "\n# "))
	}
}

// rule is a sentence about a host and its remedy. Words in braces are filled in.
type rule struct {
	id, says, remedy, level string
}

// installDriver is how Debian 12 gets a driver for CUDA 13: its own is of branch
// 535.
const installDriver = "install driver 580 or newer and reboot (Debian 12 has 535, so add NVIDIA's repository with its package cuda-keyring, " +
	"then apt-get install linux-headers-amd64 nvidia-open, or cuda-drivers for GPUs before Turing)"

// rules are all sentences, in the order of the checks. docs/gpu-errors.md has them as a
// table.
var rules = []rule{
	{"no-gpu", "no NVIDIA GPU: {why}", "", Note},
	{"auto-cpu", `device = "auto" takes the CPU, since this GPU cannot be used as it is`, "", Note},
	{"gpu-wanted", `device = "cuda" and there is no NVIDIA GPU: {why}`,
		`run overlapd where there is one, or set device = "cpu"; a container must be given its GPU (--gpus all, with the NVIDIA container toolkit)`, Fault},
	{"nouveau", "the kernel module nouveau holds the GPU at {pci}", installDriver + "; that keeps nouveau away", Fault},
	{"no-driver", "the GPU at {pci} has no driver: {why}", installDriver, Fault},
	{"driver-silent", "the NVIDIA driver cannot be asked: {why}", "", Fault},
	{"driver", "NVIDIA driver {driver} runs CUDA {cuda} and older", "", OK},

	{"gpu-unknown", "{why}", "", Fault},
	{"gpu-broken", "{gpu} does not answer: {why}", "", Fault},
	{"gpu", "{gpu}, compute capability {capability}, {memory}", "", OK},

	{"device-file-missing", "{path} is not there",
		"run nvidia-modprobe -u -c 0 as root, or enable nvidia-persistenced; a container or unit must be given the file", Fault},
	{"device-file-denied", "user {user} may not use {path}: {why}",
		"run overlapd as a user who may (the file's group: usermod -aG GROUP USER), or allow it with DeviceAllow in the unit", Fault},
	{"caps-missing", "{path} of MIG device {uuid} is not there",
		"run nvidia-modprobe -f {access} as root; a container must be given the file", Fault},
	{"caps-denied", "user {user} may not use {path} of MIG device {uuid}: {why}", "chmod a+r {path} as root, or run overlapd as root", Fault},

	{"versions", "{why}", "", Fault},
	{"ort-cpu", "ONNX Runtime {path} is not a CUDA build: it has {providers}",
		"take libonnxruntime from the PyPI package onnxruntime-gpu {pinned} for CUDA 13 and set OVERLAPD_ORT to it", Fault},
	{"provider-missing", "{file} is not beside {path}", "it comes with libonnxruntime.so.1: put both into one folder", Fault},
	{"provider-unreadable", "what {file} needs cannot be read: {why}", "take it from the package of libonnxruntime.so.1 again", Warning},
	{"library-missing", "{library} is not found, and ONNX Runtime's CUDA provider does not start without it",
		"apt-get install {package} (NVIDIA's repository) or pip install {wheel}, and set LD_LIBRARY_PATH to its folder or run ldconfig", Fault},
	{"library-late", "{library} is not found: {without}",
		"apt-get install {package} (NVIDIA's repository) or pip install {wheel}, and set LD_LIBRARY_PATH to its folder or run ldconfig", Warning},
	{"capability", "{gpu} has compute capability {capability}, and CUDA 13 has kernels for 7.5 and newer only",
		"take an ONNX Runtime for CUDA 12, or another GPU", Fault},
	{"provider", "ONNX Runtime is a build for CUDA {major} and all libraries that it needs are here", "", OK},
	{"try-failed", "a small model does not run on {gpu}: {why}", "mend what else is said here first", Fault},
	{"try", "a small model ran on {gpu} in a process of its own, and its outputs are the CPU's", "", OK},

	{"compute-prohibited", "compute mode of {gpu} is PROHIBITED: nothing can run on it", "nvidia-smi -i {index} -c 0, as root", Fault},
	{"compute-exclusive", "compute mode of {gpu} is {mode}, there are {services} services and no MPS: only one worker would get the GPU",
		`set mode = "own" in [mps], or nvidia-smi -i {index} -c 0 as root`, Fault},
	{"compute-default", "compute mode of {gpu} is DEFAULT: other processes can use the GPU beside MPS",
		"nvidia-smi -i {index} -c 3, as root, keeps them away", Note},
	{"persistence", "persistence mode of {gpu} is off: without a process that uses it the driver lets go of the GPU, and the next start takes seconds longer",
		"systemctl enable --now nvidia-persistenced, or nvidia-smi -i {index} -pm 1, as root", Warning},
	{"ecc-errors", "{gpu} has {errors} memory errors that ECC could not correct since the driver was loaded",
		"stop what uses it and reset it (nvidia-smi --gpu-reset -i {index}); if they come again, have it replaced", Warning},
	{"ecc-off", "ECC of {gpu} is off: an error of its memory goes unnoticed", "nvidia-smi -i {index} -e 1 as root and a reset turn it on", Note},
	{"busy", "{gpu} is used by {processes} already: latencies will differ from what was profiled", "stop them, or give overlapd another GPU", Warning},

	{"mps-off", "MPS is off: kernels of different services take turns, so running them together gains nothing",
		`set mode = "own" in [mps] if there is more than one service`, Note},
	{"mps-program", "{why}", "", Fault},
	{"mps-directory", "the directory {path} for MPS cannot be used: {why}", "set dir in [mps] to a directory that user {user} owns and nobody else may write to", Fault},
	{"mps-stranger", "somebody else's MPS control daemon serves {path}: kernels of its clients and of ours take turns",
		`stop it (echo quit | nvidia-cuda-mps-control), or join it with mode = "existing" in [mps]`, Warning},
	{"mps-existing", "no use of the MPS control daemon of {path}: {why}", "", Fault},
	{"mps", "MPS: {what}", "", OK},

	{"mig-whole", "MIG mode of {gpu} is on, so that CUDA sees its instances only, and the configuration names the whole GPU",
		"name an instance with gpu = \"MIG-…\" ({instances}), declare [[mig.instance]], or turn MIG off with nvidia-smi -i {index} -mig 0 as root", Fault},
	{"mig-layout", "{why}", "", Fault},
	{"mig-root", "[mig] has owner = true and user {user} is not root: only root creates MIG instances",
		"run overlapd as root, or have the administrator create them and set owner = false", Fault},
	{"mig-steps", "MIG: {steps} steps are left for the start of the daemon", "", Note},
	{"mig", "MIG: all {instances} instances are there", "", OK},
}
