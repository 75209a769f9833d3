package triton

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
)

// repo writes a repository: files with their text, where "zoo:NAME" stands for that
// model, "-> PATH" for a symbolic link and "/" for a folder.
func repo(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o755))
	for path, text := range files {
		path = filepath.Join(dir, path)
		must(os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			must(os.Symlink(target, path))
			continue
		}
		if text == "/" {
			must(os.MkdirAll(path, 0o755))
			continue
		}
		if name, ok := strings.CutPrefix(text, "zoo:"); ok {
			built, err := zoo.Build(name, t.TempDir(), 1, nil)
			must(err)
			must(os.Rename(built, path))
			continue
		}
		must(os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

// one returns a repository of one model, tiny_mlp: float32[batch,16] to [batch,10].
func one(t testing.TB, config string) string {
	return repo(t, map[string]string{"m/config.pbtxt": config, "m/1/model.onnx": "zoo:tiny_mlp"})
}

const ports = `input [{ name: "input" data_type: TYPE_FP32 dims: [16] }] output [{ name: "output" data_type: TYPE_FP32 dims: 10 }]`

func TestRead(t *testing.T) {
	service := func(change func(*config.Service)) config.Service {
		s := config.DefaultService()
		s.Name, s.Model, s.Target = "m", "m/1/model.onnx", time.Second
		change(&s)
		return s
	}
	for _, c := range []struct {
		name, config string
		want         func(*config.Service)
		notes        []string
	}{
		{"nothing configured", "", func(*config.Service) {}, nil},
		{"batches of clients", `name: "m" backend: "onnxruntime" max_batch_size: 8 ` + ports, func(s *config.Service) { s.MaxQueryBatch = 8 }, nil},
		{"whole shapes", `input [{ name: "input" data_type: TYPE_FP32 dims: [-1, 16] format: FORMAT_NONE }]`, func(*config.Service) {}, nil},
		{"one shape of many", `input [{ name: "input" data_type: TYPE_FP32 dims: [4, 16] }]`, func(*config.Service) {}, nil},
		{"dynamic batching", `platform: "onnxruntime_onnx" max_batch_size: 8 dynamic_batching { } ` + ports,
			func(s *config.Service) { s.MaxBatch, s.MaxQueryBatch = 8, 8 }, nil},
		{"a queue policy", `max_batch_size: 8 dynamic_batching { default_queue_policy: { default_timeout_microseconds: 30000, max_queue_size: 7 } }`,
			func(s *config.Service) {
				s.MaxBatch, s.MaxQueryBatch, s.QueueLimit, s.Target = 8, 8, 7, 30*time.Millisecond
			}, []string{"target is default_timeout_microseconds, 30ms"}},
		{"threads", `parameters { key: "intra_op_thread_count" value: { string_value: "3" } } parameters { key: "x" value { string_value: "y" } }`,
			func(s *config.Service) { s.Threads = 3 }, []string{`parameters: "x" = "y" has no effect`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := one(t, c.config)
			got, notes, err := Read(dir, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			want := service(c.want)
			want.Model = filepath.Join(dir, want.Model)
			if diff := cmp.Diff([]config.Service{want}, got.Services); diff != "" {
				t.Error(diff)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			wantNotes(t, notes, c.notes...)
		})
	}
}

// wantNotes holds notes to parts of them, in any order, apart from that on models
// without a target.
func wantNotes(t *testing.T, notes []string, parts ...string) {
	t.Helper()
	all := strings.Join(notes, "\n")
	for _, part := range parts {
		if !strings.Contains(all, part) {
			t.Errorf("no note has %q:\n%s", part, all)
		}
	}
	n := len(notes)
	if strings.Contains(all, "without default_timeout_microseconds the target is ") {
		n--
	}
	if n != len(parts) {
		t.Errorf("%d notes, want %d:\n%s", n, len(parts), all)
	}
}

// What a configuration asks for and nothing here does is named, with its line where it
// is not declared.
func TestNotes(t *testing.T) {
	dir := one(t, `optimization { cuda { graphs: true } }
model_warmup [ { name: "w" } ]
input [{ name: "input" dims: 16
  label_filename: "l" }]
max_batch_size: 2
dynamic_batching { preferred_batch_size: 2
  priority_levels: 2
  default_queue_policy { timeout_action: DELAY } }
instance_group [ { kind: KIND_GPU gpus: [1]
  rate_limiter { priority: 1 } } ]
response_cache { enable: true }
`)
	c, notes, err := Read(dir, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	wantNotes(t, notes, "optimization (line 1) has no effect", "model_warmup (line 2) has", "label_filename (line 4) has", "priority_levels (line 7) has",
		"rate_limiter (line 10) has", "response_cache (line 11) has", "preferred_batch_size (line 6) has", "timeout_action DELAY has no effect: a query that cannot be answered in time is rejected", "gpus (line 9) has")
	if c.Device != config.DeviceAuto {
		t.Errorf("device %s", c.Device)
	}
}

func TestVersions(t *testing.T) {
	files := map[string]string{
		"m/1/model.onnx": "zoo:tiny_mlp", "m/3/model.onnx": "zoo:tiny_mlp", "m/10/model.onnx": "zoo:tiny_mlp",
		"m/v2/model.onnx": "zoo:tiny_mlp", "m/02/model.onnx": "zoo:tiny_mlp", "m/0/x": "", "m/.git/x": "",
	}
	others := `ignored folders, whose names are not version numbers from 1: "0", "02", "v2"`
	for policy, want := range map[string]struct {
		versions []int
		note     string
	}{
		"": {[]int{10}, ""},
		"version_policy: { latest { num_versions: 1 } }":          {[]int{10}, ""},
		"version_policy: { latest { num_versions: 2 } }":          {[]int{10, 3}, ""},
		"version_policy: { latest { num_versions: 9 } }":          {[]int{10, 3, 1}, ""},
		"version_policy: { latest { } }":                          {[]int{10}, ""},
		"version_policy: { all { } }":                             {[]int{10, 3, 1}, ""},
		"version_policy: { specific { versions: [1, 3, 7] } }":    {[]int{3, 1}, "version_policy also names [7], but the versions are [10 3 1]"},
		"version_policy: { specific { versions: 1 } }":            {[]int{1}, ""},
		"version_policy: { specific { versions: [ 9223372036 ] }": {nil, ""},
	} {
		files["m/config.pbtxt"] = policy
		dir := repo(t, files)
		c, notes, err := Read(dir, time.Second)
		if want.versions == nil {
			if err == nil {
				t.Errorf("%s: no error", policy)
			}
			continue
		}
		if err != nil {
			t.Fatalf("reading with %s: %v", policy, err)
		}
		var got []config.Service
		for i, version := range want.versions {
			s := config.DefaultService()
			s.Name, s.Version, s.Target = "m", version, time.Second
			if i > 0 {
				s.Name = fmt.Sprintf("m:%d", version)
			}
			s.Model = filepath.Join(dir, "m", strconv.Itoa(version), "model.onnx")
			got = append(got, s)
		}
		if diff := cmp.Diff(got, c.Services); diff != "" {
			t.Errorf("%s: wrong services: %s", policy, diff)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: validation: got %v", policy, err)
		}
		if want.note != "" {
			wantNotes(t, notes, want.note, others)
		} else {
			wantNotes(t, notes, others)
		}
	}
}

// A model that becomes faulty stays as it was, one that is gone does not.
func TestFaultyStays(t *testing.T) {
	dir := repo(t, map[string]string{
		"m/1/model.onnx": "zoo:tiny_mlp", "m/2/model.onnx": "zoo:tiny_mlp", "m/config.pbtxt": "version_policy { all { } }", "n/1/model.onnx": "zoo:tiny_add",
	})
	c, _, err := Read(dir, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "m/2/model.onnx"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	again, notes, err := Read(dir, time.Second, c.Services...)
	if err != nil || strings.Join(again.Names(), " ") != "m m:1 n" {
		t.Errorf("the services are %v, %v", again.Names(), err)
	}
	wantNotes(t, notes, `not changing model "m": `)
	if err := os.RemoveAll(filepath.Join(dir, "m")); err != nil {
		t.Fatal(err)
	}
	if again, _, err = Read(dir, time.Second, again.Services...); err != nil || strings.Join(again.Names(), " ") != "n" {
		t.Errorf("the services are %v, %v", again.Names(), err)
	}
}

// Libraries of custom operators lie beside config.pbtxt, or anywhere by their absolute paths.
func TestOperatorLibraries(t *testing.T) {
	read := func(line string) (config.Config, []string, error) {
		return Read(repo(t, map[string]string{"m/config.pbtxt": line, "m/1/model.onnx": "zoo:tiny_mlp", "m/ops/lib.so": "code", "m/ops/link.so": "-> /etc/passwd"}), time.Second)
	}
	c, notes, err := read(`model_operations { op_library_filename: ["ops/lib.so", "/opt/lib.so"] }`)
	if err != nil || len(c.Services) != 1 {
		t.Fatalf("%v, %d services", err, len(c.Services))
	}
	libraries := c.Services[0].OpLibraries
	if len(libraries) != 2 || !filepath.IsAbs(libraries[0]) || !strings.HasSuffix(libraries[0], "/m/ops/lib.so") || libraries[1] != "/opt/lib.so" {
		t.Errorf("the libraries are %q", libraries)
	}
	wantNotes(t, notes, "op_library_filename: its worker runs the code of "+libraries[0]+", /opt/lib.so", "without default_timeout_microseconds")
	for line, want := range map[string]string{
		`model_operations { op_library_filename: "../n/lib.so" }`: "is outside the folder of the model: put the library there",
		`model_operations { op_library_filename: "none.so" }`:     "m/none.so: no such file",
		`model_operations { op_library_filename: "ops" }`:         "is not a regular file",
		`model_operations { op_library_filename: "ops/link.so" }`: "symbolic link to outside the repository",
		`model_operations { op_library_filename: "" }`:            "is outside the folder of the model",
		`model_operations { libraries: "a.so" }`:                  "",
	} {
		if _, _, err := read(line); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}

// What overlapd does not do is left out by name, and the others go on.
func TestLeftOut(t *testing.T) {
	for config, why := range map[string]string{
		`platform: "tensorflow_savedmodel"`: `backend "tensorflow_savedmodel" is not supported: overlapd runs ONNX models`,
		`backend: "python"`:                 `backend "python" is not supported: overlapd runs ONNX models`,
		`platform: "ensemble"` + "\nensemble_scheduling { step [ { model_name: \"a\" } ] }": "an ensemble is not a model; it calls other models, which clients can do",
		"ensemble_scheduling { }":                                                                    "an ensemble is not a model; it calls other models, which clients can do",
		"name: \"m\"\nsequence_batching { }":                                                         "sequence_batching (line 2): requests of a sequence",
		"model_transaction_policy { decoupled: true }":                                               "decoupled is not supported: every request gets one answer",
		`input [{ name: "input" reshape { shape: [16] } }]`:                                          "reshape (line 1): clients send another shape",
		`input [{ name: "input" allow_ragged_batch: true }]`:                                         "allow_ragged_batch of \"input\"",
		"batch_input [{ kind: BATCH_ELEMENT_COUNT }]":                                                "batch_input (line 1)",
		"model_repository_agents { agents [ { name: \"checksum\" } ] }":                              "model_repository_agents (line 1)",
		"optimization { x { y [ { reshape: 1 } ] } }\nmodel_transaction_policy { decoupled: false }": "",
	} {
		dir := repo(t, map[string]string{"m/config.pbtxt": config, "m/1/model.onnx": "zoo:tiny_mlp", "other/1/model.onnx": "zoo:tiny_mlp"})
		c, notes, err := Read(dir, time.Second)
		want := 1
		if why == "" {
			want = 2
		} else if all := strings.Join(notes, "\n"); !strings.Contains(all, `skipping model "m": `) || !strings.Contains(all, why) {
			t.Errorf("%s: %s", config, all)
		}
		if err != nil || len(c.Services) != want {
			t.Errorf("%s: %v, %d services", config, err, len(c.Services))
		}
	}
	for file, why := range map[string]string{"model.plan": "it is a model.plan", "model.savedmodel/saved_model.pb": "it is a model.savedmodel"} {
		_, _, err := Read(repo(t, map[string]string{"m/1/" + file: "x"}), time.Second)
		if err == nil || !strings.Contains(err.Error(), "no model of ") || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// What is wrong is an error that names the model, the fault and the remedy.
func TestFaults(t *testing.T) {
	const mlp = "zoo:tiny_mlp"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"no version", map[string]string{"m/config.pbtxt": `backend: "onnxruntime"`}, `model "m": it has no version: put its file at `},
		{"no number", map[string]string{"m/v1/model.onnx": mlp}, "it has no version: put its file at "},
		{"no file", map[string]string{"m/1": "/"}, "m/1/model.onnx: no such file"},
		{"no file of that name", map[string]string{"m/config.pbtxt": `default_model_filename: "net.onnx"`, "m/1/model.onnx": mlp}, "m/1/net.onnx: no such file"},
		{"a name that leads out", map[string]string{"m/config.pbtxt": `default_model_filename: "../../../etc/passwd"`, "m/1/model.onnx": mlp}, "is outside the folder of the version"},
		{"a link that leads out", map[string]string{"m/1/model.onnx": "-> ../../../outside.onnx"}, "is a symbolic link to outside the repository"},
		{"an absolute link", map[string]string{"m/1/model.onnx": "-> /etc/hostname"}, "is a symbolic link to outside the repository"},
		{"a version that leads out", map[string]string{"m/1": "-> ../../out"}, "is a symbolic link to outside the repository"},
		{"a configuration that leads out", map[string]string{"m/config.pbtxt": "-> /etc/hostname", "m/1/model.onnx": mlp}, "is a symbolic link to outside the repository"},
		{"a configuration that leads nowhere", map[string]string{"m/config.pbtxt": "-> gone.pbtxt", "m/1/model.onnx": mlp}, "is a symbolic link to outside the repository or to nothing"},
		{"a configuration that is a folder", map[string]string{"m/config.pbtxt/x": "", "m/1/model.onnx": mlp}, "config.pbtxt is not a regular file"},
		{"a long configuration", map[string]string{"m/config.pbtxt": strings.Repeat("#", maxConfigBytes+1), "m/1/model.onnx": mlp}, "and the limit is 262144"},
		{"no ONNX", map[string]string{"m/1/model.onnx": "<html>"}, "not an ONNX model"},
		{"a name of another", map[string]string{"m/config.pbtxt": `name: "n"`, "m/1/model.onnx": mlp}, `its configuration has the name "n": give folder and model the same name, or leave the name out`},
		{"no text format", map[string]string{"m/config.pbtxt": "name: \"m\"\nmax_batch_size 8", "m/1/model.onnx": mlp}, "m/config.pbtxt:2: model \"m\": config.pbtxt cannot be read"},
		{"a wrong type", map[string]string{"m/config.pbtxt": "\n\nmax_batch_size: \"8\"", "m/1/model.onnx": mlp}, "m/config.pbtxt:3: "},
		{"an unknown value", map[string]string{"m/config.pbtxt": "input { data_type: TYPE_FP8 }", "m/1/model.onnx": mlp}, "m/config.pbtxt:1: "},
		{"other dimensions", map[string]string{"m/config.pbtxt": "max_batch_size: 8 " + strings.Replace(ports, "16", "3, 16", 1), "m/1/model.onnx": mlp},
			`input "input" is FP32[-1,3,16] in config.pbtxt, but float32[batch,16] in 1/model.onnx: make them equal, or leave out all inputs and outputs`},
		{"another type", map[string]string{"m/config.pbtxt": `output { name: "output" data_type: TYPE_STRING dims: [-1, 10] }`, "m/1/model.onnx": mlp},
			`output "output" is BYTES[-1,10] in config.pbtxt, but float32[batch,10] in 1/model.onnx`},
		{"no such input", map[string]string{"m/config.pbtxt": `input { name: "image" data_type: TYPE_FP32 dims: [-1, 10] }`, "m/1/model.onnx": mlp},
			`config.pbtxt has the input "image", which is not in 1/model.onnx: it has "input"`},
		{"an input too few", map[string]string{"m/config.pbtxt": `input { name: "INPUT0" data_type: TYPE_INT32 dims: [-1, 16] }`, "m/1/model.onnx": "zoo:tiny_add"},
			`config.pbtxt has 1 of the 2 inputs in 1/model.onnx ("INPUT0", "INPUT1"): add the others`},
		{"an illegal name", map[string]string{"a b/1/model.onnx": mlp}, `"a b" must be 1 to 128 letters`},
		{"too large a batch", map[string]string{"m/config.pbtxt": "max_batch_size: 100000", "m/1/model.onnx": mlp}, "max_query_batch: must be in [1, 4096], not 100000"},
		{"a negative batch", map[string]string{"m/config.pbtxt": "max_batch_size: -1", "m/1/model.onnx": mlp}, "max_query_batch: must be in [1, 4096], not -1"},
		{"too long a timeout", map[string]string{"m/config.pbtxt": "dynamic_batching { default_queue_policy { default_timeout_microseconds: 18446744073709551615 } }", "m/1/model.onnx": mlp}, "target: must be above 0 and at most 24h"},
		{"nothing", nil, "no model of "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := Read(repo(t, c.files), time.Second)
			if err == nil {
				err = got.Validate()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A dimension that the file fixes must be configured as that.
func TestFixedDimensions(t *testing.T) {
	free, fixed := models.Dim{Value: -1, Name: "n"}, models.Dim{Value: 2}
	for _, c := range []struct {
		config  string
		in, aux models.Dim
		want    string
	}{
		{`max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: [4] }`, fixed, free, `input "x" is FP32[-1,4] in config.pbtxt, but float32[2,4] in 1/model.onnx`},
		{`max_batch_size: 8 output { name: "y" data_type: TYPE_FP32 dims: 4 }`, free, fixed, ""},
		{`input { name: "x" data_type: TYPE_FP32 dims: [2, 4] }`, fixed, fixed, ""},
		{`input { name: "x" data_type: TYPE_FP32 dims: [-1, 4] }`, fixed, fixed, `input "x" is FP32[-1,4] in config.pbtxt, but float32[2,4] in 1/model.onnx`},
	} {
		dir := repo(t, map[string]string{"m/config.pbtxt": c.config, "m/1/model.onnx": string(relus(c.in, c.aux))})
		if _, _, err := Read(dir, time.Second); err == nil != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.config, err, c.want)
		}
	}
}

// relus returns a model from x to y and aux, whose first dimensions are given.
func relus(in, aux models.Dim) []byte {
	var graph []byte
	for _, to := range []string{"y", "aux"} {
		node := models.AppendString(models.AppendString(models.AppendString(nil, 1, "x"), 2, to), 4, "Relu")
		graph = models.AppendField(graph, 1, node)
	}
	port := func(field protowire.Number, name string, first models.Dim) {
		graph = models.AppendField(graph, field, models.AppendValueInfo(nil, name, models.TensorType(models.Float32, first, models.Dim{Value: 4})))
	}
	port(11, "x", in)
	port(12, "y", models.Dim{Value: -1, Name: "n"})
	port(12, "aux", aux)
	return models.AppendField(models.AppendInt(nil, 1, 8), 7, graph)
}

// Where no model can be served all faults are reported at once, and are those of a
// configuration, whose exit status keeps systemd from trying again.
func TestFaultsAtOnce(t *testing.T) {
	_, _, err := Read(repo(t, map[string]string{"a/1": "/", "b/config.pbtxt": "x x", "c/config.pbtxt": `backend: "python"`}), time.Second)
	faults, ok := errors.AsType[config.Faults](err)
	if !ok || len(faults) != 2 {
		t.Errorf("%v", err)
	}
}

// One faulty model does not stop the others: it is left out, with the place of its fault.
func TestFaultyModelsAreLeftOut(t *testing.T) {
	dir := repo(t, map[string]string{
		"a/1": "/", "b/config.pbtxt": "name: \"b\"\nmax_batch_size 8", "b/1/model.onnx": "zoo:tiny_mlp", "c/1/model.onnx": "zoo:tiny_mlp", "d d/1/model.onnx": "zoo:tiny_mlp",
		"e/config.pbtxt": "max_batch_size: 100000", "e/1/model.onnx": "zoo:tiny_mlp", "f/1/model.onnx": "<html>",
	})
	c, notes, err := Read(dir, time.Second)
	if err != nil || strings.Join(c.Names(), " ") != "c" || c.Validate() != nil {
		t.Fatalf("%v, %q", err, c.Names())
	}
	wantNotes(t, notes, `skipping model "a": `+dir+"/a: "+dir+"/a/1/model.onnx: no such file", `skipping model "b": `+dir+"/b/config.pbtxt:2: config.pbtxt cannot be read",
		`skipping model "d d": `+dir+`/d d: `, `skipping model "e": `+dir+"/e: service[0].max_query_batch: must be in [1, 4096], not 100000", `skipping model "f": `+dir+"/f: ")
}

// A field that Triton does not have either is a slip, and likely of one that it has.
func TestUnknownFields(t *testing.T) {
	_, notes, err := Read(one(t, "max_batch_sise: 8\ndynamic_batching { prefered_batch_size: 2 }\nnothing_like_it { }\noptimisation { }\noptimization { }\nruntime: \"x\""), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	wantNotes(t, notes, "max_batch_sise (line 1) is unknown and has no effect; did you mean max_batch_size?", "prefered_batch_size (line 2) is unknown and has no effect; did you mean preferred_batch_size?",
		"nothing_like_it (line 3) is unknown and has no effect", "optimisation (line 4) is unknown and has no effect; did you mean optimization?",
		"optimization (line 5) has no effect", "runtime (line 6) has no effect")
}

// Links within the repository are followed, and so is a folder in the place of a file.
func TestLinksWithin(t *testing.T) {
	dir := repo(t, map[string]string{
		"m/1/model.onnx": "-> ../../.data/net.onnx", ".data/net.onnx": "zoo:tiny_mlp",
		"n/1/model.onnx/model.onnx": "zoo:tiny_mlp", "o": "-> n", "README": "text",
	})
	c, _, err := Read(dir, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if names := strings.Join(c.Names(), " "); names != "m n o" {
		t.Error(names)
	}
}

// The daemon runs on the processor where all models are to.
func TestDevice(t *testing.T) {
	cpu := "instance_group [ { kind: KIND_CPU } ]"
	files := map[string]string{"a/config.pbtxt": cpu, "a/1/model.onnx": "zoo:tiny_mlp", "b/config.pbtxt": cpu, "b/1/model.onnx": "zoo:tiny_mlp"}
	c, notes, err := Read(repo(t, files), time.Second)
	if err != nil || c.Device != config.DeviceCPU {
		t.Errorf("%v, %s", err, c.Device)
	}
	wantNotes(t, notes)
	files["b/config.pbtxt"] = "instance_group [ { kind: KIND_CPU count: 1 }, { kind: KIND_GPU } ]"
	c, notes, err = Read(repo(t, files), time.Second)
	if err != nil || c.Device != config.DeviceAuto {
		t.Errorf("%v, %s", err, c.Device)
	}
	wantNotes(t, notes, "name the CPU in on of a", "one worker serves the model")
}

// A fingerprint changes with the files of models, and only with them.
func TestFingerprint(t *testing.T) {
	dir := repo(t, map[string]string{"m/1/model.onnx": "one", "m/config.pbtxt": "", "linked": "-> m"})
	last := Fingerprint(dir)
	step := func(what string, changes bool, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		now := Fingerprint(dir)
		if changed := now != last; changed != changes {
			t.Errorf("%s: changed %v", what, changed)
		}
		last = now
	}
	write := func(path, text string) func() error {
		return func() error {
			path := filepath.Join(dir, path)
			return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".tmp", []byte(text), 0o644), os.Rename(path+".tmp", path))
		}
	}
	step("nothing", false, func() error { return nil })
	step("another file", true, write("m/1/model.onnx", "two"))
	step("a configuration", true, write("m/config.pbtxt", "name: \"m\""))
	step("a version", true, write("m/2/model.onnx", "two"))
	step("a file beside it", true, write("m/2/model.onnx.data", "x"))
	step("a hidden file", false, write("m/.git/x", "x"))
	step("a model", true, write("n/1/model.onnx", "x"))
	step("a model is gone", true, func() error { return os.RemoveAll(filepath.Join(dir, "n")) })
	step("a link to outside", true, func() error { return os.Symlink("/etc", filepath.Join(dir, "m", "etc")) })
	step("a repository that is gone", true, func() error { return os.Rename(dir, dir+".away") })
	step("it is still gone", false, func() error { return nil })
	step("it is back", true, func() error { return os.Rename(dir+".away", dir) })
}
