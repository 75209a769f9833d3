// Package hostcheck finds what keeps a host with NVIDIA GPUs from running a
// configuration, and what to do about it, for overlapd check.
//
// [Look] asks NVML, the file tree, MPS and, through a function of the caller, a
// process that runs a small model. It returns a [Report] of [Finding] values, each an
// instance of one of the rules in docs/gpu-errors.md. It changes nothing.
package hostcheck

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
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
	"github.com/overlapd/overlapd/ort"
)

// Options are the configuration to check a host for and what its caller knows of the
// host: the ONNX Runtime that was found, if any, with the execution providers that it
// was built with, the folders of LD_LIBRARY_PATH, and the user's ID.
type Options struct {
	Config      config.Config
	RuntimePath string
	Providers   []string
	LibraryPath []string
	User        int

	// Try runs a small model on a GPU in another process; nil leaves it out.
	Try func(ctx context.Context, gpu string) error

	// Tests replace NVML, the root of the file tree, whether the user may read and
	// write a file, and the libraries that a library is linked with.
	Open   func() (*cuda.Host, error)
	Root   string
	Access func(path string) error
	Needs  func(path string) ([]string, error)
}

func (o *Options) wantsGPU() bool { return o.Config.Device == config.DeviceCUDA }

// looking is one run of Look. The target, which services would run on, is nil until it
// is known.
type looking struct {
	Options
	Report
	target *cuda.Target
}

// Look checks the host. It waits for nothing but MPS and Try.
func Look(ctx context.Context, o Options) Report {
	l := &looking{Options: o}
	if l.Open == nil {
		l.Open = func() (*cuda.Host, error) { return cuda.Open(nil) }
	}
	if l.Access == nil {
		l.Access = func(path string) error { return access(path, unix.R_OK|unix.W_OK) }
	}
	if l.Needs == nil {
		l.Needs = needs
	}
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
	return l.Report
}

func access(path string, mode uint32) error {
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
	name := l.Config.GPU
	if name == "" {
		name = fmt.Sprint(l.Facts.Devices[0].Index)
	}
	t, err := l.Facts.Find(name)
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
		memory = fmt.Sprintf("%.1f GiB of memory, %.1f free", gibi(m.Value.Total), gibi(m.Value.Free))
	}
	l.add("gpu", "gpu", l.Device, "capability", t.Device.Capability.String(), "memory", memory)
	return true
}

func gibi(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

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

func words(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(slices.Compact(list), ", ")
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
		if number := l.field(file, "DeviceFileMinor"); number != "" { // drivers can be set up without them
			readable := func(path string) error { return access(path, unix.R_OK) }
			l.checkFile("/dev/nvidia-caps/nvidia-cap"+number, "caps-missing", "caps-denied", readable, "uuid", l.UUID, "access", file)
		}
	}
}

// minor returns the number in the name of the GPU's device file. It is in the driver's
// own list and not always the index.
func (l *looking) minor() string {
	address := strings.ToLower(strings.TrimPrefix(l.target.Device.PCI, "0000"))
	listed := l.field("/proc/driver/nvidia/gpus/"+address+"/information", "Device Minor")
	return cmp.Or(listed, fmt.Sprint(l.target.Device.Index))
}

// field returns the value of a key in a file of the driver, none without the file.
func (l *looking) field(path, key string) string {
	text, _ := os.ReadFile(l.path(path))
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// lookAtDevice adds modes that are in the way, and other processes on the GPU.
func (l *looking) lookAtDevice() {
	d := l.target.Device
	name, index := fmt.Sprintf("GPU %d", d.Index), fmt.Sprint(d.Index)
	l.lookAtMode(d.ComputeMode.Value, name, index, d.MIG.Enabled)
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
		l.add("busy", "gpu", name, "processes", "processes "+words(pids))
	}
}

// lookAtMode adds a compute mode that is in the way. A GPU that is divided has to be in
// the default one: an MPS server for each instance is more than one process.
func (l *looking) lookAtMode(mode string, name, index string, divided bool) {
	switch mode {
	case cuda.Prohibited:
		l.add("compute-prohibited", "gpu", name, "index", index)
	case cuda.ExclusiveProcess, cuda.ExclusiveThread:
		if l.Config.MPS.Mode == config.MPSOff && len(l.Config.Services) > 1 {
			l.add("compute-exclusive", "gpu", name, "index", index, "mode", strings.ToUpper(string(mode)), "services", fmt.Sprint(len(l.Config.Services)))
		}
	case cuda.DefaultMode:
		if l.Config.MPS.Mode != config.MPSOff && !divided {
			l.add("compute-default", "gpu", name, "index", index)
		}
	}
}

