// Package fakeops builds a library of custom operators of ONNX Runtime, for tests. Its
// operators are Double and Crash of [Domain]; see operators.c.
package fakeops

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed testdata/operators.c
var source string

// Domain is the domain of the operators.
const Domain = "test.ops"

// Build compiles the library, with macros of operators.c defined, and returns its path. It
// skips the test if there is no C compiler.
func Build(t testing.TB, macros ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler to build a library with")
	}
	path := filepath.Join(t.TempDir(), "libtestops.so")
	args := []string{"-shared", "-fPIC", "-O1", "-o", path, "-x", "c"}
	for _, macro := range macros {
		args = append(args, "-D"+macro)
	}
	command := exec.Command(compiler, append(args, "-")...)
	command.Stdin = strings.NewReader(source)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("compiling a library: %v: %s", err, out)
	}
	return path
}
