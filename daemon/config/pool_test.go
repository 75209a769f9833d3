package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// device returns the table of a device, with further keys as they stand in the file.
func device(name, kind, more string) string {
	return fmt.Sprintf("[[device]]\nname = %q\nkind = %q\n%s\n", name, kind, more)
}

// Two CPU devices with cores of their own: a service is where it says, else everywhere.
func TestPool(t *testing.T) {
	text := device("left", "cpu", `cores = "0-2,5"`) + device("right", "cpu", `cores = "3,4"`) +
		minimalConfig + strings.Replace(minimalConfig, `"a"`, `"b"`, 1) + "on = [\"right\"]\n"
	c, err := Parse("/etc/c.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pool := c.Pool()
	if want := []Device{{Name: "left", Kind: "cpu", Cores: "0-2,5"}, {Name: "right", Kind: "cpu", Cores: "3,4"}}; !slices.Equal(pool, want) {
		t.Errorf("%+v", pool)
	}
	if d := cmp.Diff([]int{0, 1, 2, 5}, pool[0].CPUs()); d != "" {
		t.Error(d)
	}
	if a, b, other := fmt.Sprint(c.On("a")), fmt.Sprint(c.On("b")), c.On("other"); a != "[0 1]" || b != "[1]" || other != nil {
		t.Errorf("a is on %s, b on %s, and what there is not on %v", a, b, other)
	}
	for _, printed := range [][]byte{c.TOML(), c.BriefTOML()} {
		if back, err := Parse("/etc/c.toml", printed); err != nil || !cmp.Equal(c, back) {
			t.Errorf("%v\n%s\n%s", err, printed, cmp.Diff(c, back))
		}
	}
	if idle := c.Pool().Idle(c.Services); idle != nil || c.MayUseGPU() || c.Emulated() {
		t.Errorf("%q, GPU: %t, emulated: %t", idle, c.MayUseGPU(), c.Emulated())
	}
	c.Services = c.Services[1:]
	if idle := c.Pool().Idle(c.Services); len(idle) != 1 || !strings.Contains(idle[0], `no service is on device "left"`) {
		t.Errorf("%q", idle)
	}
	usable := func(core int) bool { return core < 4 }
	if err := c.Devices.CheckCores(usable); err == nil || !strings.Contains(err.Error(), `device[0].cores: device "left" has cores [5] that do not exist or are not available here: name others (nproc and taskset -cp $$ show them)`) ||
		!strings.Contains(err.Error(), `device[1].cores: device "right" has cores [4]`) {
		t.Error(err)
	}
	if err := c.Devices.CheckCores(func(int) bool { return true }); err != nil {
		t.Error(err)
	}
}

func TestPoolFaults(t *testing.T) {
	emulated := device("x", "emulated", `profile = "p"`)
	for _, tt := range []struct {
		name, file string
		want       []string // every fault, each in part
	}{
		{"both forms", "device = \"cpu\"\n" + device("x", "cpu", "") + minimalConfig, []string{"c.toml:2: device: must be either one device as a string"}},
		{"one table", "[device]\nname = \"x\"\n" + minimalConfig, []string{"c.toml:1: device: must be either one device as a string, such as \"cpu\", or several as [[device]] tables"}},
		{"a number", "device = 3\n" + minimalConfig, []string{"c.toml:1: device: must be either"}},
		{"no tables", "device = [1]\n" + minimalConfig, []string{"c.toml: device[0]: must be a table"}},
		{"an unknown key", device("x", "cpu", "core = 1") + minimalConfig, []string{"c.toml:4: device[0].core: unknown key; did you mean cores?"}},
		{"no kind", "[[device]]\nname = \"x\"\n" + minimalConfig, []string{`c.toml:1: device[0].kind: must be one of cpu, cuda, emulated, not ""`}},
		{"auto", device("x", "auto", "") + minimalConfig, []string{`c.toml:3: device[0].kind: must be one of cpu, cuda, emulated, not "auto"`}},
		{"names", device("a b", "cpu", `cores = "0"`) + device("", "cpu", `cores = "1"`) + device("y", "cpu", `cores = "2"`) + device("y", "cpu", `cores = "3"`) + minimalConfig, []string{
			`c.toml:2: device[0].name: "a b" must be 1 to 63 letters`, `c.toml:6: device[1].name: "" must be`, `c.toml:14: device[3].name: "y" is also the name of device[2]: give each its own`}},
		{"of other kinds", device("x", "cpu", "gpu = \"0\"\nmig = \"1g.5gb\"\nprofile = \"p\"") + device("y", "cuda", `cores = "0"`) + minimalConfig, []string{
			`c.toml:4: device[0].gpu: applies only to a device with kind = "cuda": leave it out with kind = "cpu"`, "c.toml:5: device[0].mig: applies only", "c.toml:6: device[0].profile: applies only",
			`c.toml:10: device[1].cores: applies only to a device with kind = "cpu": leave it out with kind = `}},
		{"keys of one device", "gpu = \"0\"\n" + device("x", "cuda", "") + minimalConfig, []string{"c.toml:1: gpu: each [[device]] has its own: leave it out here"}},
		{"no GPU", device("x", "cpu", "") + "[cuda]\ntf32 = false\n" + minimalConfig, []string{`c.toml:6: cuda.tf32: applies only to a GPU: set device = "cuda", or leave it out with device = `}},
		{"forms of cores", device("x", "cpu", `cores = "3-1"`) + device("y", "cpu", `cores = "0,,1"`) + device("z", "cpu", `cores = "0-1,1"`) + device("w", "cpu", `cores = "1024"`) + minimalConfig, []string{
			`c.toml:4: device[0].cores: must be cores from 0 to 1023 such as "0-3" or "0,2", not "3-1"`, "c.toml:8: device[1].cores: must be", `c.toml:12: device[2].cores: "0-1,1" names a core twice`, "c.toml:16: device[3].cores: must be"}},
		{"cores of two", device("x", "cpu", `cores = "0-3"`) + device("y", "cpu", `cores = "2-5"`) + minimalConfig, []string{
			`c.toml:8: device[1].cores: device "x" also has cores [2 3]: give each device its own`}},
		{"no cores", device("x", "cpu", "") + device("y", "cpu", `cores = "2-5"`) + minimalConfig, []string{
			`device[1].cores: device "x" has no cores, and there is another CPU device: give each its own, such as "0-3"`}},
		{"a GPU twice", device("x", "cuda", "") + device("y", "cuda", `gpu = "0"`) + minimalConfig, []string{`c.toml:8: device[1].gpu: device "x" is also on GPU 0: give each device its own GPU, or its own instance of that GPU (mig)`}},
		{"emulated and not", emulated + device("y", "cpu", "") + "[[service]]\nname = \"a\"\nmodel = \"emulated:a\"\n", []string{
			`c.toml:7: device[1].kind: is "cpu", but device "x" is "emulated": all devices of a daemon are emulated, or none; run two daemons`}},
		{"no profile", device("x", "emulated", "") + "[[service]]\nname = \"a\"\nmodel = \"emulated:a\"\n", []string{"device[0].profile: is missing: name a file made with overlapd-lab device fit"}},
		{"on of what there is not", device("left", "cpu", `cores = "0"`) + device("right", "cpu", `cores = "1"`) + minimalConfig + "on = [\"lefd\", \"right\", \"right\", \"7\"]\n", []string{
			`c.toml:12: service[0].on: there is no device "lefd"; did you mean left?; the devices are left, right`, `service[0].on: names "right" twice`, `there is no device "7"; the devices are left, right`}},
		{"on without devices", minimalConfig + "on = [\"cpu\"]\n", []string{"c.toml:4: service[0].on: there is no [[device]] to name: leave it out, or declare devices"}},
		{"too many", strings.Repeat(device("x", "cuda", ""), 65) + minimalConfig, []string{"device: has 65 entries, and the limit is 64"}},
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

// TestPlanSaysWhere follows a plan: what a service says itself stands, and a plan for
// others is refused with what differs and with the command that makes one.
func TestPlanSaysWhere(t *testing.T) {
	dir := t.TempDir()
	path, planned := filepath.Join(dir, "c.toml"), filepath.Join(dir, "plan.json")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const plan = `{"format":"overlapd-placement/1","kind":"place","objective":1,"bound":1,"solver":"heuristic","seconds":0,"made":"2026-01-02T03:04:05Z",
"devices":[{"name":"left","memory_mib":100,"speed":1,"load":0},{"name":"right","memory_mib":100,"speed":1,"load":0}],
"services":[{"name":"a","model":"zoo:resnet50","memory_mib":1,"rate":1,"load":1,"devices":["right"]},{"name":"b","memory_mib":1,"rate":1,"load":1,"devices":["left"]}]}`
	service := func(name, more string) string {
		return fmt.Sprintf("[[service]]\nname = %q\nmodel = \"zoo:resnet50\"\n%s\n", name, more)
	}
	head := "plan = \"plan.json\"\n"
	devices := device("left", "cpu", `cores = "0"`) + device("right", "cpu", `cores = "1"`)
	write(planned, plan)
	write(path, head+devices+service("a", "")+service("b", `on = ["right", "left"]`))
	c, err := Load(path)
	if err != nil || fmt.Sprint(c.On("a"), c.On("b")) != "[1] [0 1]" || c.Plan != planned {
		t.Errorf("%v: %v, %v", err, c.On("a"), c.On("b"))
	}
	if again, err := Parse(path, c.TOML()); err != nil || !cmp.Equal(c, again) {
		t.Errorf("what is printed is read as something else: %v\n%s", err, c.TOML())
	}
	for name, tt := range map[string]struct{ plan, file, want string }{
		"a service more": {plan, head + devices + service("a", "") + service("b", "") + service("c", ""), "the plan has no service c"},
		"a service less": {plan, head + devices + service("a", ""), "the plan has service b, which does not exist"},
		"another device": {plan, head + strings.Replace(devices, "left", "middle", 1) + service("a", "") + service("b", ""), "the plan has device left, which does not exist"},
		"another model":  {plan, head + devices + strings.Replace(service("a", ""), "resnet50", "bert", 1) + service("b", ""), "service a has the model zoo:bert, but the plan is for zoo:resnet50"},
		"damaged":        {plan[:len(plan)-9], head + devices + service("a", "") + service("b", ""), "damaged placement plan"},
		"something else": {"{}", head + devices + service("a", "") + service("b", ""), "not a placement plan"},
	} {
		write(planned, tt.plan)
		write(path, tt.file)
		_, err := Load(path)
		want := path + ":1: plan: "
		for _, want := range []string{want, tt.want, "make a plan with overlapd plan placement --config " + path + " --out " + planned + ", or leave plan out"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in: %v", name, want, err)
			}
		}
	}
	if err := os.Remove(planned); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "plan.json: no such file") {
		t.Errorf("no plan: %v", err)
	}
	write(path, head+minimalConfig)
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "c.toml:1: plan: there is no [[device]] to apply it to: leave it out, or declare devices") {
		t.Errorf("no devices: %v", err)
	}
}

