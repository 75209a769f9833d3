package test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// badModels returns files that must never be served, with what is to be said of each.
func badModels(t *testing.T) map[string][2]string {
	mlp := zooFile(t, "tiny_mlp")
	garbage := make([]byte, 100_000)
	random := rand.New(rand.NewPCG(9, 9))
	for i := range garbage {
		garbage[i] = byte(random.Uint32())
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	external := func(location string) []byte {
		return model(graph([]message{node("Add", []string{"X", "W"}, "Y")}, []message{outside("W", location)}))
	}
	call := func(function string) message { return node(function, []string{"X"}, "Y").text(7, "local") }
	function := func(name string, calls ...string) message {
		m := message(nil).text(1, name).text(4, "X").text(5, "Y").text(10, "local")
		for _, c := range calls {
			m = m.message(7, call(c))
		}
		return m
	}
	nested := message(nil)
	for range 200 {
		nested = graph([]message{node("If", []string{"X"}, "Y", graphAttribute("then_branch", nested), graphAttribute("else_branch", nested[:0]))}, nil)
	}
	file := func(name string, data []byte) string { return write(t, name, data) }
	return map[string][2]string{
		"empty":          {file("m", nil), "the file is empty"},
		"four_bytes":     {file("m", []byte("ONNX")), "not an ONNX model"},
		"garbage":        {file("m", garbage), "not an ONNX model"},
		"text":           {file("m", []byte(strings.Repeat("not a model\n", 100))), "not an ONNX model"},
		"truncated":      {file("m", mlp[:len(mlp)/2]), "is truncated"},
		"cut_short":      {file("m", mlp[:len(mlp)-1]), "is truncated"},
		"unknown_op":     {file("m", bytes.ReplaceAll(mlp, []byte("\x22\x04Gemm"), []byte("\x22\x04Gumm"))), "Gumm"},
		"custom_op":      {file("m", model(graph([]message{node("Relu", []string{"X"}, "Y").text(7, "my.ops")}, nil))), `"Relu" of the domain "my.ops"`},
		"lfs":            {file("m", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")), "git lfs pull"},
		"page":           {file("m", []byte("<!DOCTYPE html><html></html>")), "HTML page"},
		"folder":         {t.TempDir(), "it is a folder"},
		"pipe":           {pipe, "regular file"},
		"device":         {"/dev/zero", "regular file"},
		"passwd":         {file("m", external("../../../../../../../../etc/passwd")), "external data rejected"},
		"absolute":       {file("m", external("/etc/passwd")), "external data rejected"},
		"unconnected":    {file("m", model(graph([]message{node("Relu", []string{"nowhere"}, "Y")}, nil))), "nowhere"},
		"circle":         {file("m", model(graph([]message{node("Add", []string{"X", "Y"}, "Y")}, nil))), "cycle"},
		"self_call":      {file("m", model(graph([]message{call("f")}, nil), function("f", "g"), function("g", "f"))), "calls itself"},
		"too_deep":       {file("m", model(nested)), "limit exceeded"},
		"too_many_nodes": {file("m", manyNodes(1_000_000)), "limit exceeded"},
	}
}

// manyNodes returns a model of so many nodes, cheaply.
func manyNodes(n int) message {
	one := node("Identity", []string{"X"}, "Y")
	field := message(nil).message(1, one)
	return model(message(bytes.Repeat(field, n)))
}

// A model that is no good is refused at a start, all of them at once, by check in the
// same words and with the same status; at a reload it disturbs nobody.
func TestBadModels(t *testing.T) {
	t.Parallel()
	bad := badModels(t)
	unknown := bad["unknown_op"]
	delete(bad, "unknown_op")
	c := config{services: []service{tinyAdd, {name: "single", model: write(t, "m.onnx", fixed()), lines: "max_batch = 4"}}}
	wanted := []string{`service single: its model is invalid: `, `max_batch is 4, but its queries cannot be batched: the first dimension of its input "X" is fixed at 1`}
	for name, m := range bad {
		c.services = append(c.services, service{name: name, model: m[0]})
		wanted = append(wanted, "service "+name+": its model is invalid: ", m[1])
	}
	p := launch(t, c)
	if code := p.exit(); code != faulty {
		t.Errorf("exit status %d", code)
	}
	says(t, p.logged(), wanted...)
	if text, code := p.command("check", p.path); code != faulty || !strings.HasSuffix(p.logged(), text) {
		t.Errorf("check, status %d:\n%s\nserve:\n%s", code, text, p.logged())
	}

	// What only ONNX Runtime knows is found by the worker, once.
	p = launch(t, config{services: []service{tinyAdd, {name: "unknown_op", model: unknown[0]}}})
	if code := p.exit(); code != faulty {
		t.Errorf("exit status %d", code)
	}
	if n := p.count(func(e event) bool { return e.Message == "worker exited" }); n != 1 {
		t.Errorf("its worker was lost %d times", n)
	}
	text, code := p.command("check", p.path)
	last := text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]
	if code != faulty || !strings.Contains(last, unknown[1]) || !strings.HasSuffix(p.logged(), last) {
		t.Errorf("check, status %d:\n%s\nserve:\n%s", code, text, p.logged())
	}

	good := serve(t, administered(t, config{services: []service{tinyAdd}}))
	bad["unknown_op"] = unknown
	var parts []string
	good.edit(func(c *config) {
		for name, m := range bad {
			c.services = append(c.services, service{name: name, model: m[0]})
			parts = append(parts, name+": failed", m[1])
		}
	})
	good.reload(1, parts...)
	for name := range bad {
		refusedWith(t, good.infer(name, one(1)), 404)
	}
	q := sum(rand.New(rand.NewPCG(1, 1)), 1)
	if err := checkSum(q, good.infer("add", q)); err != nil {
		t.Error(err)
	}
	good.alive()
	const largest = 1 << 30
	if n := good.measured(good.cmd.Process.Pid).resident; n > largest {
		t.Errorf("the daemon has %d bytes", n)
	}
}

// fixed is a model that takes one element, never a batch.
func fixed() []byte {
	shape := models.TensorType(models.Float32, models.Dim{Value: 1})
	parts := models.Parts{
		IRVersion: 8, Name: "g", Opsets: [][]byte{message(nil).number(2, 17)}, Nodes: [][]byte{node("Relu", []string{"X"}, "Y")},
		Inputs: [][]byte{models.AppendValueInfo(nil, "X", shape)}, Outputs: [][]byte{models.AppendValueInfo(nil, "Y", shape)},
	}
	return parts.Append(nil)
}

// A model that asks for more memory than its service may take is refused, each time,
// and its worker lives.
func TestModelThatExplodes(t *testing.T) {
	t.Parallel()
	const terabyte = 1 << 40
	raw := binary.LittleEndian.AppendUint64(nil, terabyte)
	path := write(t, "huge.onnx", model(graph([]message{
		node("ConstantOfShape", []string{"S"}, "B"), node("Add", []string{"B", "X"}, "C"),
		node("ReduceMax", []string{"C"}, "Y"),
	}, []message{message(nil).number(1, 1).number(2, int64(models.Int64)).text(8, "S").text(9, string(raw))})))
	p := serve(t, config{services: []service{tinyAdd, {name: "huge", model: path}}})
	for range 3 {
		refusedWith(t, p.infer("huge", one(1)), 413, "too_large")
	}
	q := sum(rand.New(rand.NewPCG(1, 1)), 1)
	if err := checkSum(q, p.infer("add", q)); err != nil {
		t.Error(err)
	}
	if n := p.count(func(e event) bool { return e.Message == "worker exited" }); n != 0 {
		t.Errorf("%d workers were lost", n)
	}
}

// A worker that is started again takes the model that is there then.
func TestModelChangesOnDisk(t *testing.T) {
	t.Parallel()
	path := write(t, "model.onnx", identity(3))
	p := serve(t, config{worker: "restart_limit = 6\nbackoff_min = \"10ms\"\n", services: []service{
		{name: "changing", model: path}, tinyAdd,
	}})
	replace := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		pid := p.awaitWorker("changing")
		if err := sendSignal(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.await("the loss", func(e event) bool { return e.Message == "worker exited" && e.PID == pid })
	}
	if a := p.infer("changing", one(7)); a.Status != 200 || a.Outputs[0].Data[0] != 7 {
		t.Fatalf("the first model: %v", a)
	}
	replace(slow(2))
	p.eventually("the second model", func() bool { return p.worker("changing") != 0 && p.health("/v2/models/changing/ready") == 200 })
	if a := p.infer("changing", one(8)); a.Status != 200 || a.Outputs[0].Data[0] != 8 {
		t.Errorf("the second model: %v", a)
	}
	replace(zooFile(t, "tiny_add"))
	p.eventually("the third model", func() bool { return p.worker("changing") != 0 && p.health("/v2/models/changing/ready") == 200 })
	refusedWith(t, p.infer("changing", one(9)), 400)
	q := sum(rand.New(rand.NewPCG(1, 1)), 2)
	if err := checkSum(q, p.infer("changing", q)); err != nil {
		t.Error(err)
	}
	replace([]byte("half writ"))
	p.await("that it is given up", func(e event) bool { return strings.HasPrefix(e.Message, "service failed permanently") })
	refusedWith(t, p.infer("changing", q), 503, "given_up")
	if err := checkSum(q, p.infer("add", q)); err != nil {
		t.Error(err)
	}
}
