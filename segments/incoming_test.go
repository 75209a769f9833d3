package segments

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// A worker that is killed while it optimizes leaves a file as large as its model.
// The next one that optimizes removes it, but not what another may be at.
func TestCacheForgetsTheKilled(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-2 * incomingGrace)
	files := map[string]*os.File{}
	for _, name := range []string{".incoming-dead.onnx", ".incoming-dead.onnx.bridged", ".incoming-new.onnx", "other.onnx"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[name] = f
		if name == ".incoming-new.onnx" {
			continue
		}
		if err := os.Chtimes(f.Name(), long, long); err != nil {
			t.Fatal(err)
		}
	}
	g := xGraph()
	g.node("Relu", list("x"), list("y"))
	g.output("y", models.Float32)
	openCut(t, openEnv(t), Config{Path: g.write(t), CacheDir: dir})
	for name, f := range files {
		dead := name == ".incoming-dead.onnx" || name == ".incoming-dead.onnx.bridged"
		if _, err := os.Stat(f.Name()); os.IsNotExist(err) != dead {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".incoming-*")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}