// pipelinePlan has service a start on left and end on right, in batches of 2.
const pipelinePlan = `{"format":"overlapd-placement/1","kind":"pipeline","objective":1,"bound":1,"solver":"heuristic","seconds":0,"made":"2026-01-02T03:04:05Z",
"devices":[{"name":"left","memory_mib":100,"speed":1,"load":0},{"name":"right","memory_mib":100,"speed":1,"load":0}],
"services":[{"name":"a","model":"zoo:resnet50","memory_mib":1,"rate":1,"load":1,"devices":["left","right"],"hash":"h","operators":10,"pipelines":[
{"batch":2,"rate":1,"latency_ms":3,"stages":[{"start":0,"end":4,"devices":["left"],"share":1,"time_ms":1},{"start":4,"end":10,"devices":["right"],"share":1,"time_ms":1}]}]}]}`

// TestPlanOfPipelines takes a plan with pipelines, and refuses it where a service cannot
// follow it, at the key that keeps it from doing so.
func TestPlanOfPipelines(t *testing.T) {
	dir := t.TempDir()
	path, planned := filepath.Join(dir, "c.toml"), filepath.Join(dir, "plan.json")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	head := "plan = \"plan.json\"\n"
	devices := device("left", "cpu", `cores = "0"`) + device("right", "cpu", `cores = "1"`)
	service := func(more string) string { return "[[service]]\nname = \"a\"\nmodel = \"zoo:resnet50\"\n" + more }
	write(planned, pipelinePlan)
	write(path, head+devices+service("max_batch = 2"))
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Services[0]; s.Planned == nil || s.Planned.Operators != 10 || fmt.Sprint(c.On("a")) != "[0 1]" {
		t.Errorf("%+v is on %v", s, c.On("a"))
	}
	other := c
	other.Services = slices.Clone(c.Services)
	plan := *c.Services[0].Planned
	plan.Operators = 11
	other.Services[0].Planned = &plan
	if d := Diff(c, other, kept, kept); !slices.Equal(d.Changed, []string{"a"}) || len(d.Replaced) > 0 {
		t.Errorf("other pipelines: %+v", d)
	}
	if d := Diff(c, c, kept, kept); !d.None() {
		t.Errorf("the same pipelines: %+v", d)
	}
	const variants = "[[service.variant]]\nmodel = \"zoo:resnet50\"\naccuracy = 1\n[[service.variant]]\nmodel = \"zoo:resnet101\"\naccuracy = 2\n"
	for name, tt := range map[string]struct{ plan, file, want string }{
		"policy":      {pipelinePlan, head + "policy = \"fcfs\"\n" + devices + service("max_batch = 2"), `:2: policy: "fcfs" runs each batch on one device, but the plan has pipelines: set one of overlap, edf`},
		"best effort": {pipelinePlan, head + devices + service("max_batch = 2\nbest_effort = true"), ":14: service[0].best_effort: the plan has pipelines for the service, which reserve devices by deadlines, and best effort has none"},
		"batch":       {pipelinePlan, head + devices + service("max_batch = 1"), ":13: service[0].max_batch: the plan has batches of 2, but this allows 1: raise it, or make a plan with smaller batches"},
		"on":          {pipelinePlan, head + devices + service("max_batch = 2\non = [\"left\"]"), ":14: service[0].on: the pipelines of the plan also need right: leave on out, so that the service is on all devices that they need"},
		"variants": {strings.Replace(pipelinePlan, `"model":"zoo:resnet50",`, "", 1), head + devices + "[[service]]\nname = \"a\"\nmax_batch = 2\n" + variants,
			":13: service[0].variant: the plan has pipelines for the service, but each variant is another model: give the service one model, or leave out the plan"},
		"device":  {pipelinePlan, head + strings.Replace(devices, "left", "middle", 1) + service("max_batch = 2"), ":1: plan: the plan is for another configuration"},
		"share":   {strings.Replace(pipelinePlan, `"share":1`, `"share":2`, 1), head + devices + service("max_batch = 2"), "is planned on parts of devices, but the daemon does not divide devices"},
		"cut":     {strings.Replace(pipelinePlan, `"end":4`, `"end":5`, 1), head + devices + service("max_batch = 2"), "divide all 10 among stages"},
		"nothing": {strings.Replace(pipelinePlan, `"kind":"pipeline"`, `"kind":"place"`, 1), head + devices + service("max_batch = 2"), `in a plan of the wrong kind, "place"`},
	} {
		write(planned, tt.plan)
		write(path, tt.file)
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+":") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %q is not in: %v", name, tt.want, err)
		}
	}
}
