package conformance

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

func field(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func varint(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// typed is a TensorProto of two elements whose data stand in a typed field.
func typed(elem models.DataType, data []byte) []byte {
	return append(varint(varint(nil, 1, 2), 2, uint64(elem)), data...)
}

func TestParseTensor(t *testing.T) {
	for name, test := range map[string]struct {
		raw  []byte
		want []byte
	}{
		"raw":           {tensor("x", models.Int16, []int64{2}, []byte{1, 0, 2, 0}), []byte{1, 0, 2, 0}},
		"packed floats": {typed(models.Float32, field(nil, 4, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40})), []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}},
		"single floats": {typed(models.Float32, protowire.AppendFixed32(protowire.AppendTag(protowire.AppendFixed32(
			protowire.AppendTag(nil, 4, protowire.Fixed32Type), 1), 4, protowire.Fixed32Type), 2)), []byte{1, 0, 0, 0, 2, 0, 0, 0}},
		"int32s":    {typed(models.Int32, field(nil, 5, []byte{1, 2})), []byte{1, 0, 0, 0, 2, 0, 0, 0}},
		"negative":  {typed(models.Int8, varint(varint(nil, 5, math.MaxUint64), 5, 3)), []byte{0xff, 3}},
		"bools":     {typed(models.Bool, field(nil, 5, []byte{1, 0})), []byte{1, 0}},
		"halves":    {typed(models.Float16, field(nil, 5, []byte{1, 2})), []byte{1, 0, 2, 0}},
		"int64s":    {typed(models.Int64, field(nil, 7, []byte{1, 2})), []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}},
		"uint32s":   {typed(models.Uint32, field(nil, 11, []byte{1, 2})), []byte{1, 0, 0, 0, 2, 0, 0, 0}},
		"doubles":   {typed(models.Float64, field(nil, 10, make([]byte, 16))), make([]byte, 16)},
		"complex64": {typed(models.Complex64, field(nil, 4, make([]byte, 16))), make([]byte, 16)},
	} {
		v, err := parseTensor(test.raw)
		if err != nil || !bytes.Equal(v.data, test.want) || len(v.dims) != 1 || v.dims[0] != 2 {
			t.Errorf("%s: %+v: %v, expected %x", name, v, err, test.want)
		}
	}
	v, err := parseTensor(typed(models.String, field(field(nil, 6, []byte("a")), 6, nil)))
	if err != nil || len(v.strings) != 2 || string(v.strings[0]) != "a" || len(v.strings[1]) != 0 {
		t.Errorf("strings: %q: %v", v.strings, err)
	}
	for name, raw := range map[string][]byte{
		"cut short":        tensor("x", models.Int16, []int64{2}, []byte{1, 0, 2, 0})[:8],
		"external":         typed(models.Float32, field(nil, 13, []byte{})),
		"numbers of int4":  typed(22, field(nil, 5, []byte{1})),
		"a field number 0": {0, 0},
	} {
		if v, err := parseTensor(raw); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestParseSequenceAndOptional(t *testing.T) {
	item := tensor("item", models.Int8, []int64{1}, []byte{7})
	sequence := field(field(field(nil, 1, []byte("s")), 3, item), 3, item)
	v, err := parseValue(sequence, ort.TypeInfo{Kind: ort.KindSequence})
	if err != nil || v.name != "s" || len(v.items) != 2 || v.items[1].data[0] != 7 {
		t.Errorf("sequence: %+v: %v", v, err)
	}
	optional := ort.TypeInfo{Kind: ort.KindOptional}
	if v, err = parseValue(field(nil, 3, item), optional); err != nil || v.kind != ort.KindTensor || v.data[0] != 7 {
		t.Errorf("optional tensor: %+v: %v", v, err)
	}
	if v, err = parseValue(field(field(nil, 1, []byte("o")), 5, sequence), optional); err != nil || v.kind != ort.KindSequence || v.name != "o" {
		t.Errorf("optional sequence: %+v: %v", v, err)
	}
	if v, err = parseValue(varint(nil, 2, 0), optional); err != nil || v.kind != ort.KindUnknown {
		t.Errorf("empty optional: %+v: %v", v, err)
	}
	for name, err := range map[string]error{
		"map":                   second(parseValue(nil, ort.TypeInfo{Kind: ort.KindMap})),
		"sequence of sequences": second(parseSequence(field(nil, 5, nil))),
		"optional map":          second(parseOptional(field(nil, 6, nil))),
	} {
		if err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func second(_ value, err error) error { return err }

func TestHalf(t *testing.T) {
	for bits, want := range map[uint16]float64{
		0: 0, 0x3c00: 1, 0xc000: -2, 0x3555: 0.333251953125, 0x7bff: 65504, 1: 5.960464477539063e-08,
		0x7c00: math.Inf(1), 0xfc00: math.Inf(-1),
	} {
		if got := half(bits); got != want {
			t.Errorf("%#x is %v, expected %v", bits, got, want)
		}
	}
	if !math.IsNaN(half(0x7e00)) {
		t.Error("0x7e00 is a number")
	}
}

func floats(values ...float32) value {
	v := value{kind: ort.KindTensor, elem: ort.Float32, dims: []int64{int64(len(values))}}
	for _, f := range values {
		v.data = protowire.AppendFixed32(v.data, math.Float32bits(f))
	}
	return v
}

func TestSame(t *testing.T) {
	nan := float32(math.NaN())
	text := func(s string) value {
		return value{kind: ort.KindTensor, elem: ort.String, dims: []int64{1}, strings: [][]byte{[]byte(s)}}
	}
	double := floats(1, 1)
	double.elem, double.dims = ort.Float64, []int64{1}
	for name, test := range map[string]struct {
		a, b        value
		exact, near bool
	}{
		"equal":                 {floats(1, nan), floats(1, nan), true, true},
		"near":                  {floats(1), floats(1.0005), false, true},
		"near zero":             {floats(0), floats(1e-5), false, true},
		"far":                   {floats(1), floats(1.1), false, false},
		"NaN and number":        {floats(nan), floats(1), false, false},
		"infinities":            {floats(float32(math.Inf(1))), floats(float32(math.Inf(-1))), false, false},
		"a number for infinity": {floats(5), floats(float32(math.Inf(1))), false, false},
		"another shape":         {floats(1), floats(1, 1), false, false},
		"another type":          {double, floats(1), false, false},
		"strings":               {text("a"), text("a"), true, true},
		"other strings":         {text("a"), text("b"), false, false},
		"another kind":          {floats(1), value{kind: ort.KindSequence}, false, false},
		"sequences":             {value{kind: ort.KindSequence, items: []value{floats(1)}}, value{kind: ort.KindSequence, items: []value{floats(1.0005)}}, false, true},
		"shorter ones":          {value{kind: ort.KindSequence}, value{kind: ort.KindSequence, items: []value{floats(1)}}, false, false},
		"empty optionals":       {value{}, value{}, true, true},
	} {
		if got := same(test.a, test.b, exact) == nil; got != test.exact {
			t.Errorf("%s: exactly the same: %t", name, got)
		}
		if got := same(test.a, test.b, near) == nil; got != test.near {
			t.Errorf("%s: nearly the same: %t", name, got)
		}
	}
}

func TestFind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	for _, path := range []string{"test_[a]/model.onnx", "test_[a]/test_data_set_0/input_0.pb", "test_[a]/test_data_set_1/input_0.pb",
		"light_b.onnx", "light_b_output_0.pb", "simple/1/model.onnx", "simple/config.pbtxt"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	models, err := find([]string{dir})
	if err != nil || len(models) != 3 {
		t.Fatalf("%+v: %v", models, err)
	}
	light, simple, test := models[0], models[1], models[2]
	if light.Name != "node/light_b" || filepath.Base(light.Output) != "light_b_output_0.pb" {
		t.Errorf("%+v", light)
	}
	if simple.Name != "node/simple/1" || simple.Output != "" || len(simple.Sets) != 0 {
		t.Errorf("%+v", simple)
	}
	if test.Name != "node/test_[a]" || len(test.Sets) != 2 || filepath.Base(test.Sets[1]) != "test_data_set_1" {
		t.Errorf("%+v", test)
	}
}
