package test

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// startWithin starts a daemon under a limit of the shell's and returns what it says, and
// whether it came to listen; then it is killed.
func startWithin(t *testing.T, limit, path string) (said string, listens bool) {
	t.Helper()
	cmd := command("serve", "--config", path)
	cmd.Args = []string{"sh", "-c", "ulimit " + limit + ` && exec "$0" "$@"`, cmd.Path, "serve", "--config", path}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	cmd.Path = shell
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		said += lines.Text() + "\n"
		if strings.Contains(lines.Text(), `"message":"listening"`) {
			listens = true
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // it fails, or was killed
	return said, listens
}

// A daemon that has come to a limit of its process says which, and what to do.
func TestLimitsOfTheProcess(t *testing.T) {
	t.Parallel()
	put := func() string {
		c, path := config{dir: t.TempDir()}, write(t, "model.onnx", identity(1))
		for _, name := range []string{"a", "b", "c", "d"} { // the memory for the inputs of each has a descriptor
			c.services = append(c.services, service{name: name, model: path})
		}
		return write(t, "overlapd.toml", []byte(c.text()))
	}
	expect := func(limit, remedy, said string) {
		t.Helper()
		if strings.Contains(said, "panic") || strings.Contains(said, "goroutine ") || !strings.Contains(said, remedy) {
			t.Errorf("ulimit %s: it says\n%s", limit, said)
		}
	}
	said, _ := startWithin(t, "-f 1000", put())
	expect("-f 1000", "ulimit -f", said)
	inputs := false
	for n := 10; n < 40; n++ {
		limit := fmt.Sprint("-n ", n)
		said, listens := startWithin(t, limit, put())
		if listens {
			break
		}
		expect(limit, "ulimit -n", said)
		inputs = inputs || strings.Contains(said, "memory for inputs")
	}
	if !inputs {
		t.Error("the memory for inputs was never what could not be had")
	}
}
