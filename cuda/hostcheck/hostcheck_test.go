package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

const (
	runtimePath = "/opt/ort/libonnxruntime.so.1"
	someone     = 1000
)

// machine is a host that a test breaks: a file tree, GPUs, and a user.
type machine struct {
	t      *testing.T
	gpus   *fakegpu.Server
	o      Options
	denied map[string]bool
	dir    string // of MPS
}

// newMachine returns a host on which all is well.
func newMachine(t *testing.T) *machine {
	root, err := os.MkdirTemp("", "host") // sockets below it need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	program, err := fakemps.Install(root)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, gpus: fakegpu.New(fakegpu.H100), denied: map[string]bool{}, dir: "/run/overlapd"}
	m.o = Options{
		Wanted: true, Services: 2,
		MPS:     MPS{Program: program, Own: func(uuid string) string { return filepath.Join(m.dir, uuid[:12]) }},
		MIG:     MIG{Record: func() (mig.Record, error) { return mig.Record{}, nil }},
		Runtime: Runtime{Path: runtimePath, Providers: []string{"CUDAExecutionProvider", "CPUExecutionProvider"}, Pinned: "1.30.0"},
		Root:    root, User: os.Getuid(),
		Open:   func() (*cuda.Host, error) { return cuda.Open(m.gpus) },
		Access: m.access,
		Needs: func(string) ([]string, error) {
			return []string{"libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcudart.so.13", "libc.so.6"}, nil
		},
		Try: func(context.Context, string) error { return nil },
	}
	for _, path := range []string{
		"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", runtimePath,
		"/opt/ort/libonnxruntime_providers_cuda.so", "/opt/ort/libonnxruntime_providers_shared.so",
		"/opt/cuda/libcublas.so.13", "/opt/cuda/libcublasLt.so.13", "/opt/cuda/libcudart.so.13", "/opt/cuda/libcurand.so.10",
		"/usr/lib64/libcudnn.so.9", "/usr/lib64/libcufft.so.12", "/usr/lib64/libnvrtc.so.13",
	} {
		m.write(path, "")
	}
	m.write("/etc/ld.so.conf", "# folders\ninclude ld.so.conf.d/*.conf\n")
	m.write("/etc/ld.so.conf.d/cuda.conf", "/opt/cuda # of NVIDIA\n")
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.o.Root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) remove(path string) {
	if err := os.Remove(filepath.Join(m.o.Root, path)); err != nil {
		m.t.Fatal(err)
	}
}

// access denies what the test says, to whomever runs it.
func (m *machine) access(path string) error {
	rel, err := filepath.Rel(m.o.Root, path)
	if err != nil {
		return err
	}
	if m.denied["/"+rel] {
		return fs.ErrPermission
	}
	_, err = os.Stat(path)
	return err
}

// divide makes MIG instances, and returns the first one's UUID.
func (m *machine) divide(profiles ...uint32) string {
	m.t.Helper()
	m.gpus.SetMIG(0, true)
	for i, id := range profiles {
		if err := m.gpus.Place(0, id, uint32(4*i), fakegpu.H100.Slices(id)); err != nil {
			m.t.Fatal(err)
		}
	}
	host, err := m.o.Open()
	if err != nil {
		m.t.Fatal(err)
	}
	defer host.Close()
	facts, err := host.Facts()
	if err != nil || len(facts.Devices[0].Instances) != len(profiles) {
		m.t.Fatalf("got instances %+v, %v", facts.Devices[0].Instances, err)
	}
	return facts.Devices[0].Instances[0].UUID
}

// noDriver makes NVML absent.
func (m *machine) noDriver() { m.gpus.Fail("nvmlInit", 0, -1, nvml.ERROR_LIBRARY_NOT_FOUND) }

// onPCI puts a device of NVIDIA on the bus.
func (m *machine) onPCI(class string) {
	m.write("/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n")
	m.write("/sys/bus/pci/devices/0000:3b:00.0/class", class+"\n")
}

// serve runs a control daemon of somebody in a directory of the machine.
func (m *machine) serve(dir string) {
	m.t.Helper()
	c, err := mps.Start(m.t.Context(), mps.Options{
		Program: m.o.MPS.Program, Device: m.gpus.Devices[0].UUID, Directory: filepath.Join(m.o.Root, dir),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Stop() })
}

