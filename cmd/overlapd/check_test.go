package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/overlapd/overlapd/ort"
)

// TestExamplesPassCheck runs check on every example. Where there is no ONNX
// Runtime, that is all it may complain of.
func TestExamplesPassCheck(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join("..", "..", "docs", "examples", "*.toml"))
	if err != nil || len(examples) < 3 {
		t.Fatalf("only %q, %v", examples, err)
	}
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	for _, path := range examples {
		var out bytes.Buffer
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"check", path})
		if err := cmd.Execute(); err != nil && !errors.Is(err, ort.ErrNotFound) {
			t.Errorf("checking %s: %v\n%s", path, err, &out)
		}
		if !bytes.Contains(out.Bytes(), []byte("[[service]]")) {
			t.Errorf("%s: the effective configuration was not printed:\n%s", path, &out)
		}
	}
}