func (l *looking) lookAtMPS(ctx context.Context) {
	switch c := &l.Config; c.MPS.Mode {
	case config.MPSOff:
		if len(c.Services) > 1 {
			l.add("mps-off")
		}
	case config.MPSExisting:
		l.join(ctx, c.MPS.Dir)
	default:
		dir := gpu.MPSDirOf(c.MPS.Dir, l.UUID)
		if err := mps.CheckDirectory(l.path(dir)); err != nil {
			l.add("mps-directory", "path", dir, "user", fmt.Sprint(l.User), "why", err.Error())
		}
		l.lookForStrangers(ctx, dir)
	}
}

// lookForStrangers checks the default directories of MPS for a control daemon, which
// is not ours.
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

// join checks the MPS control daemon of somebody else that the configuration names.
func (l *looking) join(ctx context.Context, dir string) {
	err := l.ask(ctx, dir)
	if dir == "" {
		dir = mps.DefaultPipe
	}
	switch {
	case errors.Is(err, mps.ErrNoProgram):
		l.add("mps-program", "why", err.Error())
	case err != nil:
		l.add("mps-existing", "path", dir, "why", err.Error())
	default:
		l.add("mps", "what", "a control daemon serves "+dir)
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
	c := &l.Config.MIG
	if len(c.Instances) == 0 {
		if d.MIG.Enabled && l.target.Instance == nil {
			l.add("mig-whole", "gpu", fmt.Sprintf("GPU %d", d.Index), "index", fmt.Sprint(d.Index), "instances", l.instances())
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
	layout, err := mig.Plan(d, c.Instances, o)
	if err != nil {
		l.add("mig-layout", "why", err.Error())
		return
	}
	l.Layout = layout.String()
	if steps := layout.Steps(); len(steps) > 0 {
		l.add("mig-steps", "steps", fmt.Sprint(len(steps)))
		return
	}
	l.add("mig", "instances", fmt.Sprint(len(c.Instances)))
}

// instances names the MIG devices that there are.
func (l *looking) instances() string {
	var names []string
	for _, i := range l.target.Device.Instances {
		for _, c := range i.Compute {
			names = append(names, c.UUID)
		}
	}
	return words(names)
}

// cudaProvider is how ONNX Runtime names its execution provider.
const cudaProvider = "CUDAExecutionProvider"

// provider are the files that lie beside a CUDA build of ONNX Runtime.
var provider = []string{"libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"}

// lookAtRuntime checks ONNX Runtime from its build to a model that runs.
func (l *looking) lookAtRuntime(ctx context.Context) {
	if l.RuntimePath == "" {
		return // the caller, which looked for it, reports that
	}
	if !slices.Contains(l.Providers, cudaProvider) {
		l.add("ort-cpu", "path", l.RuntimePath, "providers", words(l.Providers), "pinned", ort.PinnedVersion)
		return
	}
	folder := filepath.Dir(l.RuntimePath)
	for _, file := range provider {
		if !l.there(filepath.Join(folder, file)) {
			l.add("provider-missing", "file", file, "path", l.RuntimePath)
			return
		}
	}
	if !l.lookAtLibraries(filepath.Join(folder, provider[1])) || l.Try == nil {
		return
	}
	gpu := l.UUID
	if err := l.Try(ctx, gpu); err != nil {
		l.add("try-failed", "gpu", gpu, "why", err.Error())
		return
	}
	l.add("try", "gpu", gpu)
}

// lookAtLibraries checks the libraries of CUDA that the provider needs, and
// reports whether it can start with them.
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
		{"libcudnn.so.9", "convolutions and normalisations fail without it"},
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

// found looks for a library in the places of the system's loader: beside the runtime,
// in LD_LIBRARY_PATH, and in the folders of ldconfig's configuration.
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

// versionsOf are the versions of CUDA in the names of packages. A later one of the same
// major version does as well.
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
