package models

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

// packed returns n varints of one byte each.
func packed(n int) pb { return make(pb, n) }

func TestPayloadFitsShape(t *testing.T) {
	for _, test := range []struct {
		name   string
		tensor pb
		bytes  int64 // -1 if it must be refused
	}{
		{"scalar", testTensor("w", Float32).sub(9, make(pb, 4)), 4},
		{"no elements", testTensor("w", Float32, 3, 0), 0},
		{"packed dims", pb(nil).str(8, "w").int(2, 1).sub(1, pb{2, 3}).sub(9, make(pb, 24)), 24},
		{"raw", testTensor("w", Float16, 2, 3).sub(9, make(pb, 12)), 12},
		{"raw too short", testTensor("w", Float32, 2).sub(9, make(pb, 7)), -1},
		{"raw too long", testTensor("w", Float32, 2).sub(9, make(pb, 9)), -1},
		{"raw missing", testTensor("w", Float32, 2), -1},
		{"raw of no elements", testTensor("w", Float32, 0).sub(9, nil), 0},
		{"floats", testTensor("w", Float32, 2).sub(4, make(pb, 8)), 8},
		{"floats one by one", protowire.AppendFixed32(protowire.AppendTag(testTensor("w", Float32, 1), 4, protowire.Fixed32Type), 1), 4},
		{"floats too few", testTensor("w", Float32, 2).sub(4, make(pb, 4)), -1},
		{"floats and raw", testTensor("w", Float32, 1).sub(4, make(pb, 4)).sub(9, make(pb, 4)), -1},
		{"floats for int64", testTensor("w", Int64, 1).sub(4, make(pb, 4)), -1},
		{"complex64", testTensor("w", Complex64, 2).sub(4, make(pb, 16)), 16},
		{"complex128", testTensor("w", Complex128, 2).sub(10, make(pb, 32)), 32},
		{"float64", testTensor("w", Float64, 2).sub(10, make(pb, 16)), 16},
		{"int32", testTensor("w", Int32, 3).sub(5, packed(3)), 12},
		{"bool", testTensor("w", Bool, 3).sub(5, packed(3)), 3},
		{"float16 as int32", testTensor("w", Float16, 3).sub(5, packed(3)), 6},
		{"int64", testTensor("w", Int64, 2).sub(7, packed(2)), 16},
		{"int64 one by one", testTensor("w", Int64, 2).int(7, -1).int(7, 5), 16},
		{"uint32", testTensor("w", Uint32, 2).sub(11, packed(2)), 8},
		{"float8", testTensor("w", 17, 3).sub(9, make(pb, 3)), 3},
		{"float8 as int32", testTensor("w", 20, 3).sub(5, packed(3)), 3},
		{"int4", testTensor("w", 22, 5).sub(9, make(pb, 3)), 3},
		{"int4 unpacked", testTensor("w", 22, 5).sub(9, make(pb, 5)), -1},
		{"int4 as int32", testTensor("w", 22, 5).sub(5, packed(3)), 3},
		{"uint2", testTensor("w", 25, 5).sub(9, make(pb, 2)), 2},
		{"strings", testTensor("w", String, 2).str(6, "ab").str(6, "cde"), 5},
		{"strings too few", testTensor("w", String, 2).str(6, "ab"), -1},
		{"strings as raw", testTensor("w", String, 2).sub(9, make(pb, 2)), -1},
		{"undefined type", testTensor("w", Undefined, 0), -1},
		{"float6", testTensor("w", 27, 5).sub(9, make(pb, 4)), 4},
		{"float6 as int32", testTensor("w", 28, 5).sub(5, packed(5)), 4},
		{"unknown type", testTensor("w", 29, 0), -1},
		{"negative type", testTensor("w", -1, 0), -1},
		{"negative dimension", testTensor("w", Float32, -1), -1},
		{"segments", testTensor("w", Float32, 0).sub(3, nil), -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := testModel(pb(nil).sub(5, test.tensor))
			if test.bytes < 0 {
				wantParseRefused(t, data, errGraph, `initializer "w"`)
				return
			}
			if got := mustParse(t, data).Graph.Initializers[0].Bytes; got != test.bytes {
				t.Errorf("%d bytes, want %d", got, test.bytes)
			}
		})
	}
}

func TestShapeOverflow(t *testing.T) {
	for _, dims := range [][]int64{
		{math.MaxInt64}, {1 << 32, 1 << 32}, {1 << 31, 1 << 31, 4}, {0, 1 << 40, 1 << 40}, {1 << 62, 4},
	} {
		wantParseRefused(t, testModel(pb(nil).sub(5, testTensor("w", Int8, dims...))), ErrLimit, `"w"`)
		s := pb(nil).sub(1, testTensor("s", Int8, 0))
		for _, d := range dims {
			s = s.int(3, d)
		}
		wantParseRefused(t, testModel(pb(nil).sub(15, s)), ErrLimit, `"s"`)
	}
}

func TestSparse(t *testing.T) {
	values := testTensor("s", Float32, 2).sub(9, make(pb, 8))
	indices := testTensor("", Int64, 2).sub(9, raw64(1, 5))
	f := mustParse(t, testModel(pb(nil).sub(15, pb(nil).sub(1, values).sub(2, indices).int(3, 2).int(3, 3))))
	i := f.Graph.Initializers[0]
	if d := cmp.Diff([]int64{2, 3}, i.Dims); d != "" || !i.Sparse || i.Name != "s" || i.Type != Float32 || i.Bytes != 24 {
		t.Errorf("%+v: %s", i, d)
	}
	for name, s := range map[string]pb{
		"no values":            pb(nil).int(3, 2),
		"no indices":           pb(nil).sub(1, values).int(3, 6),
		"too many values":      pb(nil).sub(1, values).sub(2, indices).int(3, 1),
		"values of rank 2":     pb(nil).sub(1, testTensor("s", Float32, 1, 2).sub(9, make(pb, 8))).sub(2, indices).int(3, 6),
		"too few indices":      pb(nil).sub(1, values).sub(2, testTensor("", Int64, 1).sub(9, raw64(1))).int(3, 6),
		"indices of float32":   pb(nil).sub(1, values).sub(2, testTensor("", Float32, 2).sub(9, make(pb, 8))).int(3, 6),
		"indices of rank 3":    pb(nil).sub(1, values).sub(2, testTensor("", Int64, 2, 1, 1).sub(9, raw64(1, 2))).int(3, 6),
		"indices of other len": pb(nil).sub(1, values).sub(2, testTensor("", Int64, 2, 1).sub(9, raw64(1, 2))).int(3, 2).int(3, 3),
	} {
		t.Run(name, func(t *testing.T) { wantParseRefused(t, testModel(pb(nil).sub(15, s)), errGraph) })
	}
}

func TestNarrowSparseIndices(t *testing.T) {
	values := testTensor("s", Float32, 2).sub(9, make(pb, 8))
	for bytes, index := range map[int]DataType{1: Int8, 2: Int16, 4: Int32} {
		indices := testTensor("", index, 2).sub(9, make(pb, 2*bytes))
		mustParse(t, testModel(pb(nil).sub(15, pb(nil).sub(1, values).sub(2, indices).int(3, 6))))
	}
}
