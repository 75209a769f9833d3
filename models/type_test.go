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