// scenes are what may be wrong, each with the rules that say so. On a host where
// all is well there are other findings; the ones beside "well" are left out here.
var scenes = []struct {
	name  string
	spoil func(*machine)
	want  string // rules in order
	says  string // is part of a sentence
}{
	{"all is well", func(*machine) {}, "", "apart"},
	{"no GPU", func(m *machine) { m.noDriver(); m.o.Wanted = false }, "no-gpu", "no NVIDIA GPU: no such PCI device"},
	{"no GPU and one is wanted", (*machine).noDriver, "gpu-wanted", "--gpus all"},
	{"a driver without a GPU", func(m *machine) { m.gpus.Devices = nil }, "gpu-wanted", "580.65.06 sees none"},
	{"an audio device only", func(m *machine) { m.noDriver(); m.onPCI("0x040300"); m.o.Wanted = false }, "no-gpu", ""},
	{"no driver", func(m *machine) { m.noDriver(); m.onPCI("0x030200") }, "no-driver", "GPU at 0000:3b:00.0 has no driver"},
	{"no libraries of a driver that is loaded", func(m *machine) { m.noDriver(); m.write("/proc/driver/nvidia/version", "580") }, "no-driver", "not shown"},
	{"nouveau", func(m *machine) { m.noDriver(); m.onPCI("0x030000"); m.write("/sys/module/nouveau/refcnt", "1") }, "nouveau", "0000:3b:00.0"},
	{"an upgrade without a reboot", func(m *machine) { m.gpus.Fail("nvmlInit", 0, -1, nvml.ERROR_LIB_RM_VERSION_MISMATCH) }, "driver-silent", "reboot"},
	{"a driver that does not answer", func(m *machine) { m.gpus.Fail("nvmlDeviceGetCount", 0, -1, nvml.ERROR_UNKNOWN) }, "driver-silent", "Xid"},
	{"another GPU is named", func(m *machine) { m.o.GPU = "7" }, "gpu-unknown", `gpu = "7": not found`},
	{"a lost GPU", func(m *machine) { m.gpus.Lose(0); m.o.GPU = "0" }, "gpu-broken", "fallen off the bus"},

	{"no uvm", func(m *machine) { m.remove("/dev/nvidia-uvm") }, "device-file-missing", "/dev/nvidia-uvm does not exist; run nvidia-modprobe"},
	{"a group", func(m *machine) { m.denied["/dev/nvidia0"] = true }, "device-file-denied", "has no access to /dev/nvidia0: permission denied"},
	{"a device file of another number", func(m *machine) {
		m.write("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model:\tH100\nDevice Minor: \t 3\n")
	}, "device-file-missing", "/dev/nvidia3 does not exist"},

	{"an old driver", func(m *machine) { m.gpus.DriverVersion, m.gpus.CudaDriverVersion = "535.261.03", 12020 }, "versions", "580 or newer"},
	{"a build for the CPU", func(m *machine) { m.o.Runtime.Providers = []string{"CPUExecutionProvider"} }, "ort-cpu", "onnxruntime-gpu 1.30.0"},
	{"no runtime", func(m *machine) { m.o.Runtime.Path = "" }, "", "apart"},
	{"half a package", func(m *machine) { m.remove("/opt/ort/libonnxruntime_providers_shared.so") }, "provider-missing", "_shared.so is not in the folder of"},
	{"a file that is none", func(m *machine) { m.o.Needs = Needs }, "provider-unreadable", "cannot be read"},
	{"no cuBLAS", func(m *machine) { m.remove("/opt/cuda/libcublas.so.13") }, "library-missing", "apt-get install libcublas-13-0 (NVIDIA's repository) or pip install nvidia-cublas,"},
	{"no cuDNN", func(m *machine) { m.remove("/usr/lib64/libcudnn.so.9") }, "library-late", "apt-get install libcudnn9-cuda-13 (NVIDIA's repository) or pip install nvidia-cudnn-cu13,"},
	{"an old driver for auto", func(m *machine) {
		m.gpus.DriverVersion, m.gpus.CudaDriverVersion, m.o.Wanted = "535.261.03", 12020, false
	}, "versions auto-cpu", "uses the CPU"},
	{"an old GPU", func(m *machine) { m.gpus.Devices[0].CudaComputeCapability.Major = 7 }, "capability", "7.0"},
	{"it does not run", func(m *machine) {
		m.o.Try = func(_ context.Context, gpu string) error { return fmt.Errorf("%s aborted", gpu) }
	}, "try-failed", "aborted"},

	{"prohibited", func(m *machine) { m.gpus.Devices[0].Mode = nvml.COMPUTEMODE_PROHIBITED }, "compute-prohibited", "nvidia-smi -i 0 -c 0"},
	{"exclusive without MPS", func(m *machine) {
		m.gpus.Devices[0].Mode = nvml.COMPUTEMODE_EXCLUSIVE_PROCESS
		m.o.MPS.Own = nil
	}, "compute-exclusive mps-off", "EXCLUSIVE_PROCESS, with 2 services"},
	{"default without MPS", func(m *machine) {
		m.gpus.Devices[0].Mode = nvml.COMPUTEMODE_DEFAULT
		m.o.MPS.Own, m.o.Services = nil, 1
	}, "", "apart"},
	{"default on a divided GPU with MPS", func(m *machine) { m.o.GPU = m.divide(9); m.gpus.Devices[0].Mode = nvml.COMPUTEMODE_DEFAULT }, "", "apart"},
	{"default with MPS", func(m *machine) { m.gpus.Devices[0].Mode = nvml.COMPUTEMODE_DEFAULT }, "compute-default", "nvidia-smi -i 0 -c 3"},
	{"no persistence", func(m *machine) {
		m.gpus.Devices[0].GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_DISABLED, nvml.SUCCESS }
	}, "persistence", "nvidia-smi -i 0 -pm 1"},
	{"memory errors", func(m *machine) {
		m.gpus.Devices[0].GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 3, nvml.SUCCESS }
	}, "ecc-errors", "has 3 uncorrectable ECC memory errors"},
	{"no ECC", func(m *machine) {
		m.gpus.Devices[0].GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_DISABLED, nvml.FEATURE_DISABLED, nvml.SUCCESS
		}
	}, "ecc-off", "-e 1"},
	{"used", func(m *machine) { m.must(m.gpus.StartProcess(m.gpus.Devices[0].UUID, 4711, 1<<30)) }, "busy", "processes 4711"},

	{"no MPS program", func(m *machine) { m.o.MPS.Program = "/absent/nvidia-cuda-mps-control" }, "mps-program", "nvidia-cuda-mps (Debian)"},
	{"somebody's MPS", func(m *machine) {
		m.serve("/s")
		m.must(os.MkdirAll(filepath.Join(m.o.Root, "tmp"), 0o755))
		m.link("/s/pipe", mps.DefaultPipe)
	}, "mps-stranger", "/tmp/nvidia-mps"},
	{"MPS of root with protocol 3", func(m *machine) {
		m.serve("/s")
		m.must(os.MkdirAll(filepath.Join(m.o.Root, "run"), 0o755))
		m.link("/s/pipe", mps.RootPipe)
	}, "mps-stranger", "serves /run/nvidia-mps"},
	{"the daemon's own directory", func(m *machine) { m.o.User = os.Getuid() }, "", "our control daemon will live in /run/overlapd/GPU-"},
	{"strangers at both places", func(m *machine) {
		m.serve("/s")
		m.must(errors.Join(os.MkdirAll(filepath.Join(m.o.Root, "run"), 0o755), os.MkdirAll(filepath.Join(m.o.Root, "tmp"), 0o755)))
		m.link("/s/pipe", mps.RootPipe)
		m.link("/s/pipe", mps.DefaultPipe)
	}, "mps-stranger mps-stranger", "join it with mode"},
	{"somebody's MPS is wanted", func(m *machine) { m.serve("/s"); m.join("/s/pipe") }, "", "apart"},
	{"no MPS where one is wanted", func(m *machine) { m.join("/s/pipe") }, "mps-existing", "no control daemon"},
	{"no program for somebody's MPS", func(m *machine) {
		m.join("/s")
		m.o.MPS.Program = "/absent/x"
	}, "mps-program", ""},
	{"a directory for all", func(m *machine) {
		m.write(m.leaf()+"/x", "")
		m.must(os.Chmod(filepath.Join(m.o.Root, m.leaf()), 0o777))
	}, "mps-directory", "others may write"},
	{"a file for a directory", func(m *machine) { m.write(m.leaf(), "") }, "mps-directory", "not a directory"},
	{"a file on the way", func(m *machine) { m.write("/run", "") }, "mps-directory", "cannot be made in"},
	{"a directory to be made", func(m *machine) { m.write("/run/overlapd/x", "") }, "", "apart"},
	{"a long path", func(m *machine) { m.dir = "/" + strings.Repeat("x", 90) }, "mps-directory", "bytes shorter"},

	{"MIG and no instance named", func(m *machine) { m.divide(9) }, "mig-whole", "gpu = \"MIG-"},
	{"a MIG device", func(m *machine) { m.o.GPU = m.divide(9) }, "", "apart"},
	{"a MIG device that is used", func(m *machine) { m.o.GPU = m.divide(9); m.must(m.gpus.StartProcess(m.o.GPU, 99, 1)) }, "busy", "processes 99"},
	{"a MIG device without its file", func(m *machine) { m.o.GPU = m.divide(9); m.capability(30) }, "caps-missing caps-missing", "/dev/nvidia-caps/nvidia-cap30 of MIG device MIG-"},
	{"a MIG device with a directory for a file", func(m *machine) {
		m.o.GPU = m.divide(9)
		m.capability(30)
		m.link("/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap30")
	}, "caps-denied caps-denied", "has no access to"},
	{"MIG instances that are there", func(m *machine) { m.divide(9, 9); m.want("3g.40gb", "3g.40gb") }, "", "apart"},
	{"MIG instances that are missing", func(m *machine) { m.gpus.SetMIG(0, true); m.want("3g.40gb") }, "mig-layout", "nvidia-smi mig -i 0 -cgi"},
	{"MIG instances that will be made", func(m *machine) {
		m.gpus.SetMIG(0, true)
		m.own(0, "3g.40gb")
	}, "mig-steps", "2 steps"},
	{"MIG instances without root", func(m *machine) {
		m.gpus.SetMIG(0, true)
		m.own(someone, "3g.40gb")
	}, "mig-root mig-steps", "only root"},
	{"a record that is damaged", func(m *machine) {
		m.gpus.SetMIG(0, true)
		m.o.MIG.Record = func() (mig.Record, error) { return mig.ParseRecord([]byte("{")) }
		m.own(0, "3g.40gb")
	}, "mig-layout", "bad MIG record"},
	{"a record of nothing", func(m *machine) {
		m.gpus.SetMIG(0, true)
		m.own(0, "3g.40gb")
	}, "mig-steps", "2 steps"},
	{"MIG instances that do not fit", func(m *machine) {
		m.own(0, "7g.80gb", "1g.10gb")
	}, "mig-layout", "does not fit"},
}

