package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const dividedConfig = `[cuda]
tf32 = false
memory_limit = "8GiB"
[mps]
mode = "own"
dir = "/run/mps"
program = "/opt/mps"
[mig]
owner = true
[[device]]
name = "large"
kind = "cuda"
gpu = "0"
mig = "3g.40gb"
[[device]]
name = "small"
kind = "cuda"
gpu = "0"
mig = "2g.20gb"
[[service]]
name = "a"
model = "m.onnx"
on = ["large"]
active_thread_percentage = 50
pinned_memory_limit = "2GiB"
client_priority = "below_normal"
cut = -1
[[service]]
name = "b"
model = "m.onnx"
on = ["small"]
`

func TestGPUConfig(t *testing.T) {
	c, err := Parse("/etc/c.toml", []byte(dividedConfig))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	if !want.CUDA.TF32 {
		t.Error("TF32 is off by default, as in no other engine")
	}
	want.CUDA.TF32, want.CUDA.MemoryLimit = false, 8<<30
	want.MPS.Mode, want.MPS.Dir, want.MPS.Program = "own", "/run/mps", "/opt/mps"
	want.MIG.Owner = true
	want.Devices = []Device{{Name: "large", Kind: "cuda", GPU: "0", MIG: "3g.40gb"}, {Name: "small", Kind: "cuda", GPU: "0", MIG: "2g.20gb"}}
	a, b := DefaultService(), DefaultService()
	a.Name, b.Name, a.Model, b.Model, a.Cut = "a", "b", "/etc/m.onnx", "/etc/m.onnx", -1
	a.MPS.Percentage, a.MPS.PinnedMemory, a.MPS.Priority = 50, 2<<30, "below_normal"
	a.On, b.On = []string{"large"}, []string{"small"}
	want.Services = []Service{a, b}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	back, err := Parse("/etc/c.toml", c.TOML())
	if diff := cmp.Diff(c, back); err != nil || diff != "" {
		t.Errorf("printed and read: %v\n%s\n%s", err, c.TOML(), diff)
	}
	if !strings.Contains(string(c.TOML()), "[[device]]\nname = \"small\"\nkind = \"cuda\"\ncores = \"\"\ngpu = \"0\"\nmig = \"2g.20gb\"\n") {
		t.Errorf("%s", c.TOML())
	}
}

func TestGPUConfigFaults(t *testing.T) {
	gpu := "device = \"cuda\"\n"
	instance := func(name, profile string) string {
		return "[[device]]\nname = \"" + name + "\"\nkind = \"cuda\"\nmig = \"" + profile + "\"\n"
	}
	for _, tt := range []struct {
		name, file string
		want       []string // every fault, in order, each in part
	}{
		{"no GPU", "device = \"cpu\"\ngpu = \"0\"\n[cuda]\ntf32 = false\nmemory_limit = \"1GiB\"\n" +
			"[mps]\nmode = \"off\"\ndir = \"/x\"\nprogram = \"x\"\n[mig]\nowner = true\n" +
			minimalConfig + "active_thread_percentage = 1\npinned_memory_limit = \"1GiB\"\nclient_priority = \"below_normal\"\n", []string{
			"c.toml:2: gpu: applies only to a GPU: set device = \"cuda\", or leave it out with device = ", "c.toml:4: cuda.tf32", "c.toml:5: cuda.memory_limit",
			"c.toml:7: mps.mode", "c.toml:8: mps.dir", "c.toml:9: mps.program", "c.toml:11: mig.owner",
			"service[0].active_thread_percentage", "service[0].pinned_memory_limit", "service[0].client_priority"}},
		{"ranges", gpu + "[cuda]\nmemory_limit = 1\n[mps]\nmode = \"on\"\ndir = \"x\"\n" + minimalConfig +
			"active_thread_percentage = 101\npinned_memory_limit = 1\nclient_priority = \"high\"\n", []string{
			"c.toml:3: cuda.memory_limit: must be in [1MiB", "c.toml:5: mps.mode: must be one of own, existing, off",
			"c.toml:6: mps.dir: must be an absolute path, because workers run in another folder, not ", "active_thread_percentage: must be in [0, 100]", "pinned_memory_limit: must be in", "client_priority: must be one of normal, below_normal"}},
		{"off", gpu + "[mps]\nmode = \"off\"\ndir = \"/x\"\n" + minimalConfig + "active_thread_percentage = 10\n", []string{
			`c.toml:3: mps.mode: is "off"`, "service[0].active_thread_percentage: is a limit of MPS, which is off"}},
		{"owner of nothing", gpu + "[mig]\nowner = true\n" + minimalConfig, []string{"c.toml:3: mig.owner: has no effect without a [[device]] with mig: declare the instances, or set it to false"}},
		{"existing for several", "[mps]\nmode = \"existing\"\n" + instance("x", "1g.5gb") + instance("y", "1g.5gb") + minimalConfig, []string{
			"c.toml:2: mps.mode: each device needs its own MPS control daemon: set mode = \"own\" or \"off\" in [mps]"}},
		{"an instance of an instance", instance("x", "1g.5gb") + "gpu = \"MIG-12345678\"\n" + minimalConfig, []string{"c.toml:4: device[0].mig: gpu = \"MIG-12345678\" is already an instance"}},
		{"owner of several", "[mig]\nowner = true\n" + instance("x", "1g.5gb") + instance("y", "1g.5gb") + "gpu = \"1\"\n" + minimalConfig, []string{
			"c.toml:2: mig.owner: is for one GPU, but there are 2"}},
		{"no profile", instance("x", "huge") + minimalConfig, []string{"c.toml:4: device[0].mig: bad MIG instance"}},
		{"whole and divided", instance("x", "1g.5gb") + "[[device]]\nname = \"y\"\nkind = \"cuda\"\ngpu = \"0\"\n" + minimalConfig, []string{
			`c.toml:8: device[1].gpu: device "x" is also on GPU 0: give each device its own GPU, or its own instance of that GPU (mig)`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			faults := faultsOf(t, tt.file, len(tt.want))
			for _, want := range tt.want {
				if !strings.Contains(faults.Error(), want) {
					t.Errorf("%q is not in\n%v", want, faults)
				}
			}
		})
	}
}
