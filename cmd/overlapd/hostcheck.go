package main

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/ort"
)

// errHost is returned by gpuReport.Err when the host cannot do what is wanted.
var errHost = errors.New("this host cannot run the configuration")

// The levels of a finding. Only a fault keeps services from running.
const (
	levelOK      = "ok"
	levelNote    = "note"
	levelWarning = "warning"
	levelFault   = "fault"
)

// finding is an instance of a rule, without a remedy where its sentence is enough.
type finding struct {
	Rule   string `json:"rule"`
	Level  string `json:"level"`
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitempty"`
}

// String returns the finding as one sentence.
func (f finding) String() string {
	if f.Remedy == "" {
		return f.Says
	}
	return f.Says + "; " + f.Remedy
}

// gpuReport is about the GPU that services would run on. Facts are absent where there is no
// driver. Layout draws the MIG instances as the daemon would make them.
type gpuReport struct {
	Device   string      `json:"device,omitempty"`
	UUID     string      `json:"uuid,omitempty"`
	Facts    *cuda.Facts `json:"facts,omitempty"`
	Layout   string      `json:"layout,omitempty"`
	Findings []finding   `json:"findings"`
}

// add appends the finding of a rule, which there must be. Words are pairs of a name in
// braces and a text.
func (r *gpuReport) add(id string, words ...string) {
	rule := rules[slices.IndexFunc(rules, func(r rule) bool { return r.id == id })]
	for i := 0; i < len(words); i += 2 {
		words[i] = "{" + words[i] + "}"
	}
	fill := strings.NewReplacer(words...)
	r.Findings = append(r.Findings, finding{rule.id, rule.level, fill.Replace(rule.says), fill.Replace(rule.remedy)})
}