// own declares MIG instances that the daemon makes.
func (m *machine) own(user int, profiles ...string) {
	m.o.MIG.Owner, m.o.User = true, user
	m.want(profiles...)
}

// want declares MIG instances that have to be there.
func (m *machine) want(profiles ...string) {
	for _, p := range profiles {
		m.o.MIG.Instances = append(m.o.MIG.Instances, mig.Want{Profile: p})
	}
}

// leaf is where the control daemon of the first GPU would live.
func (m *machine) leaf() string { return m.o.MPS.Own(m.gpus.Devices[0].UUID) }

// join has overlapd use somebody's control daemon.
func (m *machine) join(dir string) { m.o.MPS.Own, m.o.MPS.Join, m.o.MPS.Directory = nil, true, dir }

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) link(from, to string) {
	m.t.Helper()
	from, to = filepath.Join(m.o.Root, from), filepath.Join(m.o.Root, to)
	m.must(errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Symlink(from, to)))
}

// capability makes the driver's files of every MIG instance point to one device
// file.
func (m *machine) capability(number int) {
	for id := range 16 {
		for _, path := range []string{fmt.Sprintf("gi%d/access", id), fmt.Sprintf("gi%d/ci0/access", id)} {
			m.write("/proc/driver/nvidia/capabilities/gpu0/mig/"+path, fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\n", number))
		}
	}
}

// expected are findings of a host on which all is well.
var expected = []string{"driver", "gpu", "provider", "try", "compute-default", "mps", "mig"}

func TestScenes(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	seen := map[string]bool{}
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			m := newMachine(t)
			m.gpus.Devices[0].Mode = nvml.COMPUTEMODE_EXCLUSIVE_PROCESS
			s.spoil(m)
			r := Check(t.Context(), m.o)
			var got []string
			var text strings.Builder
			r.WriteText(&text)
			faulty := false
			for _, f := range r.Findings {
				seen[f.Rule] = true
				faulty = faulty || f.Level == Fault
				if f.Level == OK && slices.Contains(expected, f.Rule) {
					continue
				}
				got = append(got, f.Rule)
				if strings.ContainsAny(f.String(), "{}") {
					t.Errorf("words are missing in %q", f)
				}
			}
			if strings.Join(got, " ") != s.want {
				t.Errorf("found %q, want %q:\n%s", got, s.want, &text)
			}
			if s.says != "apart" && !strings.Contains(text.String(), s.says) {
				t.Errorf("%q is not in\n%s", s.says, &text)
			}
			if err := r.Err(); (err != nil) != faulty || err != nil && !errors.Is(err, ErrHost) {
				t.Errorf("the error is %v", err)
			}
			if !m.gpus.Closed() {
				t.Error("NVML is left open")
			}
		})
	}
	for _, r := range rules() {
		if !seen[r.name] {
			t.Errorf("no scene has rule %s", r.name)
		}
	}
}

