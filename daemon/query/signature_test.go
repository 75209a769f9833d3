package query

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

func signatureOf(t *testing.T, inputs, outputs []models.TensorSpec) *Signature {
	t.Helper()
	sig, err := newSignature("m", Info{Inputs: inputs, Outputs: outputs, Platform: "p"})
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// The sequence length is the first dimension that is neither fixed nor the
// batch dimension.
func TestWhereTheSequenceLengthIs(t *testing.T) {
	y := spec("y", models.Int8, -2)
	for name, tt := range map[string]struct {
		inputs []models.TensorSpec
		want   seqs
	}{
		"no inputs":            {nil, seqs{input: -1}},
		"all fixed":            {[]models.TensorSpec{spec("a", models.Int8, 1, 2)}, seqs{input: -1}},
		"batch only":           {[]models.TensorSpec{spec("a", models.Int8, -2, 3)}, seqs{input: -1}},
		"behind the batch":     {[]models.TensorSpec{spec("a", models.Int8, -2, 3, -3)}, seqs{0, 2}},
		"in the second":        {[]models.TensorSpec{spec("a", models.Int8, -2, 3), spec("b", models.Int8, -2, -3)}, seqs{1, 1}},
		"first, not batched":   {[]models.TensorSpec{spec("a", models.Int8, -2), spec("b", models.Int8, 4, -3)}, seqs{0, 0}},
		"another name than it": {[]models.TensorSpec{spec("a", models.Int8, 4), spec("b", models.Int8, -2)}, seqs{1, 0}},
	} {
		if got := signatureOf(t, tt.inputs, []models.TensorSpec{y}).seq; got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Dimensions of one name are one number to the client; without a name each
// stands for itself.
func TestLinkedDimensions(t *testing.T) {
	sig := signatureOf(t,
		[]models.TensorSpec{spec("a", models.Int8, -2, -3, 5), spec("b", models.Int8, -3, -1, -2), spec("c", models.Int8, -4)},
		[]models.TensorSpec{spec("y", models.Int8, -9, -2)})
	var links [][]int
	for _, p := range sig.Inputs {
		links = append(links, p.link)
	}
	if diff := cmp.Diff([][]int{{0, 1, -1}, {1, -1, 0}, {2}}, links); diff != "" || sig.links != 3 {
		t.Errorf("%d links:\n%s", sig.links, diff)
	}
}

func TestFind(t *testing.T) {
	ports := []Port{{Name: "a"}, {Name: ""}, {Name: "A"}, {Name: "ab"}}
	for name, want := range map[string]int{"a": 0, "": 1, "A": 2, "ab": 3, "b": -1, "a ": -1, "a\x00": -1} {
		if got := Find(ports, []byte(name)); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

func TestPortLimits(t *testing.T) {
	many := make([]models.TensorSpec, maxPorts+1)
	for i := range many {
		many[i] = spec(fmt.Sprint("p", i), models.Int8, 1)
	}
	eight := spec("x", models.Int8, 1, 1, 1, 1, 1, 1, 1, 1)
	for name, tt := range map[string]struct {
		in, out []models.TensorSpec
		fault   string // "" if the model is taken
	}{
		"as many as may be": {many[:maxPorts], many[:maxPorts], ""},
		"an input more":     {many, nil, "257 inputs"},
		"an output more":    {nil, many, "257 outputs"},
		"rank 8":            {[]models.TensorSpec{eight}, []models.TensorSpec{eight}, ""},
		"output of rank 9":  {nil, []models.TensorSpec{spec("x", models.Int8, 1, 1, 1, 1, 1, 1, 1, 1, 1)}, `output "x": rank 9`},
		"output complex":    {nil, []models.TensorSpec{spec("x", models.Complex64, 1)}, `output "x": the protocol does not support`},
	} {
		err := NewService(0, "s").Loaded(Info{Inputs: tt.in, Outputs: tt.out})
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A model whose queries cannot be merged is refused where batches are asked for, with
// the port that hinders it.
func TestCheckModel(t *testing.T) {
	open, fixed := spec("x", models.Int8, -2, 4), spec("x", models.Int8, 1, 4)
	named := func(name, dim string) models.TensorSpec {
		return models.TensorSpec{Name: name, Type: models.TensorType(models.Int8, models.Dim{Value: -1, Name: dim})}
	}
	list := func(s ...models.TensorSpec) []models.TensorSpec { return s }
	for name, tt := range map[string]struct {
		in, out []models.TensorSpec
		most    int
		fault   string
	}{
		"open":              {list(open), list(open), 8, ""},
		"fixed and alone":   {list(fixed), list(fixed), 1, ""},
		"fixed input":       {list(fixed), list(open), 8, `m: max_batch is 8, but its queries cannot be batched: the first dimension of its input "x" is fixed at 1; leave max_batch out, or export the model with one open batch dimension for all inputs and outputs`},
		"fixed output":      {list(open), list(fixed), 8, `its output "x" is fixed at 1`},
		"scalar":            {list(spec("x", models.Int8)), nil, 2, `its input "x" has no dimensions`},
		"output of no rank": {list(open), list(models.TensorSpec{Name: "y", Type: models.Type{Kind: models.KindTensor, Elem: models.Int8}}), 2, `the shape of its output "y"`},
		"two names":         {list(named("a", "N"), named("b", "M")), nil, 2, `inputs "a" and "b" have different names`},
		"no inputs":         {nil, list(open), 2, "no inputs"},
		"cannot be carried": {list(spec("x", models.Complex64, 1)), nil, 1, `m: input "x": the protocol does not support`},
	} {
		_, err := CheckModel("m", tt.in, tt.out, tt.most)
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A model that is refused leaves the service as it was.
func TestLoadedKeepsTheModelBefore(t *testing.T) {
	s := NewService(0, "s")
	s.SetReady(true)
	if s.Ready() || s.Mergeable() {
		t.Error("a service without a model is ready")
	}
	good := Info{Inputs: []models.TensorSpec{spec("x", models.Int8, -2)}, Outputs: []models.TensorSpec{spec("y", models.Int8, -2)}}
	if err := s.Loaded(good); err != nil {
		t.Fatal(err)
	}
	before := s.Signature()
	if err := s.Loaded(Info{Inputs: []models.TensorSpec{spec("x", models.Complex64)}}); err == nil {
		t.Error("a complex input was taken")
	}
	if s.Signature() != before || !s.Ready() || !s.Mergeable() {
		t.Error("the model before is gone")
	}
}

func spec(name string, t models.DataType, shape ...int64) models.TensorSpec {
	d := make([]models.Dim, len(shape))
	for i, v := range shape {
		d[i].Value = v
		if v < -1 {
			d[i] = models.Dim{Value: -1, Name: fmt.Sprintf("n%d", -v)}
		}
	}
	return models.TensorSpec{Name: name, Type: models.TensorType(t, d...)}
}
