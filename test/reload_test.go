package test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// administered adds an admin socket to a configuration.
func administered(t *testing.T, c config) config {
	t.Helper()
	dir, err := os.MkdirTemp("", "overlapd-admin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c.top += fmt.Sprintf("\nadmin_socket = %q\n", filepath.Join(dir, "a.sock"))
	return c
}

// edit writes the configuration file anew. The daemon is not told.
func (p *process) edit(change func(*config)) {
	p.t.Helper()
	change(&p.config)
	p.write(p.config.text())
}

func (p *process) write(text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// command runs overlapd and returns what it says and its exit status.
func (p *process) command(args ...string) (text string, code int) {
	p.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "OVERLAPD_ORT="+library)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return string(out), 0
}

// reload has the daemon follow its file, and fails unless the command ends so
// and says so.
func (p *process) reload(code int, parts ...string) string {
	p.t.Helper()
	text, got := p.command("reload", "--config", p.path)
	if got != code {
		p.t.Fatalf("overlapd reload: exit status %d, want %d:\n%s", got, code, text)
	}
	for _, part := range parts {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), part) {
			p.t.Errorf("overlapd reload does not say %q:\n%s", part, text)
		}
	}
	return text
}

// scaled is a model whose output is its input times factor, twice: operators of
// two models in one batch would show.
func scaled(factor float32) []byte {
	return model(graph([]message{
		node("Mul", []string{"X", "W"}, "t"), node("Mul", []string{"t", "W"}, "Y"),
	}, []message{floats("W", []int64{1}, func(int) float32 { return factor })}))
}

// replaceFile puts a file in the place of another one.
func replaceFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// scale asks what a service multiplies by.
func (p *process) scale(service string, x float64) (factor float64, err error) {
	a := p.infer(service, one(x))
	if a.Err != nil || a.Status != 200 || len(a.Outputs) != 1 || len(a.Outputs[0].Data) != 1 {
		return 0, fmt.Errorf("%s: %v", service, a)
	}
	return a.Outputs[0].Data[0] / x, nil
}

// mustScale fails unless a service multiplies by a factor.
func (p *process) mustScale(service string, want float64) {
	p.t.Helper()
	if got, err := p.scale(service, 5); err != nil || got != want {
		p.t.Errorf("%s: times %v, %v; want %v", service, got, err, want)
	}
}

func TestReloadAddsChangesAndRemoves(t *testing.T) {
	t.Parallel()
	p := serve(t, administered(t, config{services: []service{tinyAdd, {name: "two", model: write(t, "m.onnx", scaled(2))}}}))
	p.reload(0, "nothing changed")
	p.edit(func(c *config) {
		c.services = append(c.services, service{name: "three", model: write(t, "m.onnx", scaled(3))})
	})
	p.reload(0, "three: loading", "three: done", "added three")
	p.mustScale("three", 9)
	p.mustScale("two", 4)

	p.edit(func(c *config) { c.services[1].lines = `target = "7s"` })
	worker := p.awaitWorker("two")
	p.reload(0, "changed two")
	p.mustScale("two", 4)
	if again := p.worker("two"); again != worker || worker == 0 {
		t.Errorf("the worker was %d and is %d", worker, again)
	}
	if _, text := p.get("/v2/models/two/config"); !bytes.Contains(text, []byte("7000")) {
		t.Errorf("the target is not told: %s", text)
	}

	p.edit(func(c *config) { c.services = c.services[1:]; c.tables = "[limits]\nconnections = 77\n" })
	p.reload(0, "removed add", "later limits.connections takes effect after a restart")
	if a := p.infer("add", sum(rand.New(rand.NewPCG(1, 1)), 1)); a.Status != 404 {
		t.Errorf("a service that was removed: %v", a)
	}
	p.mustScale("two", 4)
	p.mustScale("three", 9)
	p.reload(0, "later limits.connections")
}

