package zoo

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// TestGraphs checks of every entry that a name is defined once and before it
// is used, and that everything defined is used.
func TestGraphs(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) { checkGraph(t, lookup(t, name).graph()) })
	}
}

func checkGraph(t *testing.T, g *graph) {
	uses := make(map[string]int) // of everything defined so far
	define := func(what, name string) {
		if _, ok := uses[name]; ok || name == "" {
			t.Errorf("%s %q is defined twice or has no name", what, name)
		}
		uses[name] = 0
	}
	use := func(by, name string) {
		if _, ok := uses[name]; !ok {
			t.Errorf("%s uses %q, which is not defined before", by, name)
		}
		uses[name]++
	}
	for _, in := range g.inputs {
		define("input", in.Name)
	}
	for _, tensor := range g.tensors {
		define("tensor", tensor.name)
	}
	names := make(map[string]bool)
	for _, n := range g.nodes {
		if names[n.name] {
			t.Errorf("two nodes are called %s", n.name)
		}
		names[n.name] = true
		for _, in := range n.inputs {
			use(n.name, in)
		}
		for _, out := range n.outputs {
			define("output of "+n.name, out)
		}
	}
	for _, out := range g.outputs {
		use("the model's output", out.Name)
	}
	for name, n := range uses {
		if n == 0 {
			t.Errorf("%q is not used", name)
		}
	}
}

// TestReader has the daemon's own reader open every entry. The files have
// holes where the weights belong, so that they cost nothing.
func TestReader(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			e := lookup(t, name)
			g := e.graph()
			file, err := models.Open(hollow(t, encode(g, 1)))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			checkFile(t, e, g, file)
		})
	}
}

func checkFile(t *testing.T, e Entry, g *graph, file *models.File) {
	head := encode(g, 1).head
	for key, value := range map[string]string{keyName: e.Name, keyRecipe: "1", keySeed: "0000000000000001"} {
		if !bytes.Contains(head, appendProperty(nil, key, value)) {
			t.Errorf("the head does not have %s %s", key, value)
		}
	}
	if len(file.Opsets) != 1 || !bytes.Equal(file.Opsets[0], models.AppendInt(nil, 2, opsetVersion)) || file.IRVersion != irVersion {
		t.Errorf("operator sets %v, IR version %d", file.Opsets, file.IRVersion)
	}
	if len(file.Graph.Nodes) != len(g.nodes) {
		t.Errorf("%d nodes, want %d", len(file.Graph.Nodes), len(g.nodes))
	}
	var inputs, outputs []models.TensorSpec
	for _, v := range file.Graph.FeedInputs() {
		inputs = append(inputs, models.TensorSpec{Name: v.Name, Type: v.Type})
	}
	for _, v := range file.Graph.Outputs {
		outputs = append(outputs, models.TensorSpec{Name: v.Name, Type: v.Type})
	}
	if got, want := describe(inputs), describe(e.Inputs); got != want {
		t.Errorf("inputs %s, want %s", got, want)
	}
	if got, want := describe(outputs), describe(e.Outputs); got != want {
		t.Errorf("outputs %s, want %s", got, want)
	}
	if len(file.Graph.Initializers) != len(g.tensors) {
		t.Fatalf("%d initializers, want %d", len(file.Graph.Initializers), len(g.tensors))
	}
	for i, got := range file.Graph.Initializers {
		want := g.tensors[i]
		if got.Name != want.name || got.Type != want.elem || got.Bytes != want.bytes() {
			t.Errorf("initializer %d: %s %s %d bytes, want %s %s %d bytes",
				i, got.Name, got.Type, got.Bytes, want.name, want.elem, want.bytes())
		}
	}
}

// hollow writes the file that l describes with holes instead of weights.
func hollow(t *testing.T, l *layout) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hollow.onnx")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var offset int64
	put := func(b []byte) {
		if _, err := f.WriteAt(b, offset); err != nil {
			t.Fatal(err)
		}
		offset += int64(len(b))
	}
	put(l.head)
	for _, tensor := range l.tensors {
		put(tensor.head)
		offset += tensor.bytes()
	}
	if offset != l.size {
		t.Errorf("the parts have %d bytes, the layout says %d", offset, l.size)
	}
	if err := f.Truncate(offset); err != nil {
		t.Fatal(err)
	}
	return path
}
