package test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// TestPythonClient runs the tests of the Python client, against their own small server
// and against a daemon.
func TestPythonClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	p := serve(t, config{services: []service{{name: "mlp", model: "zoo:tiny_mlp"}}})
	run := exec.CommandContext(t.Context(), python, "-B", "-m", "unittest", "-v")
	run.Dir = filepath.Join("..", "deploy", "python")
	run.Env = append(run.Environ(), "OVERLAPD_URL="+p.url(""))
	run.WaitDelay = time.Second
	out, err := run.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^test_reasons .*ok$`).Match(out) {
		t.Fatalf("%v\n%s", err, out)
	}
}