// Err returns all faults as one error, nil if there are none.
func (r *gpuReport) Err() error {
	var faults []error
	for _, f := range r.Findings {
		if f.Level == levelFault {
			faults = append(faults, errors.New(f.String()))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", errHost, errors.Join(faults...))
}

// WriteText writes each finding as a comment of a configuration file.
func (r *gpuReport) WriteText(w io.Writer) {
	for _, f := range r.Findings {
		text := strings.ReplaceAll(f.String(), "\n", "\n#   ")
		if f.Level == levelWarning || f.Level == levelFault {
			text = f.Level + ": " + text
		}
		fmt.Fprintf(w, "# %s\n", text)
	}
	if r.Layout != "" {
		fmt.Fprintf(w, "# %s\n", strings.ReplaceAll(strings.TrimRight(r.Layout, "\n"), "\n", "\n# "))
	}
}

// rule is a sentence about a host and its remedy. Words in braces are filled in.
type rule struct {
	id, says, remedy, level string
}

// installDriver is how Debian 12, whose own is of branch 535, gets a driver for CUDA 13.
const installDriver = "install driver 580 or newer and reboot (Debian 12 has 535, so add NVIDIA's repository with its package cuda-keyring, " +
	"then apt-get install linux-headers-amd64 nvidia-open, or cuda-drivers for GPUs before Turing)"

// installLibrary is how a host gets one of the libraries of CUDA.
const installLibrary = "apt-get install {package} (NVIDIA's repository) or pip install {wheel}, and set LD_LIBRARY_PATH to its folder or run ldconfig"

// rules are in the order of the checks. docs/gpu-errors.md has them as a table.
var rules = []rule{
	{"no-gpu", "no NVIDIA GPU: {why}", "", levelNote},
	{"auto-cpu", `device = "auto" uses the CPU, because this GPU is not usable as it is`, "", levelNote},
	{"gpu-wanted", `device = "cuda", but there is no NVIDIA GPU: {why}`,
		`run overlapd on a host with a GPU, or set device = "cpu"; a container must be given its GPU (--gpus all, with the NVIDIA container toolkit)`, levelFault},
	{"nouveau", "the kernel module nouveau holds the GPU at {pci}", installDriver + "; that keeps nouveau from loading", levelFault},
	{"no-driver", "the GPU at {pci} has no driver: {why}", installDriver, levelFault},
	{"driver-silent", "the NVIDIA driver does not respond: {why}", "", levelFault},
	{"driver", "NVIDIA driver {driver} supports CUDA {cuda} and older", "", levelOK},

	{"gpu-unknown", "{why}", "", levelFault},
	{"gpu-broken", "{gpu} does not respond: {why}", "", levelFault},
	{"gpu", "{gpu}, compute capability {capability}, {memory}", "", levelOK},

	{"device-file-missing", "{path} does not exist",
		"run nvidia-modprobe -u -c 0 as root, or enable nvidia-persistenced; a container or unit must be given the file", levelFault},
	{"device-file-denied", "user {user} has no access to {path}: {why}",
		"run overlapd as a user with access (the file's group: usermod -aG GROUP USER), or allow it with DeviceAllow in the unit", levelFault},
	{"caps-missing", "{path} of MIG device {uuid} does not exist",
		"run nvidia-modprobe -f {access} as root; a container must be given the file", levelFault},
	{"caps-denied", "user {user} has no access to {path} of MIG device {uuid}: {why}", "chmod a+r {path} as root, or run overlapd as root", levelFault},

	{"versions", "{why}", "", levelFault},
	{"ort-cpu", "ONNX Runtime {path} is not a CUDA build: it has {providers}",
		"use libonnxruntime from the PyPI package onnxruntime-gpu {pinned} for CUDA 13 and set OVERLAPD_ORT to it", levelFault},
	{"provider-missing", "{file} is not in the folder of {path}", "it comes with libonnxruntime.so.1: put both into one folder", levelFault},
	{"provider-unreadable", "the dependencies of {file} cannot be read: {why}", "take it from the package of libonnxruntime.so.1 again", levelWarning},
	{"library-missing", "{library} was not found, and ONNX Runtime's CUDA provider does not start without it", installLibrary, levelFault},
	{"library-late", "{library} was not found: {without}", installLibrary, levelWarning},
	{"capability", "{gpu} has compute capability {capability}, but CUDA 13 supports only 7.5 and newer",
		"use an ONNX Runtime for CUDA 12, or another GPU", levelFault},
	{"provider", "ONNX Runtime is a build for CUDA {major}, and all libraries that it needs were found", "", levelOK},
	{"try-failed", "a small model does not run on {gpu}: {why}", "fix the other faults first", levelFault},
	{"try", "a small model ran on {gpu} in its own process, with the same outputs as on the CPU", "", levelOK},

	{"compute-prohibited", "compute mode of {gpu} is PROHIBITED: nothing can run on it", "run nvidia-smi -i {index} -c 0 as root", levelFault},
	{"compute-exclusive", "compute mode of {gpu} is {mode}, with {services} services and no MPS: only one worker would get the GPU",
		`set mode = "own" in [mps], or run nvidia-smi -i {index} -c 0 as root`, levelFault},
	{"compute-default", "compute mode of {gpu} is DEFAULT: other processes can use the GPU alongside MPS",
		"to prevent that, run nvidia-smi -i {index} -c 3 as root", levelNote},
	{"persistence", "persistence mode of {gpu} is off: the driver releases an unused GPU, and the next start takes seconds longer",
		"run systemctl enable --now nvidia-persistenced, or nvidia-smi -i {index} -pm 1, as root", levelWarning},
	{"ecc-errors", "{gpu} has {errors} uncorrectable ECC memory errors since the driver was loaded",
		"stop what uses it and reset it (nvidia-smi --gpu-reset -i {index}); if the errors return, replace it", levelWarning},
	{"ecc-off", "ECC of {gpu} is off: memory errors go unnoticed", "to turn it on, run nvidia-smi -i {index} -e 1 as root and reset the GPU", levelNote},
	{"busy", "{gpu} is already used by {processes}: latencies will differ from those profiled", "stop them, or give overlapd another GPU", levelWarning},

	{"mps-off", "MPS is off: kernels of different services take turns, so overlapping gains nothing and services run one at a time",
		`set mode = "own" in [mps] if there is more than one service`, levelNote},
	{"mps-program", "{why}", "", levelFault},
	{"mps-directory", "the folder {path} for MPS cannot be used: {why}", "set dir in [mps] to a folder that user {user} owns and nobody else may write to", levelFault},
	{"mps-stranger", "another MPS control daemon serves {path}: kernels of its clients and of overlapd take turns",
		`stop it (echo quit | nvidia-cuda-mps-control), or join it with mode = "existing" in [mps]`, levelWarning},
	{"mps-existing", "the MPS control daemon of {path} cannot be used: {why}", "", levelFault},
	{"mps", "MPS: {what}", "", levelOK},

	{"mig-whole", "MIG mode of {gpu} is on, so CUDA sees only its instances, but the configuration names the whole GPU",
		"name an instance with gpu = \"MIG-…\" ({instances}), declare them as [[device]] with mig, or turn MIG off: run nvidia-smi -i {index} -mig 0 as root", levelFault},
	{"mig-layout", "{why}", "", levelFault},
	{"mig-root", "[mig] has owner = true, but user {user} is not root: only root creates MIG instances",
		"run overlapd as root, or have the administrator create them and set owner = false", levelFault},
	{"mig-steps", "MIG: {steps} steps remain for the start of the daemon", "", levelNote},
	{"mig", "MIG: all {instances} instances exist", "", levelOK},
}

// hostOptions are the configuration to check a host for and what is known of the host:
// ONNX Runtime, if any, with its execution providers, the folders of LD_LIBRARY_PATH, and
// the user's ID. Paths begin at Root. Access returns why the user may not read and write a
// file, Needs the libraries that one is linked with; Try runs a small model on a GPU.
type hostOptions struct {
	Config      config.Config
	RuntimePath string
	Providers   []string
	LibraryPath []string
	User        int
	Root        string
	Open        func() (*cuda.Host, error)
	Access      func(path string) error
	Needs       func(path string) ([]string, error)
	Try         func(ctx context.Context, gpu string) error
}

func (o *hostOptions) wantsGPU() bool {
	return o.Config.MayUseGPU() && o.Config.Pool()[0].Kind != config.DeviceAuto
}

// looking is one run of checkGPU. The target is what services would run on.
type looking struct {
	hostOptions
	gpuReport
	target *cuda.Target
}

// checkGPU finds what keeps a host with NVIDIA GPUs from running a configuration, and what
// to do about it: each finding is an instance of a rule in docs/gpu-errors.md. It changes
// nothing, and waits for nothing but MPS and Try.
func checkGPU(ctx context.Context, o hostOptions) gpuReport {
	l := &looking{hostOptions: o}
	if l.readFacts() && l.findTarget() {
		l.lookAtFiles()
		l.lookAtDevice()
		l.lookAtRuntime(ctx)
		l.lookAtMPS(ctx)
		l.lookAtMIG()
	}
	if l.Facts != nil && l.Err() != nil && !l.wantsGPU() {
		l.add("auto-cpu")
	}
	return l.gpuReport
}

func mayAccess(path string, mode uint32) error {
	return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
}

func (l *looking) readFacts() bool {
	host, err := l.Open()
	if err != nil {
		l.explain(err)
		return false
	}
	facts, err := host.Facts()
	if err = errors.Join(err, host.Close()); err != nil {
		l.add("driver-silent", "why", err.Error())
		return false
	}
	l.Facts = &facts
	if len(facts.Devices) == 0 {
		l.none("driver " + facts.Driver + " sees none")
		return false
	}
	l.add("driver", "driver", facts.Driver, "cuda", facts.CUDA.String())
	return true
}

// explain adds why NVML could not be opened: most often there is no GPU at all.
func (l *looking) explain(err error) {
	gpus := l.onPCI()
	switch {
	case !errors.Is(err, cuda.ErrNoDriver):
		l.add("driver-silent", "why", err.Error())
	case len(gpus) > 0 && l.there("/sys/module/nouveau"):
		l.add("nouveau", "pci", strings.Join(gpus, ", "))
	case len(gpus) > 0 || l.there("/proc/driver/nvidia/version"):
		if len(gpus) == 0 {
			gpus = []string{"an address that is not shown here"}
		}
		l.add("no-driver", "pci", strings.Join(gpus, ", "), "why", err.Error())
	default:
		l.none("no such PCI device, and no driver")
	}
}

// none adds the finding that there is no GPU, a fault only where one is wanted.
func (l *looking) none(why string) {
	rule := "no-gpu"
	if l.wantsGPU() {
		rule = "gpu-wanted"
	}
	l.add(rule, "why", why)
}

// onPCI returns the addresses of NVIDIA's GPUs: class 3 are display controllers.
func (l *looking) onPCI() (found []string) {
	vendors, _ := filepath.Glob(l.path("/sys/bus/pci/devices/*/vendor")) // the pattern is well-formed
	for _, path := range vendors {
		vendor, _ := os.ReadFile(path)
		class, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "class"))
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			found = append(found, filepath.Base(filepath.Dir(path)))
		}
	}
	return found
}

