package segments

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// Converters to half precision append the casts that they insert.
func TestNodesOutOfOrder(t *testing.T) {
	g := xGraph()
	g.node("Add", list("half", "half"), list("sum"))
	g.node("Cast", list("sum"), list("y"), intAttribute("to", int64(models.Float32)))
	g.node("Cast", list("x"), list("half"), intAttribute("to", int64(models.Float16)))
	branch := newGraph()
	branch.node("Neg", list("half"), list("minus"))
	branch.output("minus", models.Float16)
	g.node("If", list("yes"), list("z"), graphAttribute("then_branch", branch), graphAttribute("else_branch", branch))
	g.node("Greater", list("total", "zero"), list("yes"))
	g.node("ReduceSum", list("x"), list("total"), intAttribute("keepdims", 0))
	g.floats("zero", nil, 0)
	g.output("y", models.Float32)
	g.output("z", models.Float16)
	expectWhole(t, g.write(t), rows(t, 1), rows(t, 3))
}

// A classifier as scikit-learn's converter writes it, whose probabilities are a
// sequence of maps, is served as one that ends in the tensor of probabilities.
func TestZipMapIsDropped(t *testing.T) {
	labels := models.AppendString(nil, 1, "classlabels_strings")
	for _, label := range list("no", "perhaps", "likely", "yes") {
		labels = models.AppendString(labels, 9, label)
	}
	build := func(zip bool) string {
		g := xGraph()
		g.parts.Opsets = append(g.parts.Opsets, opsetID("ai.onnx.ml", 1))
		g.node("Softmax", list("x"), list("p"))
		g.node("ArgMax", list("p"), list("label"), intAttribute("axis", 1), intAttribute("keepdims", 0))
		g.output("label", models.Int64)
		if !zip {
			g.node("Identity", list("p"), list("probabilities"))
			g.output("probabilities", models.Float32)
			return g.write(t)
		}
		g.parts.Nodes = append(g.parts.Nodes, nodeProto("ZipMap", "ai.onnx.ml", list("p"), list("probabilities"), models.AppendInt(labels, 20, 8)))
		item := models.Type{Kind: models.KindTensor, Elem: models.Float32}
		row := models.Type{Kind: models.KindMap, Key: models.String, Item: &item}
		g.parts.Outputs = append(g.parts.Outputs,
			models.AppendValueInfo(nil, "probabilities", models.Type{Kind: models.KindSequence, Item: &row}))
		return g.write(t)
	}
	env := openEnv(t)
	zipped, plain := openCut(t, env, Config{Path: build(true)}), openCut(t, env, Config{Path: build(false)})
	if err := servable(zipped.Model()); err != nil {
		t.Error(err)
	}
	if got := zipped.Model().Outputs[1].Type.String(); got != "float32[?,4]" {
		t.Errorf("probabilities are %s", got)
	}
	for _, n := range []int64{1, 3} {
		q := rows(t, n)
		got, err := runAll(zipped, 1, q)
		want, werr := runAll(plain, 1, q)
		if err != nil || werr != nil {
			t.Fatal(err, werr)
		}
		if err := compare(got, want); err != nil {
			t.Error(err)
		}
	}
	f, err := models.Open(build(true))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := list(`output "probabilities" is a tensor of probabilities instead of a sequence of maps (its ZipMap is removed); ` +
		`its 4 columns are the classes "no", "perhaps", "likely", "yes"`)
	if !slices.Equal(f.Changes, want) {
		t.Errorf("changes %q", f.Changes)
	}
}
