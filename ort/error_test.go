package ort

import (
	"errors"
	"fmt"
	"testing"
)

func TestError(t *testing.T) {
	for _, test := range []struct {
		err  *Error
		want string
	}{
		{&Error{codeName(10), "no such node"}, "ONNX Runtime: invalid graph: no such node"},
		{&Error{codeName(1), ""}, "ONNX Runtime: fail"},
		{&Error{codeName(99), "new"}, "ONNX Runtime: code 99: new"},
		{&Error{codeName(-1), ""}, "ONNX Runtime: code -1"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	var said *Error
	if !errors.As(fmt.Errorf("step 1: %w", &Error{Code: "not found"}), &said) || said.Code != "not found" {
		t.Error("the error is lost when it is wrapped")
	}
}

func TestNames(t *testing.T) {
	for want, name := range map[string]fmt.Stringer{
		"float32":       Float32,
		"bfloat16":      BFloat16,
		"int2":          Int2,
		"type 99":       ElementType(99),
		"type -1":       ElementType(-1),
		"sparse tensor": KindSparseTensor,
		"optional":      KindOptional,
		"kind 99":       Kind(99),
		"kind -1":       Kind(-1),
	} {
		if got := name.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if BFloat16 != 16 || String != 8 {
		t.Error("the element types are not numbered as in ONNX")
	}
}
