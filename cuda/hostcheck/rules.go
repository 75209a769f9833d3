package hostcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mps"
)

// section is rules with one subject. Of each subject the first rule that holds is reported, or
// all that do.
type section struct {
	applies func(*host) bool    // nil: always
	each    func(*host) []about // nil: the host as a whole
	all     bool
	rules   []rule
}

// installDriver is how Debian 12, whose own is of branch 535, gets a driver for CUDA 13.
const installDriver = "install driver 580 or newer and reboot (Debian 12 has 535, so add NVIDIA's repository with its package cuda-keyring, " +
	"then apt-get install linux-headers-amd64 nvidia-open, or cuda-drivers for GPUs before Turing)"

// installLibrary is how a host gets one of the libraries of CUDA.
const installLibrary = "apt-get install {package} (NVIDIA's repository) or pip install {wheel}, and set LD_LIBRARY_PATH to its folder or run ldconfig"

// Conditions of rules and sections. A rule that fails to look is one that found the failure: what is
// missing is told apart from what cannot be used, since the remedies differ.

func always(*host, *about) bool      { return true }
func failed(_ *host, a *about) bool  { return a.err != nil }
func missing(_ *host, a *about) bool { return errors.Is(a.err, fs.ErrNotExist) }

func hasTarget(h *host) bool { return h.target != nil }

// canStart: the provider of CUDA is there, its libraries are known, and the driver and the GPU
// are new enough for them.
func canStart(h *host) bool {
	return asks(h) && !h.found("ort-cpu", "provider-missing", "provider-unreadable", "versions", "capability")
}

// asks: there are a GPU and an ONNX Runtime for it. The caller reports that no ONNX Runtime was found.
func asks(h *host) bool { return hasTarget(h) && h.Runtime.Path != "" }