func (l *looking) findTarget() bool {
	t, err := l.Facts.Find(cmp.Or(l.Config.Pool().GPUs()[0], fmt.Sprint(l.Facts.Devices[0].Index)))
	switch {
	case t.Device.Fault != nil:
		l.add("gpu-broken", "gpu", t.Device.String(), "why", t.Device.Fault.Error())
		return false
	case err != nil:
		l.add("gpu-unknown", "why", err.Error())
		return false
	}
	l.target = &t
	l.Device, l.UUID = t.Device.String(), t.UUID()
	memory := "memory unknown"
	if m := t.Device.Memory; m.Known {
		const gibi = 1 << 30
		memory = fmt.Sprintf("%.1f GiB of memory, %.1f free", float64(m.Value.Total)/gibi, float64(m.Value.Free)/gibi)
	}
	l.add("gpu", "gpu", l.Device, "capability", t.Device.Capability.String(), "memory", memory)
	return true
}

func (l *looking) path(p string) string { return filepath.Join("/", l.Root, p) }

func (l *looking) there(p string) bool {
	_, err := os.Stat(l.path(p))
	return err == nil
}

// checkFile adds a finding if a file of the host is missing or a check of it fails.
func (l *looking) checkFile(p, missing, denied string, check func(path string) error, words ...string) {
	words = append([]string{"path", p, "user", fmt.Sprint(l.User)}, words...)
	switch err := check(l.path(p)); {
	case errors.Is(err, fs.ErrNotExist):
		l.add(missing, words...)
	case err != nil:
		l.add(denied, append(words, "why", err.Error())...)
	}
}

