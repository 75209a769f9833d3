package serving

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	if !ok || !found || !strings.Contains(last, "answered the accepted requests") {
		t.Fatalf("greeting has another form:\n%s", said)
	}
	sh := exec.Command("sh", "-eu", "-c", script)
	sh.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "OUT=" + dir}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("running the greeting: %v\n%s\n%s", err, out, script)
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
	c.TLS.Cert, c.Access.TokenFile = "cert.pem", "tokens"
	if said := greeting("overlapd", address, c); strings.Contains(said, "http://") || !strings.Contains(said, "https://127.0.0.1:1 ") || !strings.Contains(said, "--ca CA.pem --token-file tokens") {
		t.Errorf("with TLS and tokens:\n%s", said)
	}
	if said := greeting("overlapd", &net.UnixAddr{Name: "/run/s", Net: "unix"}, c); said != "" {
		t.Errorf("for a socket: %q", said)
	}
}

func TestRunOn(t *testing.T) {
	for _, c := range []struct{ device, gpu, on, wantDevice, wantGPU, fault string }{
		{"auto", "", "", "auto", "", ""},
		{"auto", "", "cpu", "cpu", "", ""},
		{"cpu", "", "cpu", "cpu", "", ""},
		{"emulated", "", "cpu", "emulated", "", ""},
		{"emulated", "", "0", "emulated", "", ""},
		{"auto", "", "0", "cuda", "0", ""},
		{"cuda", "", "GPU-5c4b1a7e", "cuda", "GPU-5c4b1a7e", ""},
		{"auto", "1", "1", "cuda", "1", ""},
		{"auto", "GPU-5c4b1a7e-0000", "gpu-5c4b1a7e", "cuda", "GPU-5c4b1a7e-0000", ""},
		{"cuda", "GPU-5c4b1a7e", "1", "cuda", "GPU-5c4b1a7e", ""},
		{"cuda", "MIG-0f3e", "GPU-5c4b", "cuda", "MIG-0f3e", ""},
		{"cuda", "GPU-0f3e", "GPU-5c4b", "", "", `gpu = "GPU-0f3e": leave it out`},
		{"auto", "0", "1", "", "", `--on 1, but the configuration has gpu = "0"`},
		{"cpu", "", "0", "", "", `device = "cpu": leave it out`},
		{"cuda", "", "cpu", "", "", "names a GPU"},
		{"auto", "3b:00", "cpu", "", "", "names a GPU"},
		{"auto", "", "vision", "auto", "", ""},
		{"cuda", "2", "vision", "cuda", "2", ""},
	} {
		config := config.Config{Device: c.device, GPU: c.gpu}
		err := runOn(&config, c.on)
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%+v: got %v", c, err)
			}
		case err != nil || config.Device != c.wantDevice || config.GPU != c.wantGPU:
			t.Errorf("%+v: got device %q, gpu %q, %v", c, config.Device, config.GPU, err)
		}
	}
}

// A followed file is read again when it was written, or is another, and then stays so. One that
// is gone for a while is not.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "overlapd.toml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lead := func(to string) {
		t.Helper()
		if err := os.Symlink(to, path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("one", "1")
	write("two", "2")
	lead("one")
	changed := make(chan os.Signal, 1)
	const period = 5 * time.Millisecond
	o := Options{Path: path}
	read := o.look()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { follow(ctx, path, o.look, read, period, changed); close(ended) }()
	heard := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatalf("%s is not noticed", what)
		}
	}
	quiet := func(what string) {
		t.Helper()
		select {
		case <-changed:
			t.Fatalf("%s is taken for a change", what)
		case <-time.After(20 * period):
		}
	}
	quiet("nothing")
	lead("two")
	heard("a link that leads elsewhere")
	quiet("a change a second time")
	write("two", "longer")
	heard("a file that was written")
	if err := os.Rename(filepath.Join(dir, "two"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	quiet("a file that is gone")
	if err := os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	quiet("a file that is back")
	stop()
	<-ended
}
