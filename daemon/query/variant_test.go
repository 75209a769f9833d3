package query

import (
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// Models can be variants of a service if a client does not notice which of them answers.
func TestDiffers(t *testing.T) {
	list := func(s ...models.TensorSpec) []models.TensorSpec { return s }
	x, y := spec("x", models.Float32, -2, 4), spec("y", models.Float32, -2, 10)
	renamed := models.TensorSpec{Name: "x", Type: models.TensorType(models.Float32, models.Dim{Value: -1, Name: "other"}, models.Dim{Value: 4})}
	anyShape := models.TensorSpec{Name: "x", Type: models.Type{Kind: models.KindTensor, Elem: models.Float32}}
	for name, tt := range map[string]struct {
		in, out []models.TensorSpec
		want    string // "" if they do not differ
	}{
		"alike":               {list(x), list(y), ""},
		"names of dimensions": {list(renamed), list(y), ""},
		"name":                {list(spec("z", models.Float32, -2, 4)), list(y), `but input 0 of this one is "z" FP32 [-1 4], of the first "x" FP32 [-1 4]`},
		"type":                {list(spec("x", models.Float16, -2, 4)), list(y), `input 0 of this one is "x" FP16 [-1 4], of the first "x" FP32`},
		"shape":               {list(x), list(spec("y", models.Float32, -2, 100)), `output 0 of this one is "y" FP32 [-1 100], of the first "y" FP32 [-1 10]`},
		"rank":                {list(spec("x", models.Float32, -2, 4, 1)), list(y), `[-1 4 1], of the first`},
		"no shape":            {list(anyShape), list(y), `"x" FP32 of any shape, of the first "x" FP32 [-1 4]`},
		"a fixed batch":       {list(spec("x", models.Float32, 1, 4)), list(y), `"x" FP32 [1 4], of the first`},
		"one more input":      {list(x, x), list(y), "this one has 2 inputs, the first 1"},
		"one more output":     {list(x), list(y, y), "this one has 2 outputs, the first 1"},
		"no output":           {list(x), nil, "this one has 0 outputs, the first 1"},
	} {
		first, err := CheckModel("first", list(x), list(y), 1)
		if err != nil {
			t.Fatal(err)
		}
		own, err := CheckModel("own", tt.in, tt.out, 1)
		if err != nil {
			t.Fatal(err)
		}
		err = first.Differs(own)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "variants of a service must have the same inputs and outputs, but ")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	two := func(first, second int64) *Signature {
		sig, err := CheckModel("two", list(spec("a", models.Int8, first), spec("b", models.Int8, second)), list(spec("y", models.Int8, -2)), 1)
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	const want = `queries of only one of the two can be batched: the first dimensions of its inputs "a" and "b" have different names`
	for _, err := range []error{two(-2, -2).Differs(two(-2, -3)), two(-2, -3).Differs(two(-2, -2))} {
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Error(err)
		}
	}
}

// A variant is found by SERVICE/VARIANT where the daemon is looked after, and no client can
// ask for it by that.
func TestRunning(t *testing.T) {
	own, front, plain := NewService(1, "f/a"), NewService(2, "f"), NewService(3, "p")
	front.Variants = []Variant{{Name: "a", Accuracy: 1, Service: own}, {Name: "b", Accuracy: 2}}
	var r Registry
	r.Publish([]*Service{plain, front})
	for name, want := range map[string]*Service{"f": front, "f/a": own, "f/b": nil, "f/c": nil, "p": plain, "p/a": nil, "a": nil, "": nil, "/": nil} {
		if got := r.Running(name); got != want {
			t.Errorf("%q is %v", name, got)
		}
	}
	if r.Service([]byte("f/a")) != nil {
		t.Error("a variant is published")
	}
	if got := front.Each(); len(got) != 1 || got[0] != own {
		t.Error(got)
	}
	if got := plain.Each(); len(got) != 1 || got[0] != plain {
		t.Error(got)
	}
	if got := InOrder([]*Service{plain, front}, []string{"f/a", "f/b", "p"}); got[0] != front {
		t.Error("services are not in the order of the configuration")
	}
}