// TestChangesNothing: a look leaves GPUs and files as they were.
func TestChangesNothing(t *testing.T) {
	m := newMachine(t)
	m.own(0, "3g.40gb")
	before := m.gpus.State() + m.files()
	if r := Check(t.Context(), m.o); !strings.Contains(r.Layout, "create GPU instance 3g.40gb") {
		t.Errorf("the layout is %q", r.Layout)
	}
	if after := m.gpus.State() + m.files(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if log := m.gpus.Log(); len(log) > 0 {
		t.Errorf("changed: %q", log)
	}
}

func (m *machine) files() string {
	var all []string
	m.must(filepath.WalkDir(m.o.Root, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	return strings.Join(all, "\n")
}

func TestDefaults(t *testing.T) {
	r := Check(t.Context(), Options{Root: t.TempDir(), Open: func() (*cuda.Host, error) { return nil, cuda.ErrNoDriver }})
	if len(r.Findings) != 1 || r.Findings[0].Rule != "no-gpu" || r.Err() != nil {
		t.Errorf("found %+v", r)
	}
	if _, err := Needs("/proc/self/exe"); err != nil {
		t.Error(err)
	}
	if _, err := Needs("hostcheck_test.go"); err == nil {
		t.Error("a text is read as a library")
	}
}

func TestPackages(t *testing.T) {
	for _, c := range []struct {
		library       string
		major         int
		debian, wheel string
	}{
		{"libcudart.so.13", 13, "cuda-cudart-13-0", "nvidia-cuda-runtime"},
		{"libcudart.so.12", 12, "cuda-cudart-12-8", "nvidia-cuda-runtime-cu12"},
		{"libcublasLt.so.13", 13, "libcublas-13-0", "nvidia-cublas"},
		{"libcudnn.so.9", 12, "libcudnn9-cuda-12", "nvidia-cudnn-cu12"},
		{"libcuda.so.1", 13, "libcuda1", "nothing: it comes with the driver"},
	} {
		if debian, wheel, ok := packagesOf(c.library, c.major); !ok || debian != c.debian || wheel != c.wheel {
			t.Errorf("%s of CUDA %d comes with %s or %s", c.library, c.major, debian, wheel)
		}
	}
	if debian, _, ok := packagesOf("libm.so.6", 13); ok {
		t.Errorf("libm comes with %s", debian)
	}
	for list, want := range map[string]int{"libcublas.so.12": 12, "libcudart.so.13": 13, "libm.so.6": 0} {
		if got := cudaMajor([]string{"libz.so", list}); got != want {
			t.Errorf("%s is of CUDA %d, not %d", list, got, want)
		}
	}
}

// TestNeeds: what the found library is linked with decides what is looked for.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		name   string
		needs  []string
		driver string
		want   []string // libraries or rules that are named
	}{
		{"CUDA 12 on a driver for it", []string{"libcudart.so.12", "libcublas.so.12"}, "535.261.03", []string{"libcudart.so.12", "libcublas.so.12", "libcufft.so.11", "libnvrtc.so.12", "cuda-cudart-12-8", "nvidia-cublas-cu12"}},
		{"CUDA 11", []string{"libcudart.so.11.0"}, "580.65.06", []string{"libcudart.so.11.0", "libnvrtc.so.11"}},
		{"CUDA 14", []string{"libcudart.so.14"}, "580.65.06", []string{"nothing is known of CUDA 14"}},
		{"nothing of CUDA", []string{"libc.so.6"}, "580.65.06", []string{"nothing is known of CUDA 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.gpus.DriverVersion = c.driver
			m.o.Needs = func(path string) ([]string, error) {
				if !strings.HasSuffix(path, "/opt/ort/libonnxruntime_providers_cuda.so") {
					t.Errorf("asked for %s", path)
				}
				return c.needs, nil
			}
			ran := false
			m.o.Try = func(context.Context, string) error { ran = true; return nil }
			r := Check(t.Context(), m.o)
			var text strings.Builder
			r.WriteText(&text)
			for _, want := range c.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%s is not in\n%s", want, &text)
				}
			}
			if ran {
				t.Error("a model was tried without what it needs")
			}
		})
	}
}