// sections are in the order of the checks: what a rule needs is found above it.
// docs/gpu-errors.md has the rules as a table.
var sections = []section{
	{rules: []rule{
		{"driver-silent", Fault, func(h *host, a *about) bool {
			if h.silent == nil || !h.opened && errors.Is(h.silent, cuda.ErrNoDriver) {
				return false
			}
			a.add("why", h.silent.Error())
			return true
		}, "the NVIDIA driver does not respond: {why}", ""},
		{"nouveau", Fault, func(h *host, a *about) bool {
			a.add("pci", strings.Join(h.onPCI(), ", "))
			return h.silent != nil && a.words["pci"] != "" && h.there("/sys/module/nouveau")
		}, "the kernel module nouveau holds the GPU at {pci}", installDriver + "; that keeps nouveau from loading"},
		{"no-driver", Fault, func(h *host, a *about) bool {
			gpus := h.onPCI()
			if h.silent == nil || len(gpus) == 0 && !h.there("/proc/driver/nvidia/version") {
				return false
			}
			if len(gpus) == 0 { // a container may hide the bus
				gpus = []string{"an address that is not shown here"}
			}
			a.add("pci", strings.Join(gpus, ", "), "why", h.silent.Error())
			return true
		}, "the GPU at {pci} has no driver: {why}", installDriver},
		{"gpu-wanted", Fault, func(h *host, a *about) bool { return h.Wanted && h.none(a) },
			`device = "cuda", but there is no NVIDIA GPU: {why}`,
			`run overlapd on a host with a GPU, or set device = "cpu"; a container must be given its GPU (--gpus all, with the NVIDIA container toolkit)`},
		{"no-gpu", Note, (*host).none, "no NVIDIA GPU: {why}", ""},
		{"driver", OK, func(h *host, a *about) bool {
			a.add("driver", h.Facts.Driver, "cuda", h.Facts.CUDA.String())
			return true
		}, "NVIDIA driver {driver} supports CUDA {cuda} and older", ""},
	}},
	{applies: func(h *host) bool { return h.found("driver") }, each: (*host).findTarget, rules: []rule{
		{"gpu-broken", Fault, func(_ *host, a *about) bool { return a.err != nil && a.words["gpu"] != "" }, "{gpu} does not respond: {why}", ""},
		{"gpu-unknown", Fault, failed, "{why}", ""},
		{"gpu", OK, always, "{gpu}, compute capability {capability}, {memory}", ""},
	}},

	{applies: hasTarget, each: (*host).deviceFiles, rules: []rule{
		{"device-file-missing", Fault, missing, "{path} does not exist",
			"run nvidia-modprobe -u -c 0 as root, or enable nvidia-persistenced; a container or unit must be given the file"},
		{"device-file-denied", Fault, failed, "user {user} has no access to {path}: {why}",
			"run overlapd as a user with access (the file's group: usermod -aG GROUP USER), or allow it with DeviceAllow in the unit"},
	}},
	{applies: hasTarget, each: (*host).capabilityFiles, rules: []rule{
		{"caps-missing", Fault, missing, "{path} of MIG device {uuid} does not exist",
			"run nvidia-modprobe -f {access} as root; a container must be given the file"},
		{"caps-denied", Fault, failed, "user {user} has no access to {path} of MIG device {uuid}: {why}", "chmod a+r {path} as root, or run overlapd as root"},
	}},

	{applies: hasTarget, each: (*host).device, all: true, rules: []rule{
		{"compute-prohibited", Fault, func(h *host, _ *about) bool { return h.computes(cuda.Prohibited) },
			"compute mode of {gpu} is PROHIBITED: nothing can run on it", "run nvidia-smi -i {index} -c 0 as root"},
		{"compute-exclusive", Fault, func(h *host, _ *about) bool {
			return !usesMPS(h) && h.Services > 1 && h.computes(cuda.ExclusiveProcess, cuda.ExclusiveThread)
		}, "compute mode of {gpu} is {mode}, with {services} services and no MPS: only one worker would get the GPU",
			`set mode = "own" in [mps], or run nvidia-smi -i {index} -c 0 as root`},
		{"compute-default", Note, func(h *host, _ *about) bool {
			// A divided GPU needs this mode: an MPS server for each instance is more than one process.
			return usesMPS(h) && !h.target.Device.MIG.Enabled && h.computes(cuda.DefaultMode)
		}, "compute mode of {gpu} is DEFAULT: other processes can use the GPU alongside MPS", "to prevent that, run nvidia-smi -i {index} -c 3 as root"},
		{"persistence", Warning, func(h *host, _ *about) bool {
			p := h.target.Device.Persistence
			return p.Known && !p.Value
		}, "persistence mode of {gpu} is off: the driver releases an unused GPU, and the next start takes seconds longer",
			"run systemctl enable --now nvidia-persistenced, or nvidia-smi -i {index} -pm 1, as root"},
		{"ecc-off", Note, func(h *host, _ *about) bool {
			ecc := h.target.Device.ECC
			return ecc.Known && !ecc.Value.Enabled
		}, "ECC of {gpu} is off: memory errors go unnoticed", "to turn it on, run nvidia-smi -i {index} -e 1 as root and reset the GPU"},
		{"ecc-errors", Warning, func(h *host, a *about) bool {
			n := h.target.Device.ECC.Value.Uncorrected
			a.add("errors", fmt.Sprint(n.Value))
			return h.target.Device.ECC.Known && n.Known && n.Value > 0
		}, "{gpu} has {errors} uncorrectable ECC memory errors since the driver was loaded",
			"stop what uses it and reset it (nvidia-smi --gpu-reset -i {index}); if the errors return, replace it"},
		{"busy", Warning, (*host).busy, "{gpu} is already used by {processes}: latencies will differ from those profiled", "stop them, or give overlapd another GPU"},
	}},

	{applies: asks, each: (*host).provider, rules: []rule{
		{"ort-cpu", Fault, func(h *host, _ *about) bool { return !slices.Contains(h.Runtime.Providers, "CUDAExecutionProvider") },
			"ONNX Runtime {path} is not a CUDA build: it has {providers}",
			"use libonnxruntime from the PyPI package onnxruntime-gpu {pinned} for CUDA 13 and set OVERLAPD_ORT to it"},
		{"provider-missing", Fault, func(h *host, a *about) bool {
			at := slices.IndexFunc(providerFiles, func(file string) bool { return !h.there(filepath.Join(filepath.Dir(h.Runtime.Path), file)) })
			if at >= 0 {
				a.add("file", providerFiles[at])
			}
			return at >= 0
		}, "{file} is not in the folder of {path}", "it comes with libonnxruntime.so.1: put both into one folder"},
		{"provider-unreadable", Warning, failed, "the dependencies of {file} cannot be read: {why}", "take it from the package of libonnxruntime.so.1 again"},
		{"versions", Fault, func(h *host, a *about) bool {
			err := cuda.Versions(h.Facts.Driver, h.Facts.CUDA, cudaMajor(h.linked))
			if err != nil {
				a.add("why", err.Error())
			}
			return err != nil
		}, "{why}", ""},
		{"capability", Fault, func(h *host, _ *about) bool {
			c := h.target.Device.Capability
			return cudaMajor(h.linked) >= 13 && (c.Major < 7 || c.Major == 7 && c.Minor < 5)
		}, "{gpu} has compute capability {capability}, but CUDA 13 supports only 7.5 and newer", "use an ONNX Runtime for CUDA 12, or another GPU"},
	}},
	{applies: canStart, each: (*host).missingLibraries, rules: []rule{
		{"library-missing", Fault, always, "{library} was not found, and ONNX Runtime's CUDA provider does not start without it", installLibrary},
	}},
	{applies: canStart, each: (*host).lateLibraries, rules: []rule{
		{"library-late", Warning, always, "{library} was not found: {without}", installLibrary},
	}},
	{applies: func(h *host) bool { return canStart(h) && !h.found("library-missing", "library-late") }, rules: []rule{
		{"provider", OK, func(h *host, a *about) bool {
			a.add("major", fmt.Sprint(cudaMajor(h.linked)))
			return true
		}, "ONNX Runtime is a build for CUDA {major}, and all libraries that it needs were found", ""},
	}},
	{applies: func(h *host) bool { return h.found("provider", "provider-unreadable") }, each: (*host).try, rules: []rule{
		{"try-failed", Fault, failed, "a small model does not run on {gpu}: {why}", "fix the other faults first"},
		{"try", OK, always, "a small model ran on {gpu} in its own process, with the same outputs as on the CPU", ""},
	}},

	{applies: func(h *host) bool { return hasTarget(h) && !usesMPS(h) && h.Services > 1 }, rules: []rule{
		{"mps-off", Note, always, "MPS is off: kernels of different services take turns, so overlapping gains nothing and services run one at a time",
			`set mode = "own" in [mps] if there is more than one service`},
	}},
	{applies: func(h *host) bool { return hasTarget(h) && h.MPS.Own != nil }, each: (*host).ownMPS, rules: []rule{
		{"mps-directory", Fault, failed, "the folder {path} for MPS cannot be used: {why}", "set dir in [mps] to a folder that user {user} owns and nobody else may write to"},
	}},
	{applies: func(h *host) bool { return hasTarget(h) && usesMPS(h) }, each: (*host).controlDaemons, rules: []rule{
		{"mps-program", Fault, func(_ *host, a *about) bool { return errors.Is(a.err, mps.ErrNoProgram) }, "{why}", ""},
		{"mps-stranger", Warning, func(h *host, a *about) bool { return !h.MPS.Join && !errors.Is(a.err, mps.ErrNoDaemon) },
			"another MPS control daemon serves {path}: kernels of its clients and of overlapd take turns",
			`stop it (echo quit | nvidia-cuda-mps-control), or join it with mode = "existing" in [mps]`},
		{"mps-existing", Fault, func(h *host, a *about) bool { return h.MPS.Join && a.err != nil }, "the MPS control daemon of {path} cannot be used: {why}", ""},
	}},
	{applies: func(h *host) bool {
		return hasTarget(h) && usesMPS(h) && !h.found("mps-program", "mps-stranger", "mps-existing")
	}, rules: []rule{
		{"mps", OK, (*host).mpsWorks, "MPS: {what}", ""},
	}},

	{applies: func(h *host) bool { return hasTarget(h) && len(h.MIG.Instances) == 0 }, each: (*host).device, rules: []rule{
		{"mig-whole", Fault, (*host).divided, "MIG mode of {gpu} is on, so CUDA sees only its instances, but the configuration names the whole GPU",
			"name an instance with gpu = \"MIG-…\" ({instances}), declare them as [[device]] with mig, or turn MIG off: run nvidia-smi -i {index} -mig 0 as root"},
	}},
	{applies: func(h *host) bool { return hasTarget(h) && len(h.MIG.Instances) > 0 }, each: (*host).planMIG, all: true, rules: []rule{
		{"mig-root", Fault, func(h *host, _ *about) bool { return h.MIG.Owner && h.User != 0 },
			"[mig] has owner = true, but user {user} is not root: only root creates MIG instances",
			"run overlapd as root, or have the administrator create them and set owner = false"},
		{"mig-layout", Fault, failed, "{why}", ""},
		{"mig-steps", Note, func(_ *host, a *about) bool { return a.err == nil && a.words["steps"] != "0" }, "MIG: {steps} steps remain for the start of the daemon", ""},
		{"mig", OK, func(_ *host, a *about) bool { return a.err == nil && a.words["steps"] == "0" }, "MIG: all {instances} instances exist", ""},
	}},

	{applies: func(h *host) bool { return h.Facts != nil && h.Err() != nil && !h.Wanted }, rules: []rule{
		{"auto-cpu", Note, always, `device = "auto" uses the CPU, because this GPU is not usable as it is`, ""},
	}},
}
