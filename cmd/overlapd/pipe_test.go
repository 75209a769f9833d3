package main

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Standard error whose reader has gone gives an error, not the end of the
// program. The test's own is put aside for it: the rule holds for descriptors 1
// and 2 only.
func TestOutliveLog(t *testing.T) {
	defer outliveLog()()
	keep, err := unix.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(keep)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	if err := unix.Dup3(int(w.Fd()), 2, 0); err != nil {
		t.Fatal(err)
	}
	_, werr := os.Stderr.WriteString("nobody reads this\n")
	if err := unix.Dup3(keep, 2, 0); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(werr, unix.EPIPE) {
		t.Errorf("got %v", werr)
	}
}
