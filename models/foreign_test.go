package models

import (
	"path/filepath"
	"testing"
)

// What is taken for a model by mistake is named, with what to do.
func TestForeignFiles(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 102400\n"
	dir := t.TempDir()
	for name, test := range map[string]struct{ data, says string }{
		"empty":       {"", "the file is empty"},
		"lfs":         {pointer, "git lfs pull"},
		"page":        {"\n\t<!DOCTYPE HTML>\n<html>", "HTML page"},
		"old page":    {"<HTML><HEAD>", "HTML page"},
		"pytorch":     {"PK\x03\x04\x00\x00\x08\x08", "zip archive"},
		"gzip":        {"\x1f\x8b\x08\x00", "gzip"},
		"zstd":        {"\x28\xb5\x2f\xfd\x00", "zstd"},
		"keras":       {"\x89HDF\r\n\x1a\n", "HDF5"},
		"gguf":        {"GGUF\x03\x00\x00\x00", "GGUF"},
		"safetensors": {"\x40\x00\x00\x00\x00\x00\x00\x00{\"a\":{}}", "safetensors"},
		"tflite":      {"\x1c\x00\x00\x00TFL3", "TensorFlow Lite"},
		"ort":         {"\x1c\x00\x00\x00ORTM", "own format"},
	} {
		path := filepath.Join(dir, name)
		write(t, path, []byte(test.data))
		_, err := Open(path)
		wantRefused(t, err, ErrNotONNX, path, test.says)
	}
	_, err := Open(dir)
	wantRefused(t, err, ErrNotONNX, dir, "it is a folder")

	path := externalModel(t, testModel(testGraph("x", "y", testNode("Add", "x w", "y")).
		sub(5, testTensor("w", Float32, 1000).sub(13, pb(nil).str(1, "location").str(2, "weights")).int(14, 1))))
	write(t, filepath.Join(filepath.Dir(path), "weights"), []byte(pointer))
	_, err = Open(path)
	wantRefused(t, err, ErrExternal, `initializer "w"`, `file "weights"`, "git lfs pull")
}

// Custom operators are found at any depth, and in functions, unless the model defines them.
func TestCheckOperators(t *testing.T) {
	foo := func(domain string) pb { return testNode("Foo", "x", "y").str(7, domain) }
	inner := func(domain string) pb {
		return testNode("If", "c", "y", graphAttribute("then_branch", testGraph("", "y", foo(domain))))
	}
	for name, test := range map[string]struct {
		model pb
		fine  bool
	}{
		"ONNX":                  {testModel(testGraph("x", "y", testNode("Relu", "x", "y").str(7, "ai.onnx"))), true},
		"ONNX Runtime's":        {testModel(testGraph("x", "y", foo("com.microsoft"))), true},
		"custom":                {testModel(testGraph("x", "y", foo("my.ops"))), false},
		"custom in a subgraph":  {testModel(testGraph("x c", "y", inner("my.ops"))), false},
		"custom in a function":  {testModel(testGraph("x", "y", call("f", "x", "y"))).sub(25, testFunction("f", foo("my.ops"))), false},
		"a function":            {testModel(testGraph("x", "y", call("f", "x", "y"))).sub(25, testFunction("f", testNode("Relu", "x", "y"))), true},
		"a function of nowhere": {testModel(testGraph("x", "y", call("f", "x", "y"))), false},
	} {
		err := mustParse(t, test.model).CheckOperators()
		switch {
		case test.fine && err != nil:
			t.Errorf("%s: %v", name, err)
		case !test.fine && name == "a function of nowhere":
			wantRefused(t, err, errOperator, `"f" of the domain "local"`)
		case !test.fine:
			wantRefused(t, err, errOperator, `"Foo" of the domain "my.ops"`)
		}
	}
}
