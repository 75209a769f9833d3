package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/overlapd/overlapd/models/zoo"
)

// modelRepository returns a repository of Triton with versions 1, 2 and 3 of the models x and y.
// Each version has other weights.
func modelRepository(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, model := range []string{"x", "y"} {
		for version := range 3 {
			addVersion(t, dir, model, version+1)
		}
		writeAt(t, filepath.Join(dir, model, "config.pbtxt"), `max_batch_size: 8
version_policy { all { } }
dynamic_batching { default_queue_policy { default_timeout_microseconds: 60000000 } }
input { name: "input" data_type: TYPE_FP32 dims: 16 }`)
	}
	return dir
}

// addVersion adds a version of a model to a repository in one step.
func addVersion(t *testing.T, dir, model string, version int) {
	t.Helper()
	built, err := zoo.Build("tiny_mlp", t.TempDir(), uint64(version), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	writeAt(t, filepath.Join(dir, model, strconv.Itoa(version), "model.onnx"), string(data))
}

func writeAt(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// serveRepository starts a daemon that serves a repository and waits until it is ready. Its log
// is text, since no file says otherwise.
func serveRepository(t *testing.T, dir string, flags ...string) (p *process, grpc string) {
	t.Helper()
	p = launchBy(t, config{}, append([]string{"--model-repository", dir, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--on", "cpu"}, flags...))
	listening := regexp.MustCompile(`listening for gRPC.*? address=(\S+)[^\n]*\n(?:.*\n)*?.*listening address=(\S+)`)
	p.eventually("that it listens", func() bool {
		if m := listening.FindStringSubmatch(p.logged()); m != nil {
			grpc, p.address = m[1], m[2]
		}
		return p.address != ""
	})
	p.eventually("readiness", func() bool { return p.health("/v2/health/ready") == 200 })
	return p, grpc
}

// Clients load and unload models by their own calls, and ask for versions.
func TestRepositoryClients(t *testing.T) {
	t.Parallel()
	python := os.Getenv(pythonVariable)
	if python == "" {
		python = "python3"
	}
	for script, module := range map[string]string{"repository_triton.py": "tritonclient.grpc, tritonclient.http", "repository_kserve.py": "kserve"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			if err := exec.Command(python, "-c", "import "+module).Run(); err != nil {
				t.Skipf("%s has no %s: make clients installs the clients, or name an interpreter that has them in %s", python, module, pythonVariable)
			}
			dir := modelRepository(t)
			p, grpc := serveRepository(t, dir, "--model-control-mode", "explicit", "--load-model", "y")
			out, err := exec.Command(python, filepath.Join("testdata", script), p.address, grpc, dir, strconv.Itoa(p.cmd.Process.Pid)).CombinedOutput()
			if err != nil || string(out) != "ok\n" {
				t.Errorf("%v\n%s\n%s", err, out, p.logged())
			}
		})
	}
}

// In the mode poll, models and versions come and go as the repository changes, and what is
// wrong in it disturbs nothing.
func TestRepositoryPolled(t *testing.T) {
	t.Parallel()
	dir := modelRepository(t)
	p, _ := serveRepository(t, dir, "--model-control-mode", "poll", "--repository-poll-secs", "1")
	served := func(path string) bool { return p.health("/v2/models/"+path+"/ready") == 200 }
	is := func(what, want string) {
		t.Helper()
		p.eventually(what, func() bool {
			_, body := p.get("/v2/models/x")
			return strings.Contains(string(body), fmt.Sprintf(`"versions":[%s]`, want))
		})
	}
	is("three versions", `"3","2","1"`)
	addVersion(t, dir, "x", 4)
	is("another version", `"4","3","2","1"`)
	addVersion(t, dir, "z", 1)
	p.eventually("another model", func() bool { return served("z") })

	writeAt(t, filepath.Join(dir, "x", "config.pbtxt"), "max_batch_size: many")
	p.eventually("a message", func() bool { return strings.Contains(p.logged(), `not changing model "x"`) })
	if err := os.RemoveAll(filepath.Join(dir, "y")); err != nil {
		t.Fatal(err)
	}
	p.eventually("a model that is gone", func() bool { return p.health("/v2/models/y/ready") == 404 })
	is("a faulty model to stay", `"4","3","2","1"`)

	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	p.eventually("another message", func() bool { return strings.Contains(p.logged(), "reading the configuration failed") })
	if !served("x") || !served("x/versions/2") || !served("z") {
		t.Error("models are gone with their repository")
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	writeAt(t, filepath.Join(dir, "x", "config.pbtxt"), "version_policy { specific { versions: [1, 2] } }")
	is("two versions", `"2","1"`)
	p.signal(syscall.SIGTERM)
	if p.exit() != 0 {
		t.Error(p.logged())
	}
}
