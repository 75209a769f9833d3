package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/internal/fakes/fakeops"
)

// custom returns a model that doubles its input with a custom operator.
func custom(op string) message {
	imported := message(nil).text(1, fakeops.Domain).number(2, 1)
	m := model(graph([]message{node("Neg", []string{"X"}, "minus"), node("Neg", []string{"minus"}, "plus"), node(op, []string{"plus"}, "Y").text(7, fakeops.Domain)}, nil))
	return m.message(8, imported)
}

// libraries returns the line of a service with libraries of custom operators.
func libraries(paths ...string) string {
	return "op_libraries = " + strings.ReplaceAll(fmt.Sprintf("%q", paths), `" "`, `", "`)
}

// checkDouble returns what is wrong with the answer of a model that doubles.
func checkDouble(x float64, a answer) error {
	if a.Status != 200 || len(a.Outputs) != 1 || len(a.Outputs[0].Data) != 1 || a.Outputs[0].Data[0] != 2*x {
		return fmt.Errorf("asked for the double of %v, got %v", x, a)
	}
	return nil
}

// A model with custom operators serves in a worker with their library. An operator that
// crashes ends that worker alone.
func TestCustomOperators(t *testing.T) {
	t.Parallel()
	library := fakeops.Build(t)
	p := serve(t, config{worker: restarts, services: []service{
		tinyAdd,
		{"double", write(t, "double.onnx", custom("Double")), libraries(library)},
		{"crash", write(t, "crash.onnx", custom("Crash")), libraries(library)},
	}})
	p.crashes = true
	for _, name := range []string{"double", "crash"} {
		if err := checkDouble(21, p.infer(name, one(21))); err != nil {
			t.Errorf("asking %s: %v", name, err)
		}
	}
	neighbour := p.awaitWorker("double")
	refusedWith(t, p.infer("crash", one(-1)), 500, "worker_lost")
	lost := p.await("the loss", func(e event) bool { return e.Message == "worker exited" && e.Service == "crash" })
	t.Log(lost.Error)
	if err := checkDouble(4, p.infer("crash", one(4))); err != nil {
		t.Errorf("after the crash: %v", err)
	}
	if err := checkDouble(3, p.infer("double", one(3))); err != nil || p.awaitWorker("double") != neighbour {
		t.Errorf("the neighbour: %v", err)
	}
	// The daemon has never mapped the library.
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
	if err != nil || strings.Contains(string(maps), library) {
		t.Errorf("the daemon has loaded the library, or %v", err)
	}
	if maps, err = os.ReadFile(fmt.Sprintf("/proc/%d/maps", neighbour)); err != nil || !strings.Contains(string(maps), library) {
		t.Errorf("the worker has not loaded the library, or %v", err)
	}
}

// Check and serve refuse, in the same words, libraries that cannot be what they should be. One
// that crashes when it is loaded is named in the log.
func TestCustomOperatorsRefused(t *testing.T) {
	t.Parallel()
	path, nameless := write(t, "double.onnx", custom("Double")), fakeops.Build(t, "NAMELESS")
	text := write(t, "text.so", []byte("no library\n"))
	p := launch(t, config{services: []service{
		{"none", path, ""}, {"nameless", path, libraries(nameless)}, {"text", path, libraries(text)},
	}})
	wanted := []string{`"Double" of the domain "test.ops": custom operators need the library that has them: name it in op_libraries`,
		nameless + ": it has no function RegisterCustomOps", text + ": it is not a shared library"}
	if code := p.exit(); code != faulty {
		t.Errorf("exit status %d", code)
	}
	says(t, p.logged(), wanted...)
	checked, code := p.command("check", p.path)
	if code != faulty {
		t.Errorf("check: exit status %d", code)
	}
	says(t, checked, wanted...)

	refuses := fakeops.Build(t, "REFUSE")
	p = launch(t, config{services: []service{{"refuses", path, libraries(refuses)}}})
	if code := p.exit(); code != faulty {
		t.Errorf("exit status %d", code)
	}
	says(t, p.logged(), "not today")
	if checked, code = p.command("check", p.path); code != faulty || !strings.Contains(checked, "not today") {
		t.Errorf("check: exit status %d: %s", code, checked)
	}

	missing := filepath.Join(t.TempDir(), "none.so")
	if said := refused(t, config{services: []service{{"missing", path, libraries(missing)}}}); !strings.Contains(said, missing) {
		t.Errorf("a library that is not there: %s", said)
	}

	crashes := fakeops.Build(t, "CRASH_AT_LOAD")
	p = launch(t, config{worker: restarts, services: []service{tinyAdd, {"crashes", path, libraries(crashes)}}})
	p.crashes = true
	if e := p.await("the loss", func(e event) bool { return e.Message == "worker exited" }); e.Service != "crashes" || !strings.Contains(e.Error, "op_libraries: "+filepath.Base(crashes)) {
		t.Errorf("the log says %+v", e)
	}
}

// A reload loads a library again that was replaced. Check knows it, too.
func TestCustomOperatorsReload(t *testing.T) {
	t.Parallel()
	path := write(t, "double.onnx", custom("Double"))
	p := serve(t, administered(t, config{services: []service{tinyAdd}}))
	add := func(lines string) func(c *config) {
		return func(c *config) { c.services = []service{tinyAdd, {"m", path, lines}} }
	}
	p.edit(add(""))
	p.reload(1, "m: failed", "name it in op_libraries")
	library := fakeops.Build(t)
	p.edit(add(libraries(library)))
	p.reload(0, "m: done")
	if text, code := p.command("check", p.path); code != 0 {
		t.Errorf("check: exit status %d: %s", code, text)
	}
	if text, code := p.command("models", "inspect", "--op-library", library, path); code != 0 || !strings.Contains(text, "Double") {
		t.Errorf("models inspect: exit status %d: %s", code, text)
	}
	before := p.awaitWorker("m")
	p.reload(0, "nothing changed")
	data, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, library, append(data, 0))
	p.reload(0, "replaced m")
	if after := p.awaitWorker("m"); after == before {
		t.Error("the worker has the old library")
	}
	if err := checkDouble(5, p.infer("m", one(5))); err != nil {
		t.Error(err)
	}
}

// A repository of Triton names its libraries in config.pbtxt.
func TestCustomOperatorsOfTriton(t *testing.T) {
	t.Parallel()
	dir, library := t.TempDir(), fakeops.Build(t)
	data, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"beside": "libops.so", "elsewhere": library} {
		writeAt(t, filepath.Join(dir, name, "1", "model.onnx"), string(custom("Double")))
		writeAt(t, filepath.Join(dir, name, "libops.so"), string(data))
		writeAt(t, filepath.Join(dir, name, "config.pbtxt"), fmt.Sprintf("model_operations { op_library_filename: %q }", file))
	}
	p, _ := serveRepository(t, dir)
	for _, name := range []string{"beside", "elsewhere"} {
		if err := checkDouble(6, p.infer(name, one(6))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	says(t, p.logged(), "op_library_filename: its worker runs the code of")
}
