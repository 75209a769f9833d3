package gpucheck

import (
	"errors"
	"testing"
)

func TestFaults(t *testing.T) {
	var f faults
	if err := f.err(); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	f.add("a", errors.New("no device"))
	f.add("b", errors.New("too large"))
	f.add("c", errors.New("no device"))
	if got, want := f.err().Error(), "a and 1 more: no device\nb: too large"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
