package models

import "testing"

func TestProtocolTypes(t *testing.T) {
	carried := 0
	for d := Undefined; d <= BFloat16; d++ {
		name := d.Protocol()
		if name == "" {
			continue
		}
		carried++
		if back, ok := ProtocolType(name); !ok || back != d {
			t.Errorf("%s is called %s, which is called %s", d, name, back)
		}
		if d != String && d.Bytes() == 0 {
			t.Errorf("%s has no size", d)
		}
	}
	if carried != 14 {
		t.Errorf("the protocol carries %d types, want 14", carried)
	}
	for _, name := range []string{"", "fp32", "FP8"} {
		if d, ok := ProtocolType(name); ok {
			t.Errorf("%q is %s", name, d)
		}
	}
}

func TestTypesWithoutAName(t *testing.T) {
	for _, d := range []DataType{-1, BFloat16 + 1, 1 << 30} {
		if d.Bytes() != 0 || d.Protocol() != "" || d.String() == "" {
			t.Errorf("%d: %q, %d bytes, %q", int32(d), d, d.Bytes(), d.Protocol())
		}
	}
}

func TestTypeString(t *testing.T) {
	tensor := TensorType(Float16, Dim{Value: -1, Name: "N"}, Dim{Value: 3}, Dim{Value: -1})
	for want, ty := range map[string]Type{
		"float16[N,3,?]":                 tensor,
		"int64":                          {Kind: KindTensor, Elem: Int64},
		"float32[]":                      TensorType(Float32),
		"sequence(float16[N,3,?])":       {Kind: KindSequence, Item: &tensor},
		"optional(float16[N,3,?])":       {Kind: KindOptional, Item: &tensor},
		"map(int64,float16[N,3,?])":      {Kind: KindMap, Key: Int64, Item: &tensor},
		"unknown":                        {},
		"type 17":                        {Kind: KindTensor, Elem: 17},
		"optional(sequence(type 22[2]))": {Kind: KindOptional, Item: &Type{Kind: KindSequence, Item: &Type{Kind: KindTensor, Elem: 22, HasShape: true, Shape: []Dim{{Value: 2}}}}},
	} {
		if got := ty.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
