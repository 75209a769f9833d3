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