func joined(list []string) string {
	return cmp.Or(strings.Join(slices.Compact(list), ", "), "none")
}

// lookAtFiles checks that the user may open what CUDA opens.
func (l *looking) lookAtFiles() {
	for _, path := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia" + l.minor()} {
		l.checkFile(path, "device-file-missing", "device-file-denied", l.Access)
	}
	if l.target.Instance == nil {
		return
	}
	instance := fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%s/mig/gi%d", l.minor(), l.target.Instance.ID)
	for _, file := range []string{instance + "/access", fmt.Sprintf("%s/ci%d/access", instance, l.target.Compute.ID)} {
		if number := textfile.Field(l.path(file), "DeviceFileMinor"); number != "" { // drivers can be set up without them
			readable := func(path string) error { return mayAccess(path, unix.R_OK) }
			l.checkFile("/dev/nvidia-caps/nvidia-cap"+number, "caps-missing", "caps-denied", readable, "uuid", l.UUID, "access", file)
		}
	}
}

// minor returns the number of the GPU's device file, which is not always the index.
func (l *looking) minor() string {
	address := strings.ToLower(strings.TrimPrefix(l.target.Device.PCI, "0000"))
	listed := textfile.Field(l.path("/proc/driver/nvidia/gpus/"+address+"/information"), "Device Minor")
	return cmp.Or(listed, fmt.Sprint(l.target.Device.Index))
}

