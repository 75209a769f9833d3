package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/cuda/mig"
)

const dividedConfig = `device = "cuda"
gpu = "0"
[cuda]
tf32 = true
memory_limit = "8GiB"
arena_extend = "same_as_requested"
[mps]
mode = "own"
dir = "/run/mps"
program = "/opt/mps"
[mig]
owner = true
[[mig.instance]]
profile = "3g.40gb"
services = ["a"]
[[mig.instance]]
profile = "2g.20gb"
services = ["b"]
[[service]]
name = "a"
model = "m.onnx"
active_thread_percentage = 50
pinned_memory_limit = "2GiB"
client_priority = "below_normal"
cut = -1
[[service]]
name = "b"
model = "m.onnx"
`

func TestGPUConfig(t *testing.T) {
	c, err := Parse("/etc/c.toml", []byte(dividedConfig))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Device, want.GPU = "cuda", "0"
	want.CUDA.TF32, want.CUDA.MemoryLimit, want.CUDA.ArenaExtend = true, 8<<30, "same_as_requested"
	want.MPS.Mode, want.MPS.Dir, want.MPS.Program = "own", "/run/mps", "/opt/mps"
	want.MIG.Owner, want.MIG.Instances = true, []mig.Want{{Profile: "3g.40gb", Services: []string{"a"}}, {Profile: "2g.20gb", Services: []string{"b"}}}
	a, b := DefaultService(), DefaultService()
	a.Name, b.Name, a.Model, b.Model, a.Cut = "a", "b", "/etc/m.onnx", "/etc/m.onnx", -1
	a.MPS.Percentage, a.MPS.PinnedMemory, a.MPS.Priority = 50, 2<<30, "below_normal"
	want.Services = []Service{a, b}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	back, err := Parse("/etc/c.toml", c.TOML())
	if diff := cmp.Diff(c, back); err != nil || diff != "" {
		t.Errorf("printed and read: %v\n%s\n%s", err, c.TOML(), diff)
	}
	if !strings.Contains(string(c.TOML()), "[[mig.instance]]\nprofile = \"2g.20gb\"\nservices = [\"b\"]\n") {
		t.Errorf("%s", c.TOML())
	}
}

func TestGPUConfigFaults(t *testing.T) {
	gpu := "device = \"cuda\"\n"
	instance := func(profile, services string) string {
		return "[[mig.instance]]\nprofile = \"" + profile + "\"\nservices = [" + services + "]\n"
	}
	for _, tt := range []struct {
		name, file string
		want       []string // every fault, in order, each in part
	}{
		{"no GPU", "device = \"cpu\"\ngpu = \"0\"\n[cuda]\ntf32 = true\nmemory_limit = \"1GiB\"\narena_extend = \"same_as_requested\"\n" +
			"[mps]\nmode = \"off\"\ndir = \"/x\"\nprogram = \"x\"\n[mig]\nowner = true\n" + instance("1g.5gb", `"a"`) +
			minimalConfig + "active_thread_percentage = 1\npinned_memory_limit = \"1GiB\"\nclient_priority = \"below_normal\"\n", []string{
			"c.toml:2: gpu: only a GPU has that", "c.toml:4: cuda.tf32", "c.toml:5: cuda.memory_limit", "c.toml:6: cuda.arena_extend",
			"c.toml:8: mps.mode", "c.toml:9: mps.dir", "c.toml:10: mps.program", "c.toml:12: mig.owner", "mig.instance",
			"service[0].active_thread_percentage", "service[0].pinned_memory_limit", "service[0].client_priority"}},
		{"ranges", gpu + "[cuda]\nmemory_limit = 1\narena_extend = \"double\"\n[mps]\nmode = \"on\"\ndir = \"x\"\n" + minimalConfig +
			"active_thread_percentage = 101\npinned_memory_limit = 1\nclient_priority = \"high\"\n", []string{
			"c.toml:3: cuda.memory_limit: must be in [1MiB", "c.toml:4: cuda.arena_extend: must be one of", "c.toml:6: mps.mode: must be one of own, existing, off",
			"c.toml:7: mps.dir: must be an absolute path", "active_thread_percentage: must be in [0, 100]", "pinned_memory_limit: must be in", "client_priority: must be one of normal, below_normal"}},
		{"off", gpu + "[mps]\nmode = \"off\"\ndir = \"/x\"\n" + minimalConfig + "active_thread_percentage = 10\n", []string{
			`c.toml:3: mps.mode: is "off"`, "service[0].active_thread_percentage: is a limit of MPS, which is off"}},
		{"owner of nothing", gpu + "[mig]\nowner = true\n" + minimalConfig, []string{"c.toml:3: mig.owner: owns nothing"}},
		{"existing for several", gpu + "[mps]\nmode = \"existing\"\n" + instance("1g.5gb", `"a"`) + instance("1g.5gb", `"b"`) + minimalConfig +
			strings.Replace(minimalConfig, `"a"`, `"b"`, 1), []string{"mig.instance: each instance needs an MPS control daemon of its own"}},
		{"auto", "device = \"auto\"\n" + instance("1g.5gb", `"a"`) + minimalConfig, []string{`mig.instance: needs device = "cuda"`}},
		{"an instance of an instance", "gpu = \"MIG-12345678\"\n" + gpu + instance("1g.5gb", `"a"`) + minimalConfig, []string{"mig.instance: gpu = \"MIG-12345678\" is an instance already"}},
		{"places", gpu + instance("huge", "") + instance("1g.5gb", `"b", "a"`) + instance("1g.5gb", `"a"`) + minimalConfig + strings.Replace(minimalConfig, `"a"`, `"c"`, 1), []string{
			`mig.instance: service "c" is on none`, "mig.instance[0].profile: bad MIG instance", "c.toml:4: mig.instance[0].services: no service runs on it",
			`c.toml:7: mig.instance[1].services: there is no service "b"`, `c.toml:10: mig.instance[2].services: "a" is on mig.instance[1] already`}},
		{"forms", gpu + "[mig]\ninstance = [1]\n" + minimalConfig, []string{"mig.instance[0]: must be a table"}},
		{"too many", gpu + strings.Repeat(instance("1g.5gb", `"a"`), 17) + minimalConfig, []string{"mig.instance: 17 entries, the limit is 16"}},
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
