package driver

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestResultKinds(t *testing.T) {
	for _, c := range []struct {
		r                  Result
		memory, dead, gone bool
	}{
		{Success, false, false, false},
		{InvalidValue, false, false, false},
		{OutOfMemory, true, false, false},
		{NotReady, false, false, false},
		{712, false, false, false}, // pinned already
		{700, false, true, false},
		{719, false, true, false},
		{710, false, true, false},
		{214, false, true, true},
		{MPSConnectionFailed, false, true, true},
		{806, false, true, true},
		{999, false, true, true},
	} {
		if c.r.OutOfMemory() != c.memory || c.r.Sticky() != c.dead || c.r.DeviceLost() != c.gone {
			t.Errorf("%v: out of memory %t, sticky %t, lost %t", c.r, c.r.OutOfMemory(), c.r.Sticky(), c.r.DeviceLost())
		}
	}
}

func TestResultIsFoundInErrors(t *testing.T) {
	c := openContext(t)
	_, err := c.Alloc(1 << 30)
	var r Result
	if !errors.As(err, &r) || !r.OutOfMemory() || !strings.Contains(err.Error(), "cuMemAlloc of 1073741824 bytes") {
		t.Errorf("too much memory: %v", err)
	}
	if _, err := c.Alloc(0); !errors.Is(err, InvalidValue) {
		t.Errorf("no memory: %v", err)
	}
}

// TestResultTable holds the table that people read to the sentences in use, each
// with a remedy.
func TestResultTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/gpu-errors.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), resultTable()) {
		t.Errorf("docs/gpu-errors.md does not hold this table:\n%s", resultTable())
	}
	for r := range results {
		if r != Success && !strings.Contains(r.Error(), "; ") {
			t.Errorf("no remedy in %q", r.Error())
		}
	}
	if got := Result(12345).Error(); !strings.Contains(got, "please report") {
		t.Errorf("a result without a name: %q", got)
	}
}

// resultTable returns the results that have a name here, their sentences and what
// becomes of the worker as a Markdown table, as the documentation has it.
func resultTable() string {
	var b strings.Builder
	b.WriteString("| the CUDA driver says | it means, and what to do | the worker |\n|---|---|---|\n")
	for _, r := range slices.Sorted(maps.Keys(results)) {
		becomes := "goes on"
		switch {
		case r == Success:
			continue
		case r.DeviceLost():
			becomes = "ends; others may fail alike"
		case r.Sticky(), r.OutOfMemory():
			becomes = "ends, and is started again"
		}
		_, sentence, _ := strings.Cut(r.Error(), ": ")
		fmt.Fprintf(&b, "| `%s` (%d) | %s | %s |\n", r.Name(), r, sentence, becomes)
	}
	return b.String()
}
