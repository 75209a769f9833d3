package models

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fuzzLimits are low, so that the fuzzer reaches them.
func fuzzLimits() limits {
	l := defaultLimits()
	l.FileBytes, l.DenseBytes = 1<<16, 1<<12
	l.Nodes, l.Depth, l.Functions, l.NameBytes, l.Rank = 200, 4, 8, 64, 8
	return l
}

// fuzzSeeds are small models that use all of the format.
func fuzzSeeds() []pb {
	relu := testNode("Relu", "x", "y")
	sparse := pb(nil).sub(1, testTensor("s", Float32, 1).sub(9, make(pb, 4))).
		sub(2, testTensor("", Int64, 1).sub(9, raw64(2))).int(3, 4)
	item := TensorType(Float32, Dim{Value: 2}, Dim{Value: -1})
	types := pb(nil)
	for i, kind := range []Kind{KindSequence, KindOptional, KindMap} {
		types = types.sub(11, AppendValueInfo(nil, string(rune('a'+i)), Type{Kind: kind, Key: Int64, Item: &item}))
	}
	return []pb{
		testModel(nil),
		testModel(testGraph("x", "y", relu)),
		testModel(testGraph("x", "z", relu, testNode("Add", "y w", "z")).
			sub(5, testTensor("w", Float32, 2).sub(9, make(pb, 8))).sub(13, testValue("y"))),
		testModel(pb(nil).sub(5, testTensor("w", Int64, 2).sub(7, pb{1, 2})).
			sub(5, testTensor("v", Float32, 2).sub(4, make(pb, 8))).
			sub(5, testTensor("u", String, 1).str(6, "text")).
			sub(5, testTensor("t", 22, 3).sub(5, pb{1, 2}))),
		testModel(pb(nil).sub(15, sparse)),
		testModel(testGraph("x", "y", testNode("Constant", "", "c", pb(nil).str(1, "sparse_value").sub(22, sparse).int(20, 11)), relu)),
		testModel(types),
		testModel(testGraph("x", "y", testNode("If", "x", "y",
			graphAttribute("then_branch", testGraph("", "z", testNode("Relu", "x", "z")))))),
		testModel(testGraph("x", "y", call("f", "x", "y"))).sub(25, testFunction("f", relu)),
		withInitializers(testExternal("w", "location", "data", "offset", "0", "length", "8")),
		testModel(testGraph("x", "y", testNode("Relu", "z", "y"), testNode("Relu", "x", "z"))),
		testModel(testGraph("x", "y", testNode("ZipMap", "x", "y", pb(nil).str(1, "classlabels_int64s").int(8, 3).int(8, 5).int(20, 7)).str(7, mlDomain))),
		testModel(nil).sub(14, pb(nil).str(1, "key").str(2, "value")),
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range fuzzSeeds() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var file *File
		var err error
		if n := allocated(func() { file, err = parse(data, fuzzLimits(), nil) }); n > 1<<20+uint64(len(data))<<9 {
			t.Fatalf("%d bytes allocated to read %d", n, len(data))
		}
		if err != nil {
			wantRefused(t, err, errors.Unwrap(err))
			return
		}
		checkReassembly(t, file)
		checkUse(t, file)
	})
}

// checkReassembly verifies that a model put together from the parts of file
// reads as file did.
func checkReassembly(t *testing.T, file *File) {
	parts := file.Parts()
	data := parts.Append(nil)
	if len(data) != parts.Size() {
		t.Fatalf("%d bytes appended, Size says %d", len(data), parts.Size())
	}
	again, err := Parse(data)
	if err != nil {
		t.Fatalf("parts of what was read are refused: %v", err)
	}
	if !bytes.Equal(again.Parts().Append(nil), data) {
		t.Fatal("parts of the parts differ")
	}
	// Dense initializers come before sparse ones in Parts.
	ignore := cmp.FilterPath(func(p cmp.Path) bool {
		return p.String() == "Initializers"
	}, cmp.Ignore())
	if d := cmp.Diff(file.Graph, again.Graph, ignore); d != "" {
		t.Fatal(d)
	}
}

// checkUse reads what is decoded late.
func checkUse(t *testing.T, file *File) {
	if n := len(file.Graph.Index().AliveBefore()); n != len(file.Graph.Nodes)+1 {
		t.Fatalf("%d cuts of %d nodes", n, len(file.Graph.Nodes))
	}
	for _, i := range file.Graph.Initializers {
		file.Inline(i)
	}
	file.Model(file.Hash())
	_ = file.CheckOperators() // it finds what it finds
}