// A model is replaced, by another file of the same name, under load: each
// request gets one answer, of the old model or of the new one, and none of the
// old one once a new one was seen.
func TestReloadReplacesAModelUnderLoad(t *testing.T) {
	t.Parallel()
	path := write(t, "m.onnx", scaled(2))
	p := serve(t, administered(t, config{services: []service{{name: "m", model: path}, tinyAdd}}))
	stop, asked := make(chan struct{}), new(atomic.Int64)
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			latest := 4.0
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				got, err := p.scale("m", float64(1+(client*1000+n)%512))
				asked.Add(1)
				if err != nil || got != 4 && got != 9 && got != 25 || got < latest {
					t.Errorf("client %d, request %d: times %v after %v, %v", client, n, got, latest, err)
					return
				}
				latest = got
			}
		})
	}
	clients.Go(func() {
		random := rand.New(rand.NewPCG(2, 2))
		for {
			select {
			case <-stop:
				return
			default:
			}
			q := sum(random, 2)
			if err := checkSum(q, p.infer("add", q)); err != nil {
				t.Errorf("the other service: %v", err)
				return
			}
		}
	})
	for _, factor := range []float32{3, 5} {
		before := asked.Load()
		p.eventually("requests", func() bool { return asked.Load() > before+20 || t.Failed() })
		replaceFile(t, path, scaled(factor))
		p.reload(0, "m: loading", "replaced m")
		p.mustScale("m", float64(factor*factor))
	}
	close(stop)
	clients.Wait()
	t.Logf("%d requests while the model was replaced twice", asked.Load())
}

// SIGHUP does what the command does, and the log tells it.
func TestHangupReloads(t *testing.T) {
	t.Parallel()
	path := write(t, "m.onnx", scaled(2))
	c := config{services: []service{{name: "m", model: path}, tinyAdd}}
	c.top = `admin_socket = "off"`
	p := serve(t, c)
	replaceFile(t, path, scaled(3))
	p.edit(func(c *config) {
		c.services[1].lines = `target = "9s"`
		c.services = append(c.services, service{name: "more", model: path})
		c.tables = "[limits]\nconnections = 77\n"
	})
	p.signal(syscall.SIGHUP)
	end := p.await("the end of the reload", func(e event) bool { return e.Message == "configuration reloaded" })
	if end.Level != "info" {
		t.Errorf("the end has level %s", end.Level)
	}
	for message, service := range map[string]string{
		"the service is replaced": "m", "the service is changed": "add", "the service is added": "more",
		"setting differs in the file; it takes effect after a restart": "",
	} {
		if n := p.count(func(e event) bool { return e.Message == message && e.Service == service }); n != 1 {
			t.Errorf("%q of %q: %d lines", message, service, n)
		}
	}
	p.mustScale("m", 9)
	p.mustScale("more", 9)
	says(t, p.reload(1), "admin_socket is off")

	p.write(p.config.text() + "color = \"blue\"\n")
	p.signal(syscall.SIGHUP)
	p.await("what is wrong with the file", func(e event) bool {
		return e.Message == "configuration invalid; nothing was changed" && strings.Contains(e.Error, "color: unknown key")
	})
	p.mustScale("m", 9)
}

// spoil has a service given up: its model is none any more, and its worker is killed.
func (p *process) spoil(service, path string) {
	p.t.Helper()
	replaceFile(p.t, path, []byte("no model"))
	if err := sendSignal(p.awaitWorker(service), syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	p.await("that it is given up", func(e event) bool {
		return e.Service == service && strings.HasPrefix(e.Message, "service failed permanently")
	})
}

// The same by a reload, once the model is one.
func TestReloadOfAServiceThatWasGivenUp(t *testing.T) {
	t.Parallel()
	path := write(t, "m.onnx", scaled(3))
	p := serve(t, administered(t, config{services: []service{{name: "m", model: path}, tinyAdd}}))
	p.spoil("m", path)
	replaceFile(t, path, scaled(2))
	p.reload(0, "replaced m")
	p.mustScale("m", 4)
}