// lookAtDevice adds modes that are in the way, and other processes on the GPU.
func (l *looking) lookAtDevice() {
	d := l.target.Device
	name, index := fmt.Sprintf("GPU %d", d.Index), fmt.Sprint(d.Index)
	switch mps := l.Config.MPS.Mode != config.MPSOff; d.ComputeMode.Value {
	case cuda.Prohibited:
		l.add("compute-prohibited", "gpu", name, "index", index)
	case cuda.ExclusiveProcess, cuda.ExclusiveThread:
		if n := len(l.Config.Expanded().Services); !mps && n > 1 {
			l.add("compute-exclusive", "gpu", name, "index", index, "mode", strings.ToUpper(d.ComputeMode.Value), "services", fmt.Sprint(n))
		}
	case cuda.DefaultMode:
		if mps && !d.MIG.Enabled { // which needs this mode: an MPS server for each instance is more than one process
			l.add("compute-default", "gpu", name, "index", index)
		}
	}
	if d.Persistence.Known && !d.Persistence.Value {
		l.add("persistence", "gpu", name, "index", index)
	}
	if ecc := d.ECC; ecc.Known {
		if !ecc.Value.Enabled {
			l.add("ecc-off", "gpu", name, "index", index)
		}
		if n := ecc.Value.Uncorrected; n.Known && n.Value > 0 {
			l.add("ecc-errors", "gpu", name, "index", index, "errors", fmt.Sprint(n.Value))
		}
	}
	processes := d.Processes.Value
	if l.target.Instance != nil {
		processes = l.target.Instance.Processes()
	}
	if len(processes) > 0 {
		var pids []string
		for _, p := range processes[:min(len(processes), 8)] {
			pids = append(pids, fmt.Sprint(p.PID))
		}
		l.add("busy", "gpu", name, "processes", "processes "+joined(pids))
	}
}

func (l *looking) lookAtMPS(ctx context.Context) {
	switch c := &l.Config; c.MPS.Mode {
	case config.MPSOff:
		if len(c.Expanded().Services) > 1 {
			l.add("mps-off")
		}
	case config.MPSExisting:
		err, dir := l.ask(ctx, c.MPS.Dir), cmp.Or(c.MPS.Dir, mps.DefaultPipe)
		switch {
		case errors.Is(err, mps.ErrNoProgram):
			l.add("mps-program", "why", err.Error())
		case err != nil:
			l.add("mps-existing", "path", dir, "why", err.Error())
		default:
			l.add("mps", "what", "a control daemon serves "+dir)
		}
	default:
		dir := gpu.MPSDirOf(c.MPS.Dir, l.UUID)
		if err := mps.CheckDirectory(l.path(dir)); err != nil {
			l.add("mps-directory", "path", dir, "user", fmt.Sprint(l.User), "why", err.Error())
		}
		l.lookForStrangers(ctx, dir)
	}
}

// lookForStrangers looks for control daemons in the default directories of MPS.
func (l *looking) lookForStrangers(ctx context.Context, ours string) {
	nobody := true
	for _, dir := range []string{mps.DefaultPipe, mps.RootPipe} {
		err := l.ask(ctx, dir)
		if errors.Is(err, mps.ErrNoAnswer) || errors.Is(err, mps.ErrCommand) {
			err = l.ask(ctx, dir) // it may fail once when several are asked
		}
		switch {
		case errors.Is(err, mps.ErrNoProgram):
			l.add("mps-program", "why", err.Error())
			return
		case !errors.Is(err, mps.ErrNoDaemon):
			l.add("mps-stranger", "path", dir)
			nobody = false
		}
	}
	if nobody {
		l.add("mps", "what", "the control program is there, our control daemon will live in "+ours+", and nobody serves "+mps.DefaultPipe+" or "+mps.RootPipe)
	}
}

