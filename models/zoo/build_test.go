package zoo

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const seed = 42

// build builds tiny_mlp in dir and reports whether it was written.
func build(t *testing.T, dir string, seed uint64) (path string, written bool) {
	t.Helper()
	path, err := Build("tiny_mlp", dir, seed, func(int64, int64) { written = true })
	if err != nil {
		t.Fatal(err)
	}
	checkFolder(t, dir, "tiny_mlp.onnx")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, write(t, lookup(t, "tiny_mlp"), seed)) {
		t.Error("the file is not what Write writes")
	}
	return path, written
}

// checkFolder fails unless dir holds exactly the named entries.
func checkFolder(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) != len(want) {
		t.Fatalf("the folder holds %v, want %v", names, want)
	}
	for i := range want {
		if names[i] != want[i] {
			t.Fatalf("the folder holds %v, want %v", names, want)
		}
	}
}

func TestBuild(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	path, written := build(t, dir, seed)
	if !written || path != filepath.Join(dir, "tiny_mlp.onnx") {
		t.Errorf("path %s, written %v", path, written)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
	if _, written := build(t, dir, seed); written {
		t.Error("a right file was written again")
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(info, after) {
		t.Error("a right file was replaced")
	}
	if _, written := build(t, dir, seed+1); !written {
		t.Error("the file of another seed was taken")
	}
}

func TestBuildReplacesWrongFile(t *testing.T) {
	right := write(t, lookup(t, "tiny_mlp"), seed)
	head := len(encode(lookup(t, "tiny_mlp").graph(), seed).head)
	altered := func(at int) []byte {
		b := bytes.Clone(right)
		b[at] ^= 1
		return b
	}
	for name, content := range map[string][]byte{
		"empty":     {},
		"truncated": right[:len(right)-1],
		"longer":    append(bytes.Clone(right), 0),
		"first":     altered(0),
		"head":      altered(head - 1),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "tiny_mlp.onnx"), content, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, written := build(t, dir, seed); !written {
				t.Error("a wrong file was taken")
			}
		})
	}
}

func TestBuildOfUnknown(t *testing.T) {
	dir := t.TempDir()
	if _, err := Build("../tiny_mlp", dir, seed, nil); !errors.Is(err, errUnknown) {
		t.Errorf("got %v", err)
	}
	checkFolder(t, dir)
}

func TestBuildLeavesNothingOnError(t *testing.T) {
	t.Run("folder is a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Build("tiny_mlp", file, seed, nil); err == nil {
			t.Error("no error")
		}
	})
	t.Run("file is a folder", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "tiny_mlp.onnx"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := Build("tiny_mlp", dir, seed, nil); err == nil {
			t.Error("no error")
		}
		checkFolder(t, dir, "tiny_mlp.onnx")
	})
}

// The old file must stay until the new one is whole.
func TestBuildKeepsOldFileMeanwhile(t *testing.T) {
	dir := t.TempDir()
	path, _ := build(t, dir, seed)
	old := write(t, lookup(t, "tiny_mlp"), seed)
	steps := 0
	_, err := Build("tiny_mlp", dir, seed+1, func(int64, int64) {
		steps++
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, old) {
			t.Errorf("step %d: the old file is gone: %v", steps, err)
		}
	})
	if err != nil || steps == 0 {
		t.Fatalf("%d steps, %v", steps, err)
	}
}