// TestWhereLibrariesAre: every place that the loader looks in counts.
func TestWhereLibrariesAre(t *testing.T) {
	for _, place := range []string{"/opt/ort", "/opt/cuda", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/home/me/lib"} {
		m := newMachine(t)
		m.remove("/opt/cuda/libcublas.so.13")
		m.o.LibraryPath = []string{"/home/me/lib"}
		if r := Check(t.Context(), m.o); r.Err() == nil {
			t.Fatal("it is found before it is there")
		}
		m.write(place+"/libcublas.so.13", "")
		if r := Check(t.Context(), m.o); r.Err() != nil {
			t.Errorf("in %s: %v", place, r.Err())
		}
	}
}

// TestConfigured: files of ldconfig that include each other for ever end.
func TestConfigured(t *testing.T) {
	m := newMachine(t)
	m.write("/etc/ld.so.conf", "include /etc/ld.so.conf\n/a\n# /b\n\n  /c # of c\ninclude\n")
	l := &host{Options: m.o}
	folders := l.configured("/etc/ld.so.conf", 0)
	if n := len(folders); n == 0 || n > 4*(includesMax+2) || slices.Contains(folders, "/b") || !slices.Contains(folders, "/c") {
		t.Errorf("the folders are %q", folders)
	}
	if got := l.configured("/etc/absent.conf", 0); got != nil {
		t.Errorf("an absent file has %q", got)
	}
}

// TestReport: findings are told in the order of their discovery, faults by name.
func TestReport(t *testing.T) {
	r := new(host)
	for _, rule := range rules() {
		switch a := of(nil, "gpu", "GPU 3", "index", "3", "driver", "580.65.06", "cuda", "13.0", "why", "two\nlines"); rule.name {
		case "driver", "mig-layout", "persistence":
			r.report(rule, &a)
		}
	}
	r.Layout = "memory slices [AA]\nA  1g\n"
	var b strings.Builder
	r.WriteText(&b)
	want := `# NVIDIA driver 580.65.06 supports CUDA 13.0 and older
# warning: persistence mode of GPU 3 is off: the driver releases an unused GPU, and the next start takes seconds longer; run systemctl enable --now nvidia-persistenced, or nvidia-smi -i 3 -pm 1, as root
# fault: two
#   lines
# memory slices [AA]
# A  1g
`
	if b.String() != want {
		t.Errorf("got\n%s", &b)
	}
	if err := r.Err(); err == nil || err.Error() != ErrHost.Error()+": two\nlines" {
		t.Errorf("got %v", err)
	}
}