// ask attaches to the control daemon of a directory and detaches from it.
func (l *looking) ask(ctx context.Context, dir string) error {
	if dir != "" {
		dir = l.path(dir)
	}
	control, err := mps.Existing(ctx, mps.Options{Program: l.Config.MPS.Program, Directory: dir})
	if err != nil {
		return err
	}
	return control.Stop()
}

// lookAtMIG compares the instances with those that the configuration declares.
func (l *looking) lookAtMIG() {
	d := l.target.Device
	c, wants := &l.Config.MIG, l.Config.Pool().Instances(l.Config.Pool().GPUs()[0], l.Config.Services)
	if len(wants) == 0 {
		if d.MIG.Enabled && l.target.Instance == nil {
			var names []string
			for _, i := range d.Instances {
				for _, c := range i.Compute {
					names = append(names, c.UUID)
				}
			}
			l.add("mig-whole", "gpu", fmt.Sprintf("GPU %d", d.Index), "index", fmt.Sprint(d.Index), "instances", joined(names))
		}
		return
	}
	if c.Owner && l.User != 0 {
		l.add("mig-root", "user", fmt.Sprint(l.User))
	}
	o := mig.Options{Owner: c.Owner, Boot: mig.Boot()}
	var err error
	if o.Record, err = gpu.ReadRecord(l.path(l.Config.StateDir)); err != nil {
		l.add("mig-layout", "why", err.Error())
		return
	}
	layout, err := mig.Plan(d, wants, o)
	if err != nil {
		l.add("mig-layout", "why", err.Error())
		return
	}
	l.Layout = layout.String()
	if steps := layout.Steps(); len(steps) > 0 {
		l.add("mig-steps", "steps", fmt.Sprint(len(steps)))
		return
	}
	l.add("mig", "instances", fmt.Sprint(len(wants)))
}

// provider are the files that lie beside a CUDA build of ONNX Runtime.
var provider = []string{"libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"}

// lookAtRuntime checks ONNX Runtime from its build to a model that runs.
func (l *looking) lookAtRuntime(ctx context.Context) {
	if l.RuntimePath == "" {
		return // the caller, which looked for it, reports that
	}
	if !slices.Contains(l.Providers, "CUDAExecutionProvider") {
		l.add("ort-cpu", "path", l.RuntimePath, "providers", joined(l.Providers), "pinned", ort.PinnedCUDAVersion)
		return
	}
	folder := filepath.Dir(l.RuntimePath)
	for _, file := range provider {
		if !l.there(filepath.Join(folder, file)) {
			l.add("provider-missing", "file", file, "path", l.RuntimePath)
			return
		}
	}
	if !l.lookAtLibraries(filepath.Join(folder, provider[1])) {
		return
	}
	gpu := l.UUID
	if err := l.Try(ctx, gpu); err != nil {
		l.add("try-failed", "gpu", gpu, "why", err.Error())
		return
	}
	l.add("try", "gpu", gpu)
}

// lookAtLibraries reports whether the provider can start with the libraries of CUDA.
func (l *looking) lookAtLibraries(file string) bool {
	list, err := l.Needs(l.path(file))
	if err != nil {
		l.add("provider-unreadable", "file", file, "why", err.Error())
		return true
	}
	major := cudaMajor(list)
	if err := cuda.Versions(l.Facts.Driver, l.Facts.CUDA, major); err != nil {
		l.add("versions", "why", err.Error())
		return false
	}
	if c := l.target.Device.Capability; major >= 13 && (c.Major < 7 || c.Major == 7 && c.Minor < 5) {
		l.add("capability", "gpu", fmt.Sprintf("GPU %d", l.target.Device.Index), "capability", c.String())
		return false
	}
	whole := true
	for _, name := range list {
		if debian, wheel, ok := packagesOf(name, major); ok && !l.found(name, filepath.Dir(file)) {
			l.add("library-missing", "library", name, "package", debian, "wheel", wheel)
			whole = false
		}
	}
	for _, late := range []struct{ name, without string }{ // which are loaded when an operator needs them
		{"libcudnn.so.9", "convolutions and normalizations fail without it"},
		{fmt.Sprintf("libcufft.so.%d", major-1), "Fourier transforms fail without it"},
		{fmt.Sprintf("libnvrtc.so.%d", major), "cuDNN cannot build some of its kernels without it"},
	} {
		if !slices.Contains(list, late.name) && !l.found(late.name, filepath.Dir(file)) {
			debian, wheel, _ := packagesOf(late.name, major)
			l.add("library-late", "library", late.name, "without", late.without, "package", debian, "wheel", wheel)
			whole = false
		}
	}
	if whole {
		l.add("provider", "major", fmt.Sprint(major))
	}
	return whole
}

