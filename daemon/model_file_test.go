package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
)

func TestRewritten(t *testing.T) {
	dir := t.TempDir()
	add, err := zoo.Build("tiny_add", dir, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	mlp, err := zoo.Build("tiny_mlp", dir, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := hashModel(t.Context(), add, time.Minute)
	if err != nil || len(hash) != 64 {
		t.Fatalf("hash %q, %v", hash, err)
	}
	absent := filepath.Join(dir, "absent.onnx")
	for _, test := range []struct {
		model, hash string
		want        bool
	}{
		{add, hash, false}, {add, "", true}, {mlp, hash, true}, {absent, hash, true},
		{"zoo:tiny_add", "", false}, {"emulated:bert", "", false},
	} {
		if got, _ := rewritten(t.Context(), test.model, test.hash, time.Minute); got != test.want {
			t.Errorf("rewritten(%q, %q) = %t", test.model, test.hash, got)
		}
	}
	if err := os.Rename(mlp, add); err != nil {
		t.Fatal(err)
	}
	if is, err := rewritten(t.Context(), add, hash, time.Minute); !is || err != nil {
		t.Error("another file at the same path is taken for the same")
	}
	if _, err := hashModel(t.Context(), absent, time.Minute); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A model that is cut short while it is read must not end the daemon.
func TestModelCutShort(t *testing.T) {
	path, err := zoo.Build("tiny_cnn", t.TempDir(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = readModel(t.Context(), path, time.Minute, func(f *models.File) string {
		if err := os.Truncate(path, 0); err != nil {
			t.Error(err)
		}
		return f.Hash()
	})
	if !errors.Is(err, errModelInMotion) {
		t.Errorf("got %v", err)
	}
}

// What is wrong with a file is a fault of the configuration; that it cannot be read is not.
func TestCheckModels(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.onnx")
	writeFile(t, page, "<html>")
	good, err := zoo.Build("tiny_add", dir, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	service := func(name, model string) config.Service { return config.Service{Name: name, Model: model, MaxBatch: 4} }
	c := config.Default()
	c.Services = []config.Service{service("good", good), service("zoo", "zoo:tiny_add")}
	if err := CheckModels(&c); err != nil {
		t.Error(err)
	}
	c.Services = append(c.Services, service("late", filepath.Join(dir, "late.onnx")))
	err = CheckModels(&c)
	if _, faulty := errors.AsType[config.Faults](err); faulty || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	c.Services = append(c.Services, service("page", page))
	err = CheckModels(&c)
	if faults, faulty := errors.AsType[config.Faults](err); !faulty || len(faults) != 1 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a page as well: %v", err)
	}
}

// Variants that differ for clients are refused before anything is loaded, with what differs.
func TestCheckVariants(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"tiny_mlp", "tiny_add"} {
		path, err := zoo.Build(name, dir, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	service := config.Service{Name: "s", MaxBatch: 1, Variants: []config.Variant{{Model: paths[0], Accuracy: 1}, {Name: "copy", Model: paths[0], Accuracy: 2}}}
	c := config.Default()
	c.Services = []config.Service{service}
	if err := CheckModels(&c); err != nil {
		t.Error(err)
	}
	c.Services[0].Variants[1] = config.Variant{Model: paths[1], Accuracy: 2}
	err := CheckModels(&c)
	const want = "service s/tiny_add: its model is invalid: variants of a service must have the same inputs and outputs, but this one has 2 inputs, the first 1"
	if faults, faulty := errors.AsType[config.Faults](err); !faulty || len(faults) != 1 || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
