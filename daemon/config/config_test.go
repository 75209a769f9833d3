package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const minimalConfig = `[[service]]
name = "a"
model = "m.onnx"
`

func TestParseConfig(t *testing.T) {
	c, err := Parse("/etc/overlapd/overlapd.toml", []byte(`
listen = "unix:/run/overlapd.sock"
state_dir = "/var/lib/overlapd"
device = "cpu"
policy = "sjf"
drain_timeout = "1m"
log_level = "debug"
log_format = "json"

[limits]
request_bytes = "1MiB"
memory_bytes = 4194304
hosts = ["inference.example"]

[worker]
threads = 2
spin = true
backoff_max = "1s"

[[service]]
name = "resnet50"
model = "zoo:resnet50"
target = "50ms"
max_batch = 8

[[service]]
name = "own"
model = "models/own.onnx"
cut = 16
best_effort = true
op_libraries = ["ops/libown.so", "/usr/lib/libother.so"]
sizes = [1, 3]
seq_lens = []

[profile]
on_start = false
groups = 100

[predictor]
file = "own.predictor.json"

[decisions]
log = true
files = 2
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Listen, want.StateDir, want.Device, want.Policy = "unix:/run/overlapd.sock", "/var/lib/overlapd", "cpu", "sjf"
	want.DrainTimeout, want.LogLevel, want.LogFormat = time.Minute, "debug", "json"
	want.Limits.RequestBytes, want.Limits.MemoryBytes, want.Limits.Hosts = 1<<20, 4<<20, []string{"inference.example"}
	want.Worker.Threads, want.Worker.Spin, want.Worker.BackoffMax = 2, true, time.Second
	resnet, own := DefaultService(), DefaultService()
	resnet.Name, resnet.Model, resnet.Target, resnet.MaxBatch = "resnet50", "zoo:resnet50", 50*time.Millisecond, 8
	own.Name, own.Model, own.Cut = "own", "/etc/overlapd/models/own.onnx", 16
	own.OpLibraries = []string{"/etc/overlapd/ops/libown.so", "/usr/lib/libother.so"}
	own.BestEffort, own.Sizes, own.SeqLens = true, []int{1, 3}, nil
	want.Profile.OnStart, want.Profile.Groups = false, 100
	want.Predictor.File = "/etc/overlapd/own.predictor.json"
	want.Decisions.Log, want.Decisions.Files = true, 2
	want.Services = []Service{resnet, own}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

// manyPaths returns n more items of a list of paths.
func manyPaths(n int) (items string) {
	for i := range n {
		items += fmt.Sprintf(", %q", strconv.Itoa(i+1))
	}
	return items
}

// faultsOf parses a file that is wrong in so many ways.
func faultsOf(t *testing.T, file string, want int) (faults Faults) {
	t.Helper()
	_, err := Parse("c.toml", []byte(file))
	if !errors.As(err, &faults) {
		t.Fatalf("%v", err)
	}
	if len(faults) != want {
		t.Fatalf("%d faults, want %d:\n%v", len(faults), want, err)
	}
	return faults
}

func TestConfigFaults(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		want       []string // every fault, in order, each in part
	}{
		{"empty", "", []string{"c.toml: service: there is no service: add a [[service]] table"}},
		{"not TOML", "listen = \n", []string{"c.toml:1: "}},
		{"key twice", "listen = \"a:1\"\nlisten = \"b:1\"\n", []string{"c.toml"}},
		{"unknown keys", "lisen = 1\n" + minimalConfig + "targt = \"1s\"\n[worker]\nx.y = 1\n", []string{
			"c.toml:1: lisen: unknown key; did you mean listen?", "c.toml:5: service[0].targt: unknown key; did you mean target?", "c.toml:6: worker.x: unknown key: delete it, or choose"}},
		{"keys of other tables", "[workr]\nthreads = 1\n" + minimalConfig + "[limits]\npolicy = \"edf\"\nread_timeot = \"1s\"\n", []string{
			"c.toml:1: workr: unknown key; did you mean worker?", "c.toml:7: limits.policy: unknown key; did you mean policy?",
			"c.toml:8: limits.read_timeot: unknown key; did you mean read_timeout?"}},
		{"types", "listen = 1\ndrain_timeout = 5\n[limits]\nconnections = \"9\"\nrequest_bytes = 1.5\nhosts = [1]\n[worker]\nspin = 1\n" + minimalConfig, []string{
			"c.toml:1: listen: must be a string", "c.toml:2: drain_timeout: must be a string with a unit", "c.toml:4: limits.connections: must be an integer",
			"c.toml:5: limits.request_bytes: must be a number of bytes", "c.toml:6: limits.hosts: must be an array of strings", "c.toml:8: worker.spin: must be true or false"}},
		{"tables", "limits = 1\nservice = 1\n", []string{"c.toml:1: limits: must be a table", "c.toml:2: service: must be an array", "c.toml:2: service: there is no service: add a [[service]] table"}},
		{"units", "drain_timeout = \"5\"\n[limits]\nrequest_bytes = \"5MB\"\n" + minimalConfig, []string{"c.toml:1: drain_timeout", "c.toml:3: limits.request_bytes"}},
		{"no entry", "service = [1]\n", []string{"service[0]: must be a table", "there is no service: add a [[service]] table"}},
		{"SLO zero", minimalConfig + "target = \"0s\"\n", []string{"c.toml:4: service[0].target: must be above 0 and at most "}},
		{"SLO negative", minimalConfig + "target = \"-1s\"\n", []string{"c.toml:4: service[0].target: must be above 0 and at most "}},
		{"SLO endless", minimalConfig + "target = \"1000h\"\n", []string{"c.toml:4: service[0].target: must be above 0 and at most 24h0m0s"}},
		{"name twice", minimalConfig + minimalConfig, []string{`c.toml:5: service[1].name: "a" is also the name of service[0]: choose another name`}},
		{"inline", "service = [{name = \"a\", model = \"m\"},\n{name = \"a\", model = \"\"}]\n", []string{
			`c.toml:2: service[1].model: must be`, `c.toml:2: service[1].name: "a" is also the name`}},
		{"choices", "device = \"tpu\"\npolicy = \"lifo\"\nlog_level = \"loud\"\nlog_format = \"xml\"\n" + minimalConfig, []string{
			"c.toml:1: device", "c.toml:2: policy: must be one of overlap, abacus, edf, fcfs, sjf, static, not \"lifo\"", "c.toml:3: log_level", "c.toml:4: log_format"}},
		{"policy for comparison", "policy = \"clockwork\"\n" + minimalConfig, []string{
			`c.toml:1: policy: "clockwork" is only for comparison in overlapd-lab simulate: choose overlap, abacus, edf, fcfs, sjf or static`}},
		{"relations", "[limits]\nrequest_bytes = \"1GiB\"\nmemory_bytes = \"1GiB\"\n[worker]\nbackoff_min = \"2s\"\nbackoff_max = \"1s\"\n" + minimalConfig, []string{
			"c.toml:3: limits.memory_bytes: must be at least twice limits.request_bytes (", "c.toml:6: worker.backoff_max: must be at least worker.backoff_min (2s), not 1s"}},
		{"ranges", "[limits]\nconnections = 0\nheader_bytes = 1\nread_timeout = \"0s\"\nhosts = [\"a b\"]\n[worker]\nthreads = -1\ninput_bytes = 0\n" + minimalConfig +
			"queue_limit = 0\nmax_batch = 0\nmax_query_batch = 5000\nthreads = 2000\ncut = -2\n", []string{
			"limits.connections", "limits.header_bytes", "limits.read_timeout", "limits.hosts", "worker.threads", "worker.input_bytes",
			"service[0].queue_limit", "service[0].max_batch", "service[0].max_query_batch", "service[0].threads", "service[0].cut"}},
		{"measured", minimalConfig + "sizes = [0, 4, 4]\nseq_lens = [1, \"a\"]\n" +
			"[profile]\ngroups = 0\nrepeats = 0\ntime = \"0s\"\nspans = 17\n[decisions]\nfile_bytes = 1\nfiles = 0\n", []string{
			"sizes: must be in [1, 64], not 0", "sizes: must be ascending, but 4 comes after 4",
			"seq_lens: must be an array of integers", "profile.groups", "profile.repeats: must be in [1, 1024], not 0", "profile.time", "profile.spans", "decisions.file_bytes", "decisions.files"}},
		{"huge numbers", minimalConfig + "queue_limit = 9223372036854775807\n", []string{"service[0].queue_limit: must be in"}},
		{"libraries", minimalConfig + "op_libraries = [\"\", \"a\\u0000\", \"b\", \"b\"]\n", []string{
			"service[0].op_libraries: an empty path", "op_libraries: a path cannot contain NUL", `op_libraries: "b" is there twice`}},
		{"library", minimalConfig + "op_libraries = \"b\"\n", []string{"c.toml:4: service[0].op_libraries: must be an array of strings"}},
		{"many libraries", minimalConfig + "op_libraries = [\"0\"" + manyPaths(maxLibraries) + "]\n", []string{"has 17 paths, and the limit is 16"}},
		{"libraries for nothing", "device = \"emulated\"\ndevice_profile = \"p\"\n[[service]]\nname = \"a\"\nmodel = \"emulated:m\"\nop_libraries = [\"b\"]\n", []string{
			`op_libraries: has no effect with device = "emulated"`}},
		{"no model", "[[service]]\nname = \"a\"\n", []string{"c.toml:1: service[0].model"}},
		{"zoo name", "[[service]]\nname = \"a\"\nmodel = \"zoo:../x\"\n", []string{"c.toml:3: service[0].model"}},
		{"state_dir", "state_dir = \"\"\n" + minimalConfig, []string{"c.toml:1: state_dir"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			faults := faultsOf(t, tt.file, len(tt.want))
			for i, want := range tt.want {
				if got := faults[i].text(); !strings.Contains(got, want) {
					t.Errorf("%q, want %q in it", got, want)
				}
			}
		})
	}
}

func TestServiceNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "resnet50-v1.5_fp16": true, "0": true, strings.Repeat("a", 128): true, "A.b": true,
		"": false, ".": false, "..": false, "a..b": false, "-a": false, "a/b": false, "a b": false, "ä": false, "a\n": false,
		"a%2f": false, strings.Repeat("a", 129): false, "stats": false, "a\x00": false,
	} {
		c := Embedded()
		c.Services[0].Name = name
		if err := c.Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestListenAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:8000": true, "localhost:0": true, "[::1]:8000": true, ":8000": true, "unix:/run/s": true, "unix:s": true,
		"": false, "8000": false, "localhost": false, "localhost:": false, "localhost:http": false, "localhost:65536": false,
		"unix:": false, "unix:/" + strings.Repeat("a", 107): false, "::1:8000": false,
	} {
		c := Embedded()
		c.Listen = address
		if err := c.Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// A file made to take memory or time is refused for what it is.
func TestConfigBombs(t *testing.T) {
	services := strings.Repeat(minimalConfig, MaxServices+1)
	for name, file := range map[string]string{
		"size":     "#" + strings.Repeat("x", maxBytes),
		"services": services,
		"nested":   "a = " + strings.Repeat("[", 500_000),
		"inline":   "a = " + strings.Repeat("{a=", 300_000),
		"dotted":   strings.Repeat("a.", 50_000) + "a = 1",
		"keys":     strings.Repeat("[limits]\n", 100_000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Parse("c.toml", []byte(file)); err == nil || len(err.Error()) > 1<<20 {
			t.Errorf("%s: %.200v", name, err)
		}
		runtime.ReadMemStats(&after)
		if rise := after.TotalAlloc - before.TotalAlloc; rise > uint64(4<<20+800*len(file)) {
			t.Errorf("%s: %d bytes allocated %d", name, len(file), rise)
		}
	}
}

func TestLoadConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.toml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte(minimalConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "m.onnx"); c.Services[0].Model != want {
		t.Errorf("model %q, want %q", c.Services[0].Model, want)
	}
	if err := os.WriteFile(path, make([]byte, 3*maxBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a long file: %v", err)
	}
}

func TestDefaultStateDir(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "/var/lib/overlapd:/other")
	if got := Default().StateDir; got != "/var/lib/overlapd" {
		t.Errorf("under systemd: %q", got)
	}
	t.Setenv("STATE_DIRECTORY", "")
	t.Setenv("XDG_STATE_HOME", "/home/u/state")
	if got := Default().StateDir; got != "/home/u/state/overlapd" {
		t.Errorf("with XDG_STATE_HOME: %q", got)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "/home/u")
	if got := Default().StateDir; got != "/home/u/.local/state/overlapd" {
		t.Errorf("at home: %q", got)
	}
}

// FuzzConfig reads configurations. What is accepted prints as one that reads
// back the same.
func FuzzConfig(f *testing.F) {
	f.Add(Embedded().TOML())
	f.Add([]byte("[[service]]\nname = \"a\"\nmodel = \"zoo:resnet50\"\n"))
	f.Add([]byte(device("x", "cpu", `cores = "0-3,7"`) + device("y", "cuda", `mig = "1g.5gb"`) + minimalConfig + "on = [\"x\"]\n"))
	f.Add([]byte("device = [{name = \"x\", kind = \"emulated\"}]\ndevice_profile = \"p\"\n"))
	f.Add([]byte(variantsConfig))
	f.Add([]byte("listen = 1\n[limits]\nrequest_bytes = \"1XB\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("/etc/overlapd.toml", data)
		if err != nil {
			return
		}
		if _, err := Parse("/etc/overlapd.toml", c.TOML()); err != nil {
			t.Fatalf("%s\n%v", c.TOML(), err)
		}
	})
}

func TestEmulatedConfig(t *testing.T) {
	const services = "[[service]]\nname = \"a\"\nmodel = \"emulated:resnet50\"\n"
	c, err := Parse("/etc/overlapd/c.toml", []byte("device = \"emulated\"\ndevice_profile = \"a100.device.json\"\n"+services))
	if err != nil || c.DeviceProfile != "/etc/overlapd/a100.device.json" || c.Services[0].Model != "emulated:resnet50" || !c.Emulated() {
		t.Errorf("%v: %+v", err, c)
	}
	if again, err := Parse("c.toml", c.TOML()); err != nil || !bytes.Equal(again.TOML(), c.TOML()) {
		t.Errorf("what is printed is read as something else: %v", err)
	}
	for text, want := range map[string]string{
		"device = \"emulated\"\n" + services:       `c.toml: device_profile: is missing with device = "emulated": name a file made with overlapd-lab device fit`,
		services:                                   `c.toml:3: service[0].model: "emulated:resnet50" needs device = "emulated"`,
		"device_profile = \"x\"\n" + minimalConfig: `c.toml:1: device_profile: applies only to an emulated device: set device = "emulated", or leave it out`,
		"device = \"emulated\"\ndevice_profile = \"x\"\n" + minimalConfig: `c.toml:5: service[0].model: must be "emulated:NAME" with device = "emulated", not `,
	} {
		if _, err := Parse("c.toml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