func needs(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ImportedLibraries()
}

// versioned are libraries whose version is that of CUDA.
var versioned = regexp.MustCompile(`\blib(?:cudart|cublas)\.so\.(\d+)`)

// cudaMajor returns the major version of CUDA that libraries belong to, 0 if unknown.
func cudaMajor(list []string) int {
	major := 0
	if found := versioned.FindStringSubmatch(strings.Join(list, " ")); found != nil {
		major, _ = strconv.Atoi(found[1])
	}
	return major
}

// found looks for a library beside the runtime and where the system's loader does.
func (l *looking) found(name, beside string) bool {
	folders := append([]string{beside}, l.LibraryPath...)
	folders = append(folders, l.configured("/etc/ld.so.conf", 0)...)
	folders = append(folders, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	return slices.ContainsFunc(folders, func(folder string) bool { return l.there(filepath.Join(folder, name)) })
}

// includesMax bounds how deep files of ldconfig include each other.
const includesMax = 4

func (l *looking) configured(file string, depth int) (folders []string) {
	text, err := os.ReadFile(l.path(file))
	if err != nil || depth > includesMax {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "include" && len(fields) > 1:
			pattern := fields[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(file), pattern)
			}
			files, _ := filepath.Glob(l.path(pattern)) // a bad pattern includes nothing
			for _, f := range files {
				folders = append(folders, l.configured(strings.TrimPrefix(f, strings.TrimSuffix(l.path("/"), "/")), depth+1)...)
			}
		default:
			folders = append(folders, fields[0])
		}
	}
	return folders
}

// sources are the libraries of CUDA by the beginning of their names, with the packages
// that have them in NVIDIA's repository for Debian 12 and on PyPI. %s is the version of
// CUDA as package names have it, %d its major number.
var sources = []struct{ library, debian, wheel string }{
	{"libcudart.so", "cuda-cudart-%s", "nvidia-cuda-runtime"},
	{"libcublas.so", "libcublas-%s", "nvidia-cublas"},
	{"libcublasLt.so", "libcublas-%s", "nvidia-cublas"},
	{"libcufft.so", "libcufft-%s", "nvidia-cufft"},
	{"libcurand.so", "libcurand-%s", "nvidia-curand"},
	{"libnvrtc.so", "cuda-nvrtc-%s", "nvidia-cuda-nvrtc"},
	{"libnvJitLink.so", "libnvjitlink-%s", "nvidia-nvjitlink"},
	{"libcudnn.so", "libcudnn9-cuda-%d", "nvidia-cudnn"},
}

// versionsOf are those of CUDA in the names of packages. A later minor one does as well.
var versionsOf = map[int]string{12: "12-8", 13: "13-0"}

// packagesOf returns the packages that have a library, false for one that is not of CUDA.
func packagesOf(library string, major int) (debian, wheel string, ok bool) {
	if library == "libcuda.so.1" {
		return "libcuda1", "nothing: it comes with the driver", true
	}
	for _, s := range sources {
		if !strings.HasPrefix(library, s.library+".") {
			continue
		}
		wheel := s.wheel
		if major < 13 || s.wheel == "nvidia-cudnn" {
			wheel += fmt.Sprintf("-cu%d", major)
		}
		version := any(versionsOf[major])
		if strings.Contains(s.debian, "%d") {
			version = major
		}
		return fmt.Sprintf(s.debian, version), wheel, true
	}
	return "", "", false
}
