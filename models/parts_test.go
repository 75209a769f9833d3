package models

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPartsPassBytesOn(t *testing.T) {
	sparse := pb(nil).sub(1, testTensor("s", Float32, 0)).int(3, 4)
	f := mustParse(t, testModel(testGraph("x", "y", call("f", "x", "h"), testNode("Add", "h w", "y")).
		sub(5, testTensor("w", Float32, 0)).sub(15, sparse)).
		sub(25, testFunction("f", testNode("Relu", "x", "y"))))
	p := f.Parts()
	prefix := []byte("before")
	data := p.Append(bytes.Clone(prefix))
	if !bytes.HasPrefix(data, prefix) || len(data) != len(prefix)+p.Size() {
		t.Fatalf("%d bytes appended, Size says %d", len(data)-len(prefix), p.Size())
	}
	again := mustParse(t, data[len(prefix):])
	if d := cmp.Diff(p, again.Parts()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(f.Graph.Nodes, again.Graph.Nodes); d != "" {
		t.Error(d)
	}
}

func genType(depth int) *rapid.Generator[Type] {
	return rapid.Custom(func(t *rapid.T) Type {
		kinds := []Kind{KindTensor, KindSparseTensor}
		if depth > 0 {
			kinds = append(kinds, KindSequence, KindOptional, KindMap)
		}
		ty := Type{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
		switch ty.Kind {
		case KindTensor, KindSparseTensor:
			ty.Elem = DataType(rapid.Int32Range(1, 26).Draw(t, "elem"))
			ty.HasShape = rapid.Bool().Draw(t, "has shape")
			if ty.HasShape {
				ty.Shape = rapid.SliceOfN(genDim(), 0, 4).Draw(t, "shape")
			}
			return ty
		case KindMap:
			ty.Key = Int64
		}
		item := genType(depth-1).Draw(t, "item")
		ty.Item = &item
		return ty
	})
}

func genDim() *rapid.Generator[Dim] {
	return rapid.OneOf(
		rapid.Map(rapid.Int64Range(0, 1<<40), func(n int64) Dim { return Dim{Value: n} }),
		rapid.Just(Dim{Value: -1}),
		rapid.Just(Dim{Value: -1, Name: "batch"}),
	)
}

func TestValueInfoOfEveryTypeReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genType(3).Draw(t, "type")
		f, err := Parse(testModel(pb(nil).sub(11, AppendValueInfo(nil, "x", want))))
		if err != nil {
			t.Fatal(err)
		}
		got := f.Graph.Inputs[0].Type
		if got.String() != want.String() || got.Kind != want.Kind {
			t.Fatalf("got %s, want %s", got, want)
		}
		if !bytes.Equal(AppendValueInfo(nil, "x", got), AppendValueInfo(nil, "x", want)) {
			t.Fatalf("%s is written differently once read", want)
		}
	})
}

func TestTypeOfTwoKindsIsRefused(t *testing.T) {
	ty := pb(nil).sub(1, pb(nil).int(1, 1)).sub(4, nil)
	wantParseRefused(t, testModel(pb(nil).sub(11, pb(nil).str(1, "x").sub(2, ty))), ErrNotONNX, `"x"`, "two kinds")
}

func TestNegativeDimensionIsNotFixed(t *testing.T) {
	shape := pb(nil).sub(1, pb(nil).int(1, -1)).sub(1, pb(nil).int(1, -9))
	ty := pb(nil).sub(1, pb(nil).int(1, 1).sub(2, shape))
	f := mustParse(t, testModel(pb(nil).sub(11, pb(nil).str(1, "x").sub(2, ty))))
	if got := f.Graph.Inputs[0].Type.String(); got != "float32[?,?]" {
		t.Errorf("got %s", got)
	}
}
