package models

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// derive writes a model with these initializers to a folder of its own, and opens it as one
// that was made of f.
func derive(t *testing.T, f *File, initializers ...pb) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "derived.onnx")
	write(t, path, withInitializers(initializers...))
	write(t, filepath.Join(filepath.Dir(path), "beside"), []byte("beside__"))
	d, err := f.OpenDerived(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// A derived model finds its data in the files of the other one, in that one itself, and
// beside it.
func TestOpenDerived(t *testing.T) {
	inside := testTensor("inside", Float32, 2).sub(9, pb("inside__"))
	path := externalModel(t, withInitializers(testExternal("a", "location", "data"), inside))
	f := mustOpen(t, path)
	outside := pb(f.Outside(f.Graph.Initializers[1]))
	if d := derive(t, f, testExternal("a", "location", "data", "offset", "8"), outside); d.Folder() != filepath.Dir(path) {
		t.Errorf("the data lie in %s", d.Folder())
	} else {
		for i, want := range []string{"89abcdef", "inside__"} {
			if got := string(d.Data(d.Graph.Initializers[i])); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		dst := make([]byte, 8)
		read := int64(0)
		d.Copy(dst, d.Graph.Initializers[1], func(n int64) { read += n })
		if string(dst) != "inside__" || read != 8 {
			t.Errorf("copied %d bytes: %q", read, dst)
		}
	}
	d := derive(t, f, testExternal("b", "location", "beside"))
	if got := string(d.Data(d.Graph.Initializers[0])); got != "beside__" || d.Folder() != filepath.Dir(d.Path) {
		t.Errorf("%q in %s", got, d.Folder())
	}
}

// Unchanged sees what becomes of every file that was opened, by name.
func TestUnchanged(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"removed": os.Remove,
		"written": func(path string) error { return os.WriteFile(path, []byte("other data, and more"), 0o600) },
		"replaced": func(path string) error {
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".new", data, 0o600)
			}
			if err == nil {
				err = os.Rename(path+".new", path)
			}
			return err
		},
	} {
		for _, file := range []string{"data", "m.onnx"} {
			path := externalModel(t, withInitializers(testExternal("a", "location", "data")))
			f := mustOpen(t, path)
			if err := f.Unchanged(); err != nil {
				t.Fatal(err)
			}
			if err := change(filepath.Join(filepath.Dir(path), file)); err != nil {
				t.Fatal(err)
			}
			if err := f.Unchanged(); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%s %s: %v", file, name, err)
			}
		}
	}
}
