package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
)

// TestGreeting pastes what is printed into a shell, whose curl and overlapd
// note what they were called with.
func TestGreeting(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"curl": `#!/bin/sh
echo "$2" >> "$OUT/urls"
case $3 in
-d) printf '%s\n' "$4" ;;
--data-binary) cat; echo ;;
esac >> "$OUT/bodies"
`,
		"overlapd": `#!/bin/sh
echo "$@" >> "$OUT/bench"
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := config.Embedded()
	said := greeting("overlapd", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8000}, c)
	_, said, ok := strings.Cut(said, "Try:\n")
	script, last, found := strings.Cut(said, "Ctrl-C")
	if !ok || !found || !strings.Contains(last, "answered first") {
		t.Fatalf("greeting has another form:\n%s", said)
	}
	sh := exec.Command("sh", "-eu", "-c", script)
	sh.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "OUT=" + dir}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, script)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got, want := read("urls"), "http://127.0.0.1:8000/v2/models/resnet50/infer\nhttp://127.0.0.1:8000/v2/models/bert/infer\n"; got != want {
		t.Errorf("asked %q, want %q", got, want)
	}
	if got, want := read("bench"), "bench serve --url http://127.0.0.1:8000 --service resnet50,bert --rate 4 --duration 10s\n"; got != want {
		t.Errorf("ran %q, want %q", got, want)
	}
	checkBodies(t, read("bodies"))
}

// checkBodies holds every tensor of the requests to its own shape.
func checkBodies(t *testing.T, bodies string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(bodies))
	var names []string
	for d.More() {
		var request struct {
			Inputs []struct {
				Name, Datatype string
				Shape          []int
				Data           []float64
			}
			Outputs []struct{ Name string }
		}
		if err := d.Decode(&request); err != nil {
			t.Fatal(err)
		}
		for _, in := range request.Inputs {
			n := 1
			for _, d := range in.Shape {
				n *= d
			}
			if len(in.Data) != n {
				t.Errorf("%s has %d values for shape %v", in.Name, len(in.Data), in.Shape)
			}
			names = append(names, in.Name+":"+in.Datatype)
		}
	}
	want := "input:FP32 input_ids:INT64 attention_mask:INT64 token_type_ids:INT64"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("inputs %s, want %s", got, want)
	}
}

func TestGreetingWithoutExamples(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	c := config.Config{Services: []config.Service{
		{Name: "half", Model: "zoo:resnet50-fp16"}, {Name: "mine", Model: "bert.onnx"},
	}}
	said := greeting("overlapd", address, c)
	if strings.Contains(said, "curl") || !strings.Contains(said, "--service half,mine ") {
		t.Errorf("half precision has no JSON form, and a file's inputs are not known:\n%s", said)
	}
	c.Device = "emulated"
	if said := greeting("overlapd", address, c); !strings.Contains(said, "an emulated device: nothing is computed. Try:") {
		t.Errorf("on an emulated device:\n%s", said)
	}
	if said := greeting("overlapd", &net.UnixAddr{Name: "/run/s", Net: "unix"}, c); said != "" {
		t.Errorf("for a socket: %q", said)
	}
}
